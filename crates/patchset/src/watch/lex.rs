//! C++ tokens, as far as telling two functions apart needs them: comments and white space are gone, and nothing else.

/// One token and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// The text; a line end that closes a directive is `"\n"`.
    pub(super) text: &'a str,
    /// The offset of its first byte.
    pub(super) start: usize,
    /// Part of a preprocessor directive, its closing line end included.
    pub(super) directive: bool,
}

impl Token<'_> {
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Longest first: a shorter one must not cut a longer one in two (`a - -b` is not `a--b`).
const PUNCTUATORS: [&str; 27] = [
    "<<=", ">>=", "...", "->*", "<=>", "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=",
    "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", ".*",
];

/// Splits a source text. Never fails: a text that is no C++ gives tokens that are no C++.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        text,
        at: 0,
        line_start: true,
        directive: false,
        tokens: Vec::new(),
    };
    lexer.run();
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line_start: bool,
    directive: bool,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn run(&mut self) {
        while let Some(next) = self.rest().chars().next() {
            let rest = self.rest();
            if next == '\n' {
                if self.directive {
                    self.push(1);
                } else {
                    self.at += 1;
                }
                self.directive = false;
                self.line_start = true;
            } else if let Some(length) = continuation(rest) {
                self.at += length;
            } else if next.is_whitespace() {
                self.at += next.len_utf8();
            } else if rest.starts_with("//") {
                self.at += line_comment(rest);
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else {
                if next == '#' && self.line_start {
                    self.directive = true;
                }
                self.line_start = false;
                self.push(self.length(rest, next));
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, length: usize) {
        let text = &self.text[self.at..self.at + length];
        self.tokens.push(Token {
            text,
            start: self.at,
            directive: self.directive,
        });
        self.at += length;
    }

    fn length(&self, rest: &str, next: char) -> usize {
        if next == '"' || next == '\'' {
            return quoted(rest, next);
        }
        if next.is_ascii_digit()
            || (next == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            return number(rest);
        }
        if is_word(next) {
            let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if let Some(length) = raw_string(rest, word) {
                return length;
            }
            // `#define F(x)` and `#define F (x)` are not the same macro.
            let defines = self.directive
                && self
                    .tokens
                    .last()
                    .is_some_and(|token| token.text == "define");
            return word + usize::from(defines && rest[word..].starts_with('('));
        }
        PUNCTUATORS
            .iter()
            .find(|mark| rest.starts_with(**mark))
            .map_or(next.len_utf8(), |mark| mark.len())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of a backslash with a line end behind it.
fn continuation(rest: &str) -> Option<usize> {
    ["\\\n", "\\\r\n"]
        .into_iter()
        .find(|mark| rest.starts_with(mark))
        .map(str::len)
}

/// Up to the line end, which is not part of it; a continued line goes on.
fn line_comment(rest: &str) -> usize {
    let mut at = 0;
    while let Some(end) = rest[at..].find('\n') {
        let line = rest[..at + end].trim_end_matches('\r');
        if !line.ends_with('\\') {
            return at + end;
        }
        at += end + 1;
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return at,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Digits, letters, separators, and the sign of an exponent.
fn number(rest: &str) -> usize {
    let mut before = ' ';
    for (at, c) in rest.char_indices() {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E' | 'p' | 'P');
        let separator = c == '\'' && is_word(before);
        if !(is_word(c) || c == '.' || sign || separator) {
            return at;
        }
        before = c;
    }
    rest.len()
}

/// The whole of `R"mark(…)mark"`, if the word before the quote says so.
fn raw_string(rest: &str, word: usize) -> Option<usize> {
    if !matches!(&rest[..word], "R" | "LR" | "uR" | "UR" | "u8R") || !rest[word..].starts_with('"')
    {
        return None;
    }
    let body = word + 1;
    let open = rest[body..].find('(')?;
    let close = format!("){}\"", &rest[body..body + open]);
    let end = rest[body + open..].find(&close)?;
    Some(body + open + end + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_space_are_nothing() {
        let plain = texts("int f(int a){return a- -1;}");
        assert_eq!(
            texts("int  f ( int a ) // to \\\n the end\n{ /* a */ return a - -1 ; }"),
            plain
        );
        assert_ne!(texts("int f(int a){return a--1;}"), plain);
    }

    #[test]
    fn what_looks_like_a_comment_in_a_string_is_text() {
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
        assert_ne!(texts("#define F(x) x\n"), texts("#define F (x) x\n"));
        let all = tokens("#if X // why\nint a;\n#endif");
        assert_eq!(all.iter().filter(|token| token.directive).count(), 6);
    }

    #[test]
    fn numbers_hold_together() {
        assert_eq!(
            texts("1'000 1e-5f 0x1p+3 .5 a.b 1-1"),
            [
                "1'000", "1e-5f", "0x1p+3", ".5", "a", ".", "b", "1", "-", "1"
            ]
        );
    }
}
