//! Rules on the syntax tree of a source.

use std::collections::{HashMap, HashSet};

use super::clang::in_metal;
use super::tree::{Node, Place, Walk};
use super::{Refusal, Version};
use crate::lexer::{Kind, Tokens};
use crate::lower::{ADDRESS_SPACES, Examined};
use crate::parse::Source;

/// Applies the rules to the tree that clang printed for `examined`, which is in `file`; `None` if
/// the tree contains nothing from that file.
pub(super) fn find(
    source: &Source<'_>,
    examined: &Examined,
    dump: &str,
    file: &str,
    version: Version,
) -> Result<Option<Vec<Refusal>>, crate::Error> {
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
        variables: HashMap::new(),
        callees: HashMap::new(),
        strict_orders: HashSet::new(),
    };
    let mut above: Vec<Node<'_>> = Vec::new();
    let mut walk = Walk::new(dump, file);
    for node in walk.by_ref() {
        above.truncate(node.depth);
        // Appended lines are the simulator's.
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
    if !walk.has_seen_file {
        return Ok(None);
    }
    rules.calls();
    rules.undefined_variables();
    Ok(Some(rules.found))
}

#[derive(Debug)]
struct Function<'a> {
    name: &'a str,
    place: Option<Place>,
    has_body: bool,
    /// Could have a definition elsewhere: declared in a namespace, a function or a class, and not a
    /// template.
    is_plain: bool,
    is_constexpr: bool,
    earlier: u64,
}

/// A reference to a function in another function's body.
#[derive(Debug, Clone, Copy)]
struct Use {
    within: u64,
    of: u64,
    place: Option<Place>,
    /// Whether it is the last action of the function that contains it.
    is_last: bool,
}

struct Rules<'t, 'a> {
    source: &'t Source<'t>,
    examined: &'t Examined,
    version: Version,
    constants: HashSet<&'t str>,
    /// The tokens that name kernels.
    kernels: HashSet<usize>,
    found: Vec<Refusal>,
    functions: HashMap<u64, Function<'a>>,
    uses: Vec<Use>,
    /// References that may be the last action of their function, with the blocks that they end, as
    /// far as known.
    ends: Vec<(usize, Vec<u64>)>,
    virtual_base: HashSet<Place>,
    /// Classes with a base.
    derived: HashSet<&'a str>,
    variables: HashMap<u64, Variable<'a>>,
    /// Names of called functions.
    callees: HashMap<u64, &'a str>,
    /// Variables initialised with `memory_order_seq_cst`.
    strict_orders: HashSet<u64>,
}

/// A variable with external linkage, or possibly with it.
#[derive(Debug)]
struct Variable<'a> {
    name: &'a str,
    place: Option<Place>,
    is_defined: bool,
    earlier: u64,
}

/// The words of a variable's declaration.
#[derive(Debug)]
struct Declaration<'t> {
    /// Before its name, the last word first, up to a comma.
    own: Vec<&'t str>,
    /// After a comma: the words that the declarators share.
    shared: Vec<&'t str>,
}

impl Declaration<'_> {
    fn says(&self, word: &str) -> bool {
        self.own.contains(&word) || self.shared.contains(&word)
    }

    fn points(&self, by: &str) -> bool {
        self.own.contains(&by)
    }

    /// Whether the variable itself is `constant`. For a pointer, only the words after its last `*`
    /// count.
    fn is_constant(&self) -> bool {
        let mut own = self.own.iter().take_while(|word| **word != "*");
        own.any(|word| *word == "constant")
            || (!self.points("*") && self.shared.contains(&"constant"))
    }
}

const FUNCTIONS: [&str; 5] = [
    "FunctionDecl",
    "CXXMethodDecl",
    "CXXConstructorDecl",
    "CXXDestructorDecl",
    "CXXConversionDecl",
];

