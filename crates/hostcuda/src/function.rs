//! Finds `__global__` and `__device__` functions and variables, and the names reachable from them.

use std::collections::{HashMap, HashSet};

use crate::code::{Scope, Seq, Unit};

/// A function with a CUDA qualifier.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// `__global__` rather than `__device__`.
    pub(crate) kernel: bool,
    /// `__host__` as well.
    pub(crate) host: bool,
    /// First token of the declaration, and the token of the qualifier.
    pub(crate) start: usize,
    pub(crate) qualifier: usize,
    /// Tokens of the parameter list's parentheses.
    pub(crate) open: usize,
    pub(crate) close: usize,
    /// Tokens of the body's braces, if it has one.
    pub(crate) body: Option<(usize, usize)>,
    pub(crate) scope: Scope,
}

/// A `__device__` or `__constant__` variable.
pub(crate) struct Variable {
    pub(crate) start: usize,
    pub(crate) qualifier: usize,
    pub(crate) end: usize,
    pub(crate) scope: Scope,
}

/// All of a unit.
#[derive(Default)]
pub(crate) struct Found<'a> {
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) variables: Vec<Variable>,
}

/// Words before a parenthesis that do not name a function.
const NOT_NAMES: [&str; 13] = [
    "__launch_bounds__",
    "__align__",
    "__attribute__",
    "alignas",
    "decltype",
    "noexcept",
    "sizeof",
    "__maxnreg__",
    "__cluster_dims__",
    "explicit",
    "alignof",
    "__builtin_align__",
    "requires",
];

pub(crate) const INDICES: [&str; 4] = ["threadIdx", "blockIdx", "blockDim", "gridDim"];

/// Identifiers through which a thread waits for another, or queries which threads are active.
pub(crate) fn waits(word: &str) -> bool {
    word.starts_with("__shfl")
        || word.starts_with("__syncthreads")
        || (word.starts_with("__reduce_") && word.ends_with("_sync"))
        || matches!(
            word,
            "__syncwarp"
                | "__ballot_sync"
                | "__any_sync"
                | "__all_sync"
                | "__match_any_sync"
                | "__match_all_sync"
                | "__activemask"
                | "cooperative_groups"
                | "cg"
                | "this_thread_block"
                | "thread_block"
                | "thread_block_tile"
                | "tiled_partition"
        )
}

pub(crate) fn find<'a>(unit: &Unit<'a>) -> Found<'a> {
    let seq = &unit.main;
    let mut found = Found::default();
    let mut i = 0;
    while i < seq.len() {
        match seq.text(i) {
            "__global__" | "__device__" | "__constant__" => i = declaration(unit, i, &mut found),
            _ => i += 1,
        }
    }
    found
}

