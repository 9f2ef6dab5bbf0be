//! Tokens of preprocessed Metal Shading Language, with their places in the text.
//!
//! Lowering edits the text in place, so white space is not tokenized: text that is not edited stays
//! as it was, including line numbers.

use crate::Error;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Word,
    /// A number, with its suffix.
    Number,
    /// A string or character literal.
    Literal,
    /// An operator or bracket. `>` is always a separate token, so that template lists close.
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

impl<'a> Tokens<'a> {
    /// Splits `text`. An error if a bracket, comment or literal is not closed.
    pub(crate) fn new(text: &'a str) -> Result<Self, Error> {
        let split = c_tokens::split(text);
        if let Some(c_tokens::Unclosed { at, what }) = split.unclosed {
            return Err(unclosed(text, at, what));
        }
        let mut tokens: Vec<Token> = Vec::with_capacity(split.tokens.len());
        let mut open: Vec<usize> = Vec::new();
        // A directive is one token, from its `#` to the end of the line.
        let mut in_directive = false;
        for token in split.tokens {
            if token.directive {
                let end = match token.kind {
                    c_tokens::Kind::LineEnd => token.start,
                    _ => text.len(),
                };
                match tokens.last_mut().filter(|_| in_directive) {
                    Some(directive) => directive.end = end,
                    None => tokens.push(Token {
                        kind: Kind::Directive,
                        start: token.start,
                        end,
                        close: 0,
                    }),
                }
                in_directive = token.kind != c_tokens::Kind::LineEnd;
                continue;
            }
            let index = tokens.len();
            let kind = match token.kind {
                c_tokens::Kind::Word => Kind::Word,
                c_tokens::Kind::Number => Kind::Number,
                c_tokens::Kind::Literal => Kind::Literal,
                c_tokens::Kind::Punct | c_tokens::Kind::LineEnd => Kind::Punct,
            };
            match &text[token.start..token.end] {
                "(" | "[" | "{" => open.push(index),
                closer @ (")" | "]" | "}") => {
                    let opener = open
                        .pop()
                        .ok_or_else(|| unclosed(text, token.start, "bracket"))?;
                    let opening: &mut Token = &mut tokens[opener];
                    let wanted = match text.as_bytes()[opening.start] {
                        b'(' => ")",
                        b'[' => "]",
                        _ => "}",
                    };
                    if wanted != closer {
                        return Err(unclosed(text, opening.start, "bracket"));
                    }
                    opening.close = index;
                }
                _ => {}
            }
            tokens.push(Token {
                kind,
                start: token.start,
                end: token.end,
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

    /// The token after the closing bracket if `index` is an opening one, else the next token.
    pub(crate) fn skip(&self, index: usize) -> usize {
        match self.at(index) {
            "(" | "[" | "{" => self.tokens[index].close + 1,
            _ => index + 1,
        }
    }

    /// The token after the `>` that closes the `<` at `index`, if that comes before `;` or `{`.
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

    /// The bytes of tokens `from..to`, from the start of the first to the end of the last.
    pub(crate) fn bytes(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        self.tokens[from].start..self.tokens[to - 1].end
    }
}

fn unclosed(text: &str, at: usize, what: &str) -> Error {
    Error::Syntax {
        place: place(text, at),
        message: format!("{what} without its other end"),
    }
}

/// File and line of a byte of preprocessed text, according to the nearest line marker (`# 12
/// "file"`) above it.
pub(crate) fn place(text: &str, at: usize) -> String {
    match locate(text, at) {
        (Some(file), line, _) => format!("{file}:{line}"),
        (None, line, _) => format!("line {line}"),
    }
}

/// File, line and column of a byte of preprocessed text. The file is `None` if there is no line
/// marker above it.
pub(crate) fn locate(text: &str, at: usize) -> (Option<String>, usize, usize) {
    let column = at - text[..at].rfind('\n').map_or(0, |end| end + 1) + 1;
    let mut lines = text[..at].split('\n').rev();
    let found = lines
        .by_ref()
        .enumerate()
        .find_map(|(back, line)| Some((back, line_marker(line)?)));
    match found {
        Some((back, (number, file))) => (Some(file.to_owned()), number + back - 1, column),
        None => (None, 1 + text[..at].matches('\n').count(), column),
    }
}

/// Line and file that a line marker specifies for the next line.
pub(crate) fn line_marker(line: &str) -> Option<(usize, &str)> {
    let rest = line
        .strip_prefix("# ")
        .or_else(|| line.strip_prefix("#line "))?;
    let (number, rest) = rest.split_once(' ')?;
    let file = rest.split('"').nth(1)?;
    Some((number.parse().ok()?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let tokens = Tokens::new(text).unwrap();
        (0..tokens.tokens.len()).map(|i| tokens.at(i)).collect()
    }

    #[test]
    fn a_directive_is_one_token() {
        let text = "#line 1\n#define A \\\n x // y \n a#b\n#end /* x";
        assert_eq!(
            words(text),
            [
                "#line 1",
                "#define A \\\n x // y ",
                "a",
                "#",
                "b",
                "#end /* x"
            ]
        );
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
