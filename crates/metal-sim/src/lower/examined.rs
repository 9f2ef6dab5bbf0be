//! Makes a source for checks, not for running: its types keep their address spaces, and appended
//! lines make the compiler check conditions that C++ types cannot express.

use std::fmt::Write as _;

use super::descriptor::Function;
use super::edits::{Edits, Piece, Spaces};
use crate::Error;
use crate::items::ItemKind;
use crate::lexer::line_marker;
use crate::parse::{Kernel, Role, Source};

/// The text, and the origin of each part.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) text: String,
    lines: Vec<usize>,
    pieces: Vec<Piece>,
    /// Number of lines before the appended ones.
    body_lines: usize,
    /// The byte of the source that each appended line checks.
    judged: Vec<usize>,
}

impl Examined {
    /// The byte of the source from which a place of the text comes. Lines and columns count from 1.
    pub(crate) fn origin(&self, line: usize, column: usize) -> Option<usize> {
        if let Some(appended) = line.checked_sub(self.body_lines + 1) {
            return self.judged.get(appended).copied();
        }
        let at = self.lines.get(line - 1)? + column - 1;
        let next = self.pieces.partition_point(|piece| piece.to <= at);
        let piece = self.pieces.get(next.checked_sub(1)?)?;
        Some(if piece.is_copy {
            piece.from + (at - piece.to)
        } else {
            piece.from
        })
    }

    /// Whether a line was appended.
    pub(crate) fn is_appended(&self, line: usize) -> bool {
        line > self.body_lines
    }
}

/// The text of `source` with these kernels, each with the expression that instantiates it. All
/// other kernels are kept if `whole` is set.
pub(crate) fn examine(
    source: &Source<'_>,
    kernels: &[(Kernel<'_>, &str)],
    whole: bool,
) -> Result<Examined, Error> {
    let t = &source.tokens;
    let mut edits = Edits::new(t, Spaces::Kept);
    let all = source.kernels()?;
    for item in &source.items {
        let other_kernel = !whole
            && all.iter().any(|other| other.item.start == item.start)
            && kernels
                .iter()
                .all(|(kernel, _)| kernel.item.start != item.start);
        // Places are traced through the edits. A marker would hide a column.
        let is_marker = item.kind == ItemKind::Other && line_marker(t.at(item.start)).is_some();
        if item.kind == ItemKind::Instantiation || other_kernel || is_marker {
            edits.erase(item.start..item.end);
        }
    }
    for token in 0..t.tokens.len() {
        if line_marker(t.at(token)).is_some() {
            edits.erase(token..token + 1);
        }
    }
    edits.merge_overloads(&source.items);
    edits.find_bodies(&source.items);
    edits.find_aliases();
    let constants = source.function_constants()?;
    edits.constants(&constants);
    edits.tokens()?;
    let (mut text, pieces) = edits.apply_traced(0..t.text.len());
    text.push('\n');
    let body_lines = text.matches('\n').count();
    let mut judged = Vec::new();
    let mut judge = |token: usize, line: String| {
        text.push_str(&line.replace('\n', " "));
        text.push('\n');
        judged.push(t.tokens[token].start);
    };
    for constant in &constants {
        let (name, type_name) = (&constant.name, &constant.type_name);
        judge(
            constant.start,
            format!(
                "static_assert(mtlsim::is_constant_type<{type_name}>, \"[MSL 5.8.1] function constant \
                 '{name}' has a type that is not a scalar or a vector\");"
            ),
        );
    }
    for (number, (kernel, expression)) in kernels.iter().enumerate() {
        let function = format!("mtlsim_function_{number}");
        let declaration = Function::new(expression, kernel, Spaces::Kept)?.declaration;
        judge(
            kernel.name_token,
            format!("{};", declaration.replacen("mtlsim_function", &function, 1)),
        );
        judge_parameters(kernel, &function, &mut judge);
    }
    let lines = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    Ok(Examined {
        text,
        lines,
        pieces,
        body_lines,
        judged,
    })
}

/// Attributes with one number per dimension.
const POSITIONS: [&str; 7] = [
    "thread_position_in_grid",
    "threads_per_grid",
    "thread_position_in_threadgroup",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
];

/// Attributes whose parameters must have the same type.
const OF_ONE_TYPE: [&[&str]; 2] = [
    &["thread_position_in_grid", "threads_per_grid"],
    &[
        "thread_position_in_threadgroup",
        "threads_per_threadgroup",
        "dispatch_threads_per_threadgroup",
    ],
];

/// Makes the compiler check the types of a kernel's built-in parameters (MSL 4.0, table 5.8 and the
/// notes below it).
fn judge_parameters(kernel: &Kernel<'_>, function: &str, judge: &mut impl FnMut(usize, String)) {
    let mut before: Vec<(usize, &str)> = Vec::new();
    for (position, parameter) in kernel.parameters.iter().enumerate() {
        let (Role::Builtin(_), Some(attribute)) = (&parameter.role, parameter.attribute) else {
            continue;
        };
        let name = &parameter.name;
        let type_of =
            |position: usize| format!("mtlsim::Parameter<{position}, decltype({function})>");
        let is_position = POSITIONS.contains(&attribute);
        let (test, wanted) = if is_position {
            (
                "is_position",
                "ushort or uint, or a vector of 2 or 3 of them",
            )
        } else {
            ("is_count", "ushort or uint")
        };
        let mut line = format!(
            "static_assert(mtlsim::{test}<{}>, \"[MSL 5.2.3.6] the type of '{name}' is not valid for attribute \
             '{attribute}': it is {wanted}\");",
            type_of(position)
        );
        for (other, other_attribute) in &before {
            let one_type = OF_ONE_TYPE
                .iter()
                .any(|all| all.contains(&attribute) && all.contains(other_attribute));
            let test = if one_type {
                "std::is_same_v"
            } else if is_position && POSITIONS.contains(other_attribute) {
                "mtlsim::same_size"
            } else {
                continue;
            };
            let _ = write!(
                line,
                " static_assert({test}<{}, {}>, \"[MSL 5.2.3.6] the types for attributes '{attribute}' and \
                 '{other_attribute}' do not match\");",
                type_of(position),
                type_of(*other)
            );
        }
        before.push((position, attribute));
        judge(parameter.token, line);
    }
}
