//! Reads the tree of declarations, statements and expressions that clang prints with `-ast-dump`.
//!
//! The text form, not the JSON form: it contains what the rules need and is a fifteenth as long (4
//! MB instead of 66 MB for one instantiation of `affine_qmm_t`), so clang takes 0.15 s instead of
//! 0.36 s to check a source.

/// A place in the checked text; lines and columns count from 1.
pub(super) type Place = (usize, usize);

#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) depth: usize,
    pub(super) kind: &'a str,
    /// The id by which other nodes refer to it; 0 if it has none.
    pub(super) id: u64,
    /// The previous declaration of the same entity.
    pub(super) earlier: u64,
    /// Where the node begins, and where the name of a declaration is, if in the checked text.
    pub(super) begin: Option<Place>,
    pub(super) name: Option<Place>,
    /// The text after the places: flags, name and type.
    pub(super) rest: &'a str,
}

impl<'a> Node<'a> {
    /// The place for an error about the node.
    pub(super) fn place(&self) -> Option<Place> {
        self.name.or(self.begin)
    }

    /// The node's type as written.
    pub(super) fn written_type(&self) -> &'a str {
        quoted(self.rest).map_or("", |(written, _)| written)
    }

    /// The node's type with aliases resolved.
    pub(super) fn type_name(&self) -> &'a str {
        let Some((first, after)) = quoted(self.rest) else {
            return "";
        };
        match after.strip_prefix(':').and_then(quoted) {
            Some((plain, _)) => plain,
            None => first,
        }
    }

    /// The declaration that an expression refers to, and its name, if it is of `kind`: `Var`,
    /// `EnumConstant`.
    pub(super) fn refers_to(&self, kind: &str) -> Option<(u64, &'a str)> {
        let (_, after) = self.rest.split_once(&format!("{kind} 0x"))?;
        let (id, after) = after.split_once(' ')?;
        Some((u64::from_str_radix(id, 16).ok()?, quoted(after)?.0))
    }

    /// Whether `word` is one of the node's flags.
    pub(super) fn has(&self, word: &str) -> bool {
        let mut rest = self.rest;
        while let Some(open) = rest.find('\'') {
            if rest[..open].split_whitespace().any(|flag| flag == word) {
                return true;
            }
            match quoted(rest) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        rest.split_whitespace().any(|flag| flag == word)
    }

    /// The declared name, which precedes the type.
    pub(super) fn declared(&self) -> &'a str {
        let before = self.rest.split('\'').next().unwrap_or_default();
        before.split_whitespace().next_back().unwrap_or_default()
    }

    /// The function that an expression refers to, and its name.
    pub(super) fn function(&self) -> Option<(u64, &'a str)> {
        match self.kind {
            "DeclRefExpr" => {
                let (_, after) = ["Function 0x", "CXXMethod 0x"]
                    .iter()
                    .find_map(|kind| self.rest.split_once(kind))?;
                let (id, after) = after.split_once(' ')?;
                Some((u64::from_str_radix(id, 16).ok()?, quoted(after)?.0))
            }
            "MemberExpr" => {
                let id = self
                    .rest
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix("0x"))?;
                Some((u64::from_str_radix(id, 16).ok()?, ""))
            }
            _ => None,
        }
    }
}

/// The text between the first two quotes, and the text after them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let open = text.find('\'')?;
    let close = open + 1 + text[open + 1..].find('\'')?;
    Some((&text[open + 1..close], &text[close + 1..]))
}

/// Walks the nodes of a printed tree, from the root down.
pub(super) struct Walk<'a> {
    lines: std::str::Lines<'a>,
    /// Path of the checked text.
    file: &'a str,
    in_file: bool,
    /// Whether any place in the file was found.
    pub(super) has_seen_file: bool,
    line: usize,
}

impl<'a> Walk<'a> {
    /// `file` is the path of the checked file as it appears in the dump. It must not contain `, `
    /// or `'`, at which ranges and types are split.
    pub(super) fn new(dump: &'a str, file: &'a str) -> Self {
        Walk {
            lines: dump.lines(),
            file,
            in_file: false,
            has_seen_file: false,
            line: 0,
        }
    }

