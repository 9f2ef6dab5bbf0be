//! Turns the text of an Apple module into a module that a stock LLVM can lower for the host.
//!
//! The changes: the triple and data layout (the host's instead of `air64`), the empty constructor list, the names of
//! `llvm.fmuladd` and `air.dot`, whose meaning we define, and one more function, `oracle.lane`, which calls the kernel
//! with values from memory. No instruction of the kernel is changed.

use std::fmt::Write as _;

use metal_sim::Contraction;

/// Why a module cannot be run here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The text is not what llvm-dis prints for the known modules.
    #[error("{what} not found in the module of {kernel}")]
    Missing {
        kernel: String,
        /// The missing part.
        what: &'static str,
    },
    /// A parameter for which the runtime has no value.
    #[error(
        "parameter {index} of {kernel} is of a kind that the runtime does not provide: {metadata}"
    )]
    Parameter {
        kernel: String,
        /// Position in the parameter list.
        index: usize,
        /// The line of metadata.
        metadata: String,
    },
    /// A variable outside functions: function constants, threadgroup memory.
    #[error("{kernel} has a module-level variable, which the runtime does not provide: {line}")]
    Variable { kernel: String, line: String },
}

/// The source of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A buffer's address.
    Buffer {
        /// Index in the argument table.
        index: u32,
        /// 1 device, 2 constant.
        address_space: u32,
        /// Whether the kernel only reads it.
        read_only: bool,
        /// Size of the pointee in bytes.
        size: u32,
    },
    /// A value that differs by lane or threadgroup, by its name in runtime/air_kernel.cpp.
    Builtin(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// The name in the Metal source.
    pub(crate) name: String,
    /// The LLVM type.
    pub(crate) ir_type: String,
    pub(crate) source: Source,
}

impl Parameter {
    /// 32-bit words in the block that `oracle.lane` reads.
    fn words(&self) -> usize {
        if self.ir_type.starts_with("ptr") {
            2
        } else {
            4
        }
    }
}

/// A kernel that is ready to be lowered.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The host name.
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) module: String,
}

/// The built-in values that runtime/air_kernel.cpp provides: AIR's name, the runtime's name.
const BUILTINS: [(&str, &str); 5] = [
    (
        "air.threadgroup_position_in_grid",
        "kThreadgroupPositionInGrid",
    ),
    (
        "air.simdgroup_index_in_threadgroup",
        "kSimdgroupIndexInThreadgroup",
    ),
    ("air.thread_index_in_simdgroup", "kThreadIndexInSimdgroup"),
    (
        "air.quadgroup_index_in_threadgroup",
        "kQuadgroupIndexInThreadgroup",
    ),
    ("air.thread_index_in_quadgroup", "kThreadIndexInQuadgroup"),
];

impl Kernel {
    /// Reads the disassembly of `name`'s module and rewrites it.
    pub(crate) fn from_disassembly(
        name: &str,
        text: &str,
        contraction: Contraction,
    ) -> Result<Self, Error> {
        let types = parameter_types(name, text)?;
        let metadata = parameter_metadata(name, text)?;
        let parameters = types
            .into_iter()
            .zip(metadata)
            .enumerate()
            .map(|(index, (ir_type, metadata))| parameter(name, index, ir_type, metadata))
            .collect::<Result<Vec<_>, _>>()?;
        let mut module = rewrite(name, text, contraction)?;
        module.push_str(&lane_function(name, &parameters));
        Ok(Self {
            name: name.to_owned(),
            parameters,
            module,
        })
    }

    /// The tables that runtime/air_kernel.cpp includes as `AIR_KERNEL`.
    pub(crate) fn tables(&self) -> String {
        let (mut arguments, mut parameters, mut word) = (String::new(), String::new(), 0);
        for parameter in &self.parameters {
            let (kind, index) = match &parameter.source {
                Source::Buffer {
                    index,
                    address_space,
                    read_only,
                    size,
                } => {
                    let space = if *address_space == 1 {
                        "MTLSIM_DEVICE"
                    } else {
                        "MTLSIM_CONSTANT"
                    };
                    let read_only = u8::from(*read_only);
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        arguments,
                        "    {{\"{}\", {index}, {space}, {read_only}, {size}, 0, -1}},",
                        parameter.name
                    );
                    ("kBuffer", *index)
                }
                Source::Builtin(kind) => (*kind, 0),
            };
            let _ = writeln!(parameters, "    {{Kind::{kind}, {word}, {index}}},");
            word += parameter.words();
        }
        format!(
            "static const char kName[] = \"{}\";\n\
             static const char kSource[] = \"metallib\";\n\
             static const mtlsim_argument kArguments[] = {{\n{arguments}}};\n\
             static const Parameter kParameters[] = {{\n{parameters}}};\n\
             static constexpr uint32_t kWords = {word};\n",
            self.name
        )
    }
}

