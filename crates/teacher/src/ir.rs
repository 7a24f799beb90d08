//! The graph the planner works on.
//!
//! One representation for everything: a node is a *function from an index to a value*. Composite
//! operators arrive decomposed by the tracer, so softmax and the norms are reductions and pointwise
//! functions here, and the planner finds the rows again.
//!
//! | op | value at index `i` |
//! |---|---|
//! | [`Op::Leaf`] | memory: an input, a parameter, a buffer |
//! | [`Op::Scalar`] | the same number everywhere |
//! | [`Op::Index`] | an integer expression of `i` (`arange`, `iota`) |
//! | [`Op::Map`] | `f(a[i], b[i], ...)`; all arguments have the node's shape |
//! | [`Op::View`] | `src[map(i)]`; every view, transpose, slice, flip, roll, broadcast, reshape |
//! | [`Op::Guard`] | `inside[i]` where all bounds hold, else `outside[i]`; padding, concatenation |
//! | [`Op::Take`] | `src[...]` at an index that is itself loaded: embedding, gather |
//! | [`Op::Reduce`] | over some dims of `src`; the result has the other dims |
//! | [`Op::Scan`] | running sum, product, ... of `src` along one dim |
//! | [`Op::Heavy`] | computed by a family of its own (`heavy.rs`): matmul, convolution |
//!
//! Index maps are [`Expr`]s over the variables [`axis`]`(d)` of the node's own dims.

mod reduction;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use self::reduction::{Split, reduction_index};
use crate::dtype::DType;
use crate::heavy::HeavyOp;
use crate::index::{self, Expr};

/// Position of a node in [`Graph::nodes`]; arguments always come before their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) usize);

/// The model as a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// The results of `forward`, in order.
    pub(crate) outputs: Vec<NodeId>,
    /// How long reductions over few rows are split; none by default.
    pub(crate) split: Option<Split>,
    /// Deduplicates equal nodes: position by content.
    interned: BTreeMap<String, NodeId>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The traced name, used for C++ identifiers.
    pub(crate) name: String,
    pub(crate) op: Op,
    pub(crate) shape: Vec<i64>,
    pub(crate) dtype: DType,
}

/// See the module's table.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Leaf(Leaf),
    Scalar(f64),
    Index(Expr),
    Map { f: Fun, args: Vec<NodeId> },
    View { src: NodeId, map: Vec<Expr> },
    Guard { bounds: Vec<Bound>, inside: NodeId, outside: NodeId },
    Take { src: NodeId, picks: Vec<Pick> },
    Reduce { kind: ReduceKind, src: NodeId, dims: Vec<usize>, inline: bool },
    Scan { kind: ScanKind, src: NodeId, dim: usize },
    Heavy { op: Arc<dyn HeavyOp>, args: Vec<NodeId> },
}

/// Memory that exists before the first kernel. `strides` and `offset` count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) source: Source,
    pub(crate) strides: Vec<i64>,
    /// Elements of its storage before it: tells whether vector accesses are aligned.
    pub(crate) offset: i64,
}

/// The origin of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Position in `forward`'s arguments.
    Input(usize),
    /// Dotted name of a parameter or buffer, or of a constant kept as a non-persistent buffer.
    State(String),
}

/// `low <= at < high`, over the node's axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) at: Expr,
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// How [`Op::Take`] indexes one dim of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// By an expression over the node's axes.
    At(Expr),
    /// By the value of an integer node, read at `map`; negative values count from the end.
    Loaded { index: NodeId, map: Vec<Expr> },
}

/// What a reduction accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReduceKind {
    Sum,
    Prod,
    Max,
    Min,
    Any,
    All,
    ArgMax,
    ArgMin,
}

/// What a scan accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ScanKind {
    Sum,
    Prod,
    LogSumExp,
}

/// Pointwise functions; `emit/scalar.rs` gives their C++.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fun {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    TruncDiv,
    Remainder,
    Fmod,
    Pow,
    Atan2,
    Hypot,
    Copysign,
    Max,
    Min,
    Fmax,
    Fmin,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Xor,
    Not,
    Where,
    Cast,
    BitAnd,
    BitOr,
    BitXor,
    BitNot,
    Shl,
    Shr,
    Neg,
    Abs,
    Sign,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Erfc,
    Lgamma,
    Sigmoid,
    Relu,
    Floor,
    Ceil,
    Round,
    Trunc,
    IsNan,
    IsInf,
    Square,
    Cube,
    /// Rounds a float32 to the nearest TF32 number.
    Tf32High,
    /// Rounds the remainder to the nearest TF32 number.
    Tf32Low,
}

/// The variable of dim `d` in index maps.
pub(crate) fn axis(d: usize, extent: i64) -> Expr {
    Expr::var(&format!("#{d}"), extent)
}

/// All axes of a shape: the identity map.
pub(crate) fn axes(shape: &[i64]) -> Vec<Expr> {
    shape.iter().enumerate().map(|(d, e)| axis(d, *e)).collect()
}

/// A map over axes, applied to an index.
pub(crate) fn apply(map: &Expr, index: &[Expr]) -> Expr {
    map.substitute(&|v| {
        let d: usize = v.name.strip_prefix('#')?.parse().ok()?;
        index.get(d).cloned()
    })
}

/// A list of maps over axes, applied to an index.
pub(crate) fn apply_all(map: &[Expr], index: &[Expr]) -> Vec<Expr> {
    map.iter().map(|e| apply(e, index)).collect()
}

impl Graph {
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    pub(crate) fn shape(&self, id: NodeId) -> &[i64] {
        &self.nodes[id.0].shape
    }

