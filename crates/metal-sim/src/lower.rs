//! Metal Shading Language to C++ for the host.
//!
//! The host has one address space, so the qualifiers go; what they decide
//! beyond the type is kept: a function-local `threadgroup` variable becomes
//! memory that the threadgroup shares, `constant` becomes `const`, overloads
//! that differ by address space only become one. Text is edited in place, so
//! that the compiler's diagnostics and the places of collectives keep the
//! original file and line.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use crate::Error;
use crate::lexer::{Kind, Tokens, place};
use crate::parse::{FunctionConstant, Item, ItemKind, Kernel, Parameter, Role, Source, members};

const ADDRESS_SPACES: [&str; 6] = [
    "device",
    "thread",
    "threadgroup",
    "constant",
    "threadgroup_imageblock",
    "ray_data",
];

/// Attributes that mean the same on the host.
const KEPT_ATTRIBUTES: [&str; 5] = ["maybe_unused", "nodiscard", "fallthrough", "clang", "gnu"];

const VECTOR_ELEMENTS: [&str; 12] = [
    "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float",
    "bfloat",
];

/// C++ for one kernel of `source`: everything that it may call, the other
/// kernels left out, and the descriptor that the runtime loads.
pub(crate) fn lower(
    source: &Source<'_>,
    file: &str,
    host_name: &str,
    expression: &str,
) -> Result<String, Error> {
    refuse_unsupported(source, file)?;
    let name = expression
        .split(['<', '('])
        .next()
        .unwrap_or(expression)
        .trim();
    let base = name.rsplit("::").next().unwrap_or(name);
    let kernels = source.kernels()?;
    let kernel = choose(source, &kernels, base, expression).ok_or_else(|| Error::Unsupported {
        file: file.to_owned(),
        message: format!(
            "no kernel function {base} that takes the template arguments of {host_name}"
        ),
    })?;
    let constants = source.function_constants()?;
    let mut edits = Edits::new(&source.tokens);
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
    edits.constants(&constants);
    edits.kernel(kernel);
    edits.tokens()?;
    let mut text = edits.apply();
    let function = Function::new(expression, kernel)?;
    append_descriptor(&mut text, file, host_name, &function, kernel, &constants);
    Ok(text)
}

/// Kernels of one name differ in how many template arguments they take.
fn choose<'k>(
    source: &Source<'_>,
    kernels: &'k [Kernel],
    name: &str,
    expression: &str,
) -> Option<&'k Kernel> {
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

/// Text of a source without its explicit instantiations: what a library keeps.
pub(crate) fn without_instantiations(source: &Source<'_>) -> String {
    let mut edits = Edits::new(&source.tokens);
    for item in source
        .items
        .iter()
        .filter(|i| i.kind == ItemKind::Instantiation)
    {
        edits.erase(item.start..item.end);
    }
    edits.apply()
}

