//! Launch parameters: defaults from the shapes and the device, and the few knobs of the search.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::emit::columns::ColumnTune;
use crate::emit::elementwise::{ElementTune, Elementwise};
use crate::emit::rows::{Frame, RowProgram, RowTune};
use crate::emit::scans::ScanTune;
use crate::emit::{Buffer, Lanes};
use crate::index::{Expr, dot, numel, unflatten};
use crate::ir::{Graph, NodeId, Op, ReduceKind};
use crate::plan::{self, Target};

/// The knobs of the search. The default is the first version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Knobs {
    /// Cache hints for data accessed once.
    pub(crate) streaming: bool,
    /// Doublings (or halvings) of the work per thread.
    pub(crate) items_shift: i32,
    /// Doublings (or halvings) of the block, or of the threads per row.
    pub(crate) threads_shift: i32,
    /// A fixed number of blocks that loop over the data.
    pub(crate) persistent: bool,
    /// Load and compute elements again in later passes, instead of keeping them in registers.
    pub(crate) reload: bool,
    /// Halvings (or doublings) of the access width.
    pub(crate) vec_shift: i32,
    /// The plainest code: scalar accesses, no kept elements, double sums.
    pub(crate) safe: bool,
    /// Variant of the heavy operators, from 0.
    pub(crate) heavy: usize,
    /// Split large float32 products into parts on tensor cores, if such a form exists.
    pub(crate) split: bool,
    /// Launch all kernels through one launcher, if that is worthwhile.
    pub(crate) chain: bool,
    /// Launchers take sizes, so that one kernel serves several workloads. No part of the search.
    pub(crate) sizes: bool,
    /// The number of rows to tune for, instead of the one that is there. No part of the search.
    pub(crate) like: Option<i64>,
}

impl Knobs {
    /// A description in words, for messages.
    pub(crate) fn describe(&self) -> String {
        let mut parts = Vec::new();
        if self.safe {
            parts.push("plain scalar code".to_owned());
        }
        if self.streaming {
            parts.push("streaming cache hints".to_owned());
        }
        if self.persistent {
            parts.push("persistent blocks".to_owned());
        }
        if self.reload {
            parts.push("reloading rows between passes".to_owned());
        }
        for (shift, what) in [
            (self.items_shift, "work per thread"),
            (self.threads_shift, "threads"),
            (self.vec_shift, "access width"),
        ] {
            if shift != 0 {
                parts.push(format!("{what} x {}", 2f64.powi(shift)));
            }
        }
        if self.heavy > 0 {
            parts.push(format!("product kernel variant {}", self.heavy));
        }
        if self.split {
            parts.push("large products in TF32 parts".to_owned());
        }
        if parts.is_empty() { "defaults".to_owned() } else { parts.join(", ") }
    }
}

fn shifted(value: i64, shift: i32, low: i64, high: i64) -> i64 {
    let moved = if shift >= 0 { value << shift } else { value >> -shift };
    moved.clamp(low, high)
}

