//! Launches the kernels of a forward pass by one C++ function (the chain).
//!
//! - Called from Python, each kernel costs the host 10 to 20 us: looking up and checking arguments,
//!   allocating memory, getting the stream. If kernels are shorter than that, the device waits.
//! - The chain's function knows the addresses of weights since `prepare()`, and owns the memory of
//!   intermediate results.
//! - On a GPU a long chain is captured as a CUDA graph at its second call and replayed from then
//!   on. Inputs are copied into the graph's buffers and results out of them, since their addresses
//!   differ from call to call.
//! - In the first call libraries create their plans and allocate memory, which cannot be captured.
//!
//! ```text
//! prepare(): chain_hold_0_launcher(model, weights...)      addresses, by model
//! forward(): chain_launcher(model, inputs..., results...)  kernel after kernel, or a graph
//! ```

mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::dtype::DType;
use crate::index::numel;
use crate::ir::{Graph, NodeId, Op, Source};
use crate::plan::Target;
use text::Text;

/// The chain's name, where there is one.
pub(crate) const NAME: &str = "chain";

/// Whether a workspace has a chain.
pub(crate) fn is_among(files: &BTreeMap<String, String>) -> bool {
    files.values().any(|text| text.contains("_hold_0_launcher("))
}

/// Smallest number of kernels for which a chain uses a CUDA graph: a graph launch costs 5 to 10 us
/// and copies.
const MANY: usize = 5;
/// Maximum bytes of inputs and results copied per kernel of a graph. At 3 TB/s, copying them takes
/// the 4 us that a launch saves.
const COPIED_PER_KERNEL: i64 = 6 << 20;
/// Maximum bytes of intermediate results. The candidate allocates them itself, beyond the memory
/// that the judge plans for it.
const MOST_WORK: i64 = 256 << 20;
const MOST_WORK_CPU: i64 = 64 << 20;
/// Maximum addresses per function: Python's foreign functions have at most 1024 arguments.
const AT_ONCE: usize = 256;
/// Alignment of addresses in bytes.
const ALIGNMENT: i64 = 256;

/// A launcher's signature in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    name: String,
    returns: String,
    /// Types of its parameters, without the stream.
    types: Vec<String>,
}

impl Signature {
    /// Reads the signature of `name` from a kernel's file.
    pub(crate) fn read(text: &str, name: &str) -> Option<Self> {
        let end = format!(" {name}_launcher(");
        let at = text.rfind(&end)?;
        let returns = text[..at].rsplit_once("extern \"C\" ")?.1.to_owned();
        let parameters = text[at + end.len()..].split_once(')')?.0;
        let typed = |parameter: &str| {
            let (kind, _) = parameter.trim().rsplit_once(' ')?;
            Some(kind.to_owned())
        };
        let mut types = parameters.split(',').map(typed).collect::<Option<Vec<_>>>()?;
        (types.pop()? == "cudaStream_t").then_some(Self { name: name.to_owned(), returns, types })
    }
}

/// A kernel of the forward pass.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) signature: Signature,
    /// Buffers in the launcher's order.
    pub(crate) args: Vec<NodeId>,
    /// Scratch memory parameters after them.
    pub(crate) scratch: Vec<(Vec<i64>, DType)>,
    /// Numbers after those.
    pub(crate) sizes: Vec<i64>,
}

/// A chain; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Its functions are called `{name}_launcher` and `{name}_hold_0_launcher`.
    pub(crate) name: String,
    /// The text of its file.
    pub(crate) text: String,
    /// Parameters of `chain_hold_0_launcher` and its successors after the model's number,
    /// [`AT_ONCE`] each.
    pub(crate) held: Vec<NodeId>,
    /// Parameters of `chain_launcher` after the model's number: inputs, then results.
    pub(crate) given: Vec<NodeId>,
    pub(crate) results: Vec<NodeId>,
}

impl Chain {
    /// Arguments of each function that receives weights; the first function always exists.
    pub(crate) fn held_in_parts(&self) -> impl Iterator<Item = &[NodeId]> {
        let none = self.held.is_empty().then_some(&[][..]);
        none.into_iter().chain(self.held.chunks(AT_ONCE))
    }
}

/// The location of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Held(usize),
    Given(usize),
    Result(usize),
    /// The n-th block of intermediate results.
    Work(usize),
    /// No memory, but this number.
    Number(i64),
}

impl Place {
    fn written(self, kind: &str, offsets: &[i64]) -> String {
        match self {
            Self::Held(i) => format!("({kind})held[{i}]"),
            Self::Given(i) => format!("({kind})given[{i}]"),
            Self::Result(i) => format!("({kind})results[{i}]"),
            Self::Work(i) => format!("({kind})(work + {})", offsets[i]),
            Self::Number(value) => value.to_string(),
        }
    }
}

/// A memory block and the calls between which it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    first: usize,
    last: usize,
    bytes: i64,
}

/// Offsets at which no two simultaneously live blocks overlap, and the total size.
fn lay_out(lives: &[Life]) -> (Vec<i64>, i64) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|i| lives[*i].first);
    let (mut offsets, mut end) = (vec![0; lives.len()], 0);
    let mut placed: Vec<usize> = Vec::new();
    for i in order {
        placed.retain(|p| lives[*p].last >= lives[i].first);
        placed.sort_by_key(|p| offsets[*p]);
        let mut offset = 0;
        for p in &placed {
            if offset + lives[i].bytes <= offsets[*p] {
                break;
            }
            offset = offset.max(aligned(offsets[*p] + lives[*p].bytes));
        }
        offsets[i] = offset;
        end = end.max(offset + lives[i].bytes);
        placed.push(i);
    }
    (offsets, aligned(end))
}

