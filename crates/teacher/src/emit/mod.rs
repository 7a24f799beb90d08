//! From planned kernels to CUDA C++.
//!
//! [`Emitter`] turns "the value of node `n` at index `i`" into statements. It works on demand and
//! caches values: a second request for the same node and index gives the same variable. Views cost
//! nothing, because they only change the index. The kernel templates (`elementwise`, `rows`,
//! `columns`, `scans`) declare loop variables, bind accumulated values, request the values they
//! store, and lay out the loops.
//!
//! Statements go to the outermost scope that knows all variables of the index, so values that
//! depend on the row alone are computed once per row.

mod accumulator;
pub(crate) mod columns;
pub(crate) mod elementwise;
mod evaluate;
mod frame;
mod heavy;
mod inplace;
mod inverse;
mod lanes;
mod lazy;
mod load;
pub(crate) mod online;
pub(crate) mod prelude;
pub(crate) mod rows;
pub(crate) mod scalar;
pub(crate) mod scans;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) use accumulator::Accumulator;
pub(crate) use heavy::HeavyContext;
pub(crate) use lanes::Lanes;
use scalar::Value;

use crate::dtype::DType;
use crate::index::Expr;
use crate::ir::{Graph, NodeId, Op, apply_all, numbered, stem};

/// One `.cu` file with one launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFile {
    /// `softmax` in `kernels/softmax.cu` and `softmax_launcher`.
    pub(crate) name: String,
    /// The source.
    pub(crate) text: String,
    /// Buffers in the launcher's argument order.
    pub(crate) args: Vec<NodeId>,
    /// Scratch tensors that the launcher takes after `args`: shape and type.
    pub(crate) scratch: Vec<(Vec<i64>, DType)>,
    /// Numbers that the launcher takes after those, if the text does not know them.
    pub(crate) sizes: Vec<i64>,
}

/// A size that a kernel takes at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTimeSize {
    /// Its name in the kernel and the launcher.
    pub(crate) name: &'static str,
    /// Its type in the kernel.
    pub(crate) kind: &'static str,
    pub(crate) value: i64,
    /// Elements by which a kernel's counters pass it.
    pub(crate) beyond: i64,
}

impl RunTimeSize {
    /// The kernel's last parameter.
    pub(crate) fn parameter(&self) -> String {
        format!(", const {} {}", self.kind, self.name)
    }

    /// The launcher's statement that refuses sizes for which the kernel's counters are too narrow.
    fn check(&self) -> String {
        let Self { name, kind, .. } = self;
        let most = if *kind == "int" { i64::from(i32::MAX) } else { i64::MAX >> 8 };
        let most = most - self.beyond;
        format!("if ({name} < 1 || {name} > {most}) return cudaErrorInvalidValue;")
    }

    /// The number of blocks with `each` of it.
    pub(crate) fn blocks(&self, each: i64) -> String {
        if each == 1 {
            return format!("(unsigned){}", self.name);
        }
        format!("(unsigned)(({} + {}) / {each})", self.name, each - 1)
    }
}

/// Memory a kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: DType,
}

/// A statement. `defines` is the variable it introduces, if a later pass may need to keep it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) defines: Option<(String, DType)>,
}

type Key = (NodeId, Vec<Expr>);

/// A block of statements, and the values known inside it.
#[derive(Debug, Default)]
struct Scope {
    lines: Vec<Line>,
    memo: HashMap<Key, Value>,
    /// Inverses of values of this scope, for divisions in inner scopes.
    inverses: HashMap<Key, Value>,
    /// Short rows loaded whole in this scope, by their first element.
    packs: HashMap<(NodeId, Expr), String>,
    vars: BTreeSet<String>,
    /// Kept values that this scope has read, by name; several nodes can share a value.
    again: HashMap<String, Value>,
    /// Values are arrays over the lanes: this scope's statements stand in a lane loop.
    lane_arrays: bool,
    declared: Vec<String>,
    /// Statements may not move out of this scope (a branch guards a load).
    closed: bool,
}

/// Writes kernels; see the module.
#[derive(Debug)]
pub(crate) struct Emitter<'g> {
    pub(crate) graph: &'g Graph,
    /// Loadable memory, by node.
    buffers: &'g BTreeMap<NodeId, Buffer>,
    scopes: Vec<Scope>,
    /// Vector loads of the current element scope, before its lane loop.
    vectors: Vec<String>,
    vector_memo: HashMap<(NodeId, Expr), String>,
    /// Indices loaded before the lane loop, because all lanes share them.
    shared_picks: HashMap<Key, String>,
    /// Values loaded before the lane loop, because all lanes share them, by offset.
    shared_loads: HashMap<(NodeId, Expr), String>,
    /// Those values by their name in the lane loop, and their inverses.
    shared_values: HashMap<String, String>,
    shared_inverses: HashMap<String, String>,
    /// Conditions around the current statements, evaluated before the lane loop if they are equal
    /// in all lanes.
    guards: Vec<Option<String>>,
    guarded_loads: HashMap<String, String>,
    /// Indices loaded inside the lane loop: no vector load may depend on them.
    lane_picks: BTreeSet<String>,
    lanes: Option<Lanes>,
    /// The outermost scope that receives statements. In a row program that is the row's scope: with
    /// a single row no index mentions it, yet its reductions are known only there.
    pub(crate) base_level: usize,
    /// Which scope is the element scope of `lanes`.
    element_scope: usize,
    /// Values of earlier passes by key, and the values that later passes requested.
    earlier: HashMap<Key, (String, DType)>,
    pub(crate) kept: BTreeMap<String, DType>,
    /// How a kept value is spelled, e.g. `[it][j]`.
    pub(crate) keep_index: String,
    /// Parameters of the kernel in order of first use.
    pub(crate) reads: Vec<NodeId>,
    /// Identifiers in use, and the number of identifiers per stem.
    names: BTreeSet<String>,
    next: BTreeMap<String, u32>,
    params: BTreeMap<NodeId, String>,
    /// Use `__ldcs` for vector loads of data that is read once.
    pub(crate) streaming: bool,
}

