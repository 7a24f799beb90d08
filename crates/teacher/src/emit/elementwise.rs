//! Kernels without reductions: one thread computes a few neighbouring elements of every output.
//!
//! Used on the GPU. On the cpu device, elementwise work is a row program with one thread per row
//! (`rows.rs`): the host compiler vectorises its inner loop best.

use super::scalar::to_storage;
use super::{Buffer, Emitter, KernelFile, Lanes, RunTimeSize, address, prelude};
use crate::index::{self, Expr, numel};
use crate::ir::{Graph, NodeId};
use std::collections::BTreeMap;

/// The work of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Elementwise {
    pub(crate) name: String,
    /// All outputs have this many elements.
    pub(crate) shape: Vec<i64>,
    pub(crate) stores: Vec<NodeId>,
    /// First line of the file's comment.
    pub(crate) purpose: String,
}

/// Launch parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementTune {
    pub(crate) threads: i64,
    /// Elements per access.
    pub(crate) vec: i64,
    /// Accesses per thread.
    pub(crate) items: i64,
    /// Cache hints for data that is touched once.
    pub(crate) streaming: bool,
    /// 0: one pass of blocks over the data; else this many blocks loop over it.
    pub(crate) persistent_blocks: i64,
    /// Process the last elements first: the previous kernel's most recent data is still in the
    /// cache.
    pub(crate) backwards: bool,
    /// The launcher takes the number of elements.
    pub(crate) sizes: bool,
}

/// Writes the file.
pub(crate) fn emit(
    what: &Elementwise,
    tune: &ElementTune,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> Result<KernelFile, String> {
    let count = numel(&what.shape);
    let vec = (1..=tune.vec).rev().find(|v| count % v == 0 && tune.vec % v == 0).unwrap_or(1);
    let mut e = Emitter::new(graph, buffers);
    e.streaming = tune.streaming;
    e.declare("count");
    let per_block = tune.threads * vec * tune.items;
    // The last block's threads count past the end before they leave.
    let index_type = if count + per_block > i64::from(i32::MAX) { "int64_t" } else { "int" };
    let lanes = Lanes { var: "i".into(), extent: count, width: vec, vector: true, linear: false };
    e.open_lanes(&["i", "i0", "j", "item"], lanes.clone());
    let flat = Expr::var("i", count);
    let mut stores = Vec::new();
    let mut outs = Vec::new();
    for node in &what.stores {
        let value = e.value(*node, &index::unflatten(&flat, graph.shape(*node)))?;
        let out = e.output_param(*node);
        let dtype = graph.dtype(*node);
        let text = to_storage(&value, dtype);
        if vec > 1 {
            let pack = e.fresh(&format!("{out}_vec"));
            e.line(format!("{pack}.at[j] = {text};"));
            let start = lanes.vector_base(&flat).unwrap_or_else(|| flat.clone());
            let to = address(&out, &start);
            let store = if tune.streaming {
                format!("store_streaming({to}, {pack});")
            } else {
                format!("*reinterpret_cast<Vec<{}, kVec>*>({to}) = {pack};", dtype.storage())
            };
            stores.push((format!("Vec<{}, kVec> {pack};", dtype.storage()), store));
        } else {
            e.line(format!("{out}[i] = {text};"));
        }
        outs.push((*node, out));
    }
    let (vectors, lines) = e.close(false);
    let size = tune.sizes.then_some(RunTimeSize {
        name: "count",
        kind: index_type,
        value: count,
        beyond: per_block,
    });
    let known = format!("constexpr {index_type} kCount = {count};  // elements of each output");
    let mut body: Vec<String> = vec![
        format!("constexpr int kThreads = {};", tune.threads),
        format!("constexpr int kVec = {vec};      // elements per access"),
        format!("constexpr int kItems = {};    // accesses per thread", tune.items),
        String::new(),
        format!(
            "__global__ void __launch_bounds__(kThreads) {}_kernel({}{}) {{",
            what.name,
            parameters(&e, &outs),
            size.map(|size| size.parameter()).unwrap_or_default()
        ),
    ];
    if size.is_none() {
        body.insert(0, known);
    }
    let blocks = (count + per_block - 1) / per_block;
    body.extend(e.take_root());
    let persistent = tune.persistent_blocks > 0 && blocks > tune.persistent_blocks;
    let block = if index_type == "int" { "blockIdx.x" } else { "(int64_t)blockIdx.x" };
    if persistent {
        // A fixed number of blocks walks over the data.
        let blocks = match size {
            Some(_) => format!("(count + {}) / {per_block}", per_block - 1),
            None => blocks.to_string(),
        };
        body.push(format!(
            "for ({index_type} block = {block}; block < {blocks}; block += gridDim.x) {{"
        ));
    } else if tune.backwards && size.is_some() {
        body.push(format!(
            "const {index_type} block = ({index_type})(gridDim.x - 1 - blockIdx.x);"
        ));
    } else if tune.backwards {
        body.push(format!("const {index_type} block = {} - ({index_type})blockIdx.x;", blocks - 1));
    } else {
        body.push(format!("const {index_type} block = {block};"));
    }
    body.push("#pragma unroll".to_owned());
    body.push("for (int item = 0; item < kItems; ++item) {".to_owned());
    let wide = if vec > 1 { " * kVec" } else { "" };
    body.push(format!(
        "const {index_type} {} = ((block * kItems + item) * kThreads + (int)threadIdx.x){wide};",
        if vec > 1 { "i0" } else { "i" }
    ));
    let var = if vec > 1 { "i0" } else { "i" };
    let exact = count % per_block == 0 && size.is_none();
    if !exact {
        let count = if size.is_some() { "count" } else { "kCount" };
        body.push(format!("if ({var} < {count}) {{"));
    }
    body.extend(vectors);
    body.extend(stores.iter().map(|s| s.0.clone()));
    if vec > 1 {
        body.push("#pragma unroll".to_owned());
        body.push("for (int j = 0; j < kVec; ++j) {".to_owned());
        if lines.iter().any(|l| mentions(&l.text, "i")) {
            body.push(format!("const {index_type} i = i0 + j;"));
        }
    }
    body.extend(lines.into_iter().map(|l| l.text));
    if vec > 1 {
        body.push("}".to_owned());
    }
    body.extend(stores.into_iter().map(|s| s.1));
    for _ in 0..=(usize::from(!exact) + usize::from(persistent)) {
        body.push("}".to_owned());
    }
    body.push("}".to_owned());
    let grid = match size {
        _ if persistent => tune.persistent_blocks.to_string(),
        Some(size) => size.blocks(per_block),
        None => blocks.to_string(),
    };
    let launch = format!("{grid}, kThreads");
    Ok(finish(&e, (&what.name, &what.purpose), body, &outs, &launch, size))
}

/// Whether a statement uses an identifier.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == name)
}