fn aligned(bytes: i64) -> i64 {
    (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
}

fn position(nodes: &mut Vec<NodeId>, node: NodeId) -> usize {
    nodes.iter().position(|n| *n == node).unwrap_or_else(|| {
        nodes.push(node);
        nodes.len() - 1
    })
}

/// Writes the chain of `calls` under this name, if a chain is worthwhile. `prepared` nodes are in memory when
/// forward begins; `span` gives the readable bytes of an input.
pub(crate) fn write(
    (graph, target): (&Graph, &Target),
    name: &str,
    calls: &[Call],
    prepared: &BTreeSet<NodeId>,
    span: impl Fn(NodeId) -> i64,
) -> Option<Chain> {
    if calls.len() < 2 {
        return None;
    }
    let bytes = |n: NodeId| numel(graph.shape(n)) * graph.dtype(n).size();
    let (mut held, mut given, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let (mut between, mut lives): (Vec<NodeId>, Vec<Life>) = (Vec::new(), Vec::new());
    let mut places: Vec<Vec<Place>> = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        let mut at = Vec::new();
        for node in &call.args {
            at.push(match &graph.node(*node).op {
                Op::Leaf(leaf) => match leaf.source {
                    Source::State(_) => Place::Held(position(&mut held, *node)),
                    Source::Input(_) => Place::Given(position(&mut given, *node)),
                },
                _ if prepared.contains(node) => Place::Held(position(&mut held, *node)),
                _ if graph.outputs.contains(node) => Place::Result(position(&mut results, *node)),
                _ => {
                    let known = between.iter().position(|n| n == node);
                    let block = known.unwrap_or(lives.len());
                    if known.is_none() {
                        lives.push(Life { first: i, last: i, bytes: bytes(*node) });
                        between.resize(lives.len(), *node);
                    }
                    lives[block].last = i;
                    Place::Work(block)
                }
            });
        }
        for (shape, dtype) in &call.scratch {
            at.push(Place::Work(lives.len()));
            lives.push(Life { first: i, last: i, bytes: numel(shape) * dtype.size() });
            // A place that no node is found at.
            between.resize(lives.len(), NodeId(usize::MAX));
        }
        at.extend(call.sizes.iter().map(|size| Place::Number(*size)));
        if at.len() != call.signature.types.len() {
            return None;
        }
        places.push(at);
    }
    let (offsets, work) = lay_out(&lives);
    if work > if target.cpu { MOST_WORK_CPU } else { MOST_WORK } {
        return None;
    }
    let copied: Vec<i64> =
        given.iter().map(|n| span(*n)).chain(results.iter().map(|n| bytes(*n))).collect();
    let copies: i64 = copied.iter().sum();
    let replays = !target.cpu
        && calls.len() >= MANY
        && copies <= COPIED_PER_KERNEL.saturating_mul(calls.len() as i64);
    let launches: Vec<String> = calls
        .iter()
        .zip(&places)
        .map(|(call, at)| {
            let args: Vec<String> = at
                .iter()
                .zip(&call.signature.types)
                .map(|(place, kind)| place.written(kind, &offsets))
                .collect();
            let name = &call.signature.name;
            format!(
                "if (const int error = (int){name}_launcher({}, stream)) return error;",
                args.join(", ")
            )
        })
        .collect();
    let text = Text { name, graph, calls, held: &held, given: &given, results: &results };
    let text = text.file(&launches, work, replays.then_some(&copied));
    Some(Chain { name: name.to_owned(), text, held, given, results })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_signature_is_read_from_its_file() {
        let text = "static int a_epilogue_launcher(int x);\nextern \"C\" cudaError_t a_launcher(const float* x, const __half* y, int64_t* out, cudaStream_t stream) {\n";
        let read = Signature::read(text, "a").unwrap();
        assert_eq!(read.returns, "cudaError_t");
        assert_eq!(read.types, ["const float*", "const __half*", "int64_t*"]);
        assert_eq!(Signature::read(text, "b"), None);
    }

    proptest! {
        /// Whatever lives when: blocks that live at once do not overlap, all lie within the memory, and
        /// at multiples of the alignment.
        #[test]
        fn blocks_that_live_at_once_do_not_overlap(
            lives in prop::collection::vec((0usize..12, 0usize..6, 1i64..5000), 0..24),
        ) {
            let lives: Vec<Life> = lives
                .into_iter()
                .map(|(first, more, bytes)| Life { first, last: first + more, bytes })
                .collect();
            let (offsets, end) = lay_out(&lives);
            for (i, a) in lives.iter().enumerate() {
                prop_assert!(offsets[i] >= 0 && offsets[i] + a.bytes <= end);
                prop_assert_eq!(offsets[i] % ALIGNMENT, 0);
                for (j, b) in lives.iter().enumerate().skip(i + 1) {
                    let at_once = a.first <= b.last && b.first <= a.last;
                    let apart = offsets[i] + a.bytes <= offsets[j]
                        || offsets[j] + b.bytes <= offsets[i];
                    prop_assert!(!at_once || apart, "{a:?} at {} and {b:?} at {}", offsets[i], offsets[j]);
                }
            }
        }
    }

    /// A chain of equal blocks, each read by the next kernel alone, takes the memory of two.
    #[test]
    fn memory_of_dead_blocks_is_reused() {
        let lives: Vec<Life> =
            (0..50).map(|i| Life { first: i, last: i + 1, bytes: 1000 }).collect();
        assert_eq!(lay_out(&lives).1, 2048);
    }
}
