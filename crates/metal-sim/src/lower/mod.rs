//! Translates Metal Shading Language to C++ for the host.
//!
//! The host has one address space, so the qualifiers are removed. Their effects beyond the type are
//! kept: a function-local `threadgroup` variable becomes memory shared by the threadgroup,
//! `constant` becomes `const`, and overloads that differ only in address space are merged. Text is
//! edited in place, so that diagnostics and the places of collectives refer to the original file
//! and line.

mod descriptor;
mod edits;
mod examined;
mod spaces;
mod vectors;
mod words;

use std::ops::Range;

use crate::Error;
use crate::items::ItemKind;
use crate::lexer::{Kind, Tokens};
use crate::parse::{Kernel, Source, UNSUPPORTED};
use descriptor::{Function, append_descriptor};
use edits::Edits;
pub(crate) use edits::Spaces;
pub(crate) use examined::{Examined, examine};
pub(crate) use spaces::ADDRESS_SPACES;

/// C++ for one kernel of `source`: everything that it may call, without the other kernels, and the
/// descriptor that the runtime loads.
pub(crate) fn lower(
    source: &Source<'_>,
    file: &str,
    host_name: &str,
    expression: &str,
) -> Result<String, Error> {
    let kernel = find(source, file, host_name, expression)?;
    let (mut text, function) = edited(source, &kernel, expression)?;
    let constants = source.function_constants()?;
    let derived = source.derived_constants(&constants);
    let constants = (&*constants, &*derived);
    append_descriptor(&mut text, file, host_name, &function, &kernel, constants);
    Ok(text)
}

pub(crate) fn find<'a>(
    source: &Source<'a>,
    file: &str,
    host_name: &str,
    expression: &str,
) -> Result<Kernel<'a>, Error> {
    refuse_unsupported(source, file)?;
    let name = expression
        .split(['<', '('])
        .next()
        .unwrap_or(expression)
        .trim();
    let base = name.rsplit("::").next().unwrap_or(name);
    let kernels = source.kernels()?;
    choose(source, &kernels, base, expression)
        .cloned()
        .ok_or_else(|| Error::Unsupported {
            file: file.to_owned(),
            message: format!(
                "no kernel function {base} accepts the template arguments of {host_name}"
            ),
        })
}

/// The text with `kernel` as its only kernel, and the kernel's function.
fn edited(
    source: &Source<'_>,
    kernel: &Kernel<'_>,
    expression: &str,
) -> Result<(String, Function), Error> {
    let mut edits = Edits::new(&source.tokens, Spaces::Erased);
    let kernels = source.kernels()?;
    for item in &source.items {
        let other_kernel = kernels
            .iter()
            .any(|other| other.item.start == item.start && item.start != kernel.item.start);
        if item.kind == ItemKind::Instantiation || other_kernel {
            edits.erase(item.start..item.end);
        }
    }
    edits.merge_overloads(&source.items);
    edits.find_bodies(&source.items);
    edits.find_aliases();
    let constants = source.function_constants()?;
    edits.constants(&constants);
    edits.derived_constants(&source.derived_constants(&constants));
    edits.kernel(kernel);
    edits.tokens()?;
    Ok((
        edits.apply(),
        Function::new(expression, kernel, Spaces::Erased)?,
    ))
}

/// Chooses among kernels of one name by the number of template arguments.
fn choose<'k, 'a>(
    source: &Source<'_>,
    kernels: &'k [Kernel<'a>],
    name: &str,
    expression: &str,
) -> Option<&'k Kernel<'a>> {
    let mut named = kernels.iter().filter(|kernel| kernel.name == name);
    let first = named.next()?;
    if named.next().is_none() {
        return Some(first);
    }
    let list = Tokens::new(expression).ok()?;
    let given = (0..list.tokens.len())
        .find(|&i| list.at(i) == "<")
        .map_or(0, |open| angle_parts(&list, open).len());
    kernels
        .iter()
        .filter(|kernel| kernel.name == name)
        .find(|kernel| {
            let parameters = angle_parts(&source.tokens, kernel.item.start + 1);
            let required = parameters
                .iter()
                .filter(|part| !(*part).clone().any(|i| source.tokens.at(i) == "="))
                .count();
            (required..=parameters.len()).contains(&given)
        })
}

/// The parts of the template list that opens at `open`.
fn angle_parts(t: &Tokens<'_>, open: usize) -> Vec<Range<usize>> {
    let Some(end) = t.skip_angles(open) else {
        return Vec::new();
    };
    let (mut depth, mut from, mut at) = (0, open + 1, open + 1);
    let mut parts = Vec::new();
    while at < end {
        match t.at(at) {
            "<" => depth += 1,
            ">" if at + 1 < end => depth -= 1,
            "," | ">" if depth == 0 => {
                parts.push(from..at);
                from = at + 1;
            }
            _ => {}
        }
        at = t.skip(at);
    }
    parts
}

/// The text of a source without its explicit instantiations, for a library.
pub(crate) fn without_instantiations(source: &Source<'_>) -> String {
    let mut edits = Edits::new(&source.tokens, Spaces::Erased);
    for item in source
        .items
        .iter()
        .filter(|i| i.kind == ItemKind::Instantiation)
    {
        edits.erase(item.start..item.end);
    }
    edits.apply()
}

/// Refuses sources that include a header for unsupported hardware; these headers mark the source.
fn refuse_unsupported(source: &Source<'_>, file: &str) -> Result<(), Error> {
    let t = &source.tokens;
    let marker = (0..t.tokens.len())
        .filter(|&i| t.kind(i) == Some(Kind::Directive))
        .find_map(|i| t.at(i).strip_prefix(UNSUPPORTED));
    match marker {
        Some(header) => Err(Error::Unsupported {
            file: file.to_owned(),
            message: format!(
                "its kernels use {header} (matrix hardware of generation 17 and later), which the \
                 simulator dispatches by name but does not run; simulate an OS version before 26.2 \
                 or an earlier architecture"
            ),
        }),
        None => Ok(()),
    }
}
