//! What the tree of a source tells.

use std::collections::{HashMap, HashSet};

use super::clang::in_metal;
use super::tree::{Node, Place, Walk};
use super::{Refusal, Version};
use crate::lower::{ADDRESS_SPACES, Examined};
use crate::parse::Source;

/// Goes through the tree that clang printed for `examined`.
pub(super) fn find(
    source: &Source<'_>,
    examined: &Examined,
    dump: &str,
    version: Version,
) -> Result<Vec<Refusal>, crate::Error> {
    let constants = source.function_constants()?;
    let mut rules = Rules {
        source,
        examined,
        version,
        constants: constants.iter().map(|c| c.name.as_str()).collect(),
        kernels: source.kernels()?.iter().map(|k| k.name_token).collect(),
        found: Vec::new(),
        functions: HashMap::new(),
        uses: Vec::new(),
        ends: Vec::new(),
        virtual_base: HashSet::new(),
        derived: HashSet::new(),
    };
    let mut above: Vec<Node<'_>> = Vec::new();
    for node in Walk::new(dump, "/kernel.cpp") {
        above.truncate(node.depth);
        // What was appended to the text is ours.
        let appended = node
            .place()
            .is_some_and(|(line, _)| examined.is_appended(line));
        if !appended {
            rules.node(&node, &above);
        }
        while above.len() < node.depth {
            above.push(node);
        }
        above.push(node);
    }
    rules.calls();
    Ok(rules.found)
}

/// A function of the source.
#[derive(Debug)]
struct Function<'a> {
    name: &'a str,
    place: Option<Place>,
    has_body: bool,
    /// Declared where a definition elsewhere could be meant: in a namespace or
    /// a function, and no template.
    is_plain: bool,
    is_constexpr: bool,
    earlier: u64,
}

/// A mention of a function in another's body.
#[derive(Debug, Clone, Copy)]
struct Use<'a> {
    within: u64,
    of: u64,
    name: &'a str,
    place: Option<Place>,
    /// Whether nothing of the function is done after it.
    is_last: bool,
}

struct Rules<'t, 'a> {
    source: &'t Source<'t>,
    examined: &'t Examined,
    version: Version,
    constants: HashSet<&'t str>,
    /// The tokens that are kernels' names.
    kernels: HashSet<usize>,
    found: Vec<Refusal>,
    functions: HashMap<u64, Function<'a>>,
    uses: Vec<Use<'a>>,
    /// Mentions that may be the last thing their function does, each with the
    /// blocks that they end as far as is known.
    ends: Vec<(usize, Vec<u64>)>,
    virtual_base: HashSet<Place>,
    /// Classes that have a base.
    derived: HashSet<&'a str>,
}

const FUNCTIONS: [&str; 5] = [
    "FunctionDecl",
    "CXXMethodDecl",
    "CXXConstructorDecl",
    "CXXDestructorDecl",
    "CXXConversionDecl",
];

/// Nodes that Metal has no place for at all: kind, section, message.
const EXCLUDED: [(&str, &str, &str); 15] = [
    ("GotoStmt", "1.5.4", "'goto' is not supported in Metal"),
    (
        "IndirectGotoStmt",
        "1.5.4",
        "'goto' is not supported in Metal",
    ),
    ("CXXNewExpr", "1.5.4", "'new' is not supported in Metal"),
    (
        "CXXDeleteExpr",
        "1.5.4",
        "'delete' is not supported in Metal",
    ),
    (
        "CXXThrowExpr",
        "1.5.4",
        "exceptions are not supported in Metal: 'throw'",
    ),
    (
        "CXXTryStmt",
        "1.5.4",
        "exceptions are not supported in Metal: 'try'",
    ),
    (
        "CXXDynamicCastExpr",
        "1.5.4",
        "'dynamic_cast' is not supported in Metal",
    ),
    (
        "CXXTypeidExpr",
        "1.5.4",
        "'typeid' is not supported in Metal",
    ),
    (
        "CXXNoexceptExpr",
        "1.5.4",
        "the operator 'noexcept' is not supported in Metal",
    ),
    ("GCCAsmStmt", "1.5", "assembly is not part of Metal"),
    ("MSAsmStmt", "1.5", "assembly is not part of Metal"),
    ("FileScopeAsmDecl", "1.5", "assembly is not part of Metal"),
    ("BlockExpr", "1.5", "blocks are not part of Metal"),
    (
        "StmtExpr",
        "1.5",
        "a statement as an expression is not part of Metal",
    ),
    (
        "CoroutineBodyStmt",
        "1.5",
        "coroutines are not part of Metal, which is C++17",
    ),
];