/// The types in the kernel's `define` line.
fn parameter_types(kernel: &str, text: &str) -> Result<Vec<String>, Error> {
    let missing = || Error::Missing {
        kernel: kernel.to_owned(),
        what: "the kernel's definition",
    };
    let symbol = format!("@{kernel}(");
    let line = text
        .lines()
        .find(|line| line.starts_with("define") && line.contains(&symbol))
        .ok_or_else(missing)?;
    let (_, list) = line.split_once(&symbol).ok_or_else(missing)?;
    Ok(split_top_level(list)
        .map(leading_type)
        .map(str::to_owned)
        .collect())
}

/// Splits at the commas of a parameter list, up to the parenthesis that closes it.
fn split_top_level(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut depth, mut quoted) = (0u32, false);
        for (at, character) in text.char_indices() {
            match character {
                '"' => quoted = !quoted,
                _ if quoted => {}
                '(' => depth += 1,
                ')' if depth == 0 => {
                    rest = None;
                    return Some(text[..at].trim());
                }
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    rest = Some(&text[at + 1..]);
                    return Some(text[..at].trim());
                }
                _ => {}
            }
        }
        rest = None;
        None
    })
}

/// The type before a parameter's attributes: `ptr addrspace(1)`, `<3 x i32>`, `i32`.
fn leading_type(parameter: &str) -> &str {
    let end = match parameter.strip_prefix("ptr addrspace(") {
        Some(rest) => rest
            .find(')')
            .map(|at| parameter.len() - rest.len() + at + 1),
        None if parameter.starts_with('<') => parameter.find('>').map(|at| at + 1),
        None => parameter.find(' '),
    };
    &parameter[..end.unwrap_or(parameter.len())]
}

/// The metadata line of each parameter: `!air.kernel` points to the kernel's node, whose third part lists them.
fn parameter_metadata<'a>(kernel: &str, text: &'a str) -> Result<Vec<&'a str>, Error> {
    let missing = |what| Error::Missing {
        kernel: kernel.to_owned(),
        what,
    };
    let node = |number: &str| {
        let start = format!("{number} = !{{");
        text.lines().find_map(|line| {
            line.strip_prefix(&start)
                .and_then(|rest| rest.strip_suffix('}'))
        })
    };
    let kernels = node("!air.kernel").ok_or_else(|| missing("!air.kernel"))?;
    let entry = node(kernels).ok_or_else(|| missing("the kernel's metadata"))?;
    let list = entry
        .rsplit(", ")
        .next()
        .and_then(node)
        .ok_or_else(|| missing("the parameters' metadata"))?;
    list.split(", ")
        .map(|number| node(number).ok_or_else(|| missing("a parameter's metadata")))
        .collect()
}

fn parameter(
    kernel: &str,
    index: usize,
    ir_type: String,
    metadata: &str,
) -> Result<Parameter, Error> {
    let fields: Vec<&str> = metadata
        .split(", ")
        .map(|field| field.trim_start_matches('!').trim_matches('"'))
        .collect();
    let after = |key: &str| {
        fields
            .iter()
            .position(|field| *field == key)
            .and_then(|at| fields.get(at + 1))
            .copied()
    };
    let number = |key| after(key).and_then(|field| field.trim_start_matches("i32 ").parse().ok());
    let unknown = || Error::Parameter {
        kernel: kernel.to_owned(),
        index,
        metadata: metadata.to_owned(),
    };
    let kind = *fields.get(1).ok_or_else(unknown)?;
    let source = if kind == "air.buffer" {
        Source::Buffer {
            index: number("air.location_index").ok_or_else(unknown)?,
            address_space: number("air.address_space")
                .filter(|space| *space < 3)
                .ok_or_else(unknown)?,
            read_only: fields.contains(&"air.read"),
            size: number("air.arg_type_size").ok_or_else(unknown)?,
        }
    } else {
        let (_, builtin) = BUILTINS
            .iter()
            .find(|(air, _)| *air == kind)
            .ok_or_else(unknown)?;
        Source::Builtin(builtin)
    };
    let expected = match source {
        Source::Buffer { address_space, .. } => format!("ptr addrspace({address_space})"),
        Source::Builtin("kThreadgroupPositionInGrid") => "<3 x i32>".to_owned(),
        Source::Builtin(_) => "i32".to_owned(),
    };
    if ir_type != expected {
        return Err(unknown());
    }
    Ok(Parameter {
        name: after("air.arg_name").ok_or_else(unknown)?.to_owned(),
        ir_type,
        source,
    })
}

/// The name of the reading in runtime/air.ll.
pub(crate) fn reading(contraction: Contraction) -> &'static str {
    match contraction {
        Contraction::Fused => "fused",
        Contraction::Split => "split",
    }
}

/// The module with the host's target and our names for what AIR leaves undefined.
fn rewrite(kernel: &str, text: &str, contraction: Contraction) -> Result<String, Error> {
    let reading = reading(contraction);
    let (fmuladd, dot) = (
        format!("@oracle.fmuladd.{reading}."),
        format!("@oracle.dot.{reading}."),
    );
    let mut module = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with("target ") || line.starts_with("@llvm.global_ctors") {
            continue;
        }
        if line.starts_with('@') {
            return Err(Error::Variable {
                kernel: kernel.to_owned(),
                line: line.to_owned(),
            });
        }
        module.push_str(
            &line
                .replace("@llvm.fmuladd.", &fmuladd)
                .replace("@air.dot.", &dot),
        );
        module.push('\n');
    }
    Ok(module)
}

