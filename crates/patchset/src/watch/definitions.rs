//! Finds definitions in C++ and Metal text.

use std::fmt;

use c_tokens::Token;
use git2::{Oid, Repository};

use crate::error::Result;
use crate::model::manifest::Watch;

/// The kind of a watched name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A function; all definitions of that name in the file together.
    Function,
    /// A struct or class.
    Struct,
    Macro,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "function",
            Self::Struct => "struct",
            Self::Macro => "macro",
        })
    }
}

/// One definition: its source text and its tokens.
pub(crate) struct Definition {
    pub(crate) text: String,
    pub(crate) tokens: Vec<String>,
}

/// The names of an entry with their kinds.
pub(crate) fn names(entry: &Watch) -> impl Iterator<Item = (Kind, &str)> {
    let Watch {
        functions,
        structs,
        macros,
        ..
    } = entry;
    [
        (Kind::Function, functions),
        (Kind::Struct, structs),
        (Kind::Macro, macros),
    ]
    .into_iter()
    .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.as_str())))
}

/// The text of a file in a tree; `None` if the tree does not have it.
pub(crate) fn text_of(repo: &Repository, tree: Oid, path: &str) -> Result<Option<String>> {
    let tree = repo.find_tree(tree)?;
    let Ok(entry) = tree.get_path(path.as_ref()) else {
        return Ok(None);
    };
    let blob = repo.find_blob(entry.id())?;
    Ok(Some(String::from_utf8_lossy(blob.content()).into_owned()))
}

/// All definitions of a name in a text, in order.
pub(crate) fn definitions(kind: Kind, name: &str, text: &str) -> Result<Vec<Definition>, String> {
    let source = Source {
        text,
        tokens: c_tokens::split(text).tokens,
    };
    let ranges = match kind {
        Kind::Function => source.functions(name)?,
        Kind::Struct => source.structs(name)?,
        Kind::Macro => source.macros(name),
    };
    Ok(ranges
        .into_iter()
        .map(|range| source.definition(range))
        .collect())
}

/// All definitions in a text that are not inside others, with their tokens.
#[cfg(test)]
pub(crate) fn all(text: &str) -> Vec<(String, Vec<String>)> {
    const STATEMENTS: [&str; 8] = [
        "if",
        "for",
        "while",
        "switch",
        "catch",
        "constexpr",
        "decltype",
        "__attribute__",
    ];
    let source = Source {
        text,
        tokens: c_tokens::split(text).tokens,
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let name = source.at(at);
        let found_here = if source.at(at) == "define" && source.is_directive(at) {
            let end = (at..source.tokens.len()).find(|&at| source.at(at) == "\n");
            let name = source.at(at + 1).to_owned();
            end.map(|end| (name, end))
        } else if source.is_directive(at) || !is_name(name) || STATEMENTS.contains(&name) {
            None
        } else if at > 0 && matches!(source.at(at - 1), "struct" | "class") {
            let open = (at..source.tokens.len())
                .find(|&at| matches!(source.at(at), "{" | ";" | "(" | ">"));
            let open = open.filter(|&open| source.at(open) == "{");
            open.and_then(|open| Some((name.to_owned(), source.closing(open)?)))
        } else if source.at(at + 1) == "(" {
            let mut first = at;
            while first >= 2 && source.at(first - 1) == "::" && is_name(source.at(first - 2)) {
                first -= 2;
            }
            let name = (first..=at).map(|at| source.at(at)).collect();
            let open = source.body(at + 1);
            open.and_then(|open| Some((name, source.closing(open)?)))
        } else {
            None
        };
        if let Some((name, end)) = found_here {
            let tokens = (at..=end).map(|at| source.at(at).to_owned());
            found.push((name, tokens.collect()));
            at = end;
        }
        at += 1;
    }
    found
}

/// A range of tokens.
type Range = std::ops::Range<usize>;

struct Source<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

