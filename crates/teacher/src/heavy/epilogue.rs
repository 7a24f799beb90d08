//! The epilogue of a library call on the GPU: one elementwise kernel in the same file.

use std::collections::BTreeMap;

use crate::emit::elementwise::{self, ElementTune, Elementwise};
use crate::emit::{Buffer, HeavyContext, KernelFile};
use crate::index::{numel, strides_of};
use crate::ir::{NodeId, Op};

/// Where the library writes its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// The buffer of a stored node: the heavy node's own, or one that the epilogue then overwrites
    /// element by element.
    Store(NodeId),
    /// Separate scratch memory.
    Scratch,
}

/// The elementwise kernel, and how to call it.
pub(crate) struct Epilogue {
    /// Text with a static function `{name}_epilogue_launcher`; empty if nothing follows.
    pub(crate) text: String,
    /// Its arguments, in order.
    pub(crate) args: Vec<NodeId>,
    pub(crate) raw: Raw,
    /// The number of elements, if the function takes it last.
    pub(crate) count: Option<i64>,
}

/// Writes the epilogue of the kernel being written. With `sizes`, it takes the number of elements.
pub(crate) fn write(context: &HeavyContext<'_>, sizes: bool) -> Result<Epilogue, String> {
    let graph = context.graph;
    let node = context.node;
    let rest: Vec<NodeId> = context.stores.iter().copied().filter(|s| *s != node).collect();
    let raw = if context.stores.contains(&node) {
        Raw::Store(node)
    } else {
        let same = |s: &&NodeId| graph.dtype(**s) == graph.dtype(node);
        rest.iter().find(same).map_or(Raw::Scratch, |s| Raw::Store(*s))
    };
    if rest.is_empty() {
        return Ok(Epilogue { text: String::new(), args: vec![], raw, count: None });
    }
    let mut buffers: BTreeMap<NodeId, Buffer> = context.buffers.clone();
    let shape = graph.shape(node);
    buffers.insert(node, Buffer { strides: strides_of(shape), dtype: graph.dtype(node) });
    let widest = rest.iter().chain([&node]).map(|n| graph.dtype(*n).size()).max().unwrap_or(4);
    let tune = ElementTune {
        threads: 256,
        vec: (16 / widest).max(1),
        items: 1,
        streaming: false,
        persistent_blocks: 0,
        backwards: true,
        sizes,
    };
    let what = Elementwise {
        name: format!("{}_epilogue", context.name),
        shape: graph.shape(rest[0]).to_vec(),
        stores: rest,
        purpose: String::new(),
    };
    let KernelFile { text, args, sizes, .. } = elementwise::emit(&what, &tune, graph, &buffers)?;
    let text = text.replace("extern \"C\" cudaError_t ", "static cudaError_t ");
    let text = text.trim_start_matches("//").trim_start().to_owned();
    // Reading and writing the same element through two pointers is not what restrict promises.
    let aliased = matches!(raw, Raw::Store(s) if s != node);
    let text = if aliased { text.replace("__restrict__ ", "") } else { text };
    Ok(Epilogue { text, args, raw, count: sizes.first().copied() })
}

/// First lines of a heavy kernel's file: its operator, and the operations fused after it.
pub(crate) fn comment(context: &HeavyContext<'_>, purpose: &str) -> String {
    let graph = context.graph;
    let mut names: Vec<&str> = Vec::new();
    let mut stack: Vec<NodeId> = context.stores.clone();
    while let Some(id) = stack.pop() {
        if id == context.node || context.buffers.contains_key(&id) {
            continue;
        }
        if let Op::Map { .. } | Op::Guard { .. } | Op::Take { .. } = graph.node(id).op
            && !names.contains(&graph.node(id).name.as_str())
        {
            names.push(&graph.node(id).name);
        }
        stack.extend(graph.operands(id));
    }
    if names.is_empty() {
        return purpose.to_owned();
    }
    names.reverse();
    names.truncate(20);
    format!("{purpose}\nFollowed by {}.", names.join(", "))
}

/// Whether two nodes have the same number of elements, so that their indices correspond.
pub(crate) fn as_many(context: &HeavyContext<'_>, a: NodeId, b: NodeId) -> bool {
    numel(context.graph.shape(a)) == numel(context.graph.shape(b))
}
