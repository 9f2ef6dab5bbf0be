//! Edits of a source's text: ranges and their replacements.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

use crate::items::{Item, ItemKind, members};
use crate::lexer::Tokens;

/// How address spaces of types are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spaces {
    /// Removed: the host has one address space.
    Erased,
    /// Kept: each is a separate space for the compiler, with `thread` as the default, as in Metal.
    Kept,
}

pub(super) struct Edits<'t, 'a> {
    pub(super) t: &'t Tokens<'a>,
    pub(super) spaces: Spaces,
    /// Byte ranges and their replacements.
    pub(super) list: Vec<(Range<usize>, String)>,
    /// Deleted tokens.
    pub(super) erased: Vec<Range<usize>>,
    /// Tokens replaced along with their declaration.
    pub(super) decided: HashSet<usize>,
    pub(super) locals: usize,
    /// Function bodies, in order. Inside them, a type followed by a name declares a variable.
    pub(super) bodies: Vec<Range<usize>>,
    /// Names of vector types.
    pub(super) aliases: HashSet<&'a str>,
}

impl<'t, 'a> Edits<'t, 'a> {
    pub(super) fn new(t: &'t Tokens<'a>, spaces: Spaces) -> Self {
        Edits {
            t,
            spaces,
            list: Vec::new(),
            erased: Vec::new(),
            decided: HashSet::new(),
            locals: 0,
            bodies: Vec::new(),
            aliases: HashSet::new(),
        }
    }

    pub(super) fn find_bodies(&mut self, items: &[Item]) {
        for item in items {
            match item.kind {
                ItemKind::Function => self.bodies.push(item.body..item.end),
                ItemKind::Class => self.find_bodies(&members(self.t, item.body)),
                _ => {}
            }
        }
        self.bodies.sort_by_key(|body| body.start);
    }

    /// The start of the type name that ends with the word `at`, including namespaces and
    /// `typename`.
    pub(super) fn type_start(&self, at: usize) -> usize {
        let mut start = at;
        while start > 1 && self.t.at(start - 1) == "::" && self.t.is_word(start - 2) {
            start -= 2;
        }
        if start > 0 && self.t.at(start - 1) == "typename" {
            start -= 1;
        }
        start
    }

    pub(super) fn in_body(&self, at: usize) -> bool {
        let next = self.bodies.partition_point(|body| body.start <= at);
        next > 0 && self.bodies[next - 1].contains(&at)
    }

    pub(super) fn erase(&mut self, tokens: Range<usize>) {
        let bytes = self.t.bytes(tokens.start, tokens.end);
        // Line numbers do not change.
        let lines = self.t.text[bytes.clone()].matches('\n').count();
        self.list.push((bytes, "\n".repeat(lines)));
        self.erased.push(tokens);
    }

    pub(super) fn replace(&mut self, token: usize, text: &str) {
        self.list
            .push((self.t.bytes(token, token + 1), text.to_owned()));
    }

    pub(super) fn insert_before(&mut self, token: usize, text: String) {
        let at = self.t.tokens[token].start;
        self.list.push((at..at, text));
    }

    pub(super) fn apply(self) -> String {
        let all = 0..self.t.text.len();
        self.apply_range(all)
    }

    pub(super) fn apply_range(self, range: Range<usize>) -> String {
        self.apply_traced(range).0
    }

    /// The edited text, and the origin of its pieces.
    pub(super) fn apply_traced(mut self, range: Range<usize>) -> (String, Vec<Piece>) {
        // Insertions first, then the longest edit: an edit inside an erased range is dropped with
        // it.
        self.list
            .sort_by_key(|(bytes, _)| (bytes.start, !bytes.is_empty(), Reverse(bytes.end)));
        let mut text = String::with_capacity(range.len() + range.len() / 8);
        let mut pieces = Vec::new();
        let mut at = range.start;
        for (bytes, replacement) in &self.list {
            if bytes.start >= at {
                pieces.push(Piece::new(&text, at, true));
                text.push_str(&self.t.text[at..bytes.start]);
                pieces.push(Piece::new(&text, bytes.start, false));
                text.push_str(replacement);
                at = bytes.end;
            }
        }
        pieces.push(Piece::new(&text, at, true));
        text.push_str(&self.t.text[at..range.end]);
        (text, pieces)
    }
}

/// A piece of an edited text: from byte `to` on, it contains the original's bytes from `from` on,
/// or their replacement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) is_copy: bool,
}

impl Piece {
    fn new(text: &str, from: usize, is_copy: bool) -> Self {
        Piece {
            to: text.len(),
            from,
            is_copy,
        }
    }
}
