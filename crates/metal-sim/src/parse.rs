//! Finds the declarations of a Metal source: kernels, their parameters, explicit instantiations,
//! function constants.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Error;
use crate::check::Finding;
use crate::items::{Item, ItemKind, items};
use crate::lexer::{Tokens, place};
use crate::lower::ADDRESS_SPACES;

/// Marks sources for unsupported hardware.
pub(crate) const UNSUPPORTED: &str = "#pragma mtlsim unsupported ";

#[derive(Debug, Clone)]
pub(crate) struct Kernel<'a> {
    pub(crate) name: String,
    pub(crate) name_token: usize,
    pub(crate) item: Item,
    /// From a `host_name` attribute on the definition itself.
    pub(crate) host_name: Option<String>,
    /// The attribute's expression, in terms of the template parameters.
    pub(crate) max_threads: Option<String>,
    pub(crate) parameters: Vec<Parameter<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter<'a> {
    pub(crate) name: String,
    pub(crate) token: usize,
    pub(crate) role: Role,
    /// The attribute of a built-in value.
    pub(crate) attribute: Option<&'static str>,
    /// The address space in its declaration.
    pub(crate) space: Option<&'a str>,
    /// The attribute that specifies its index.
    pub(crate) placed_by: Option<&'static str>,
    /// The `function_constant` that enables it.
    pub(crate) enabled_by: Option<String>,
}

/// The source of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Bound at a buffer index.
    Buffer {
        index: u32,
        constant: bool,
        read_only: bool,
    },
    /// Threadgroup memory with a length set by the host.
    Threadgroup { index: u32 },
    /// A position or count, by the name of its attribute.
    Builtin(&'static str),
}

/// A value that the host sets when it creates the pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionConstant {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) index: u32,
    /// First token of the declaration.
    pub(crate) start: usize,
    /// The token `constant` of the declaration.
    pub(crate) keyword: usize,
    pub(crate) is_static: bool,
    /// The token `;`.
    pub(crate) end: usize,
}

/// A variable of program scope whose value depends on function constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DerivedConstant {
    pub(crate) name: String,
    pub(crate) value: String,
    /// First token of the declaration.
    pub(crate) start: usize,
    /// The token `constant` of the declaration.
    pub(crate) keyword: usize,
    pub(crate) is_static: bool,
    /// The token `=`.
    pub(crate) equals: usize,
    /// The token `;`.
    pub(crate) end: usize,
}

/// A name in the library's table, and the function that it refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instantiation {
    pub(crate) host_name: String,
    pub(crate) expression: String,
    pub(crate) token: usize,
}

/// Attributes of kernel parameters, and the shim's names for them.
pub(crate) const BUILTINS: [(&str, &str); 17] = [
    ("thread_position_in_grid", "kThreadPositionInGrid"),
    (
        "thread_position_in_threadgroup",
        "kThreadPositionInThreadgroup",
    ),
    ("thread_index_in_threadgroup", "kThreadIndexInThreadgroup"),
    ("thread_index_in_simdgroup", "kThreadIndexInSimdgroup"),
    ("thread_index_in_quadgroup", "kThreadIndexInQuadgroup"),
    ("threadgroup_position_in_grid", "kThreadgroupPositionInGrid"),
    ("threadgroups_per_grid", "kThreadgroupsPerGrid"),
    ("threads_per_grid", "kThreadsPerGrid"),
    ("threads_per_threadgroup", "kThreadsPerThreadgroup"),
    (
        "dispatch_threads_per_threadgroup",
        "kDispatchThreadsPerThreadgroup",
    ),
    (
        "simdgroup_index_in_threadgroup",
        "kSimdgroupIndexInThreadgroup",
    ),
    ("simdgroups_per_threadgroup", "kSimdgroupsPerThreadgroup"),
    (
        "dispatch_simdgroups_per_threadgroup",
        "kSimdgroupsPerThreadgroup",
    ),
    ("threads_per_simdgroup", "kThreadsPerSimdgroup"),
    ("thread_execution_width", "kThreadsPerSimdgroup"),
    (
        "quadgroup_index_in_threadgroup",
        "kQuadgroupIndexInThreadgroup",
    ),
    ("quadgroups_per_threadgroup", "kQuadgroupsPerThreadgroup"),
];