/// Headers that stand for hardware the simulator does not have mark themselves.
fn refuse_unsupported(source: &Source<'_>, file: &str) -> Result<(), Error> {
    let t = &source.tokens;
    let marker = (0..t.tokens.len())
        .filter(|&i| t.kind(i) == Some(Kind::Directive))
        .find_map(|i| t.at(i).strip_prefix("#pragma mtlsim unsupported "));
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

struct Edits<'t, 'a> {
    t: &'t Tokens<'a>,
    /// Byte ranges and what replaces them.
    list: Vec<(Range<usize>, String)>,
    /// Tokens that are gone.
    erased: Vec<Range<usize>>,
    /// Tokens whose replacement was decided by a declaration.
    decided: HashSet<usize>,
    locals: usize,
    /// Function bodies, in order: there a type and a name start a variable.
    bodies: Vec<Range<usize>>,
    /// Names that stand for a vector type.
    aliases: HashSet<&'a str>,
}

impl<'t, 'a> Edits<'t, 'a> {
    fn new(t: &'t Tokens<'a>) -> Self {
        Edits {
            t,
            list: Vec::new(),
            erased: Vec::new(),
            decided: HashSet::new(),
            locals: 0,
            bodies: Vec::new(),
            aliases: HashSet::new(),
        }
    }

    fn find_bodies(&mut self, items: &[Item]) {
        for item in items {
            match item.kind {
                ItemKind::Function => self.bodies.push(item.body..item.end),
                ItemKind::Class => self.find_bodies(&members(self.t, item.body)),
                _ => {}
            }
        }
        self.bodies.sort_by_key(|body| body.start);
    }

    /// `using name = vec<...>;` and `typedef vec<...> name;`
    fn find_aliases(&mut self) {
        let t = self.t;
        for at in 0..t.tokens.len() {
            if t.at(at) != "vec" || t.at(at + 1) != "<" {
                continue;
            }
            let Some(end) = t.skip_angles(at + 1) else {
                continue;
            };
            let start = self.type_start(at);
            if t.at(end) == ";" && start > 2 && t.at(start - 1) == "=" && t.at(start - 3) == "using"
            {
                self.aliases.insert(t.at(start - 2));
            } else if start > 0 && t.at(start - 1) == "typedef" && t.at(end + 1) == ";" {
                self.aliases.insert(t.at(end));
            }
        }
    }

    /// Where a type name begins that ends with the word `at`: before its
    /// namespaces and `typename`.
    fn type_start(&self, at: usize) -> usize {
        let mut start = at;
        while start > 1 && self.t.at(start - 1) == "::" && self.t.is_word(start - 2) {
            start -= 2;
        }
        if start > 0 && self.t.at(start - 1) == "typename" {
            start -= 1;
        }
        start
    }

    fn in_body(&self, at: usize) -> bool {
        let next = self.bodies.partition_point(|body| body.start <= at);
        next > 0 && self.bodies[next - 1].contains(&at)
    }

    fn erase(&mut self, tokens: Range<usize>) {
        let bytes = self.t.bytes(tokens.start, tokens.end);
        // Lines stay where they are.
        let lines = self.t.text[bytes.clone()].matches('\n').count();
        self.list.push((bytes, "\n".repeat(lines)));
        self.erased.push(tokens);
    }

    fn replace(&mut self, token: usize, text: &str) {
        self.list
            .push((self.t.bytes(token, token + 1), text.to_owned()));
    }

    fn insert_before(&mut self, token: usize, text: String) {
        let at = self.t.tokens[token].start;
        self.list.push((at..at, text));
    }

    /// Drops definitions that become equal to an earlier one of their scope
    /// when the address spaces are gone.
    fn merge_overloads(&mut self, items: &[Item]) {
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

    fn merge_members(&mut self, class: &Item) {
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

    fn is_repeat(
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
            let word = if word == "constant" && !self.is_trailing(at - 1) {
                "const"
            } else {
                word
            };
            if ADDRESS_SPACES.contains(&word) || (word == "const" && last == "const") {
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

    /// An address space after a member function's parameters.
    fn is_trailing(&self, token: usize) -> bool {
        let before = match self.t.at(token.wrapping_sub(1)) {
            "const" | "noexcept" => token.wrapping_sub(2),
            _ => token.wrapping_sub(1),
        };
        self.t.at(before) == ")"
            && matches!(self.t.at(token + 1), "{" | ":" | ";" | "=" | "noexcept")
    }

    /// Each thread of the host has its own copies: it sets them before every
    /// threadgroup, and other threads may run another pipeline of this kernel.
    fn constants(&mut self, constants: &[FunctionConstant]) {
        for constant in constants {
            let storage = if constant.is_static {
                "thread_local"
            } else {
                "static thread_local"
            };
            self.replace(constant.keyword, storage);
            self.decided.insert(constant.keyword);
            for token in constant.start..constant.end {
                if matches!(self.t.at(token), "const" | "constexpr") {
                    self.replace(token, "");
                    self.decided.insert(token);
                }
            }
            let end = self.t.tokens[constant.end].end;
            let flag = format!(
                " static thread_local bool mtlsim_defined_{};",
                constant.name
            );
            self.list.push((end..end, flag));
        }
    }

    fn kernel(&mut self, kernel: &Kernel) {
        let item = &kernel.item;
        if let Some(limit) = &kernel.max_threads {
            let templates = self
                .t
                .text
                .get(self.t.tokens[item.start].start..self.t.tokens[item.after_templates].start)
                .unwrap_or_default();
            let function = format!(
                "{templates} static constexpr uint32_t mtlsim_max_{}() {{ return uint32_t({limit}); }} ",
                kernel.name
            );
            self.insert_before(item.start, function.replace('\n', " "));
        }
        self.insert_before(item.after_templates, "static ".to_owned());
    }

    fn tokens(&mut self) -> Result<(), Error> {
        let mut gone = self.erased.clone();
        gone.sort_by_key(|range| range.start);
        let mut gone = gone.into_iter().peekable();
        let mut at = 0;
        while at < self.t.tokens.len() {
            while gone.peek().is_some_and(|range| range.end <= at) {
                gone.next();
            }
            if let Some(range) = gone.peek()
                && range.contains(&at)
            {
                at = range.end;
                continue;
            }
            at = self.token(at)?;
        }
        Ok(())
    }

    fn token(&mut self, at: usize) -> Result<usize, Error> {
        let t = self.t;
        match t.kind(at) {
            Some(Kind::Number) => self.number(at),
            Some(Kind::Punct) if t.is_attribute(at) => {
                let end = t.skip(at);
                if !KEPT_ATTRIBUTES.contains(&t.at(at + 2)) {
                    self.erase(at..end);
                    return Ok(end);
                }
            }
            Some(Kind::Punct) if t.at(at) == "{" => self.braced_argument(at),
            Some(Kind::Word) => return self.word(at),
            _ => {}
        }
        Ok(at + 1)
    }

    fn word(&mut self, at: usize) -> Result<usize, Error> {
        let t = self.t;
        let word = t.at(at);
        match word {
            _ if self.decided.contains(&at) => {}
            "threadgroup" if self.starts_statement(at) => return self.threadgroup_declaration(at),
            "constant" if !self.is_trailing(at) => self.replace(at, "const"),
            "kernel" if self.starts_statement(at) => self.replace(at, ""),
            "coherent" if t.at(at + 1) == "(" => self.erase(at..t.skip(at + 1)),
            "static_cast" => self.static_cast(at),
            "vec" => self.vector_template(at),
            _ if ADDRESS_SPACES.contains(&word) => {
                if word == "threadgroup" {
                    self.check_shared(at)?;
                }
                self.replace(at, "");
            }
            _ if is_vector_name(word) || self.aliases.contains(word) => {
                self.vector(self.type_start(at), at, at + 1);
            }
            _ => {}
        }
        Ok(at + 1)
    }

    fn starts_statement(&self, at: usize) -> bool {
        at == 0
            || matches!(self.t.at(at - 1), "{" | "}" | ";")
            || self.t.kind(at - 1) == Some(Kind::Directive)
    }

    /// `threadgroup T a[n], b;` inside a function. A pointer into threadgroup
    /// memory is an ordinary pointer.
    fn threadgroup_declaration(&mut self, at: usize) -> Result<usize, Error> {
        let t = self.t;
        let mut end = at;
        let mut depth = 0i32;
        let mut ends = Vec::new();
        loop {
            match t.at(end) {
                "<" => depth += 1,
                ">" => depth -= 1,
                "," if depth == 0 => ends.push(end),
                // A pointer, a reference, a function that returns one.
                "*" | "&" | "(" if depth == 0 => {
                    self.replace(at, "");
                    return Ok(at + 1);
                }
                ";" => break,
                // Apple's compiler emits no code for `= {0}` either.
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
        // The declared name is the word before the first `[`, or before the end.
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

    /// Tokens lowered on their own, as text.
    fn lowered(&self, tokens: Range<usize>) -> Result<String, Error> {
        if tokens.is_empty() {
            return Ok(String::new());
        }
        let mut inner = Edits::new(self.t);
        let mut at = tokens.start;
        while at < tokens.end {
            at = inner.token(at)?;
        }
        let bytes = self.t.bytes(tokens.start, tokens.end);
        Ok(inner.apply_range(bytes).replace('\n', " "))
    }

    /// `threadgroup` that is neither a local declaration's start nor part of a
    /// pointer, reference, parameter or member function would be a variable
    /// that each lane has for itself.
    fn check_shared(&self, at: usize) -> Result<(), Error> {
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

    fn in_parentheses(&self, at: usize) -> bool {
        (0..at)
            .rev()
            .take_while(|&i| !matches!(self.t.at(i), ";" | "{" | "}"))
            .any(|i| self.t.at(i) == "(" && self.t.tokens[i].close > at)
    }

    fn unshared(&self, at: usize) -> Error {
        let start = self.t.tokens[at].start;
        Error::Syntax {
            place: place(self.t.text, start),
            message: "a threadgroup variable that is not declared on its own, as \
                      `threadgroup T name[n];` in a function, would not be shared"
                .to_owned(),
        }
    }

    /// MSL has no double: an unsuffixed literal is a float. `1h` and `1bf` are
    /// no C++ literals.
    fn number(&mut self, at: usize) {
        let text = self.t.at(at);
        let hex = text.starts_with("0x") || text.starts_with("0X");
        let lower = text.to_ascii_lowercase();
        let real = if hex {
            lower.contains('p')
        } else {
            lower.contains(['.', 'e'])
        };
        if !hex && let Some(digits) = lower.strip_suffix("bf") {
            self.replace(at, &format!("bfloat({digits}f)"));
        } else if !hex && let Some(digits) = lower.strip_suffix('h') {
            let point = if digits.contains(['.', 'e']) { "" } else { "." };
            self.replace(at, &format!("half({digits}{point}L)"));
        } else if real && !lower.ends_with(['f', 'l']) {
            self.replace(at, &format!("{text}f"));
        }
    }

    /// C++ refuses casts between half and bfloat, and between vectors. A cast
    /// of an expression with an operator stays a cast: behind a call, a product
    /// in it could no longer be contracted with the sum around it.
    fn static_cast(&mut self, at: usize) {
        let t = self.t;
        let Some(open) = t.skip_angles(at + 1) else {
            return;
        };
        let to_reference = (at + 2..open).any(|i| matches!(t.at(i), "*" | "&"));
        if t.at(open) != "(" || to_reference {
            return;
        }
        let close = t.tokens[open].close;
        let mut operand = open + 1;
        if matches!(t.at(operand), "-" | "*" | "&" | "!" | "~") {
            operand += 1;
        }
        while operand < close {
            let plain = t.kind(operand) != Some(Kind::Punct)
                || matches!(t.at(operand), "(" | "[" | "{" | "." | "->" | "::");
            if !plain {
                return;
            }
            operand = t.skip(operand);
        }
        self.replace(at, "mtlsim::cast");
    }

    /// `vec<T, n>`, as [`Edits::vector`].
    fn vector_template(&mut self, at: usize) {
        let t = self.t;
        if t.at(at + 1) != "<" {
            return;
        }
        let Some(end) = t.skip_angles(at + 1) else {
            return;
        };
        let start = self.type_start(at);
        self.vector(start, at, end);
    }

    /// A vector type, tokens `start..end`: where a construction follows it, as
    /// `float4(...)` or `float4 name(...)`, the shim makes the vector. C++ has
    /// no such form for the compiler's vectors.
    fn vector(&mut self, start: usize, at: usize, end: usize) {
        let t = self.t;
        if t.at(end) == "(" && t.at(end + 1) != "*" && t.at(start.wrapping_sub(1)) != "operator" {
            self.insert_before(start, "mtlsim::make<".to_owned());
            let close = t.tokens[end - 1].end;
            self.list.push((close..close, ">".to_owned()));
        } else if t.is_word(end) && t.at(end + 1) == "(" && self.in_body(at) {
            let type_text = t.join(start, end);
            let close = t.tokens[end].end;
            self.list
                .push((close..close, format!(" = mtlsim::make<{type_text}>")));
        }
    }

    /// `f({a, b, c}, ...)`: a first argument in braces that may be a vector.
    fn braced_argument(&mut self, at: usize) {
        let t = self.t;
        let close = t.tokens[at].close;
        let callee = at.wrapping_sub(2);
        let is_call = t.at(at.wrapping_sub(1)) == "(" && (t.is_word(callee) || t.at(callee) == ">");
        if is_call && matches!(t.at(close + 1), "," | ")") && self.in_body(at) && close > at + 1 {
            self.replace(at, "mtlsim::list(");
            self.replace(close, ")");
        }
    }

    fn apply(self) -> String {
        let all = 0..self.t.text.len();
        self.apply_range(all)
    }

    fn apply_range(mut self, range: Range<usize>) -> String {
        // Insertions, then the longest edit: what lies inside an erased range
        // goes with it.
        self.list
            .sort_by_key(|(bytes, _)| (bytes.start, !bytes.is_empty(), Reverse(bytes.end)));
        let mut text = String::with_capacity(range.len() + range.len() / 8);
        let mut at = range.start;
        for (bytes, replacement) in &self.list {
            if bytes.start >= at {
                text.push_str(&self.t.text[at..bytes.start]);
                text.push_str(replacement);
                at = bytes.end;
            }
        }
        text.push_str(&self.t.text[at..range.end]);
        text
    }
}

fn is_vector_name(word: &str) -> bool {
    word.strip_suffix(['2', '3', '4'])
        .is_some_and(|element| VECTOR_ELEMENTS.contains(&element))
}

/// How the descriptor names the kernel's function.
struct Function {
    /// Declares `mtlsim_function`.
    declaration: String,
    max_threads: String,
}

impl Function {
    fn new(expression: &str, kernel: &Kernel) -> Result<Self, Error> {
        let tokens = Tokens::new(expression)?;
        let mut edits = Edits::new(&tokens);
        edits.tokens()?;
        let lowered = edits.apply();
        let unlimited = "MTLSIM_MAX_THREADS".to_owned();
        Ok(match lowered.split_once('(') {
            // Template arguments that follow from the parameters.
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

fn append_descriptor(
    text: &mut String,
    file: &str,
    host_name: &str,
    function: &Function,
    kernel: &Kernel,
    constants: &[FunctionConstant],
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
uint32_t mtlsim_local_bytes() {{ return mtlsim::local_bytes; }}
}}
extern "C" [[gnu::visibility("default")]] const mtlsim_kernel mtlsim_kernel_entry;
const mtlsim_kernel mtlsim_kernel_entry = {{
  MTLSIM_ABI_VERSION, mtlsim::variant, "{host_name}", "{file}", {argument_count}, mtlsim_arguments,
  {constant_count}, mtlsim_constants, {max_threads}, &mtlsim_local_bytes, &mtlsim_run}};
"#
    );
}

fn describe_parameter(
    parameter: &Parameter,
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
