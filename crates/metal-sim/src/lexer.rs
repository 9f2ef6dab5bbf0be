//! Tokens of preprocessed Metal Shading Language, with their places in the text.
//!
//! Lowering edits the text in place, so white space is not kept as tokens:
//! what is not edited stays as it was, line numbers included.

use crate::Error;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Word,
    /// A number, with its suffix.
    Number,
    /// A string or character literal.
    Literal,
    /// An operator or bracket. `>` is always one character, so that template
    /// lists close.
    Punct,
    /// A line that starts with `#`.
    Directive,
}

/// One token: bytes `start..end` of the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// For an opening bracket, the index of the token that closes it.
    pub(crate) close: usize,
}

/// A text and its tokens.
#[derive(Debug)]
pub(crate) struct Tokens<'a> {
    pub(crate) text: &'a str,
    pub(crate) tokens: Vec<Token>,
}

/// Operators of more than one character that matter: the others may fall apart.
const OPERATORS: [&str; 18] = [
    "<<=", "->*", "::", "->", "==", "<=", ">=", "!=", "&&", "||", "<<", "++", "--", "+=", "-=",
    "*=", "/=", "%=",
];

impl<'a> Tokens<'a> {
    /// Splits `text`; an error where a bracket, comment or literal stays open.
    pub(crate) fn new(text: &'a str) -> Result<Self, Error> {
        let bytes = text.as_bytes();
        let mut tokens = Vec::with_capacity(text.len() / 4);
        let mut open: Vec<usize> = Vec::new();
        let (mut at, mut line_start) = (0, true);
        while at < bytes.len() {
            let start = at;
            let byte = bytes[at];
            if byte == b'\n' {
                line_start = true;
                at += 1;
                continue;
            }
            if byte.is_ascii_whitespace() {
                at += 1;
                continue;
            }
            if bytes[at..].starts_with(b"//") {
                at = line_end(bytes, at);
                continue;
            }
            if bytes[at..].starts_with(b"/*") {
                at =
                    find(bytes, at + 2, b"*/").ok_or_else(|| unclosed(text, start, "comment"))? + 2;
                continue;
            }
            let kind = if byte == b'#' && line_start {
                at = directive_end(bytes, at);
                Kind::Directive
            } else if byte == b'"' || byte == b'\'' {
                at = literal_end(bytes, at).ok_or_else(|| unclosed(text, start, "literal"))?;
                Kind::Literal
            } else if byte.is_ascii_digit()
                || (byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit))
            {
                at = number_end(bytes, at);
                Kind::Number
            } else if is_word(byte) {
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                Kind::Word
            } else {
                at += OPERATORS
                    .iter()
                    .find(|op| bytes[at..].starts_with(op.as_bytes()))
                    .map_or(1, |op| op.len());
                Kind::Punct
            };
            line_start = false;
            let index = tokens.len();
            if kind == Kind::Punct {
                match byte {
                    b'(' | b'[' | b'{' => open.push(index),
                    b')' | b']' | b'}' => {
                        let opener = open.pop().ok_or_else(|| unclosed(text, start, "bracket"))?;
                        let token: &mut Token = &mut tokens[opener];
                        let wanted = match bytes[token.start] {
                            b'(' => b')',
                            b'[' => b']',
                            _ => b'}',
                        };
                        if wanted != byte {
                            return Err(unclosed(text, token.start, "bracket"));
                        }
                        token.close = index;
                    }
                    _ => {}
                }
            }
            tokens.push(Token {
                kind,
                start,
                end: at,
                close: 0,
            });
        }
        match open.first() {
            Some(&opener) => Err(unclosed(text, tokens[opener].start, "bracket")),
            None => Ok(Tokens { text, tokens }),
        }
    }

    /// The text of token `index`; empty past the end.
    pub(crate) fn at(&self, index: usize) -> &'a str {
        self.tokens
            .get(index)
            .map_or("", |token| &self.text[token.start..token.end])
    }

    pub(crate) fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    pub(crate) fn is_word(&self, index: usize) -> bool {
        self.kind(index) == Some(Kind::Word)
    }

    /// Whether an attribute, `[[`, starts at `index`.
    pub(crate) fn is_attribute(&self, index: usize) -> bool {
        self.at(index) == "[" && self.at(index + 1) == "["
    }

    /// The token after the bracket that `index` opens, or the next token.
    pub(crate) fn skip(&self, index: usize) -> usize {
        match self.at(index) {
            "(" | "[" | "{" => self.tokens[index].close + 1,
            _ => index + 1,
        }
    }

    /// The token after the `>` that closes the `<` at `index`, if one does
    /// before `;` or `{`.
    pub(crate) fn skip_angles(&self, index: usize) -> Option<usize> {
        let (mut depth, mut at) = (0usize, index);
        loop {
            match self.at(at) {
                "<" => depth += 1,
                ">" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                "" | ";" | "{" | "}" | ")" | "]" => return None,
                _ => {}
            }
            at = self.skip(at);
        }
    }

    /// The text of tokens `from..to`, one space between tokens that need it.
    pub(crate) fn join(&self, from: usize, to: usize) -> String {
        let mut joined = String::new();
        for index in from..to {
            let word = self.at(index);
            let touches = |c: char| c.is_alphanumeric() || c == '_';
            if joined.ends_with(touches) && word.starts_with(touches) {
                joined.push(' ');
            }
            joined.push_str(word);
        }
        joined
    }

    /// The bytes of tokens `from..to`, from the first's start to the last's end.
    pub(crate) fn bytes(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        self.tokens[from].start..self.tokens[to - 1].end
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    find(bytes, at, b"\n").unwrap_or(bytes.len())
}

