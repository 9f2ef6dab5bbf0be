//! Rules on tokens and declarations, checked before a compiler runs: reserved words, places of
//! threadgroup variables, attributes.

use std::collections::BTreeMap;

use super::{Refusal, Version};
use crate::Error;
use crate::items::{Item, ItemKind, members};
use crate::lexer::{Kind, Tokens};
use crate::parse::{Role, Source};

/// Applies the rules to a source's tokens.
pub(super) fn find(source: &Source<'_>, version: Version) -> Result<Vec<Refusal>, Error> {
    let mut rules = Rules {
        source,
        t: &source.tokens,
        version,
        found: Vec::new(),
    };
    for at in 0..rules.t.tokens.len() {
        rules.word(at);
    }
    rules.threadgroup_variables()?;
    rules.kernels()?;
    rules.constants()?;
    Ok(rules.found)
}

struct Rules<'t> {
    source: &'t Source<'t>,
    t: &'t Tokens<'t>,
    version: Version,
    found: Vec<Refusal>,
}

/// Names added in later versions: the version, the section, a description.
const SINCE: [(&[&str], u32, &str); 3] = [
    (
        &[
            "bfloat",
            "bfloat2",
            "bfloat3",
            "bfloat4",
            "simdgroup_bfloat8x8",
        ],
        310,
        "2.1",
    ),
    (
        &[
            "atomic_thread_fence",
            "thread_scope_thread",
            "thread_scope_simdgroup",
            "thread_scope_threadgroup",
            "thread_scope_device",
        ],
        320,
        "6.15.3",
    ),
    (&["os_log", "os_log_default"], 320, "6.19"),
];