impl<'t, 'a> Rules<'t, 'a> {
    fn refuse(&mut self, place: Option<Place>, section: &'static str, message: impl Into<String>) {
        let at = place.and_then(|(line, column)| self.examined.origin(line, column));
        if let Some(at) = at {
            self.found.push(Refusal {
                at,
                section: section.into(),
                message: message.into(),
            });
        }
    }

    fn node(&mut self, node: &Node<'a>, above: &[Node<'a>]) {
        self.follows(above);
        if node.has("implicit") && !FUNCTIONS.contains(&node.kind) {
            return;
        }
        // What the compiler adds to a class is not the source's.
        if above
            .iter()
            .any(|n| FUNCTIONS.contains(&n.kind) && (n.has("implicit") || n.has("default")))
        {
            return;
        }
        if let Some((_, section, message)) = EXCLUDED.iter().find(|(kind, ..)| *kind == node.kind) {
            self.refuse(node.place(), section, *message);
            return;
        }
        match node.kind {
            "VarDecl" | "ParmVarDecl" | "FieldDecl" => self.variable(node, above),
            "NonTypeTemplateParmDecl" => self.template_parameter(node),
            "LambdaExpr" if self.version < Version(320) => self.refuse(
                node.begin,
                "1.5.4",
                format!(
                    "lambda expressions are not supported before Metal 3.2; this is Metal {}",
                    self.version
                ),
            ),
            "CXXDeductionGuideDecl" if self.version < Version(400) => self.refuse(
                node.place(),
                "1.5",
                format!(
                    "deduction guides are C++17, which Metal is from 4.0 on; this is Metal {}",
                    self.version
                ),
            ),
            "public" | "protected" | "private" => {
                let class = above.last().filter(|n| n.kind == "CXXRecordDecl");
                let mut words = class.map_or("", |n| n.rest).split_whitespace();
                if words.any(|word| word == "struct" || word == "class") {
                    self.derived.extend(words.next());
                }
            }
            "virtual" => {
                let class = above.iter().rev().find(|n| n.kind == "CXXRecordDecl");
                if let Some(class) = class
                    && let Some(place) = class.place()
                    && self.virtual_base.insert(place)
                {
                    self.refuse(
                        class.place(),
                        "1.5.4",
                        "virtual base classes are not supported in Metal",
                    );
                }
            }
            kind if FUNCTIONS.contains(&kind) => self.function(node, above),
            // The body of a function, or what stands for one.
            "CompoundStmt" | "CXXTryStmt" => {
                if let Some(function) = above.last().filter(|n| FUNCTIONS.contains(&n.kind))
                    && let Some(function) = self.functions.get_mut(&function.id)
                {
                    function.has_body = true;
                }
            }
            "DeclRefExpr" | "MemberExpr" => self.mention(node, above),
            "CStyleCastExpr" if node.rest.contains("<AddressSpaceConversion>") => self.refuse(
                node.begin,
                "4",
                format!(
                    "C-style cast to '{}' converts between mismatching address spaces",
                    in_metal(node.written_type())
                ),
            ),
            _ => {}
        }
    }

    /// The tokens of a variable's declaration up to its name. None where they
    /// cannot be told apart from another declarator's.
    fn declaration(&self, node: &Node<'_>) -> Option<Vec<&'t str>> {
        let t = &self.source.tokens;
        let (line, column) = node.name?;
        let at = self.examined.origin(line, column)?;
        let name = t.tokens.partition_point(|token| token.start < at);
        if t.at(name) != node.declared() && !node.declared().is_empty() {
            let known = t.at(name).is_empty() || node.rest.contains(t.at(name));
            if !known {
                return None;
            }
        }
        let mut words = Vec::new();
        let mut from = name;
        let mut closers = 0usize;
        while from > 0 {
            let word = t.at(from - 1);
            match word {
                ")" | "]" | ">" => closers += 1,
                "(" | "[" | "<" if closers > 0 => closers -= 1,
                // `T (&name)[n]`
                "(" if matches!(t.at(from), "*" | "&") => {}
                "," if closers == 0 && node.kind != "ParmVarDecl" => return None,
                ";" | "{" | "}" | "," | "(" if closers == 0 => break,
                ":" if closers == 0 && t.at(from - 2) != ":" => break,
                _ if t.kind(from - 1) == Some(crate::lexer::Kind::Directive) => break,
                _ => {}
            }
            words.push(word);
            from -= 1;
        }
        Some(words)
    }

    fn variable(&mut self, node: &Node<'a>, above: &[Node<'a>]) {
        let name = node.declared();
        if name.starts_with("mtlsim_") || name.starts_with("__") {
            return;
        }
        let type_name = node.type_name();
        if is_function_pointer(type_name) {
            self.refuse(
                node.place(),
                "5.1.4",
                "pointers to functions need visible functions that the host links into the pipeline; MLX links none",
            );
        } else if type_name.contains("::*") {
            self.refuse(
                node.place(),
                "5.1.4",
                "pointers to members have no form in Metal's address spaces",
            );
        }
        let in_function = above
            .iter()
            .any(|n| FUNCTIONS.contains(&n.kind) || n.kind == "LambdaExpr");
        let words = self.declaration(node);
        let says = |word: &str| words.as_ref().is_some_and(|words| words.contains(&word));
        let knows = words.is_some();
        let has_space = ADDRESS_SPACES.iter().any(|space| says(space));
        let points = says("*") || (says("&") && !type_name.ends_with("&&"));
        if knows
            && points
            && !has_space
            && !says("auto")
            && !says("operator")
            && !type_name.contains(")(")
        {
            let what = if type_name.ends_with('&') {
                "reference"
            } else {
                "pointer"
            };
            self.refuse(
                node.place(),
                "4",
                format!("{what} type must have an explicit address space: device, constant, thread or threadgroup"),
            );
        }
        if node.kind == "ParmVarDecl"
            && above
                .last()
                .is_some_and(|function| self.is_kernel(function))
            && let Some(class) = type_name
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .find(|word| self.derived.contains(word))
        {
            self.refuse(
                node.place(),
                "5.11",
                format!("the type of an argument of a kernel cannot be a derived class: '{class}'"),
            );
        }
        if node.kind != "VarDecl" {
            return;
        }
        if node.has("tls") || node.has("tls_dynamic") {
            if !self.constants.contains(name) {
                self.refuse(
                    node.place(),
                    "1.5.4",
                    "'thread_local' is not supported in Metal",
                );
            }
            return;
        }
        if node.has("register") {
            self.refuse(
                node.place(),
                "1.5.4",
                "'register' is not supported in Metal",
            );
        }
        if in_function {
            if node.has("static") {
                self.refuse(
                    node.place(),
                    "5.3",
                    "variables in function scope cannot be declared static",
                );
            } else if says("constant") && !points && !node.has("extern") {
                self.refuse(
                    node.place(),
                    "4.2",
                    "variables in function scope cannot be in the constant address space",
                );
            }
            return;
        }
        let is_member = above
            .last()
            .is_some_and(|n| n.kind.contains("Record") || n.kind.contains("ClassTemplate"));
        if is_member && !node.has("static") {
            return;
        }
        // Of a pointer, what stands after its last `*` is the variable's own.
        let own_space = words.as_ref().is_some_and(|words| {
            words
                .iter()
                .take_while(|word| **word != "*")
                .any(|word| *word == "constant")
        });
        if knows && !own_space {
            let message = if self.is_attributed(node) {
                "the simulator has no program-scope built-ins; pass the value as a parameter of the kernel"
            } else {
                "program scope variable must reside in constant address space"
            };
            self.refuse(node.place(), "4", message);
        } else if knows
            && !node.has("extern")
            && !is_member
            && node.earlier == 0
            && !["cinit", "callinit", "listinit", "parenlistinit"]
                .iter()
                .any(|init| node.has(init))
        {
            self.refuse(
                node.place(),
                "4.2",
                "variable in constant address space must be initialized",
            );
        }
    }

    /// Whether an attribute of a built-in value follows a variable's name.
    fn is_attributed(&self, node: &Node<'_>) -> bool {
        let t = &self.source.tokens;
        let at = node
            .name
            .and_then(|(line, column)| self.examined.origin(line, column));
        at.is_some_and(|at| t.is_attribute(t.tokens.partition_point(|token| token.start <= at)))
    }

    fn template_parameter(&mut self, node: &Node<'a>) {
        if node.type_name() == "auto" && self.version < Version(400) {
            self.refuse(
                node.place(),
                "1.5",
                format!("'auto' as a template parameter is C++17, which Metal is from 4.0 on; this is Metal {}", self.version),
            );
        }
    }

    fn function(&mut self, node: &Node<'a>, above: &[Node<'a>]) {
        if node.has("virtual") {
            self.refuse(
                node.place(),
                "1.5.4",
                "virtual functions are not supported in Metal",
            );
        }
        let parent = above.last().map_or("", |n| n.kind);
        let is_global = matches!(parent, "TranslationUnitDecl" | "LinkageSpecDecl");
        if node.declared() == "main" && is_global && !node.has("implicit") {
            self.refuse(node.place(), "1.5.4", "a function cannot be called 'main'");
        }
        if self.is_kernel(node) {
            if !node.type_name().starts_with("void (") {
                self.refuse(node.place(), "5.1.3", "a kernel function must return void");
            }
            if node.type_name().ends_with("...)") {
                self.refuse(
                    node.place(),
                    "5.2",
                    "a kernel function takes no variable arguments",
                );
            }
        }
        if ["operator new", "operator delete"]
            .iter()
            .any(|name| node.rest.contains(name))
            && !node.has("implicit")
        {
            self.refuse(
                node.place(),
                "1.5.4",
                "'new' and 'delete' are not supported in Metal",
            );
        }
        self.functions.insert(
            node.id,
            Function {
                name: node.declared(),
                place: node.name,
                has_body: node.has("default") || node.has("delete"),
                is_plain: is_global || matches!(parent, "NamespaceDecl" | "DeclStmt"),
                is_constexpr: node.has("constexpr"),
                earlier: node.earlier,
            },
        );
    }

    /// Whether a declaration is that of a kernel, by the place of its name.
    fn is_kernel(&self, node: &Node<'_>) -> bool {
        self.is_kernels_name(node.name)
    }

    fn is_kernels_name(&self, place: Option<Place>) -> bool {
        place
            .and_then(|(line, column)| self.examined.origin(line, column))
            .is_some_and(|at| {
                let tokens = &self.source.tokens.tokens;
                self.kernels
                    .contains(&tokens.partition_point(|token| token.start < at))
            })
    }

    fn mention(&mut self, node: &Node<'a>, above: &[Node<'a>]) {
        let Some((of, name)) = node.function() else {
            return;
        };
        const HOST: [&str; 12] = [
            "__builtin_alloca",
            "__builtin_alloca_with_align",
            "__builtin_malloc",
            "__builtin_calloc",
            "__builtin_realloc",
            "__builtin_free",
            "__builtin_printf",
            "__builtin_puts",
            "__builtin_abort",
            "__builtin_exit",
            "__builtin_trap",
            "__builtin_setjmp",
        ];
        if HOST.contains(&name) {
            self.refuse(
                node.begin,
                "1.5.4",
                format!("'{name}' is of the host's library; Metal has its own (section 6)"),
            );
        }
        let within = above.iter().rev().find(|n| FUNCTIONS.contains(&n.kind));
        let blocks = ended_blocks(above);
        if let Some(blocks) = &blocks {
            self.ends.push((self.uses.len(), blocks.clone()));
        }
        self.uses.push(Use {
            within: within.map_or(0, |n| n.id),
            of,
            name,
            place: node.begin,
            is_last: blocks.is_some(),
        });
    }

    /// A statement that follows a call in one of the blocks around it: the call
    /// is not the last thing.
    fn follows(&mut self, above: &[Node<'a>]) {
        if let Some(block) = above.last().filter(|n| n.kind == "CompoundStmt") {
            let uses = &mut self.uses;
            self.ends.retain(|(mention, blocks)| {
                let followed = blocks.contains(&block.id);
                uses[*mention].is_last &= !followed;
                !followed
            });
        }
    }

    /// The first declaration of a function.
    fn first(&self, mut id: u64) -> u64 {
        while let Some(function) = self.functions.get(&id)
            && function.earlier != 0
            && function.earlier != id
        {
            id = function.earlier;
        }
        id
    }

    /// What follows from who calls whom.
    fn calls(&mut self) {
        let mut defined: HashSet<u64> = HashSet::new();
        let mut kernels: HashSet<u64> = HashSet::new();
        for (id, function) in &self.functions {
            let first = self.first(*id);
            if function.has_body {
                defined.insert(first);
            }
            if self.is_kernels_name(function.place) {
                kernels.insert(first);
            }
        }
        let mut graph: HashMap<u64, Vec<Use<'a>>> = HashMap::new();
        let uses: Vec<Use<'a>> = self
            .uses
            .iter()
            .map(|mention| Use {
                within: self.first(mention.within),
                of: self.first(mention.of),
                ..*mention
            })
            .collect();
        for mention in uses {
            let Some(function) = self.functions.get(&mention.of) else {
                continue;
            };
            let appended = mention
                .place
                .is_some_and(|(line, _)| self.examined.is_appended(line));
            if appended {
                continue;
            }
            let is_constexpr = function.is_constexpr;
            if kernels.contains(&mention.of) {
                let message = format!("a kernel function cannot be called: '{}'", function.name);
                self.refuse(mention.place, "5.1", message);
            } else if function.is_plain
                && !mention.name.starts_with("__")
                && !defined.contains(&mention.of)
            {
                let message = format!(
                    "'{}' is declared and nowhere defined: a kernel has no host's library to call",
                    mention.name
                );
                self.refuse(mention.place, "1.5.4", message);
            }
            // A function that ends by calling itself is a loop.
            let is_loop = mention.is_last && mention.of == mention.within;
            if !is_constexpr && !is_loop {
                graph.entry(mention.within).or_default().push(mention);
            }
        }
        for mention in cycles(&graph) {
            let name = self
                .functions
                .get(&mention.of)
                .map_or("", |function| function.name);
            let message = format!(
                "recursive call of '{name}': it needs a call stack that the pipeline sets (maxCallStackDepth), and MLX sets none"
            );
            self.refuse(mention.place, "1.5.4", message);
        }
    }
}