fn directive_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = line_end(bytes, at);
        if at == bytes.len() || bytes[at - 1] != b'\\' {
            return at;
        }
        at += 1;
    }
}

fn find(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    bytes[from..]
        .windows(needle.len())
        .position(|window| window == needle)
        .map(|offset| from + offset)
}

fn literal_end(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = bytes[start];
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'\n' {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn number_end(bytes: &[u8], mut at: usize) -> usize {
    let hex = bytes[at..].starts_with(b"0x") || bytes[at..].starts_with(b"0X");
    while at < bytes.len() {
        let exponent = if hex { b"pP" } else { b"eE" };
        match bytes[at] {
            b'+' | b'-' if exponent.contains(&bytes[at - 1]) => at += 1,
            b'.' | b'\'' => at += 1,
            byte if is_word(byte) => at += 1,
            _ => break,
        }
    }
    at
}

fn unclosed(text: &str, at: usize, what: &str) -> Error {
    Error::Syntax {
        place: place(text, at),
        message: format!("{what} without its other end"),
    }
}

/// File and line of a byte of preprocessed text, from the nearest line marker
/// (`# 12 "file"`) above it.
pub(crate) fn place(text: &str, at: usize) -> String {
    let mut lines = text[..at].split('\n').rev();
    let marker = |line: &str| {
        let rest = line
            .strip_prefix("# ")
            .or_else(|| line.strip_prefix("#line "))?;
        let (number, rest) = rest.split_once(' ')?;
        let file = rest.split('"').nth(1)?;
        Some((number.parse::<usize>().ok()?, file.to_owned()))
    };
    let found = lines
        .by_ref()
        .enumerate()
        .find_map(|(back, line)| Some((back, marker(line)?)));
    match found {
        Some((back, (number, file))) => format!("{file}:{}", number + back - 1),
        None => format!("line {}", 1 + text[..at].matches('\n').count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let tokens = Tokens::new(text).unwrap();
        (0..tokens.tokens.len()).map(|i| tokens.at(i)).collect()
    }

    #[test]
    fn splits_what_template_lists_and_numbers_need() {
        assert_eq!(
            words("a<b<c>> x = 1.5e-3f + .5 - 0x1p-3; // no\n#pragma x\ny->*z"),
            [
                "a",
                "<",
                "b",
                "<",
                "c",
                ">",
                ">",
                "x",
                "=",
                "1.5e-3f",
                "+",
                ".5",
                "-",
                "0x1p-3",
                ";",
                "#pragma x",
                "y",
                "->*",
                "z"
            ]
        );
    }

    #[test]
    fn a_hash_inside_a_line_is_no_directive() {
        assert_eq!(words("a # b"), ["a", "#", "b"]);
    }

    #[test]
    fn open_brackets_name_their_line() {
        let error = Tokens::new("int x;\nvoid f() {\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: bracket without its other end");
        let error = Tokens::new("# 7 \"k.metal\"\n\nint x;\n}\n").unwrap_err();
        assert!(error.to_string().starts_with("k.metal:9: "), "{error}");
        assert!(Tokens::new("(]").is_err());
        assert!(Tokens::new("/* x").is_err());
        assert!(Tokens::new("\"x\n\"").is_err());
    }

    #[test]
    fn angles_stop_at_statements() {
        let tokens = Tokens::new("f<a, b<c>>(x) ; a < b ; c > d").unwrap();
        assert_eq!(tokens.skip_angles(1), Some(9));
        let less = (0..).find(|&i| tokens.at(i) == "a" && i > 2).unwrap() + 1;
        assert_eq!(tokens.skip_angles(less), None);
    }
}