/// Nodes that are never allowed in Metal: kind, section, message.
const EXCLUDED: [(&str, &str, &str); 16] = [
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
    ("AsmLabelAttr", "1.5", "assembly is not part of Metal"),
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

/// Builtins that the compiler itself implements, without type suffixes.
const BUILTINS: [&str; 25] = [
    "abs",
    "assume",
    "bit_cast",
    "bitreverse",
    "bswap",
    "clrsb",
    "clz",
    "constant_p",
    "ctz",
    "expect",
    "expect_with_probability",
    "ffs",
    "huge_val",
    "inf",
    "is_constant_evaluated",
    "isfinite",
    "isinf",
    "isnan",
    "nan",
    "parity",
    "popcount",
    "rotateleft",
    "rotateright",
    "signbit",
    "unreachable",
];

fn is_of_the_compiler(builtin: &str) -> bool {
    let name = builtin.trim_end_matches(|c: char| c.is_ascii_digit());
    let suffixes = ["", "l", "ll", "f", "s", "g"];
    let mut stems = suffixes
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix));
    stems.any(|stem| BUILTINS.contains(&stem))
        || ["elementwise_", "reduce_"]
            .iter()
            .any(|first| name.starts_with(first))
}

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
        // Members added to a class by the compiler are not in the source.
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
            "TypedefDecl" | "TypeAliasDecl" => self.alias(node),
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
                    "deduction guides are C++17, which needs Metal 4.0; this is Metal {}",
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
            // The body of a function.
            "CompoundStmt" | "CXXTryStmt" => {
                if let Some(function) = above.last().filter(|n| FUNCTIONS.contains(&n.kind))
                    && let Some(function) = self.functions.get_mut(&function.id)
                {
                    function.has_body = true;
                }
            }
            "DeclRefExpr" | "MemberExpr" | "UnresolvedLookupExpr" => {
                self.order(node, above);
                self.mention(node, above);
            }
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

    /// The words of a variable's declaration before its name. `None` if they cannot be determined.
    fn declaration(&self, node: &Node<'_>) -> Option<Declaration<'t>> {
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
        self.words_before(name, node.kind == "ParmVarDecl")
    }

    /// The words of a declaration before its name. Words in brackets, including template arguments,
    /// do not belong to the declarator.
    fn words_before(&self, name: usize, is_parameter: bool) -> Option<Declaration<'t>> {
        let t = &self.source.tokens;
        let mut own = Vec::new();
        let mut from = name;
        let mut angles = 0usize;
        while from > 0 {
            let word = t.at(from - 1);
            match word {
                ")" | "]" => {
                    from = opener(t, from - 1)?;
                    continue;
                }
                ">" => angles += 1,
                "<" if angles > 0 => angles -= 1,
                _ if angles > 0 => {}
                // `T (&name)[n]`
                "(" if matches!(t.at(from), "*" | "&") => own.push(word),
                "," if !is_parameter => {
                    let shared = self.words_of_all(from - 1)?;
                    return Some(Declaration { own, shared });
                }
                ";" | "{" | "}" | "," | "(" => break,
                ":" if t.at(from - 2) != ":" => break,
                _ if t.kind(from - 1) == Some(Kind::Directive) => break,
                _ => own.push(word),
            }
            from -= 1;
        }
        let shared = Vec::new();
        Some(Declaration { own, shared })
    }

    /// The words shared by the declarators around a comma: those of the statement before its first
    /// declarator. `None` if it is not a statement.
    fn words_of_all(&self, comma: usize) -> Option<Vec<&'t str>> {
        let t = &self.source.tokens;
        let mut from = comma;
        while from > 0 {
            match t.at(from - 1) {
                ")" | "]" => {
                    from = opener(t, from - 1)?;
                    continue;
                }
                // The end of an initial value, or of the preceding declaration.
                "}" if t.kind(from) != Some(Kind::Word) && !matches!(t.at(from), "[" | "::") => {
                    from = opener(t, from - 1)?;
                    continue;
                }
                "[" => return None,
                ";" | "{" | "}" | "(" => break,
                _ if t.kind(from - 1) == Some(Kind::Directive) => break,
                _ => from -= 1,
            }
        }
        let mut words = Vec::new();
        loop {
            match t.at(from) {
                "<" => from = t.skip_angles(from)?,
                "[" if t.is_attribute(from) => from = t.skip(from),
                "(" if words.last() == Some(&"alignas") => from = t.skip(from),
                ":" | "::" => from += 1,
                word if t.is_word(from) => {
                    words.push(word);
                    from += 1;
                }
                _ => return Some(words),
            }
        }
    }

    /// `using P = float*;`, `typedef float* P;`
    fn alias(&mut self, node: &Node<'a>) {
        let t = &self.source.tokens;
        let Some(at) = node
            .name
            .and_then(|(line, column)| self.examined.origin(line, column))
        else {
            return;
        };
        let name = t.tokens.partition_point(|token| token.start < at);
        if t.at(name) != node.declared() || node.type_name().contains(")(") {
            return;
        }
        let words = if node.kind == "TypedefDecl" {
            let Some(words) = self.words_before(name, false) else {
                return;
            };
            [words.own, words.shared].concat()
        } else {
            let mut words = Vec::new();
            let mut next = name + 1;
            while !matches!(t.at(next), ";" | "{" | "}" | "") {
                words.push(t.at(next));
                // `T (*)[n]`
                let is_declarator = t.at(next) == "(" && matches!(t.at(next + 1), "*" | "&");
                next = match t.at(next) {
                    "<" => match t.skip_angles(next) {
                        Some(end) => end,
                        None => return,
                    },
                    "(" if is_declarator => next + 1,
                    _ => t.skip(next),
                };
            }
            words
        };
        let points = words.iter().any(|word| matches!(*word, "*" | "&"));
        if points && !ADDRESS_SPACES.iter().any(|space| words.contains(space)) {
            self.refuse(node.place(), "4", without_space(node.type_name()));
        }
    }

    fn variable(&mut self, node: &Node<'a>, above: &[Node<'a>]) {
        let name = node.declared();
        if node.kind == "VarDecl" {
            self.variables.insert(
                node.id,
                Variable {
                    name,
                    place: node.name,
                    is_defined: !node.has("extern") || has_value(node),
                    earlier: node.earlier,
                },
            );
        }
        if name.starts_with("mtlsim_") || name.starts_with("__") {
            return;
        }
        let type_name = node.type_name();
        if is_function_pointer(type_name) {
            self.refuse(
                node.place(),
                "5.1.4",
                "pointers to functions need visible functions linked into the pipeline by the host; MLX links none",
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
        let says = |word: &str| words.as_ref().is_some_and(|words| words.says(word));
        let knows = words.is_some();
        let has_space = ADDRESS_SPACES.iter().any(|space| says(space));
        let points = words.as_ref().is_some_and(|words| {
            words.points("*") || (words.points("&") && !type_name.ends_with("&&"))
        });
        if knows
            && points
            && !has_space
            && !says("auto")
            && !says("operator")
            && !type_name.contains(")(")
        {
            self.refuse(node.place(), "4", without_space(type_name));
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
        let own_space = words.as_ref().is_some_and(Declaration::is_constant);
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
            && !has_value(node)
        {
            self.refuse(
                node.place(),
                "4.2",
                "variable in constant address space must be initialized",
            );
        }
    }

    /// Whether an attribute for a built-in value follows a variable's name.
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
                format!("'auto' as a template parameter is C++17, which needs Metal 4.0; this is Metal {}", self.version),
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
                // The compiler declares a function where it is used.
                place: node.name.filter(|_| !node.has("implicit")),
                has_body: node.has("default") || node.has("delete"),
                is_plain: is_global
                    || matches!(parent, "NamespaceDecl" | "DeclStmt")
                    || (parent == "CXXRecordDecl"
                        && !above.iter().any(|n| n.kind.contains("Template"))),
                is_constexpr: node.has("constexpr"),
                earlier: node.earlier,
            },
        );
    }

    /// Whether a declaration is a kernel, according to the place of its name.
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
        // The operand is not evaluated.
        if above.iter().any(|n| n.kind == "UnaryExprOrTypeTraitExpr") {
            return;
        }
        // Most compiler builtins are functions of the host's library.
        if name
            .strip_prefix("__builtin_")
            .is_some_and(|name| !is_of_the_compiler(name))
        {
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
            place: node.begin,
            is_last: blocks.is_some(),
        });
    }

    /// A memory order that no atomic function accepts, as an argument of one.
    fn order(&mut self, node: &Node<'a>, above: &[Node<'a>]) {
        let name = match node.kind {
            "DeclRefExpr" => node.function().map(|(_, name)| name),
            "UnresolvedLookupExpr" => node.rest.split('\'').nth(3),
            _ => None,
        };
        let mut around = above
            .iter()
            .rev()
            .skip_while(|n| n.kind == "ImplicitCastExpr");
        if let (Some(name), Some(call)) = (name, around.next())
            && call.kind == "CallExpr"
        {
            self.callees.entry(call.id).or_insert(name);
            return;
        }
        let is_strict = node
            .refers_to("EnumConstant")
            .is_some_and(|(_, name)| name == "memory_order_seq_cst")
            || node
                .refers_to("Var")
                .is_some_and(|(id, _)| self.strict_orders.contains(&id));
        if !is_strict {
            return;
        }
        match above
            .iter()
            .rev()
            .find(|n| n.kind == "CallExpr" || n.kind.ends_with("Decl"))
        {
            Some(variable) if variable.kind == "VarDecl" => {
                self.strict_orders.insert(variable.id);
            }
            Some(call)
                if self.callees.get(&call.id).is_some_and(|name| {
                    name.starts_with("atomic_") && *name != "atomic_thread_fence"
                }) =>
            {
                self.refuse(
                    node.begin,
                    "6.15.1",
                    "atomic functions take memory_order_relaxed; only atomic_thread_fence takes memory_order_seq_cst",
                );
            }
            _ => {}
        }
    }

    /// Variables that are declared but not defined, and so would be the host's.
    fn undefined_variables(&mut self) {
        let first = |mut id: u64| {
            while let Some(variable) = self.variables.get(&id)
                && variable.earlier != 0
                && variable.earlier != id
            {
                id = variable.earlier;
            }
            id
        };
        let defined: HashSet<u64> = self
            .variables
            .iter()
            .filter(|(_, variable)| variable.is_defined)
            .map(|(id, _)| first(*id))
            .collect();
        let undefined: Vec<_> = self
            .variables
            .iter()
            .filter(|(id, _)| !defined.contains(&first(**id)))
            .map(|(_, variable)| (variable.place, variable.name))
            .collect();
        for (place, name) in undefined {
            let message = format!(
                "variable '{name}' is declared but not defined: a kernel cannot use data of the host"
            );
            self.refuse(place, "4", message);
        }
    }

    /// Records a statement after a call, in one of the blocks around it: the call is not the last
    /// action.
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

    /// Applies the rules about calls.
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
        let mut graph: HashMap<u64, Vec<Use>> = HashMap::new();
        let uses: Vec<Use> = self
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
                && (function.place.is_some() || !function.name.starts_with("__"))
                && !defined.contains(&mention.of)
            {
                let message = format!(
                    "'{}' is declared but not defined: a kernel cannot call the host's library",
                    function.name
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

/// The blocks that a call ends, if nothing follows in them; `None` if its value is used, or if it
/// is in a loop.
fn ended_blocks(above: &[Node<'_>]) -> Option<Vec<u64>> {
    let mut around = above
        .iter()
        .rev()
        .skip_while(|n| n.kind == "ImplicitCastExpr");
    let call = around.next()?;
    if !matches!(call.kind, "CallExpr" | "CXXMemberCallExpr") {
        return None;
    }
    let (is_void, is_bool) = (call.type_name() == "void", call.type_name() == "bool");
    let mut blocks = Vec::new();
    let mut inner = "CallExpr";
    for node in around {
        match node.kind {
            "ExprWithCleanups" | "ParenExpr" if blocks.is_empty() => continue,
            "ReturnStmt" if blocks.is_empty() => {}
            "CompoundStmt" => blocks.push(node.id),
            // The condition comes first, is not a block, and has a value.
            "IfStmt" if matches!(inner, "CompoundStmt" | "ReturnStmt" | "IfStmt") => {}
            "IfStmt" | "ConditionalOperator" if inner == "CallExpr" && is_void => {}
            // The condition is a bool, or is converted to bool.
            "ConditionalOperator"
                if matches!(inner, "CallExpr" | "ConditionalOperator") && !is_bool => {}
            kind if FUNCTIONS.contains(&kind) => return Some(blocks),
            _ => return None,
        }
        inner = node.kind;
    }
    None
}

/// The opening bracket for the closing one at `close`.
fn opener(t: &Tokens<'_>, close: usize) -> Option<usize> {
    (0..close)
        .rev()
        .find(|&i| matches!(t.at(i), "(" | "[" | "{") && t.tokens[i].close == close)
}

/// Whether a variable is initialised in its declaration.
fn has_value(node: &Node<'_>) -> bool {
    ["cinit", "callinit", "listinit", "parenlistinit"]
        .iter()
        .any(|init| node.has(init))
}

fn without_space(type_name: &str) -> String {
    let what = if type_name.ends_with('&') {
        "reference"
    } else {
        "pointer"
    };
    format!(
        "{what} type must have an explicit address space: device, constant, thread or threadgroup"
    )
}

/// References that complete a cycle of calls.
fn cycles(graph: &HashMap<u64, Vec<Use>>) -> Vec<Use> {
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
    let mut closing: Vec<Use> = graph
        .values()
        .flatten()
        .filter(|mention| mention.within != 0 && reach(mention.of, mention.within))
        .copied()
        .collect();
    closing.sort_by_key(|mention| mention.place);
    closing
}

/// Matches `float (*)(float)`, `float (&)(float)`, `float (*[2])(float)`, but not `float (*)[4]`.
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