impl<'a> Source<'a> {
    /// The text of a token; empty after the end.
    fn at(&self, index: usize) -> &'a str {
        let token = self.tokens.get(index);
        token.map_or("", |token| &self.text[token.start..token.end])
    }

    fn is_directive(&self, index: usize) -> bool {
        self.tokens[index].directive
    }

    fn definition(&self, range: Range) -> Definition {
        let (first, last) = (self.tokens[range.start], self.tokens[range.end - 1]);
        let mut tokens: Vec<_> = range.clone().map(|at| self.at(at).to_owned()).collect();
        // `#define F(x)` and `#define F (x)` are different macros.
        if self.at(range.start) == "#" && self.takes_arguments(range.start + 2) {
            tokens[2].push('(');
        }
        Definition {
            text: self.text[first.start..last.end].trim_end().to_owned(),
            tokens,
        }
    }

    fn takes_arguments(&self, name: usize) -> bool {
        self.at(name + 1) == "(" && self.tokens[name].end == self.tokens[name + 1].start
    }

    /// From `#` to the line end, for each `#define` of this name.
    fn macros(&self, name: &str) -> Vec<Range> {
        let count = self.tokens.len();
        let defines = (0..count.saturating_sub(2)).filter(|&at| {
            self.at(at) == "#"
                && self.is_directive(at)
                && self.at(at + 1) == "define"
                && self.at(at + 2) == name
        });
        defines
            .map(|start| {
                let end = (start..count).find(|&at| self.at(at) == "\n");
                start..end.map_or(count, |end| end + 1)
            })
            .collect()
    }

    /// From the first word of the declaration (for example `template`) to the closing brace, for each definition.
    fn functions(&self, name: &str) -> Result<Vec<Range>, String> {
        self.bodies(name, |after| {
            (self.at(after) == "(").then(|| self.body(after)).flatten()
        })
    }

    /// All definitions of a struct, in the same way.
    fn structs(&self, name: &str) -> Result<Vec<Range>, String> {
        self.bodies(name, |after| {
            let named = after >= 2 && matches!(self.at(after - 2), "struct" | "class");
            let open = (after..self.tokens.len()).find(|&at| matches!(self.at(at), "{" | ";"))?;
            (named && self.at(open) == "{").then_some(open)
        })
    }

    /// The definitions of a name; `opens` finds the opening brace, from the token after the name.
    fn bodies(
        &self,
        name: &str,
        opens: impl Fn(usize) -> Option<usize>,
    ) -> Result<Vec<Range>, String> {
        let wanted: Vec<_> = c_tokens::split(name)
            .tokens
            .iter()
            .map(|token| &name[token.start..token.end])
            .collect();
        let mut found = Vec::new();
        let mut at = 0;
        while at + wanted.len() < self.tokens.len() {
            let mut here = wanted.iter().enumerate();
            let named = here.all(|(after, wanted)| {
                !self.is_directive(at + after) && self.at(at + after) == *wanted
            });
            let whole = at == 0 || self.at(at - 1) != "::";
            if named
                && whole
                && let Some(open) = opens(at + wanted.len())
            {
                let end = self
                    .closing(open)
                    .ok_or_else(|| format!("the braces of {name} are not closed"))?;
                found.push(self.declaration_start(at)..end + 1);
                at = end;
            }
            at += 1;
        }
        Ok(found)
    }

    /// The start of the body, if these arguments belong to a definition.
    fn body(&self, arguments: usize) -> Option<usize> {
        let mut at = self.closing(arguments)? + 1;
        loop {
            match self.at(at) {
                "{" => return Some(at),
                "(" | "[" => at = self.closing(at)? + 1,
                "const" | "noexcept" | "override" | "final" | "->" | "::" | "<" | ">" | "&"
                | "*" => at += 1,
                // The words of a trailing return type.
                text if (arguments..at).any(|at| self.at(at) == "->") && is_name(text) => at += 1,
                _ => return None,
            }
        }
    }

    /// The bracket that closes the one at `open`.
    fn closing(&self, open: usize) -> Option<usize> {
        let opens = self.at(open);
        let closes = match opens {
            "(" => ")",
            "[" => "]",
            _ => "}",
        };
        let mut depth = 0_usize;
        for at in (open..self.tokens.len()).filter(|&at| !self.is_directive(at)) {
            if self.at(at) == opens {
                depth += 1;
            } else if self.at(at) == closes {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        None
    }

    fn declaration_start(&self, name: usize) -> usize {
        (0..name)
            .rfind(|&at| self.is_directive(at) || matches!(self.at(at), ";" | "}" | "{"))
            .map_or(0, |end| end + 1)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}