impl Rules<'_> {
    fn refuse(&mut self, token: usize, section: &'static str, message: impl Into<String>) {
        self.found.push(Refusal {
            at: self.t.tokens[token].start,
            section: section.into(),
            message: message.into(),
        });
    }

    fn since(&mut self, token: usize, section: &'static str, version: u32) {
        let message = format!(
            "'{}' needs Metal {}; this is Metal {}",
            self.t.at(token),
            Version(version),
            self.version
        );
        self.refuse(token, section, message);
    }

    fn word(&mut self, at: usize) {
        let t = self.t;
        let word = t.at(at);
        match (t.kind(at), word) {
            (Some(Kind::Number), _) => self.number(at),
            (Some(Kind::Word), "double") => {
                let name = match t.at(at.wrapping_sub(1)) {
                    "long" => "long double",
                    _ => "double",
                };
                self.refuse(at, "2.1", format!("'{name}' is not supported in Metal"));
            }
            (Some(Kind::Word), "long") => {
                // Words may come in any order: `long unsigned int long` is one type too.
                let mut next = at + 1;
                while matches!(t.at(next), "int" | "unsigned" | "signed" | "const") {
                    next += 1;
                }
                if t.at(next) == "long" {
                    self.refuse(at, "2.1", "'long long' is not supported in Metal");
                }
            }
            (
                Some(Kind::Word),
                "__int128" | "__int128_t" | "__uint128_t" | "__float128" | "_Float64" | "_Float128"
                | "__ibm128" | "_Complex" | "__complex__" | "_BitInt",
            ) => {
                self.refuse(at, "2.1", format!("'{word}' is not a type of Metal"));
            }
            (Some(Kind::Word), "std")
                if t.at(at + 1) == "::" || t.at(at.wrapping_sub(1)) == "namespace" =>
            {
                self.refuse(at, "1.5.4", "the C++ standard library is not part of Metal; it has its own in namespace metal");
            }
            (Some(Kind::Word), "coherent")
                if t.at(at + 1) == "(" && self.version < Version(320) =>
            {
                self.since(at, "4.8", 320);
            }
            (Some(Kind::Word), _) => {
                let late = SINCE.iter().find(|(names, version, _)| {
                    self.version < Version(*version) && names.contains(&word)
                });
                if let Some((_, version, section)) = late {
                    self.since(at, section, *version);
                }
            }
            _ => {}
        }
    }

    fn number(&mut self, at: usize) {
        let text = self.t.at(at).to_ascii_lowercase();
        let hex = text.starts_with("0x");
        let real = if hex {
            text.contains('p')
        } else {
            text.contains(['.', 'e']) && !text.starts_with("0b")
        };
        if real && text.ends_with('l') {
            self.refuse(
                at,
                "2.1",
                "'long double' is not supported in Metal: a literal with suffix L",
            );
        } else if !real && text.trim_end_matches('u').ends_with("ll") {
            self.refuse(
                at,
                "2.1",
                "'long long' is not supported in Metal: a literal with suffix LL",
            );
        } else if !hex && text.ends_with("bf") && self.version < Version(310) {
            self.since(at, "2.1", 310);
        }
    }

    /// Threadgroup variables must be in kernels and must not be initialised.
    fn threadgroup_variables(&mut self) -> Result<(), Error> {
        let t = self.t;
        for at in 0..t.tokens.len() {
            if t.at(at) != "threadgroup" || !self.starts_declaration(at) {
                continue;
            }
            let Some(end) = self.declared_value(at) else {
                continue;
            };
            match self.owner(at)? {
                Owner::Kernel => {}
                Owner::Function => self.refuse(
                    at,
                    "4.4",
                    "a threadgroup variable belongs in a kernel function: pass a pointer to this one",
                ),
                Owner::Class => self.refuse(at, "4.4", "a member cannot be in threadgroup memory"),
                Owner::Program => self.refuse(at, "4.4", "a threadgroup variable belongs in a kernel function"),
            }
            // Check this declarator, and those after a comma.
            let mut next = end;
            let mut is_initialised = false;
            while !matches!(t.at(next), ";" | "{" | "}" | "") {
                is_initialised |= t.at(next) == "=" && !self.is_zero(next + 1);
                next = t.skip(next + usize::from(t.at(next) == "="));
            }
            if is_initialised {
                self.refuse(at, "4.4", "a threadgroup variable has no initial value");
            }
        }
        Ok(())
    }

    fn starts_declaration(&self, at: usize) -> bool {
        let mut before = at;
        while matches!(
            self.t.at(before.wrapping_sub(1)),
            "const" | "volatile" | "static" | "constexpr" | "alignas"
        ) {
            before -= 1;
        }
        before == 0
            || matches!(self.t.at(before - 1), "{" | "}" | ";" | ":")
            || self.t.kind(before - 1) == Some(Kind::Directive)
    }

    /// The end of the first declarator, if it declares a value and not a pointer, reference or
    /// function.
    fn declared_value(&self, at: usize) -> Option<usize> {
        let t = self.t;
        let mut next = at + 1;
        loop {
            match t.at(next) {
                "*" | "&" | "(" | ")" | ">" | "" => return None,
                ";" | "=" | "," | "{" => return Some(next),
                "<" => next = t.skip_angles(next)?,
                _ => next = t.skip(next),
            }
        }
    }

    /// `{}`, `{0}`, `{0, 0}`: Apple's compiler accepts these and emits no code for them.
    fn is_zero(&self, open: usize) -> bool {
        let t = self.t;
        t.at(open) == "{"
            && (open + 1..t.tokens[open].close).all(|i| {
                t.at(i) == "," || t.at(i).trim_end_matches(['f', 'h', 'u', 'U']).parse() == Ok(0.0)
            })
    }

    fn owner(&self, at: usize) -> Result<Owner, Error> {
        fn within(items: &[Item], at: usize) -> Option<&Item> {
            items
                .iter()
                .filter(|item| matches!(item.kind, ItemKind::Function | ItemKind::Class))
                .find(|item| (item.body..item.end).contains(&at))
        }
        Ok(match within(&self.source.items, at) {
            None => Owner::Program,
            Some(item) if item.kind == ItemKind::Class => {
                let inner = members(self.t, item.body);
                match within(&inner, at) {
                    Some(member) if member.kind == ItemKind::Function => Owner::Function,
                    _ => Owner::Class,
                }
            }
            Some(item) if self.source.kernel(item)?.is_some() => Owner::Kernel,
            Some(_) => Owner::Function,
        })
    }

    fn kernels(&mut self) -> Result<(), Error> {
        let t = self.t;
        for kernel in self.source.kernels()? {
            let mut taken: BTreeMap<(&str, u32), &str> = BTreeMap::new();
            for parameter in &kernel.parameters {
                let name = &parameter.name;
                let (group, index) = match parameter.role {
                    Role::Buffer { index, .. } => ("buffer", index),
                    Role::Threadgroup { index } => ("threadgroup", index),
                    Role::Builtin(_) => {
                        if let Some(space) = parameter.space {
                            let message = format!(
                                "parameter '{name}' may not be in {space} memory: its attribute gives a value"
                            );
                            self.refuse(parameter.token, "5.2.3.6", message);
                        }
                        continue;
                    }
                };
                match parameter.space {
                    Some("device" | "constant" | "threadgroup" | "threadgroup_imageblock") => {}
                    Some(_) => {
                        let message =
                            format!("parameter '{name}' of a kernel cannot point to thread memory");
                        self.refuse(parameter.token, "4", message);
                    }
                    None => {
                        let message = format!(
                            "parameter '{name}' of a kernel needs an address space: device, constant or threadgroup"
                        );
                        self.refuse(parameter.token, "4", message);
                    }
                }
                if let Some(other) = parameter.placed_by.filter(|placed| *placed != group) {
                    let message =
                        format!("the type of '{name}' is not valid for attribute '{other}'");
                    self.refuse(parameter.token, "5.2.1", message);
                }
                let placed = parameter.placed_by.is_some() && parameter.enabled_by.is_none();
                if placed && let Some(other) = taken.insert((group, index), name) {
                    let message = format!(
                        "cannot reserve '{group}' resource location at index {index}: '{other}' has it"
                    );
                    self.refuse(parameter.token, "5.2.1", message);
                }
            }
        }
        // A kernel among the members of a class is not a kernel of the source.
        for class in self
            .source
            .items
            .iter()
            .filter(|item| item.kind == ItemKind::Class)
        {
            for member in members(t, class.body) {
                if member.kind == ItemKind::Function
                    && let Ok(Some(kernel)) = self.source.kernel(&member)
                {
                    self.refuse(
                        kernel.name_token,
                        "5.1",
                        "a kernel function cannot be a member function",
                    );
                }
            }
        }
        Ok(())
    }

    fn constants(&mut self) -> Result<(), Error> {
        let mut taken: BTreeMap<u32, String> = BTreeMap::new();
        for constant in self.source.function_constants()? {
            if let Some(other) = taken.insert(constant.index, constant.name.clone()) {
                let message = format!(
                    "function constant '{}' has the index {} of '{other}'",
                    constant.name, constant.index
                );
                self.refuse(constant.start, "5.8.1", message);
            }
            if constant.name == "]" {
                self.refuse(
                    constant.start,
                    "5.8.1",
                    "a function constant is a scalar or a vector, not an array",
                );
            }
        }
        Ok(())
    }
}

/// The kind of code around a declaration.
enum Owner {
    Kernel,
    Function,
    Class,
    Program,
}