/// One declaration with a qualifier at token `q`; returns the token at which to continue.
fn declaration<'a>(unit: &Unit<'a>, q: usize, found: &mut Found<'a>) -> usize {
    let seq = &unit.main;
    // Past the statement before, the function before if it ended without one, and `public:`.
    let earliest = seq.statement(q).max(found.functions.last().map_or(0, |last| last.close + 1));
    let start = (earliest..q)
        .rev()
        .find(|&i| seq.text(i) == ":" && access(seq, i))
        .map_or(earliest.min(q), |i| i + 1);
    let lambda = q > 0 && seq.text(q - 1) == "]";
    let mut kernel = seq.text(q) == "__global__";
    let mut i = q + 1;
    while i < seq.len() {
        match seq.text(i) {
            "__global__" => kernel = true,
            ";" | "=" | "{" | "}" => {
                let end = seq.semicolon(i).unwrap_or(i);
                let scope = unit.scopes[q];
                found.variables.push(Variable { start, qualifier: q, end, scope });
                return i;
            }
            "(" => {
                // `f<float>(...)` is a specialisation of f.
                let named_at = match seq.text(i - 1) {
                    ">" => {
                        seq.open_angle(i - 1).and_then(|open| open.checked_sub(1)).unwrap_or(i - 1)
                    }
                    _ => i - 1,
                };
                let before = seq.text(named_at);
                let operator = (q..i).rev().take(3).find(|&k| seq.text(k) == "operator");
                let named = named_at > q && seq.is_ident(named_at) && !NOT_NAMES.contains(&before);
                // `operator()(...)`: the first pair of parentheses is the name.
                if before == "operator" && seq.text(i + 1) == ")" {
                    i += 2;
                    continue;
                }
                let Some(close) = seq.close(i) else { return seq.len() };
                if operator.is_some() || named || (lambda && i == q + 1) {
                    let name = if operator.is_some() || lambda { "operator()" } else { before };
                    let host = (start..i).any(|k| seq.text(k) == "__host__");
                    let body = body_after(seq, close);
                    let scope = unit.scopes[q];
                    let (open, qualifier) = (i, q);
                    let next = body.map_or(close, |b| b.0);
                    found.functions.push(Function {
                        name,
                        kernel,
                        host,
                        start,
                        qualifier,
                        open,
                        close,
                        body,
                        scope,
                    });
                    return next;
                }
                i = close;
            }
            _ => {}
        }
        i += 1;
    }
    i
}

/// `public:` and the like.
fn access(seq: &Seq<'_>, colon: usize) -> bool {
    colon > 0 && matches!(seq.text(colon - 1), "public" | "private" | "protected")
}

/// The braces of the body after a parameter list, past `const`, trailing return types and
/// constructor initialisers.
fn body_after(seq: &Seq<'_>, close: usize) -> Option<(usize, usize)> {
    let mut i = close + 1;
    let mut initialisers = false;
    // More than any constructor initialises.
    for _ in 0..1000 {
        match seq.text(i) {
            "" | ";" | "}" | "=" | "__device__" | "__global__" | "template" => return None,
            ":" => initialisers = true,
            "(" => i = seq.close(i)?,
            "{" if initialisers && (seq.is_ident(i - 1) || seq.text(i - 1) == ">") => {
                i = seq.close(i)?;
            }
            "{" => return Some((i, seq.close(i)?)),
            _ => {}
        }
        i += 1;
    }
    None
}

/// Names from which a word that satisfies `root` is reachable through functions and macros.
pub(crate) fn reach<'a>(
    unit: &Unit<'a>,
    found: &Found<'a>,
    root: impl Fn(&str) -> bool,
) -> HashSet<&'a str> {
    let mut words: HashMap<&'a str, HashSet<&'a str>> = HashMap::new();
    for function in &found.functions {
        if let Some((open, close)) = function.body {
            let entry = words.entry(function.name).or_default();
            entry.extend(
                (open..close).filter(|&i| unit.main.is_ident(i)).map(|i| unit.main.text(i)),
            );
        }
    }
    for m in &unit.macros {
        let entry = words.entry(m.name).or_default();
        entry.extend((0..m.body.len()).filter(|&i| m.body.is_ident(i)).map(|i| m.body.text(i)));
    }
    leads_to(&words, root)
}

/// Names from which a word that satisfies `root` is reachable in any number of steps.
pub(crate) fn leads_to<'a>(
    words: &HashMap<&'a str, HashSet<&'a str>>,
    root: impl Fn(&str) -> bool,
) -> HashSet<&'a str> {
    let mut users: HashMap<&'a str, Vec<&'a str>> = HashMap::new();
    let mut next: Vec<&'a str> = Vec::new();
    for (name, used) in words {
        for word in used {
            users.entry(word).or_default().push(name);
        }
        if used.iter().any(|word| root(word)) {
            next.push(name);
        }
    }
    let mut reached: HashSet<&'a str> = next.iter().copied().collect();
    while let Some(name) = next.pop() {
        let users = users.get(name).into_iter().flatten();
        next.extend(users.copied().filter(|user| reached.insert(user)));
    }
    reached
}
