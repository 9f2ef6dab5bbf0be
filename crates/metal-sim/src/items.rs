//! Splits a source into its declarations.

use crate::lexer::{Kind, Tokens};

/// The kind of a declaration, as far as lowering needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemKind {
    /// A preprocessor line, an access label, a stray semicolon.
    Other,
    /// `namespace x {` or `extern "C" {`; the items of its body follow.
    Scope,
    /// A class with a body.
    Class,
    /// A function with a body.
    Function,
    /// Anything else that ends with a semicolon.
    Declaration,
    /// `template` without a list: an explicit instantiation.
    Instantiation,
}

/// A declaration: tokens `start..end`.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) start: usize,
    /// The first token after the template lists.
    pub(crate) after_templates: usize,
    /// The `{` of the body, or `end`.
    pub(crate) body: usize,
    pub(crate) end: usize,
}

/// Top-level declarations, including those in namespaces; a scope precedes its contents.
pub(crate) fn items(t: &Tokens<'_>) -> Vec<Item> {
    let mut items = Vec::new();
    collect(t, 0, t.tokens.len(), &mut items);
    items
}

fn collect(t: &Tokens<'_>, mut at: usize, end: usize, items: &mut Vec<Item>) {
    while at < end {
        let item = next_item(t, at, end);
        at = item.end;
        let inner =
            (item.kind == ItemKind::Scope).then(|| item.body + 1..t.tokens[item.body].close);
        items.push(item);
        if let Some(inner) = inner {
            collect(t, inner.start, inner.end, items);
        }
    }
}

/// Declarations directly inside a class body.
pub(crate) fn members(t: &Tokens<'_>, body: usize) -> Vec<Item> {
    let (mut at, end) = (body + 1, t.tokens[body].close);
    let mut items = Vec::new();
    while at < end {
        let item = next_item(t, at, end);
        at = item.end;
        items.push(item);
    }
    items
}

fn next_item(t: &Tokens<'_>, start: usize, end: usize) -> Item {
    let other = |end| Item {
        kind: ItemKind::Other,
        start,
        after_templates: start,
        body: end,
        end,
    };
    if t.kind(start) == Some(Kind::Directive) || t.at(start) == ";" {
        return other(start + 1);
    }
    if matches!(t.at(start), "public" | "private" | "protected") && t.at(start + 1) == ":" {
        return other(start + 2);
    }
    let mut first = start;
    while t.at(first) == "template" && t.at(first + 1) == "<" {
        match t.skip_angles(first + 1) {
            Some(after) => first = after,
            None => break,
        }
    }
    let after_templates = first;
    while t.is_attribute(first) {
        first = t.skip(first);
    }
    let item = |kind, body, end| Item {
        kind,
        start,
        after_templates,
        body,
        end,
    };
    let until_semicolon = |mut at: usize| {
        while at < end && t.at(at) != ";" {
            at = t.skip(at);
        }
        (at + 1).min(end)
    };
    match t.at(first) {
        "template" => {
            let stop = until_semicolon(first);
            return item(ItemKind::Instantiation, stop, stop);
        }
        "namespace" | "extern" => {
            let open = (first..end).find(|&i| matches!(t.at(i), "{" | ";" | "(" | "="));
            if let Some(open) = open.filter(|&open| t.at(open) == "{") {
                return item(ItemKind::Scope, open, t.skip(open));
            }
        }
        "using" | "typedef" | "static_assert" => {
            let stop = until_semicolon(first);
            return item(ItemKind::Declaration, stop, stop);
        }
        "struct" | "class" | "union" | "enum" => {
            let open = (first..end).find(|&i| matches!(t.at(i), "{" | ";" | "=" | "("));
            if let Some(open) = open.filter(|&open| t.at(open) == "{") {
                let stop = until_semicolon(open);
                return item(ItemKind::Class, open, stop);
            }
        }
        _ => {}
    }
    let (mut at, mut initialised, mut has_parameters) = (first, false, false);
    while at < end {
        match t.at(at) {
            ";" => return item(ItemKind::Declaration, at + 1, at + 1),
            "(" => has_parameters = true,
            "=" if t.at(at - 1) != "operator" => initialised = true,
            "{" if has_parameters && !initialised => {
                let mut stop = t.skip(at);
                if !matches!(t.at(stop), "," | "{") {
                    if t.at(stop) == ";" {
                        stop += 1;
                    }
                    return item(ItemKind::Function, at, stop.min(end));
                }
            }
            _ => {}
        }
        at = t.skip(at);
    }
    item(ItemKind::Declaration, end, end)
}
