//! Tokens of C-like text (C++, Metal, CUDA) with their positions. White space and comments are not tokens.
//!
//! `>` is always a token by itself, unless it ends `->` or `->*` or begins `>=`. So template lists close correctly, and
//! `a<b<c>>` is the same as `a<b<c> >`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword.
    Word,
    /// A number, with its suffix.
    Number,
    /// A string or character literal, raw ones included.
    Literal,
    /// An operator or bracket.
    Punct,
    /// The line end that closes a preprocessor directive. All other line ends are white space.
    LineEnd,
}

/// One token: the bytes `start..end` of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
    /// Whether it is part of a preprocessor directive.
    pub directive: bool,
}

/// An unclosed comment or literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unclosed {
    /// The first byte.
    pub at: usize,
    /// `comment` or `literal`.
    pub what: &'static str,
}

/// The tokens of a text.
#[derive(Debug, Clone, Default)]
pub struct Split {
    /// The tokens, in order.
    pub tokens: Vec<Token>,
    /// The first unclosed comment or literal outside directives. The tokens continue after its line, or end with it.
    pub unclosed: Option<Unclosed>,
}

/// Longest first, so that a shorter operator does not split a longer one.
const OPERATORS: [&str; 24] = [
    "<<=", "...", "->*", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", ".*",
];

/// Splits a text into tokens. Never fails; a text that is not C++ gives tokens that are not C++.
pub fn split(text: &str) -> Split {
    let bytes = text.as_bytes();
    let mut split = Split {
        tokens: Vec::with_capacity(text.len() / 4),
        unclosed: None,
    };
    let (mut at, mut line_start, mut directive) = (0, true, false);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, length) = match rest[0] {
            b'\n' => {
                let ends = directive;
                (line_start, directive) = (true, false);
                if !ends {
                    at += 1;
                    continue;
                }
                (Kind::LineEnd, 1)
            }
            b'\\' if continuation(rest).is_some() => {
                at += continuation(rest).unwrap_or(1);
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            _ if rest.starts_with(b"//") => {
                at += line_comment(rest);
                continue;
            }
            _ if rest.starts_with(b"/*") => {
                let end = find(rest, 2, b"*/");
                if end.is_none() && !directive {
                    split.unclosed(at, "comment");
                }
                at += end.map_or(rest.len(), |end| end + 2);
                continue;
            }
            b'"' | b'\'' => {
                let (length, closed) = literal(rest);
                if !closed && !directive {
                    split.unclosed(at, "literal");
                }
                (Kind::Literal, length)
            }
            byte if byte.is_ascii_digit()
                || (byte == b'.' && rest.get(1).is_some_and(u8::is_ascii_digit)) =>
            {
                (Kind::Number, number(rest))
            }
            byte if is_word(byte) => {
                let word = rest.iter().take_while(|byte| is_word(**byte)).count();
                match raw_string(rest, word) {
                    Some(length) => (Kind::Literal, length),
                    None => (Kind::Word, word),
                }
            }
            byte => {
                directive |= byte == b'#' && line_start;
                let operator = OPERATORS
                    .iter()
                    .find(|operator| rest.starts_with(operator.as_bytes()));
                (Kind::Punct, operator.map_or(1, |operator| operator.len()))
            }
        };
        if kind != Kind::LineEnd {
            line_start = false;
        }
        split.tokens.push(Token {
            kind,
            start: at,
            end: at + length,
            directive: directive || kind == Kind::LineEnd,
        });
        at += length;
    }
    split
}

impl Split {
    fn unclosed(&mut self, at: usize, what: &'static str) {
        self.unclosed.get_or_insert(Unclosed { at, what });
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// The length of a backslash followed by a line end.
fn continuation(rest: &[u8]) -> Option<usize> {
    [&b"\\\n"[..], b"\\\r\n"]
        .into_iter()
        .find(|mark| rest.starts_with(mark))
        .map(<[u8]>::len)
}

fn find(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    bytes[from..]
        .windows(needle.len())
        .position(|window| window == needle)
        .map(|offset| from + offset)
}

/// The length up to the line end, which is not included; a continued line counts too.
fn line_comment(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(end) = find(rest, at, b"\n") {
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        if !line.ends_with(b"\\") {
            return end;
        }
        at = end + 1;
    }
    rest.len()
}

/// The length, and whether it is closed; it does not extend past its line.
fn literal(rest: &[u8]) -> (usize, bool) {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'\n' {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == rest[0] => return (at + 1, true),
            _ => at += 1,
        }
    }
    (at.min(rest.len()), false)
}

/// Digits, letters, separators, and the sign of an exponent.
fn number(rest: &[u8]) -> usize {
    let hex = rest.starts_with(b"0x") || rest.starts_with(b"0X");
    let exponent = if hex { b"pP" } else { b"eE" };
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'+' | b'-' if at > 0 && exponent.contains(&rest[at - 1]) => at += 1,
            b'.' | b'\'' => at += 1,
            byte if is_word(byte) => at += 1,
            _ => break,
        }
    }
    at
}