/// The kernel's parameter list: inputs, then outputs.
pub(crate) fn parameters(e: &Emitter<'_>, outs: &[(NodeId, String)]) -> String {
    let reads = e
        .reads
        .iter()
        .map(|n| format!("const {}* __restrict__ {}", e.graph.dtype(*n).storage(), e.param_of(*n)));
    let writes = outs
        .iter()
        .map(|(n, name)| format!("{}* __restrict__ {name}", e.graph.dtype(*n).storage()));
    reads.chain(writes).collect::<Vec<_>>().join(", ")
}

/// Adds the launcher and makes the file.
pub(crate) fn finish(
    e: &Emitter<'_>,
    (name, purpose): (&str, &str),
    mut body: Vec<String>,
    outs: &[(NodeId, String)],
    launch: &str,
    size: Option<RunTimeSize>,
) -> KernelFile {
    let reads = e.reads.iter().map(|n| (*n, e.param_of(*n).to_owned(), "const "));
    let writes = outs.iter().map(|(n, p)| (*n, p.clone(), ""));
    let all: Vec<(NodeId, String, &str)> = reads.chain(writes).collect();
    let mut signature: Vec<String> =
        all.iter().map(|(n, p, c)| format!("{c}{}* {p}", e.graph.dtype(*n).storage())).collect();
    let mut names: Vec<String> = all.iter().map(|(_, p, _)| p.clone()).collect();
    if let Some(size) = size {
        signature.push(format!("int64_t {}", size.name));
        names.push(format!("({}){}", size.kind, size.name));
    }
    body.push(String::new());
    body.push(format!(
        "extern \"C\" cudaError_t {name}_launcher({}, cudaStream_t stream) {{",
        signature.join(", ")
    ));
    body.extend(size.map(|size| size.check()));
    body.push(format!("{name}_kernel<<<{launch}, 0, stream>>>({});", names.join(", ")));
    body.push("return cudaGetLastError();".to_owned());
    body.push("}".to_owned());
    KernelFile {
        name: name.to_owned(),
        text: prelude::complete(purpose, &body),
        args: all.into_iter().map(|(n, _, _)| n).collect(),
        scratch: vec![],
        sizes: size.iter().map(|size| size.value).collect(),
    }
}