impl<'g> Emitter<'g> {
    pub(crate) fn new(graph: &'g Graph, buffers: &'g BTreeMap<NodeId, Buffer>) -> Self {
        Self {
            graph,
            buffers,
            scopes: vec![Scope::default()],
            vectors: Vec::new(),
            vector_memo: HashMap::new(),
            shared_picks: HashMap::new(),
            shared_loads: HashMap::new(),
            shared_values: HashMap::new(),
            shared_inverses: HashMap::new(),
            guards: vec![],
            guarded_loads: HashMap::new(),
            lane_picks: BTreeSet::new(),
            lanes: None,
            base_level: 0,
            element_scope: usize::MAX,
            earlier: HashMap::new(),
            kept: BTreeMap::new(),
            keep_index: String::new(),
            reads: Vec::new(),
            names: BTreeSet::new(),
            next: BTreeMap::new(),
            params: BTreeMap::new(),
            streaming: false,
        }
    }

    /// An unused identifier with this stem: the first is `mul`, the next `mul_1`. The names are
    /// thus predictable for anyone who writes a kernel from its beginning.
    pub(crate) fn fresh(&mut self, base: &str) -> String {
        let stem = stem(base);
        let next = self.next.entry(stem.to_owned()).or_default();
        loop {
            let name = numbered(stem, *next);
            *next += 1;
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }

    /// Exactly this identifier, if it is unused.
    fn exactly(&mut self, name: &str) -> String {
        if self.names.insert(name.to_owned()) { name.to_owned() } else { self.fresh(name) }
    }

    /// Declares a loop variable in the innermost scope.
    pub(crate) fn declare(&mut self, var: &str) {
        self.names.insert(var.to_owned());
        if let Some(scope) = self.scopes.last_mut() {
            scope.vars.insert(var.to_owned());
        }
    }

    /// Opens a scope with these variables.
    pub(crate) fn open(&mut self, vars: &[&str], lane_arrays: bool) {
        self.scopes.push(Scope { lane_arrays, ..Scope::default() });
        for var in vars {
            self.declare(var);
        }
    }

    /// Opens the scope in which the lanes run.
    pub(crate) fn open_lanes(&mut self, vars: &[&str], lanes: Lanes) {
        self.open(vars, false);
        self.element_scope = self.scopes.len() - 1;
        self.vectors.clear();
        self.vector_memo.clear();
        self.shared_picks.clear();
        self.shared_loads.clear();
        self.shared_values.clear();
        self.shared_inverses.clear();
        self.guarded_loads.clear();
        self.lanes = Some(lanes);
    }

    /// Closes the innermost scope: its vector loads, then its statements. Values defined in it are
    /// remembered as earlier values if `keep` is set.
    pub(crate) fn close(&mut self, keep: bool) -> (Vec<String>, Vec<Line>) {
        let scope = self.scopes.pop().unwrap_or_default();
        let mut vectors = Vec::new();
        if self.scopes.len() == self.element_scope {
            vectors = std::mem::take(&mut self.vectors);
            self.lanes = None;
            self.element_scope = usize::MAX;
        }
        if keep {
            for (key, value) in scope.memo {
                if value.literal.is_none() {
                    self.earlier.entry(key).or_insert((value.text, value.dtype));
                }
            }
        }
        (vectors, scope.lines)
    }

    /// Takes the statements collected so far in the innermost scope, and the arrays they fill.
    pub(crate) fn take_lines(&mut self) -> (Vec<String>, Vec<Line>) {
        self.scopes.last_mut().map_or_else(Default::default, |scope| {
            (std::mem::take(&mut scope.declared), std::mem::take(&mut scope.lines))
        })
    }

    /// Statements, with stores of the values that later passes keep.
    pub(crate) fn with_kept(&self, lines: &[Line]) -> Vec<String> {
        let mut out = Vec::new();
        for l in lines {
            out.push(l.text.clone());
            if let Some((name, _)) = &l.defines
                && self.kept.contains_key(name)
                && !l.text.contains(" = kept_")
            {
                out.push(format!("kept_{name}{} = {name};", self.keep_index));
            }
        }
        out
    }

    /// Arrays of kept values that these statements fill and that are not yet declared.
    pub(crate) fn to_declare(
        &self,
        lines: &[Line],
        declared: &mut BTreeSet<String>,
    ) -> Vec<(String, DType)> {
        let fills = |name: &str| {
            let defines = |l: &Line| l.defines.as_ref().is_some_and(|d| d.0 == name);
            lines.iter().any(|l| defines(l) && !l.text.contains(" = kept_"))
        };
        let new = self.kept.iter().filter(|(name, _)| fills(name));
        new.filter(|(name, _)| declared.insert((*name).clone()))
            .map(|(name, dtype)| (name.clone(), *dtype))
            .collect()
    }

    /// Sets a node's value at an index in the innermost scope.
    pub(crate) fn bind(&mut self, node: NodeId, index: &[Expr], value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.memo.insert((node, index.to_vec()), value);
        }
    }