/// `oracle.lane`: unpacks the block and calls the kernel, inside the kernel's own module and so with its calling
/// conventions.
fn lane_function(name: &str, parameters: &[Parameter]) -> String {
    let (mut body, mut arguments, mut word) = (String::new(), Vec::new(), 0);
    for (index, parameter) in parameters.iter().enumerate() {
        let ir_type = &parameter.ir_type;
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            "  %p{index} = getelementptr i32, ptr %block, i64 {word}"
        );
        let _ = writeln!(body, "  %v{index} = load {ir_type}, ptr %p{index}, align 4");
        arguments.push(format!("{ir_type} %v{index}"));
        word += parameter.words();
    }
    format!(
        "\ndefine void @oracle.lane(ptr %block) {{\n{body}  call void @{name}({})\n  ret void\n}}\n",
        arguments.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r#"target datalayout = "e-p:64:64:64"
target triple = "air64_v26-apple-macosx14.0.0"
@llvm.global_ctors = appending global [0 x { i32, ptr, ptr }] zeroinitializer
define weak_odr void @k(ptr addrspace(1) noundef "a,b(" %0, ptr addrspace(2) noundef align 4 dereferenceable(4) %1, <3 x i32> noundef %2, i32 noundef %3) local_unnamed_addr #0 {
  %5 = call float @llvm.fmuladd.f32(float %a, float %b, float %c) #5
  ret void
}
declare float @llvm.fmuladd.f32(float, float, float) #2
!air.kernel = !{!15}
!15 = !{ptr @k, !16, !17}
!16 = !{}
!17 = !{!18, !19, !20, !21}
!18 = !{i32 0, !"air.buffer", !"air.location_index", i32 4, i32 1, !"air.read_write", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_name", !"y"}
!19 = !{i32 1, !"air.buffer", !"air.buffer_size", i32 4, !"air.location_index", i32 5, i32 1, !"air.read", !"air.address_space", i32 2, !"air.arg_type_size", i32 4, !"air.arg_name", !"n"}
!20 = !{i32 2, !"air.threadgroup_position_in_grid", !"air.arg_type_name", !"uint3", !"air.arg_name", !"tid"}
!21 = !{i32 3, !"air.thread_index_in_simdgroup", !"air.arg_type_name", !"uint", !"air.arg_name", !"lid"}
"#;

    #[test]
    fn parameters_come_from_definition_and_metadata() {
        let kernel = Kernel::from_disassembly("k", MODULE, Contraction::Split).unwrap();
        let names: Vec<_> = kernel
            .parameters
            .iter()
            .map(|parameter| parameter.name.as_str())
            .collect();
        assert_eq!(names, ["y", "n", "tid", "lid"]);
        assert_eq!(
            kernel.parameters[0].source,
            Source::Buffer {
                index: 4,
                address_space: 1,
                read_only: false,
                size: 4
            }
        );
        assert_eq!(
            kernel.parameters[3].source,
            Source::Builtin("kThreadIndexInSimdgroup")
        );
        assert!(
            kernel
                .tables()
                .contains("{Kind::kThreadIndexInSimdgroup, 8, 0}"),
            "{}",
            kernel.tables()
        );
        assert!(kernel.tables().contains("kWords = 12;"));
    }

    #[test]
    fn only_target_and_open_names_change() {
        let kernel = Kernel::from_disassembly("k", MODULE, Contraction::Fused).unwrap();
        assert!(!kernel.module.contains("target "));
        assert!(!kernel.module.contains("global_ctors"));
        assert!(!kernel.module.contains("llvm.fmuladd"));
        assert_eq!(
            kernel.module.matches("@oracle.fmuladd.fused.f32(").count(),
            2
        );
        assert!(kernel.module.contains(
            "call void @k(ptr addrspace(1) %v0, ptr addrspace(2) %v1, <3 x i32> %v2, i32 %v3)"
        ));
    }

    #[test]
    fn what_the_runtime_lacks_is_an_error() {
        let constant = MODULE.replace(
            "define weak",
            "@flag = external addrspace(2) constant i8\ndefine weak",
        );
        assert!(matches!(
            Kernel::from_disassembly("k", &constant, Contraction::Split),
            Err(Error::Variable { .. })
        ));
        let grid = MODULE.replace("air.thread_index_in_simdgroup", "air.threads_per_grid");
        assert!(matches!(
            Kernel::from_disassembly("k", &grid, Contraction::Split),
            Err(Error::Parameter { index: 3, .. })
        ));
        assert!(matches!(
            Kernel::from_disassembly("other", MODULE, Contraction::Split),
            Err(Error::Missing { .. })
        ));
    }
}