/// The blocks that a call ends if nothing follows in them; none where something
/// is done with its value, or in a loop.
fn ended_blocks(above: &[Node<'_>]) -> Option<Vec<u64>> {
    let mut around = above
        .iter()
        .rev()
        .skip_while(|n| n.kind == "ImplicitCastExpr");
    let call = around.next()?;
    if !matches!(call.kind, "CallExpr" | "CXXMemberCallExpr") {
        return None;
    }
    let mut blocks = Vec::new();
    let mut inner = call.kind;
    for node in around {
        match node.kind {
            "ExprWithCleanups" | "ReturnStmt" if blocks.is_empty() => {}
            "CompoundStmt" => blocks.push(node.id),
            // Its condition comes first, and has no block.
            "IfStmt" if matches!(inner, "CompoundStmt" | "ReturnStmt") => {}
            kind if FUNCTIONS.contains(&kind) => return Some(blocks),
            _ => return None,
        }
        inner = node.kind;
    }
    None
}

/// The mentions that close a circle of calls.
fn cycles<'a>(graph: &HashMap<u64, Vec<Use<'a>>>) -> Vec<Use<'a>> {
    let reach = |from: u64, to: u64| {
        let (mut seen, mut open) = (HashSet::new(), vec![from]);
        while let Some(id) = open.pop() {
            if id == to {
                return true;
            }
            if seen.insert(id) {
                open.extend(
                    graph
                        .get(&id)
                        .into_iter()
                        .flatten()
                        .map(|mention| mention.of),
                );
            }
        }
        false
    };
    let mut closing: Vec<Use<'a>> = graph
        .values()
        .flatten()
        .filter(|mention| mention.within != 0 && reach(mention.of, mention.within))
        .copied()
        .collect();
    closing.sort_by_key(|mention| mention.place);
    closing
}

/// `float (*)(float)`, `float (&)(float)`, `float (*[2])(float)`; not
/// `float (*)[4]`.
fn is_function_pointer(type_name: &str) -> bool {
    ["(*", "(&"].iter().any(|open| {
        type_name.match_indices(open).any(|(at, _)| {
            let inside = &type_name[at + 1..];
            inside
                .find(')')
                .is_some_and(|close| inside[close..].starts_with(")("))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_to_functions_are_told_from_pointers_to_arrays() {
        for yes in [
            "float (*)(float)",
            "float (&)(float)",
            "float (*[2])(float)",
            "void (*const)()",
        ] {
            assert!(is_function_pointer(yes), "{yes}");
        }
        for no in ["float (*)[4]", "float (&)[2]", "float *", "void (float)"] {
            assert!(!is_function_pointer(no), "{no}");
        }
    }
}
