//! Replaces words, numbers and attributes.

use std::ops::Range;

use super::edits::{Edits, Spaces};
use super::spaces::ADDRESS_SPACES;
use super::vectors::is_vector_name;
use crate::Error;
use crate::lexer::Kind;
use crate::parse::{DerivedConstant, FunctionConstant, Kernel};

/// Attributes with the same meaning on the host.
const KEPT_ATTRIBUTES: [&str; 5] = ["maybe_unused", "nodiscard", "fallthrough", "clang", "gnu"];

impl Edits<'_, '_> {
    /// Each thread of the host has its own copies: it sets them before every threadgroup, and other
    /// threads may run another pipeline of this kernel.
    pub(super) fn constants(&mut self, constants: &[FunctionConstant]) {
        for constant in constants {
            self.variable_of_a_thread(
                constant.keyword,
                constant.start..constant.end,
                constant.is_static,
            );
            let end = self.t.tokens[constant.end].end;
            let flag = format!(
                " static thread_local bool mtlsim_defined_{};",
                constant.name
            );
            self.list.push((end..end, flag));
        }
    }

    /// Values that depend on function constants are computed whenever the constants are set.
    pub(super) fn derived_constants(&mut self, derived: &[DerivedConstant]) {
        for constant in derived {
            self.variable_of_a_thread(
                constant.keyword,
                constant.start..constant.equals,
                constant.is_static,
            );
            self.erase(constant.equals..constant.end);
        }
    }

    fn variable_of_a_thread(&mut self, keyword: usize, words: Range<usize>, is_static: bool) {
        let storage = if is_static {
            "thread_local"
        } else {
            "static thread_local"
        };
        self.replace(keyword, storage);
        self.decided.insert(keyword);
        for token in words {
            if matches!(self.t.at(token), "const" | "constexpr") {
                self.replace(token, "");
                self.decided.insert(token);
            }
        }
    }

    pub(super) fn kernel(&mut self, kernel: &Kernel<'_>) {
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

    pub(super) fn tokens(&mut self) -> Result<(), Error> {
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

    pub(super) fn token(&mut self, at: usize) -> Result<usize, Error> {
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

    pub(super) fn word(&mut self, at: usize) -> Result<usize, Error> {
        let t = self.t;
        let word = t.at(at);
        match word {
            _ if self.decided.contains(&at) => {}
            "threadgroup" if self.starts_statement(at) => return self.threadgroup_declaration(at),
            "kernel" if self.starts_statement(at) => self.replace(at, ""),
            "coherent" if t.at(at + 1) == "(" => self.erase(at..t.skip(at + 1)),
            "static_cast" => self.static_cast(at),
            "vec" => self.vector_template(at),
            _ if ADDRESS_SPACES.contains(&word) => self.address_space(at)?,
            _ if is_vector_name(word) || self.aliases.contains(word) => {
                self.vector(self.type_start(at), at, at + 1);
            }
            _ => {}
        }
        Ok(at + 1)
    }

    pub(super) fn starts_statement(&self, at: usize) -> bool {
        at == 0
            || matches!(self.t.at(at - 1), "{" | "}" | ";")
            || self.t.kind(at - 1) == Some(Kind::Directive)
    }

    /// The tokens as text, lowered separately.
    pub(super) fn lowered(&self, tokens: Range<usize>) -> Result<String, Error> {
        if tokens.is_empty() {
            return Ok(String::new());
        }
        let mut inner = Edits::new(self.t, self.spaces);
        let mut at = tokens.start;
        while at < tokens.end {
            at = inner.token(at)?;
        }
        let bytes = self.t.bytes(tokens.start, tokens.end);
        Ok(inner.apply_range(bytes).replace('\n', " "))
    }

    /// MSL has no double: a literal without a suffix is a float. `1h` and `1bf` are not C++
    /// literals.
    pub(super) fn number(&mut self, at: usize) {
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
            // A suffix of the host's, so that the checked text contains no long double.
            let suffix = match self.spaces {
                Spaces::Erased => "L",
                Spaces::Kept => "f",
            };
            self.replace(at, &format!("half({digits}{point}{suffix})"));
        } else if real && !lower.ends_with(['f', 'l']) {
            self.replace(at, &format!("{text}f"));
        }
    }

    /// C++ refuses casts between half and bfloat, and between vectors. The cast of an expression
    /// with an operator remains a cast: inside a call, a product could no longer be contracted with
    /// the sum around it.
    pub(super) fn static_cast(&mut self, at: usize) {
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
}