/// Number of elements in a 16-byte access of the widest large tensor of a step.
fn access_width(
    graph: &Graph,
    stores: &[NodeId],
    nodes: &[NodeId],
    count: i64,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> i64 {
    let mut seen = std::collections::BTreeSet::new();
    let mut stack = nodes.to_vec();
    let mut widest = stores.iter().map(|n| graph.dtype(*n).size()).max().unwrap_or(4);
    while let Some(n) = stack.pop() {
        if !seen.insert(n) {
            continue;
        }
        if buffers.contains_key(&n) && !nodes.contains(&n) {
            if numel(graph.shape(n)) * 2 >= count {
                widest = widest.max(graph.dtype(n).size());
            }
        } else {
            stack.extend(graph.operands(n));
        }
    }
    (16 / widest).clamp(1, 8)
}

/// For an elementwise step on the GPU.
pub(crate) fn element(
    step: &Elementwise,
    knobs: &Knobs,
    target: &Target,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> ElementTune {
    let count = numel(&step.shape);
    let vec = access_width(graph, &step.stores, &step.stores, count, buffers);
    let vec = if knobs.safe { 1 } else { shifted(vec, knobs.vec_shift, 1, 16) };
    let (vec, items) =
        if vec > 1 && is_scattered(step, graph, buffers, vec) { (1, vec.min(4)) } else { (vec, 1) };
    ElementTune {
        threads: shifted(256, knobs.threads_shift, 64, 1024),
        vec,
        items: shifted(items, knobs.items_shift, 1, 8),
        streaming: knobs.streaming && !knobs.safe,
        persistent_blocks: if knobs.persistent { target.processors * 8 } else { 0 },
        backwards: false,
        sizes: knobs.sizes,
    }
}

/// Whether most loads cannot be vector accesses of neighbouring elements: windows, shifted rows.
/// Then neighbouring threads take neighbouring elements: with several elements a thread, a warp's
/// scalar load would touch that many times more cache lines.
fn is_scattered(
    step: &Elementwise,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
    vec: i64,
) -> bool {
    let count = numel(&step.shape);
    if count % vec != 0 {
        return false;
    }
    let flat = Expr::var("i", count);
    let lanes = Lanes { var: "i".into(), extent: count, width: vec, vector: true, linear: false };
    let (mut wide, mut narrow) = (0, 0);
    for store in &step.stores {
        let at = unflatten(&flat, graph.shape(*store));
        for (node, at) in plan::loads(graph, *store, &at, buffers) {
            let Some(buffer) = buffers.get(&node) else { continue };
            let offset = dot(&at, &buffer.strides);
            // How often the loops of the reductions in place run it.
            let mut times = 1;
            offset.visit_vars(&mut |v| times *= if v.name.starts_with('~') { v.extent } else { 1 });
            if lanes.vector_base(&offset).is_some() {
                wide += times;
            } else if lanes.first_lane(&[offset]).is_none() {
                narrow += times;
            }
        }
    }
    narrow > wide.max(1)
}

/// For a row program.
pub(crate) fn row(
    step: &RowProgram,
    knobs: &Knobs,
    target: &Target,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> RowTune {
    let (rows, cols) = (step.frame.rows(), step.frame.cols());
    let passes = step.passes.len() + usize::from(!step.full_stores.is_empty());
    if target.cpu {
        let lanes = if knobs.safe { 1 } else { shifted(16, knobs.vec_shift, 4, 64) };
        // Rows that a thread takes at once, so that a block has some work to do.
        let work = shifted(16_384, knobs.items_shift, 256, 1 << 20);
        let share = (knobs.like.unwrap_or(rows) / (4 * target.processors)).max(1);
        // Equal at sizes next to each other.
        let share = if knobs.sizes { 1 << share.ilog2() } else { share };
        let per = (work / cols.max(1)).clamp(1, 256).min(share);
        return RowTune {
            threads: 1,
            rows_per_block: per,
            vec: lanes,
            keep: passes > 1 && !knobs.reload && !knobs.safe && cols <= 16_384,
            streaming: false,
            backwards: false,
            precise: knobs.safe || cols / lanes > 64,
            sizes: knobs.sizes,
        };
    }
    let all: Vec<NodeId> = step.passes.iter().flatten().chain(&step.full_stores).copied().collect();
    let vec = if step.full_stores.is_empty() {
        16 / step.passes.iter().flatten().map(|r| source_size(graph, *r)).max().unwrap_or(4)
    } else {
        access_width(graph, &step.full_stores, &all, rows * cols, buffers)
    };
    let vec = if knobs.safe { 1 } else { shifted(vec.clamp(1, 8), knobs.vec_shift, 1, 8) };
    let vec = (1..=vec).rev().find(|v| cols % v == 0 && vec % v == 0).unwrap_or(1);
    let threads = if step.passes.is_empty() {
        256
    } else if cols <= 1024 {
        // Short rows take as many lanes of a warp as they have accesses.
        let lanes = (cols / vec).max(2) as u64;
        (lanes.next_power_of_two() as i64).clamp(2, 32)
    } else {
        let wanted = (cols / vec / 4).max(1) as u64;
        (wanted.next_power_of_two() as i64).clamp(64, 1024)
    };
    let threads = shifted(threads, knobs.threads_shift - knobs.items_shift, 2, 1024);
    // Registers for kept elements: at most 32 a thread per value.
    let keep = passes > 1 && !knobs.reload && !knobs.safe && cols / threads <= 32;
    RowTune {
        threads,
        rows_per_block: if threads > 32 { 1 } else { 128 / threads },
        vec,
        keep,
        streaming: knobs.streaming && !knobs.safe && (keep || passes == 1),
        backwards: false,
        precise: false,
        sizes: knobs.sizes,
    }
}

/// Whether neighbours in memory belong to different rows, judged by the large tensors it reads.
pub(crate) fn is_column(
    step: &RowProgram,
    scan: Option<&NodeId>,
    target: &Target,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> bool {
    let vars = |name: &str, shape: &[i64]| -> Vec<Expr> {
        shape.iter().enumerate().map(|(d, e)| Expr::var(&format!("{name}{d}"), *e)).collect()
    };
    let innermost = |name: &str, shape: &[i64]| {
        shape.iter().rposition(|e| *e > 1).map(|d| format!("{name}{d}"))
    };
    let (outer, inner) = (step.frame.outer(), step.frame.inner());
    let index = crate::ir::reduction_index(
        step.frame.shape.len(),
        &step.frame.dims,
        &vars("o", &outer),
        &vars("i", &inner),
    );
    let (Some(row), Some(col)) = (innermost("o", &outer), innermost("i", &inner)) else {
        return false;
    };
    let (mut by_row, mut by_col) = (0, 0);
    let mut pairs = !target.cpu && step.full_stores.is_empty();
    for r in step.passes.iter().flatten().chain(scan) {
        let (Op::Reduce { src, .. } | Op::Scan { src, .. }) = &graph.node(*r).op else { continue };
        if graph.shape(*src) != step.frame.shape {
            pairs = false;
            continue;
        }
        for (node, at) in plan::loads(graph, *src, &index, buffers) {
            let Some(buffer) = buffers.get(&node) else { continue };
            let offset = dot(&at, &buffer.strides);
            pairs &= !(offset.mentions(&row) && offset.mentions(&col));
            let weight = numel(graph.shape(node));
            by_col += if offset.stride_of(&col) == Some(1) { weight } else { 0 };
            by_row += if offset.stride_of(&row) == Some(1) { weight } else { 0 };
        }
    }
    // Of all pairs of two lists, neighbouring threads take neighbours in one list and walk over the
    // other together, all reading the same element.
    by_row > by_col || (pairs && outer.last().is_some_and(|e| *e >= 32))
}

/// For a scan on the GPU.
pub(crate) fn scan(
    step: &RowProgram,
    node: NodeId,
    target: &Target,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> ScanTune {
    let (rows, cols) = (step.frame.rows(), step.frame.cols());
    let column = is_column(step, Some(&node), target, graph, buffers);
    // A third of the threads that the device holds: scans take many registers.
    let wanted = (target.processors * 683 / rows.max(1)).max(1) as u64;
    let wanted = wanted.next_power_of_two() as i64;
    if column {
        let vec = if cols >= 64 { 8 } else { 4 };
        let along = wanted.clamp(4, 16);
        return ScanTune { column, along, rows_per_block: 32, vec };
    }
    let most = 32 / graph.dtype(node).compute().size().max(4);
    let fits = |v: &i64| cols >= 32 * v && cols % v == 0;
    let vec = [most, most / 2].into_iter().find(fits).unwrap_or(if cols >= 128 { 4 } else { 1 });
    let reach = ((cols / vec).max(1) as u64).next_power_of_two() as i64;
    let along = wanted.min(reach).clamp(32, 1024);
    ScanTune { column, along, rows_per_block: if along > 32 { 1 } else { 4 }, vec }
}

/// For a column program or a scan.
pub(crate) fn column(
    step: &RowProgram,
    knobs: &Knobs,
    target: &Target,
    scan: bool,
    (graph, buffers): (&Graph, &BTreeMap<NodeId, Buffer>),
) -> ColumnTune {
    let rows = step.frame.rows();
    let passes = step.passes.len() + usize::from(!step.full_stores.is_empty());
    let last = step.frame.outer().last().copied().unwrap_or(1);
    if target.cpu {
        // A few cache lines of neighbouring rows per thread.
        let vec = if knobs.safe { 1 } else { shifted(32, knobs.vec_shift, 4, 128) };
        let vec = vec.min((rows / (2 * target.processors)).max(1)).min(last);
        let threads = shifted(1, knobs.items_shift, 1, 16);
        let precise = scan || knobs.safe || step.frame.cols() > 256;
        let small = step.frame.cols() * vec <= 16_384;
        let keep = !scan && passes > 1 && small && !knobs.reload && !knobs.safe;
        return ColumnTune {
            threads,
            along: 1,
            vec,
            vector: false,
            streaming: false,
            precise,
            keep,
        };
    }
    // As many threads as the device holds at once, sharing rows if there are too few of them.
    let steps = step.frame.inner().into_iter().max().unwrap_or(1);
    let most = if scan || knobs.safe { 1 } else { (steps / 4).clamp(1, 16) };
    let enough = |v: i64| rows / v * most >= target.processors * if most > 1 { 1024 } else { 256 };
    // Running values take registers; with too many of them fewer threads find room.
    let values = step.passes.iter().map(Vec::len).max().unwrap_or(1);
    let vec = if enough(4) && values < 3 {
        4
    } else if enough(2) {
        2
    } else {
        1
    };
    let vec = if knobs.safe { 1 } else { shifted(vec, knobs.vec_shift, 1, 8) };
    // Short rows that are gone over several times stay in registers; then all their loads are under
    // way at once, and need not be wide.
    let cols = step.frame.cols();
    let keeps =
        !scan && passes > 1 && !knobs.reload && !knobs.safe && (1..=MOST_KEPT).contains(&cols);
    let keeps =
        keeps && enough(vec.min(MOST_KEPT / cols)) && most_sources(step, graph, buffers) == 1;
    let vec = if keeps { vec.min(MOST_KEPT / cols) } else { vec };
    let vec = (1..=vec).rev().find(|v| last % v == 0 && vec % v == 0).unwrap_or(1);
    let wanted = (target.processors * 2048 / (rows / vec).max(1)).clamp(1, 16) as u64;
    let wanted = shifted(wanted.next_power_of_two() as i64, knobs.items_shift, 1, 16);
    let along = if most < 2 { 1 } else { wanted.min(most) };
    let threads = if along > 1 { 32 } else { shifted(128, knobs.threads_shift, 32, 512) };
    let streaming = knobs.streaming;
    // One running value per row: its rounding errors add up, which torch's tree of partial sums
    // avoids. A double costs little here, because these programs wait for memory.
    let precise = scan || step.frame.cols() / along > if along > 1 { 128 } else { 64 };
    let keep = keeps && along == 1;
    ColumnTune { threads, along, vec, vector: true, streaming, precise, keep }
}

/// Elements that a thread of a column program keeps in registers.
const MOST_KEPT: i64 = 64;

/// How many tensors of the frame's size a row program reads.
fn most_sources(step: &RowProgram, graph: &Graph, buffers: &BTreeMap<NodeId, Buffer>) -> usize {
    let count = step.frame.rows() * step.frame.cols();
    let own: Vec<NodeId> = step.passes.iter().flatten().chain(&step.full_stores).copied().collect();
    let (mut seen, mut stack) = (std::collections::BTreeSet::new(), own.clone());
    let mut wide = 0;
    while let Some(n) = stack.pop() {
        if !seen.insert(n) {
            continue;
        }
        if buffers.contains_key(&n) && !own.contains(&n) {
            wide += usize::from(numel(graph.shape(n)) * 2 >= count);
        } else {
            stack.extend(graph.operands(n));
        }
    }
    wide
}

fn source_size(graph: &Graph, reduction: NodeId) -> i64 {
    match &graph.node(reduction).op {
        Op::Reduce { src, kind: ReduceKind::Any | ReduceKind::All, .. } => {
            graph.dtype(*src).size().max(DType::F32.size())
        }
        Op::Reduce { src, .. } => graph.dtype(*src).size(),
        _ => 4,
    }
}

/// Elements of a row from which the host's vector units are busy.
const WORTH_A_LOOP: i64 = 16;

/// An elementwise step as a row program without reductions, for the cpu device: rows are the
/// leading dims, and the innermost loop is free of divisions.
///
/// A kernel that takes the number of rows must not depend on it: then the elements of a row are
/// those of the last dims.
pub(crate) fn as_rows(
    step: &Elementwise,
    knobs: &Knobs,
    target: &Target,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> Option<RowProgram> {
    let rank = step.shape.len();
    let make = |rows: i64, cols: i64| RowProgram {
        name: step.name.clone(),
        purpose: step.purpose.clone(),
        frame: Frame { shape: vec![rows, cols], dims: vec![1] },
        passes: vec![],
        online: vec![],
        row_stores: vec![],
        full_stores: step.stores.clone(),
    };
    // The number of elements of a single dim is known, unless it must serve for all.
    let free = knobs.sizes && (rank > 1 || knobs.like.is_some());
    if free && rank < 2 {
        return None;
    }
    let candidates = (0..rank.max(1)).map(|k| (numel(&step.shape[..k]), numel(&step.shape[k..])));
    let fits = |p: &RowProgram| crate::emit::rows::divisions(p, graph, buffers, 0) == Some(0);
    let mut plain: Vec<(i64, i64)> = candidates.collect();
    if free {
        plain.remove(0);
        // The shortest rows that are worth a loop.
        let long = plain.iter().rposition(|(_, cols)| *cols >= WORTH_A_LOOP).unwrap_or(0);
        plain.drain(..long);
    }
    let (rows, cols) = plain
        .iter()
        .copied()
        .find(|(r, c)| fits(&make(*r, *c)))
        .or_else(|| plain.last().copied())?;
    // Enough rows for every core, each of a size that stays in the nearest cache.
    let wanted = 8192;
    if cols <= 2 * wanted || rows * cols < 4 * wanted {
        return (rows >= target.processors || cols <= 2 * wanted).then(|| make(rows, cols));
    }
    let chunk = (wanted / 4..=wanted).rev().find(|c| cols % c == 0)?;
    let chunked = make(rows * (cols / chunk), chunk);
    fits(&chunked).then_some(chunked).or_else(|| Some(make(rows, cols)))
}