    pub(crate) fn dtype(&self, id: NodeId) -> DType {
        self.nodes[id.0].dtype
    }

    /// Adds a node, or finds the equal one.
    pub(crate) fn push(&mut self, name: &str, op: Op, shape: Vec<i64>, dtype: DType) -> NodeId {
        let key = format!("{op:?}{shape:?}{dtype:?}");
        if let Some(id) = self.interned.get(&key) {
            return *id;
        }
        let id = NodeId(self.nodes.len());
        self.nodes.push(Node { name: identifier(name), op, shape, dtype });
        self.interned.insert(key, id);
        id
    }

    pub(crate) fn scalar(&mut self, value: f64, dtype: DType) -> NodeId {
        self.push("scalar", Op::Scalar(value), vec![], dtype)
    }

    /// A pointwise function of arguments that broadcast to `shape`.
    pub(crate) fn map(
        &mut self,
        name: &str,
        f: Fun,
        args: &[NodeId],
        shape: &[i64],
        dtype: DType,
    ) -> NodeId {
        if f == Fun::Cast && self.dtype(args[0]) == dtype {
            return self.broadcast(args[0], shape);
        }
        let args = args.iter().map(|a| self.broadcast(*a, shape)).collect();
        self.push(name, Op::Map { f, args }, shape.to_vec(), dtype)
    }

    /// A view; views of views are composed, and the identity is dropped.
    pub(crate) fn view(&mut self, src: NodeId, map: Vec<Expr>, shape: Vec<i64>) -> NodeId {
        let node = self.node(src);
        if node.shape == shape && map == axes(&shape) {
            return src;
        }
        let (name, dtype) = (node.name.clone(), node.dtype);
        let (src, map) = match &node.op {
            Op::View { src, map: inner } => (*src, apply_all(inner, &map)),
            Op::Scalar(_) => (src, vec![]),
            _ => (src, map),
        };
        if self.shape(src) == shape && map == axes(&shape) {
            return src;
        }
        self.push(&name, Op::View { src, map }, shape, dtype)
    }

    /// Row-major reinterpretation.
    pub(crate) fn reshape(&mut self, src: NodeId, shape: &[i64]) -> NodeId {
        let flat = index::dot(&axes(shape), &index::strides_of(shape));
        let map = index::unflatten(&flat, self.shape(src));
        self.view(src, map, shape.to_vec())
    }

    /// NumPy broadcasting to `shape`.
    pub(crate) fn broadcast(&mut self, src: NodeId, shape: &[i64]) -> NodeId {
        let from = self.shape(src).to_vec();
        let lead = shape.len().saturating_sub(from.len());
        let map = from
            .iter()
            .enumerate()
            .map(|(d, e)| if *e == 1 { Expr::default() } else { axis(lead + d, *e) })
            .collect();
        self.view(src, map, shape.to_vec())
    }

    /// The nodes an op reads, in order, with repetition.
    pub(crate) fn operands(&self, id: NodeId) -> Vec<NodeId> {
        match &self.node(id).op {
            Op::Leaf(_) | Op::Scalar(_) | Op::Index(_) => vec![],
            Op::Map { args, .. } | Op::Heavy { args, .. } => args.clone(),
            Op::View { src, .. } | Op::Reduce { src, .. } | Op::Scan { src, .. } => vec![*src],
            Op::Guard { inside, outside, .. } => vec![*inside, *outside],
            Op::Take { src, picks } => {
                let mut out = vec![*src];
                out.extend(picks.iter().filter_map(|p| match p {
                    Pick::Loaded { index, .. } => Some(*index),
                    Pick::At(_) => None,
                }));
                out
            }
        }
    }

    /// Nodes the outputs depend on, in order.
    pub(crate) fn reachable(&self) -> Vec<NodeId> {
        let mut seen = vec![false; self.nodes.len()];
        let mut stack = self.outputs.clone();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut seen[id.0], true) {
                stack.extend(self.operands(id));
            }
        }
        (0..seen.len()).filter(|i| seen[*i]).map(NodeId).collect()
    }
}

/// Names used by C++, CUDA, math functions and the templates' own variables.
const TAKEN: &str = " add abs exp log pow sqrt floor ceil round trunc sin cos tan tanh erf max \
    min div float double int bool out row col index sign where select var new stream rsqrt \
    remainder copysign asin acos atan atan2 sinh cosh asinh acosh atanh fmod erfc hypot fmax \
    fmin exp2 expm1 log2 log10 log1p lgamma fabs rint load at item block long short char \
    signed unsigned void auto const for if else while do switch case default return class \
    struct union template this true false and or not xor private public protected sigmoid \
    gamma j0 j1 y0 y1 jn yn signal time clock i i0 j ";

/// A traced name without its number: `mul` of `mul_3`. Names with this stem are predictable without
/// knowing how many there will be, for people and for models.
pub(crate) fn stem(name: &str) -> &str {
    match name.rsplit_once('_') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => {
            stem
        }
        _ => name,
    }
}

/// Whether C++, CUDA or a template uses this name.
fn is_taken(name: &str) -> bool {
    TAKEN.contains(&format!(" {name} "))
}

/// The stem itself for the first name, if it is allowed; otherwise the stem with a number.
pub(crate) fn numbered(stem: &str, number: u32) -> String {
    if number == 0 && !is_taken(stem) { stem.to_owned() } else { format!("{stem}_{number}") }
}

/// A C++ identifier from a traced name.
pub(crate) fn identifier(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    out = out.trim_start_matches('_').to_owned();
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) || is_taken(&out) {
        out = format!("{out}_0");
        out = out.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').to_owned();
        if out.is_empty() {
            "t_0".clone_into(&mut out);
        }
    }
    out
}
