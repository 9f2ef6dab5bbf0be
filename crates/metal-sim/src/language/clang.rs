//! Selects the compiler errors that mean that a text is not Metal.

use std::borrow::Cow;

use super::tree::Place;
use crate::check::Finding;

/// An error printed by the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagnostic<'a> {
    /// Where the error is, or where the template that contains it is instantiated; `None` if that
    /// is outside the checked text.
    pub(super) place: Option<Place>,
    pub(super) message: &'a str,
    /// Whether the error only means that C++ cannot copy an object of a class between address
    /// spaces or call its members there (Metal can), or follows from such an error.
    pub(super) is_limit: bool,
    /// Whether the error or its notes mention address spaces.
    pub(super) is_of_spaces: bool,
}

/// The errors among a compiler's diagnostics, which have the form `file:line:column: error: text`,
/// with notes.
pub(super) fn errors<'a>(diagnostics: &'a str, file: &str) -> Vec<Diagnostic<'a>> {
    let mut found: Vec<Diagnostic<'a>> = Vec::new();
    for line in diagnostics.lines() {
        let in_text = |place: &str| -> Option<Place> {
            let mut parts = place.rsplitn(3, ':');
            let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            (parts.next()? == file).then_some((line, column))
        };
        let error = line
            .split_once(": error: ")
            .or_else(|| line.split_once(": fatal error: "));
        if let Some((place, message)) = error {
            found.push(Diagnostic {
                place: in_text(place),
                message,
                is_limit: converts_an_object(message),
                is_of_spaces: speaks_of_spaces(message),
            });
            continue;
        }
        if speaks_of_spaces(line)
            && let Some(last) = found.last_mut()
        {
            last.is_of_spaces = true;
        }
        let is_copy = line.contains("(the implicit copy") && line.contains("address space");
        // Members for different address spaces become one, and conversions are members.
        let is_member =
            line.contains("'this' object is in address space") || converts_an_object(line);
        // A function that contains an error is reported again, without a reason, where it is used.
        let is_repeat = line.contains("substitution failure [with") && line.ends_with(']');
        if line.contains(": note: candidate ")
            && (is_copy || is_member || is_repeat)
            && let Some(last) = found.last_mut()
        {
            last.is_limit = true;
        } else if let Some((place, note)) = line.split_once(": note: ")
            && let Some(last) = found.last_mut().filter(|last| last.place.is_none())
            && note.contains("requested here")
        {
            last.place = in_text(place);
        }
    }
    found
}

/// Whether a message is about the conversion of an object, not of a pointer, in an address space.
fn converts_an_object(message: &str) -> bool {
    if let Some(operands) = message.strip_prefix("incompatible operand types (") {
        let types: Vec<_> = operands
            .split('\'')
            .skip(1)
            .step_by(2)
            .map(|operand| operand.trim_start_matches("const "))
            .collect();
        // Of one class: only the spaces differ, and the message omits them.
        let is_one = types.len() == 2 && types[0] == types[1];
        return (is_one || speaks_of_spaces(message)) && !message.contains("*'");
    }
    [
        "from incompatible type '",
        "conversion from '",
        "cast from '",
    ]
    .iter()
    .filter_map(|before| message.split_once(before))
    .filter_map(|(_, after)| after.split('\'').next())
    .any(|from| from.contains("mtlsim_space") && !from.ends_with(['*', '&', ']']))
}

fn speaks_of_spaces(text: &str) -> bool {
    ["address space", "address_space", "mtlsim_space"]
        .iter()
        .any(|part| text.contains(part))
}

/// Parts of compiler messages about differences between C++ and Metal, with the section of the
/// specification. Errors of C++ for the host are not here: such a kernel does not compile anyway.
const KNOWN: [(&str, &str); 16] = [
    ("variable length array", "1.5"),
    ("'auto' not allowed in", "1.5"),
    ("using the 'typeid' operator", "1.5.4"),
    ("cannot use 'throw'", "1.5.4"),
    ("cannot use 'try'", "1.5.4"),
    ("'register' storage class specifier", "1.5.4"),
    ("use of dynamic_cast requires", "1.5.4"),
    ("use of typeid requires", "1.5.4"),
    ("mismatching address spaces", "4"),
    ("changes address space of pointer", "4"),
    ("reinterpret_cast from", "4"),
    ("automatic variable qualified with an address space", "4"),
    ("parameter may not be qualified with an address space", "4"),
    ("field may not be qualified with an address space", "4"),
    (
        "return type may not be qualified with an address space",
        "4",
    ),
    ("default initialization of an object of const type", "4.2"),
];

/// The section and text for an error that the specification explains.
pub(super) fn explained(message: &str) -> Option<(Cow<'static, str>, String)> {
    // Errors from the shim itself: `[MSL 6.9.2] text`.
    if let Some((_, tagged)) = message.split_once("[MSL ") {
        let (section, text) = tagged.split_once("] ")?;
        return Some((section.to_owned().into(), text.to_owned()));
    }
    let (_, section) = KNOWN.iter().find(|(part, _)| message.contains(part))?;
    Some(((*section).into(), in_metal(message)))
}

/// The shim's own errors in the output of a build, with their places in the source.
pub(super) fn tagged(diagnostics: &str) -> Vec<Finding> {
    let mut found: Vec<(Option<Finding>, String, String)> = Vec::new();
    let placed = |place: &str, section: &str, message: &str| {
        let mut parts = place.rsplitn(3, ':');
        let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let file = parts.next().filter(|file| !file.contains("/mtlsim/"))?;
        Some(Finding {
            kernel: String::new(),
            file: file.to_owned(),
            line,
            column,
            message: message.to_owned(),
            section: section.to_owned(),
            excerpt: String::new(),
        })
    };
    for line in diagnostics.lines() {
        if let Some((place, message)) = line.split_once(": error: ") {
            let Some(("", tagged)) = message
                .split_once("[MSL ")
                .map(|(before, after)| (before.rsplit(": ").next().unwrap_or(before), after))
            else {
                continue;
            };
            if let Some((section, text)) = tagged.split_once("] ") {
                found.push((
                    placed(place, section, text),
                    section.to_owned(),
                    text.to_owned(),
                ));
            }
        } else if let Some((place, _)) = line.split_once(": note: in instantiation of ")
            && let Some((finding @ None, section, text)) = found.last_mut()
        {
            *finding = placed(place, section, text);
        }
    }
    found
        .into_iter()
        .filter_map(|(finding, ..)| finding)
        .collect()
}

/// A message in Metal's terms: replaces the shim's names for address spaces.
pub(super) fn in_metal(message: &str) -> String {
    message
        .replace("const mtlsim_space_constant ", "constant ")
        .replace("mtlsim_space_", "")
        .replace(" [-Werror,-Wvla-cxx-extension]", "")
        .replace(" [-Werror,-Wvla]", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_shim_is_placed_where_it_is_asked_for() {
        let text = "/s/atomic_types.h:20:3: error: static assertion failed: [MSL 2.6] an atomic is int\n\
                    /t/kernel.cpp:7:9: note: in instantiation of template class 'metal::atomic<short>' requested here\n\
                    /t/kernel.cpp:9:1: error: use of undeclared identifier 'exit'\n";
        let found = errors(text, "/t/kernel.cpp");
        let places: Vec<_> = found.iter().map(|error| error.place).collect();
        assert_eq!(places, [Some((7, 9)), Some((9, 1))]);
        let (section, words) = explained(found[0].message).unwrap();
        assert_eq!((&*section, &*words), ("2.6", "an atomic is int"));
        assert_eq!(explained(found[1].message), None);
    }
}
