//! Vectors: clang's vector types, which have no constructors in C++.

use super::edits::Edits;

const VECTOR_ELEMENTS: [&str; 12] = [
    "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float",
    "bfloat",
];

impl Edits<'_, '_> {
    /// `using name = vec<...>;` and `typedef vec<...> name;`
    pub(super) fn find_aliases(&mut self) {
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

    /// Replaces `vec<T, n>`, like [`Edits::vector`].
    pub(super) fn vector_template(&mut self, at: usize) {
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

    /// Replaces the construction of a vector, `float4(...)` or `float4 name(...)`, by a call of the
    /// shim: C++ has no such syntax for the compiler's vectors. The type is at tokens `start..end`.
    pub(super) fn vector(&mut self, start: usize, at: usize, end: usize) {
        let t = self.t;
        // `vec<T, 2> (*)(...)` is the type of a function.
        let is_pointer = t.at(end + 1) == "*" && t.at(end + 2) == ")";
        if t.at(end) == "(" && !is_pointer && t.at(start.wrapping_sub(1)) != "operator" {
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

    /// Handles `f({a, b, c}, ...)`: a first argument in braces that may be a vector.
    pub(super) fn braced_argument(&mut self, at: usize) {
        let t = self.t;
        let close = t.tokens[at].close;
        let callee = at.wrapping_sub(2);
        let is_call = t.at(at.wrapping_sub(1)) == "(" && (t.is_word(callee) || t.at(callee) == ">");
        if is_call && matches!(t.at(close + 1), "," | ")") && self.in_body(at) && close > at + 1 {
            self.replace(at, "mtlsim::list(");
            self.replace(close, ")");
        }
    }
}

pub(super) fn is_vector_name(word: &str) -> bool {
    word.strip_suffix(['2', '3', '4'])
        .is_some_and(|element| VECTOR_ELEMENTS.contains(&element))
}
