//! Generates the end of a kernel's source: its descriptor.

use std::fmt::Write as _;

use super::edits::Edits;
use super::edits::Spaces;
use crate::Error;
use crate::lexer::Tokens;
use crate::parse::{DerivedConstant, FunctionConstant, Kernel, Parameter, Role};

/// The descriptor's reference to the kernel's function.
pub(super) struct Function {
    /// The declaration of `mtlsim_function`.
    pub(super) declaration: String,
    max_threads: String,
}

impl Function {
    pub(super) fn new(
        expression: &str,
        kernel: &Kernel<'_>,
        spaces: Spaces,
    ) -> Result<Self, Error> {
        let tokens = Tokens::new(expression)?;
        let mut edits = Edits::new(&tokens, spaces);
        edits.tokens()?;
        let lowered = edits.apply();
        let unlimited = "MTLSIM_MAX_THREADS".to_owned();
        Ok(match lowered.split_once('(') {
            // The template arguments follow from the parameters.
            Some((name, parameters)) if !name.contains('<') => Function {
                declaration: format!("constexpr void (*mtlsim_function)({parameters} = &{name}"),
                max_threads: unlimited,
            },
            _ => Function {
                max_threads: match &kernel.max_threads {
                    Some(_) => format!(
                        "{}()",
                        lowered.replacen(&kernel.name, &format!("mtlsim_max_{}", kernel.name), 1)
                    ),
                    None => unlimited,
                },
                declaration: format!("constexpr auto mtlsim_function = &{lowered}"),
            },
        })
    }
}

pub(super) fn append_descriptor(
    text: &mut String,
    file: &str,
    host_name: &str,
    function: &Function,
    kernel: &Kernel<'_>,
    (constants, derived): (&[FunctionConstant], &[DerivedConstant]),
) {
    let mut parameters = String::new();
    let mut switches = String::new();
    let mut arguments = String::new();
    for (i, parameter) in kernel.parameters.iter().enumerate() {
        describe_parameter(
            parameter,
            i,
            constants,
            &mut parameters,
            &mut switches,
            &mut arguments,
        );
    }
    let mut uses = String::new();
    let mut settings = String::new();
    let mut places = String::new();
    for FunctionConstant {
        name,
        type_name,
        index,
        ..
    } in constants
    {
        let _ = writeln!(
            uses,
            "  {{\"{name}\", {index}, mtlsim::data_type<{type_name}>(), sizeof({type_name})}},"
        );
        let _ = writeln!(
            settings,
            "  if (!mtlsim::set_constant(d, {index}, \"{name}\", {name}, mtlsim_defined_{name}, at, r)) return int(r->fault);"
        );
    }
    for FunctionConstant { name, .. } in constants {
        let _ = write!(places, "a == &{name} || a == &mtlsim_defined_{name} || ");
    }
    for DerivedConstant { name, value, .. } in derived {
        let _ = writeln!(settings, "  {name} = {value};");
        let _ = write!(places, "a == &{name} || ");
    }
    let Function {
        declaration,
        max_threads,
    } = function;
    let argument_count = arguments.lines().count();
    let constant_count = constants.len();
    let _ = write!(
        text,
        r#"
#line 1 "metal-sim descriptor"
bool mtlsim::is_constant(const void* a) {{ return {places}false; }}
namespace {{
{declaration};
struct mtlsim_parameters {{
  static constexpr mtlsim::Parameter list[] = {{
{parameters}    {{}}}};
  static bool enabled(unsigned i) {{
    switch (i) {{
{switches}    }}
    return true;
  }}
}};
mtlsim_argument mtlsim_arguments[] = {{
{arguments}  {{}}}};
const mtlsim_constant_use mtlsim_constants[] = {{
{uses}  {{}}}};
[[gnu::constructor]] void mtlsim_describe() {{ mtlsim::describe<mtlsim_parameters>(mtlsim_function, mtlsim_arguments); }}
int mtlsim_run(const mtlsim_dispatch* d, const uint32_t at[3], mtlsim_engine* e, mtlsim_report* r) {{
{settings}  return mtlsim::run<mtlsim_parameters, mtlsim_function>(mtlsim_function, mtlsim_arguments, {argument_count}, d, at, e, r);
}}
uint32_t mtlsim_local_bytes() {{ return mtlsim::local_needs; }}
}}
extern "C" [[gnu::visibility("default")]] const mtlsim_kernel mtlsim_kernel_entry;
const mtlsim_kernel mtlsim_kernel_entry = {{
  MTLSIM_ABI_VERSION, mtlsim::variant, "{host_name}", "{file}", {argument_count}, mtlsim_arguments,
  {constant_count}, mtlsim_constants, {max_threads}, &mtlsim_local_bytes, &mtlsim_run}};
"#
    );
}

fn describe_parameter(
    parameter: &Parameter<'_>,
    position: usize,
    constants: &[FunctionConstant],
    list: &mut String,
    switches: &mut String,
    arguments: &mut String,
) {
    let Parameter {
        name,
        role,
        enabled_by,
        ..
    } = parameter;
    let optional = enabled_by.is_some();
    let switch_index = enabled_by
        .as_ref()
        .and_then(|switch| constants.iter().find(|constant| constant.name == *switch))
        .map_or(-1, |constant| i64::from(constant.index));
    if let Some(switch) = enabled_by {
        let _ = writeln!(switches, "    case {position}: return bool({switch});");
    }
    let (kind, index, read_only) = match role {
        Role::Buffer {
            index, read_only, ..
        } => ("kBuffer", *index, *read_only),
        Role::Threadgroup { index } => ("kThreadgroup", *index, false),
        Role::Builtin(kind) => (*kind, 0, true),
    };
    let _ = writeln!(
        list,
        "    {{mtlsim::{kind}, {index}, {read_only}, {optional}}},"
    );
    let space = match role {
        Role::Buffer { constant: true, .. } => "MTLSIM_CONSTANT",
        Role::Buffer { .. } => "MTLSIM_DEVICE",
        Role::Threadgroup { .. } => "MTLSIM_THREADGROUP",
        Role::Builtin(_) => return,
    };
    let read_only = u8::from(read_only);
    let _ = writeln!(
        arguments,
        "  {{\"{name}\", {index}, {space}, {read_only}, 0, 0, {switch_index}}},"
    );
}