/// The length of `R"mark(…)mark"`, if the word before the quote is a raw string's prefix.
fn raw_string(rest: &[u8], word: usize) -> Option<usize> {
    if !matches!(&rest[..word], b"R" | b"LR" | b"uR" | b"UR" | b"u8R")
        || rest.get(word) != Some(&b'"')
    {
        return None;
    }
    let body = word + 1;
    let open = find(rest, body, b"(")?;
    let close = [b")", &rest[body..open], b"\""].concat();
    Some(find(rest, open, &close)? + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        let tokens = split(text).tokens;
        tokens
            .iter()
            .map(|token| &text[token.start..token.end])
            .collect()
    }

    #[test]
    fn comments_and_space_are_nothing() {
        let plain = texts("int f(int a){return a- -1;}");
        let spaced = "int  f ( int a ) // to \\\n the end\n{ /* a */ return a - -1 ; }";
        assert_eq!(texts(spaced), plain);
        assert_ne!(texts("int f(int a){return a--1;}"), plain);
    }

    #[test]
    fn what_looks_like_a_comment_in_a_literal_is_text() {
        assert_eq!(
            texts(r#"a("//", '"', "\"/*") b"#),
            ["a", "(", "\"//\"", ",", "'\"'", ",", r#""\"/*""#, ")", "b"]
        );
        assert_eq!(texts("R\"x(// )\" )x\" // c"), ["R\"x(// )\" )x\""]);
    }

    #[test]
    fn a_directive_ends_with_its_line() {
        assert_eq!(
            texts("#define A \\\n 1\nB"),
            ["#", "define", "A", "1", "\n", "B"]
        );
        assert_ne!(texts("#define A B\nC"), texts("#define A\nB C"));
        assert_eq!(texts("#define A\n\n\nB"), ["#", "define", "A", "\n", "B"]);
        let all = split("#if X // why\nint a;\n#endif").tokens;
        assert_eq!(all.iter().filter(|token| token.directive).count(), 6);
        let inside = split("a # b").tokens;
        assert!(inside.iter().all(|token| !token.directive));
    }

    #[test]
    fn numbers_hold_together() {
        assert_eq!(
            texts("1'000 1e-5f 0x1p+3 0x1e+3 .5 a.b 1-1"),
            [
                "1'000", "1e-5f", "0x1p+3", "0x1e", "+", "3", ".5", "a", ".", "b", "1", "-", "1"
            ]
        );
    }

    #[test]
    fn template_lists_close_one_by_one() {
        assert_eq!(texts("a<b<c>> x"), ["a", "<", "b", "<", "c", ">", ">", "x"]);
        assert_eq!(
            texts("a->b >= c->*d"),
            ["a", "->", "b", ">=", "c", "->*", "d"]
        );
    }

    #[test]
    fn what_does_not_end_is_told_and_passed() {
        for (text, at, what) in [("a /* x", 2, "comment"), ("a \"x\nb", 2, "literal")] {
            assert_eq!(split(text).unclosed, Some(Unclosed { at, what }));
        }
        assert_eq!(texts("\"x\nb"), ["\"x", "b"]);
        assert_eq!(texts("'\\"), ["'\\"]);
        assert_eq!(split("#error don't\nint a;").unclosed, None);
    }

    #[test]
    fn places_are_whole_characters() {
        for text in ["ä/ö \"ü\\é", "'\\ä", "// ä\\", "0ä'", "R\"ä(ö)ä\""] {
            let tokens = split(text).tokens;
            assert!(
                tokens
                    .iter()
                    .all(|token| text.get(token.start..token.end).is_some()),
                "{text}"
            );
        }
    }
}