    /// Parses a place, which clang prints in full or as the difference from the previous one.
    fn place(&mut self, text: &str) -> Option<Place> {
        let text = text.trim();
        if text.starts_with("<invalid") || text.is_empty() {
            return None;
        }
        let mut parts = text.rsplitn(3, ':');
        let column = parts.next()?.parse().ok()?;
        match (parts.next()?, parts.next()) {
            ("col", None) => {}
            (line, Some("line")) => self.line = line.parse().ok()?,
            (line, Some(file)) => {
                self.line = line.parse().ok()?;
                self.in_file = file == self.file;
                self.has_seen_file |= self.in_file;
            }
            _ => return None,
        }
        self.in_file.then_some((self.line, column))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let line = self.lines.next()?;
        let indent = line.len() - line.trim_start_matches(['|', ' ', '`', '-']).len();
        let (depth, text) = (indent / 2, &line[indent..]);
        let (kind, mut rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut take_id = |label: &str| {
            let after = rest.strip_prefix(label)?.strip_prefix("0x")?;
            let (id, after) = after.split_once(' ').unwrap_or((after, ""));
            rest = after;
            u64::from_str_radix(id, 16).ok()
        };
        let id = take_id("").unwrap_or_default();
        take_id("parent ");
        let earlier = take_id("prev ").unwrap_or_default();
        let (mut begin, mut name) = (None, None);
        if let Some(range) = rest.strip_prefix('<')
            && let Some(end) = closing(range)
        {
            let (first, last) = range[..end].split_once(", ").unwrap_or((&range[..end], ""));
            begin = self.place(first);
            self.place(last);
            rest = range[end + 1..].trim_start();
            // A declaration also has the place of its name.
            let word = rest.split(' ').next().unwrap_or_default();
            let is_place = word
                .rsplit(':')
                .next()
                .is_some_and(|c| c.parse::<usize>().is_ok())
                && word.contains(':');
            if kind.ends_with("Decl") && is_place {
                name = self.place(word);
                rest = &rest[word.len()..];
            }
        }
        Some(Node {
            depth,
            kind,
            id,
            earlier,
            begin,
            name,
            rest,
        })
    }
}

/// The `>` that closes a range whose `<` precedes `text`. Ranges may contain others, such as
/// `<invalid sloc>`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if depth == 0 => return Some(at),
            '>' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "TranslationUnitDecl 0x5 <<invalid sloc>> <invalid sloc> <undeserialized declarations>
|-VarDecl 0x10 </tmp/x/kernel.cpp:3:1, col:16> col:5 used n 'bfloat16_t':'__bf16' static cinit
| `-IntegerLiteral 0x11 <col:16> 'int' 0
|-FunctionDecl 0x20 prev 0x1f </shim/types.h:9:2, /tmp/x/kernel.cpp:5:9> line:4:6 used f 'int (int)' inline
| `-CallExpr 0x21 <col:10, line:6:2> 'int'
|   `-DeclRefExpr 0x22 <col:10> 'int (int)' lvalue Function 0x20 'f' 'int (int)'
`-CXXMethodDecl 0x30 <line:7:3, col:9> col:7 g 'void () const' virtual
";

    #[test]
    fn places_are_taken_from_the_last_ones() {
        let nodes: Vec<_> = Walk::new(DUMP, "/tmp/x/kernel.cpp").collect();
        let at: Vec<_> = nodes
            .iter()
            .map(|node| (node.depth, node.begin, node.name))
            .collect();
        assert_eq!(
            at,
            [
                (0, None, None),
                (1, Some((3, 1)), Some((3, 5))),
                (2, Some((3, 16)), None),
                (1, None, Some((4, 6))),
                (2, Some((4, 10)), None),
                (3, Some((6, 10)), None),
                (1, Some((7, 3)), Some((7, 7))),
            ]
        );
        assert_eq!((nodes[1].type_name(), nodes[1].declared()), ("__bf16", "n"));
        assert!(nodes[1].has("static") && !nodes[1].has("bfloat16_t"));
        assert_eq!((nodes[3].id, nodes[3].earlier), (0x20, 0x1f));
        assert_eq!(nodes[5].function(), Some((0x20, "f")));
        assert!(nodes[6].has("virtual"));
    }
}
