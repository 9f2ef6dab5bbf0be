//! Address spaces: removes the qualifiers but keeps their effects.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::edits::{Edits, Spaces};
use crate::Error;
use crate::items::{Item, ItemKind, members};
use crate::lexer::place;

pub(crate) const ADDRESS_SPACES: [&str; 6] = [
    "device",
    "thread",
    "threadgroup",
    "constant",
    "threadgroup_imageblock",
    "ray_data",
];

impl Edits<'_, '_> {
    /// Removes definitions that equal an earlier one of their scope once address spaces are
    /// removed.
    pub(super) fn merge_overloads(&mut self, items: &[Item]) {
        let mut scopes: Vec<(String, usize)> = Vec::new();
        let mut seen: HashMap<(String, String), String> = HashMap::new();
        for item in items {
            scopes.retain(|(_, end)| item.start < *end);
            match item.kind {
                ItemKind::Scope => {
                    scopes.push((self.t.join(item.start, item.body), item.end));
                }
                ItemKind::Function | ItemKind::Class => {
                    let scope = scopes
                        .iter()
                        .map(|(name, _)| name.as_str())
                        .collect::<Vec<_>>()
                        .join("/");
                    if self.is_repeat(item, scope, &mut seen) {
                        self.erase(item.start..item.end);
                    } else if item.kind == ItemKind::Class {
                        self.merge_members(item);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn merge_members(&mut self, class: &Item) {
        let mut seen = HashMap::new();
        for member in members(self.t, class.body) {
            if !matches!(member.kind, ItemKind::Function | ItemKind::Class) {
                continue;
            }
            if self.is_repeat(&member, String::new(), &mut seen) {
                self.erase(member.start..member.end);
            } else if member.kind == ItemKind::Class {
                self.merge_members(&member);
            }
        }
    }

    pub(super) fn is_repeat(
        &self,
        item: &Item,
        scope: String,
        seen: &mut HashMap<(String, String), String>,
    ) -> bool {
        let written = self.t.join(item.start, item.body);
        let mut bare = String::new();
        let mut last = "";
        let mut at = item.start;
        while at < item.body {
            let word = self.t.at(at);
            if self.t.is_attribute(at) {
                at = self.t.skip(at);
                continue;
            }
            at += 1;
            let trailing = self.is_trailing(at - 1);
            let word = match word {
                "constant" if !trailing && self.spaces == Spaces::Erased => "const",
                _ => word,
            };
            let gone =
                ADDRESS_SPACES.contains(&word) && (trailing || self.spaces == Spaces::Erased);
            if gone || (word == "const" && last == "const") {
                continue;
            }
            bare.push_str(word);
            bare.push(' ');
            last = word;
        }
        match seen.entry((scope, bare)) {
            std::collections::hash_map::Entry::Occupied(earlier) => *earlier.get() != written,
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(written);
                false
            }
        }
    }

    /// Whether this is an address space after a member function's parameters.
    pub(super) fn is_trailing(&self, token: usize) -> bool {
        let before = match self.t.at(token.wrapping_sub(1)) {
            "const" | "noexcept" => token.wrapping_sub(2),
            _ => token.wrapping_sub(1),
        };
        self.t.at(before) == ")"
            && matches!(self.t.at(token + 1), "{" | ":" | ";" | "=" | "noexcept")
    }

    /// Replaces a qualifier that does not start a shared variable.
    pub(super) fn address_space(&mut self, at: usize) -> Result<(), Error> {
        let word = self.t.at(at);
        if word == "threadgroup" {
            self.check_shared(at)?;
        }
        // C++ cannot overload member functions by address space.
        let kept = self.spaces == Spaces::Kept && !self.is_trailing(at);
        let text = match word {
            _ if self.is_trailing(at) => "",
            "constant" if kept && !self.is_variable(at) => "const mtlsim_space_constant",
            "constant" => "const",
            "device" if kept => "mtlsim_space_device",
            "threadgroup" if kept => "mtlsim_space_threadgroup",
            _ => "",
        };
        self.replace(at, text);
        if kept && word != "thread" {
            self.array_parameter(at);
        }
        Ok(())
    }

    /// `device T x[2]` as a parameter is a pointer. C++ refuses the array.
    fn array_parameter(&mut self, at: usize) {
        let t = self.t;
        let mut next = at + 1;
        while t.is_word(next) || matches!(t.at(next), "::" | "<") {
            next = match t.at(next) {
                "<" => match t.skip_angles(next) {
                    Some(after) => after,
                    None => return,
                },
                _ => next + 1,
            };
        }
        if t.at(next) == "[" && !t.is_attribute(next) && self.in_parentheses(at) {
            self.insert_before(next - 1, "*".to_owned());
            self.erase(next..t.skip(next));
        }
    }

    /// Whether the declaration around `at` declares a value, and not a pointer or reference to one.
    fn is_variable(&self, at: usize) -> bool {
        let t = self.t;
        let mut next = at + 1;
        loop {
            match t.at(next) {
                ";" | "=" | "{" => return true,
                "*" | "&" | ">" | ")" | "," | "[" | "" => return false,
                "<" => match t.skip_angles(next) {
                    Some(after) => next = after,
                    None => return false,
                },
                _ => next = t.skip(next),
            }
        }
    }

    /// Replaces `threadgroup T a[n], b;` inside a function. A pointer into threadgroup memory is an
    /// ordinary pointer.
    pub(super) fn threadgroup_declaration(&mut self, at: usize) -> Result<usize, Error> {
        let t = self.t;
        let mut end = at;
        let mut depth = 0i32;
        let mut ends = Vec::new();
        loop {
            match t.at(end) {
                "<" => depth += 1,
                ">" => depth -= 1,
                "," if depth == 0 => ends.push(end),
                // A pointer, a reference, or a function that returns one.
                "*" | "&" | "(" if depth == 0 => {
                    self.address_space(at)?;
                    return Ok(at + 1);
                }
                ";" => break,
                // `= {0}` is ignored: Apple's compiler does not emit code for it either.
                "=" if t.at(end + 1) == "{" && t.at(t.skip(end + 1)) == ";" => break,
                "" | "{" | "=" => return Err(self.unshared(at)),
                _ => {}
            }
            end = t.skip(end);
        }
        ends.push(end);
        let semicolon = if t.at(end) == "=" {
            t.skip(end + 1)
        } else {
            end
        };
        // The declared name is the word before the first `[`, or the last word.
        let declarator = |from: usize, to: usize| {
            let dims = (from..to)
                .find(|&i| t.at(i) == "[" && t.is_word(i - 1))
                .unwrap_or(to);
            (dims - 1, dims)
        };
        let (first_name, _) = declarator(at + 1, ends[0]);
        if first_name <= at + 1 || !t.is_word(first_name) {
            return Err(self.unshared(at));
        }
        let type_text = self.lowered(at + 1..first_name)?;
        let mut text = String::new();
        let mut from = at + 1;
        for end in &ends {
            let (name, dims) = declarator(from, *end);
            let dimensions = self.lowered(dims..*end)?;
            let id = self.locals;
            self.locals += 1;
            let _ = write!(
                text,
                "using mtlsim_local_{id} = {type_text}{dimensions}; auto& {} = mtlsim::local<mtlsim_local_{id}, {id}>(); ",
                t.at(name)
            );
            from = end + 1;
        }
        let bytes = t.bytes(at, semicolon + 1);
        let lines = t.text[bytes.clone()].matches('\n').count();
        text.push_str(&"\n".repeat(lines));
        self.list.push((bytes, text));
        Ok(semicolon + 1)
    }

    /// Refuses a `threadgroup` qualifier that is neither at the start of a local declaration nor
    /// part of a pointer, reference, parameter or member function: each lane would get its own
    /// variable.
    pub(super) fn check_shared(&self, at: usize) -> Result<(), Error> {
        let t = self.t;
        if self.is_trailing(at) {
            return Ok(());
        }
        let mut next = at + 1;
        loop {
            match t.at(next) {
                "*" | "&" | ">" | ")" | "," => return Ok(()),
                "[" if self.in_parentheses(at) => return Ok(()),
                ";" | "=" | "{" | "[" | "" => return Err(self.unshared(at)),
                "<" => match t.skip_angles(next) {
                    Some(after) => next = after,
                    None => return Err(self.unshared(at)),
                },
                _ => next = t.skip(next),
            }
        }
    }

    pub(super) fn in_parentheses(&self, at: usize) -> bool {
        (0..at)
            .rev()
            .take_while(|&i| !matches!(self.t.at(i), ";" | "{" | "}"))
            .any(|i| self.t.at(i) == "(" && self.t.tokens[i].close > at)
    }

    pub(super) fn unshared(&self, at: usize) -> Error {
        let start = self.t.tokens[at].start;
        Error::Syntax {
            place: place(self.t.text, start),
            message: "a threadgroup variable that is not declared on its own, as \
                      `threadgroup T name[n];` in a function, would not be shared"
                .to_owned(),
        }
    }
}