    /// Adds a statement to the innermost scope.
    pub(crate) fn line(&mut self, text: String) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.lines.push(Line { text, defines: None });
        }
    }

    /// The closing brace of the block that sets a variable.
    fn end(&mut self, name: &str, dtype: DType) {
        if let Some(scope) = self.scopes.last_mut() {
            let defines = Some((name.to_owned(), dtype));
            scope.lines.push(Line { text: "}".to_owned(), defines });
        }
    }

    /// A local of a lane loop does not outlive it: later loops read it from an array.
    fn lasting(&mut self, name: &str, value: Value) -> Value {
        let arrays = self.scopes.last().is_some_and(|s| s.lane_arrays);
        if arrays { self.define(name, &value.text, value.dtype) } else { value }
    }

    /// Statements that depend on no variable; they stand at the top of the kernel.
    pub(crate) fn take_root(&mut self) -> Vec<String> {
        let lines = self.scopes.first_mut().map(|s| std::mem::take(&mut s.lines));
        lines.unwrap_or_default().into_iter().map(|l| l.text).collect()
    }

    /// The outermost scope that knows all variables of an index.
    fn level(&self, index: &[Expr]) -> usize {
        let mut level = self.base_level.min(self.scopes.len() - 1);
        for e in index {
            e.visit_vars(&mut |v| {
                let at = self.scopes.iter().rposition(|s| s.vars.contains(&*v.name));
                level = level.max(at.unwrap_or(self.scopes.len() - 1));
            });
        }
        let closed = self.scopes.iter().rposition(|s| s.closed).unwrap_or(0);
        level.max(closed)
    }

    /// Introduces a variable in the innermost scope.
    pub(crate) fn define(&mut self, base: &str, text: &str, dtype: DType) -> Value {
        let name = self.fresh(base);
        self.define_as(name, text, dtype)
    }

    /// Introduces a variable in a lane loop under the name that the same value had in an earlier
    /// loop.
    fn define_again(&mut self, name: &str, text: &str, dtype: DType) -> Value {
        let Some(scope) = self.scopes.last() else { return Value::new(name, dtype) };
        if let Some(read) = scope.again.get(name) {
            return read.clone();
        }
        let read = if scope.lane_arrays {
            // It outlives the loop.
            self.define(name, text, dtype)
        } else {
            self.define_as(name.to_owned(), text, dtype)
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.again.insert(name.to_owned(), read.clone());
        }
        read
    }

    fn define_as(&mut self, name: String, text: &str, dtype: DType) -> Value {
        let dtype = dtype.compute();
        let Some(scope) = self.scopes.last_mut() else { return Value::new(name, dtype) };
        if scope.lane_arrays {
            scope.declared.push(format!("{} {name}[kVec];", dtype.register()));
            scope.lines.push(Line { text: format!("{name}[j] = {text};"), defines: None });
            return Value::new(format!("{name}[j]"), dtype);
        }
        let line = format!("const {} {name} = {text};", dtype.register());
        scope.lines.push(Line { text: line, defines: Some((name.clone(), dtype)) });
        Value::new(name, dtype)
    }

    /// The value of `node` at `index`.
    pub(crate) fn value(&mut self, node: NodeId, index: &[Expr]) -> Result<Value, String> {
        let graph = self.graph;
        // Views and numbers leave no trace.
        match &graph.node(node).op {
            Op::View { src, map } if !self.buffers.contains_key(&node) => {
                return self.value(*src, &apply_all(map, index));
            }
            Op::Scalar(x) => return Ok(Value::number(*x, graph.dtype(node))),
            _ => {}
        }
        let key = (node, index.to_vec());
        if let Some(found) = self.scopes.iter().rev().find_map(|s| s.memo.get(&key)) {
            return Ok(found.clone());
        }
        let level = self.level(index);
        let inner = self.scopes.split_off(level + 1);
        let value = self.compute(&key, level);
        let value = value.inspect(|v| self.bind(node, index, v.clone()));
        self.scopes.extend(inner);
        value
    }
}

/// `x + row * 64` or `x`.
pub(crate) fn address(param: &str, offset: &Expr) -> String {
    if offset.as_constant() == Some(0) {
        return param.to_owned();
    }
    format!("{param} + {}", offset.print(false))
}