/// A source with its declarations.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) tokens: Tokens<'a>,
    /// Top-level declarations, including those in namespaces; a scope precedes its contents.
    pub(crate) items: Vec<Item>,
}

impl<'a> Source<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, Error> {
        let tokens = Tokens::new(text)?;
        let items = items(&tokens);
        Ok(Source { tokens, items })
    }

    /// Kernels defined in this source, in order.
    pub(crate) fn kernels(&self) -> Result<Vec<Kernel<'a>>, Error> {
        let mut kernels = Vec::new();
        for item in &self.items {
            if item.kind == ItemKind::Function
                && let Some(kernel) = self.kernel(item)?
            {
                kernels.push(kernel);
            }
        }
        Ok(kernels)
    }

    /// Names for the library's table: explicit instantiations, and kernels that are not templates.
    pub(crate) fn host_names(&self) -> Result<Vec<Instantiation>, Error> {
        let mut names = Vec::new();
        for item in &self.items {
            if item.kind == ItemKind::Instantiation {
                names.extend(self.instantiation(item)?);
            }
        }
        for kernel in self.kernels()? {
            if kernel.item.start == kernel.item.after_templates {
                names.push(Instantiation {
                    host_name: kernel.host_name.unwrap_or_else(|| kernel.name.clone()),
                    expression: kernel.name,
                    token: kernel.name_token,
                });
            }
        }
        Ok(names)
    }

    /// `constant T name [[function_constant(n)]];`, in order.
    pub(crate) fn function_constants(&self) -> Result<Vec<FunctionConstant>, Error> {
        let t = &self.tokens;
        let mut constants = Vec::new();
        for item in self
            .items
            .iter()
            .filter(|i| i.kind == ItemKind::Declaration)
        {
            let Some(attribute) = (item.start..item.end).find(|&i| t.is_attribute(i)) else {
                continue;
            };
            let Some(arguments) = self.attribute(attribute, "function_constant") else {
                continue;
            };
            let keyword = (item.start..attribute)
                .find(|&i| t.at(i) == "constant")
                .ok_or_else(|| {
                    self.error(item.start, "a function constant that is not `constant`")
                })?;
            let index = t
                .join(arguments.start, arguments.end)
                .parse()
                .map_err(|_| self.error(attribute, "a function constant without a number"))?;
            let type_name = (item.start..attribute - 1)
                .map(|i| t.at(i))
                .filter(|word| !["constant", "static", "const", "constexpr"].contains(word))
                .collect::<Vec<_>>()
                .join(" ");
            constants.push(FunctionConstant {
                name: t.at(attribute - 1).to_owned(),
                type_name,
                index,
                start: item.start,
                keyword,
                is_static: (item.start..attribute).any(|i| t.at(i) == "static"),
                end: item.end - 1,
            });
        }
        Ok(constants)
    }

    /// `constant T name = expression of function constants;`, in order.
    pub(crate) fn derived_constants(&self, constants: &[FunctionConstant]) -> Vec<DerivedConstant> {
        let t = &self.tokens;
        let mut known: BTreeSet<&str> = constants.iter().map(|c| c.name.as_str()).collect();
        let mut derived = Vec::new();
        let plain =
            |item: &&Item| item.kind == ItemKind::Declaration && item.after_templates == item.start;
        for item in self.items.iter().filter(plain) {
            let (start, end) = (item.start, item.end - 1);
            let Some(equals) = (start + 1..end).find(|&i| t.at(i) == "=") else {
                continue;
            };
            let word = |wanted| (start..equals).find(|&i| t.at(i) == wanted);
            let follows = (equals..end).any(|i| known.contains(t.at(i)));
            let (Some(keyword), true) = (word("constant"), follows) else {
                continue;
            };
            known.insert(t.at(equals - 1));
            derived.push(DerivedConstant {
                name: t.at(equals - 1).to_owned(),
                value: t.join(equals + 1, end),
                start,
                keyword,
                is_static: word("static").is_some(),
                equals,
                end,
            });
        }
        derived
    }

    /// Tokens inside the parentheses of attribute `name` in the list at `index`; an empty range if
    /// it has none.
    fn attribute(&self, index: usize, name: &str) -> Option<Range<usize>> {
        let t = &self.tokens;
        let end = t.tokens[index].close;
        let mut at = index + 2;
        while at < end {
            if t.at(at) == name {
                return Some(if t.at(at + 1) == "(" {
                    at + 2..t.tokens[at + 1].close
                } else {
                    at..at
                });
            }
            at = t.skip(at);
        }
        None
    }

    /// The first attribute called `name` between two tokens, outside brackets.
    fn attribute_in(&self, from: usize, to: usize, name: &str) -> Option<Range<usize>> {
        let mut at = from;
        while at < to {
            if self.tokens.is_attribute(at)
                && let Some(arguments) = self.attribute(at, name)
            {
                return Some(arguments);
            }
            at = self.tokens.skip(at);
        }
        None
    }

    pub(crate) fn kernel(&self, item: &Item) -> Result<Option<Kernel<'a>>, Error> {
        let t = &self.tokens;
        let head = item.after_templates;
        let keyword = (head..item.body)
            .take_while(|&i| t.at(i) != "(")
            .any(|i| t.at(i) == "kernel");
        if !keyword && self.attribute_in(head, item.body, "kernel").is_none() {
            return Ok(None);
        }
        let mut open = head;
        while open < item.body && t.at(open) != "(" {
            open = t.skip(open);
        }
        if open == item.body || !t.is_word(open - 1) {
            return Err(self.error(item.start, "a kernel without a name"));
        }
        let host_name = self
            .attribute_in(head, item.body, "host_name")
            .map(|arguments| self.string(arguments));
        let max_threads = self
            .attribute_in(head, item.body, "max_total_threads_per_threadgroup")
            .map(|arguments| t.join(arguments.start, arguments.end));
        Ok(Some(Kernel {
            name: t.at(open - 1).to_owned(),
            name_token: open - 1,
            item: item.clone(),
            host_name,
            max_threads,
            parameters: self.parameters(open)?,
        }))
    }

    /// Joins adjacent string literals.
    fn string(&self, tokens: Range<usize>) -> String {
        tokens
            .map(|i| self.tokens.at(i).trim_matches('"'))
            .collect()
    }

    fn instantiation(&self, item: &Item) -> Result<Option<Instantiation>, Error> {
        let t = &self.tokens;
        let Some(name) = self.attribute_in(item.start, item.end, "host_name") else {
            return Ok(None);
        };
        let mut at = item.start + 1;
        while t.is_attribute(at) {
            at = t.skip(at);
        }
        let expression = if t.at(at) == "decltype" && t.at(at + 1) == "(" {
            t.join(at + 2, t.tokens[at + 1].close)
        } else {
            // `void name<list>(parameters)`; without a list, the parameters determine the template
            // arguments.
            let name = at + 1;
            if t.at(name + 1) == "<" {
                let end = t
                    .skip_angles(name + 1)
                    .ok_or_else(|| self.error(name, "a template list that is not closed"))?;
                t.join(name, end)
            } else {
                self.signature(name, item.end)
            }
        };
        Ok(Some(Instantiation {
            host_name: self.string(name),
            expression,
            token: item.start,
        }))
    }

    /// `name(parameters)` without attributes.
    fn signature(&self, name: usize, end: usize) -> String {
        let t = &self.tokens;
        let close = match t.at(name + 1) {
            "(" => t.tokens[name + 1].close + 1,
            _ => end,
        };
        let (mut text, mut at, mut from) = (String::new(), name, name);
        while at < close {
            if t.is_attribute(at) {
                text.push_str(&t.join(from, at));
                at = t.skip(at);
                from = at;
            } else {
                at += 1;
            }
        }
        text + &t.join(from, close)
    }

    fn parameters(&self, open: usize) -> Result<Vec<Parameter<'a>>, Error> {
        let t = &self.tokens;
        let (mut from, mut at, close) = (open + 1, open + 1, t.tokens[open].close);
        let mut parts = Vec::new();
        let mut depth = 0i32;
        while at <= close {
            match t.at(at) {
                "<" => depth += 1,
                ">" => depth -= 1,
                _ => {}
            }
            if at == close || (t.at(at) == "," && depth == 0) {
                if from < at {
                    parts.push(from..at);
                }
                from = at + 1;
            }
            at = t.skip(at);
        }
        let taken = |group| -> Vec<u32> {
            parts
                .iter()
                .filter_map(|part| self.attribute_in(part.start, part.end, group))
                .filter_map(|index| t.join(index.start, index.end).parse().ok())
                .collect()
        };
        let mut used = [taken("buffer"), taken("threadgroup")];
        parts
            .into_iter()
            .map(|part| self.parameter(part, &mut used))
            .collect()
    }

    fn parameter(
        &self,
        part: Range<usize>,
        [buffers, threadgroups]: &mut [Vec<u32>; 2],
    ) -> Result<Parameter<'a>, Error> {
        let t = &self.tokens;
        let attributes = (part.start..part.end)
            .find(|&i| t.is_attribute(i))
            .unwrap_or(part.end);
        // `T x[2]` is a pointer.
        let array = (part.start..attributes).find(|&i| t.at(i) == "[");
        let declarator = array.unwrap_or(attributes);
        let token = (part.start..declarator)
            .rev()
            .find(|&i| t.is_word(i))
            .ok_or_else(|| self.error(part.start, "a parameter without a name"))?;
        let name = t.at(token).to_owned();
        let has = |word: &str| (part.start..declarator).any(|i| t.at(i) == word);
        let number = |range: Range<usize>| {
            t.join(range.start, range.end)
                .parse::<u32>()
                .map_err(|_| self.error(part.start, "an index that is not a number"))
        };
        let enabled_by = self
            .attribute_in(attributes, part.end, "function_constant")
            .map(|range| t.join(range.start, range.end));
        let builtin = BUILTINS
            .iter()
            .find(|(attribute, _)| self.attribute_in(attributes, part.end, attribute).is_some());
        let role = if let Some((_, kind)) = builtin {
            Role::Builtin(kind)
        } else if has("threadgroup") {
            match self.attribute_in(attributes, part.end, "threadgroup") {
                Some(range) => Role::Threadgroup {
                    index: number(range)?,
                },
                None => Role::Threadgroup {
                    index: first_free(threadgroups),
                },
            }
        } else if has("*") || has("&") || array.is_some() {
            let index = match self.attribute_in(attributes, part.end, "buffer") {
                Some(range) => number(range)?,
                None => first_free(buffers),
            };
            if index >= 31 {
                return Err(self.error(part.start, "a buffer index above 30, the maximum"));
            }
            let star = (part.start..declarator).rposition(|i| matches!(t.at(i), "*" | "&"));
            let before = star.map_or(declarator, |offset| part.start + offset);
            let is_const = (part.start..before).any(|i| t.at(i) == "const");
            Role::Buffer {
                index,
                constant: has("constant"),
                read_only: is_const || has("constant"),
            }
        } else {
            let place = |name: &str| self.attribute_in(attributes, part.end, name).is_some();
            return Err(if place("buffer") || place("threadgroup") {
                self.refused(
                    token,
                    "5.2.1",
                    format!("the type of '{name}' is not valid for its attribute: a buffer is a pointer or a reference"),
                )
            } else {
                self.error(
                    part.start,
                    &format!("parameter {name}: the simulator does not support its attribute"),
                )
            });
        };
        let space = (part.start..declarator)
            .map(|i| t.at(i))
            .find(|word| ADDRESS_SPACES.contains(word));
        let placed_by = ["buffer", "threadgroup", "texture", "sampler"]
            .into_iter()
            .find(|name| self.attribute_in(attributes, part.end, name).is_some());
        Ok(Parameter {
            name,
            token,
            role,
            attribute: builtin.map(|(attribute, _)| *attribute),
            space,
            placed_by,
            enabled_by,
        })
    }

    /// An error at a token that section `section` of the specification excludes.
    pub(crate) fn refused(&self, token: usize, section: &str, message: String) -> Error {
        let at = self.tokens.tokens[token].start;
        Error::Refused(vec![Finding::at(self.tokens.text, at, section, message)])
    }

    pub(crate) fn error(&self, token: usize, message: &str) -> Error {
        let start = self.tokens.tokens[token].start;
        Error::Syntax {
            place: place(self.tokens.text, start),
            message: message.to_owned(),
        }
    }
}

/// The first unused index, which is then marked as used.
fn first_free(used: &mut Vec<u32>) -> u32 {
    let free = (0..).find(|n| !used.contains(n)).unwrap_or_default();
    used.push(free);
    free
}
