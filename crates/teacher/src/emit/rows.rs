//! Row programs: reductions over rows with everything around them fused in.
//!
//! A row is a set of elements that are reduced together; [`Frame`] says which elements of which
//! tensors form row `r`. The program is a sequence of passes over the row. Each pass accumulates
//! the reductions whose inputs are known by then; the last one stores. Softmax has three passes
//! (maximum, sum of exponentials, quotient), RMSNorm two.
//!
//! On the GPU, a part of a warp, a warp or a block handles a row, and keeps its elements in
//! registers between passes if they fit. On the cpu device, a single thread handles a row, and the
//! host compiler vectorises its inner loops.

mod layout;
mod program;

use std::collections::{BTreeMap, BTreeSet};

use self::layout::{Layout, Piece};
pub(crate) use self::program::{Online, RowProgram, RowTune};
use super::elementwise::{finish, parameters};
pub(crate) use super::frame::Frame;
use super::scalar::{Value, to_storage};
use super::{Accumulator, Buffer, Emitter, KernelFile, Lanes, Line, RunTimeSize, address};
use crate::dtype::DType;
use crate::index::{self, Expr, numel, strides_of, unflatten};
use crate::ir::{Graph, NodeId, Op, ReduceKind};

/// How many leading inner dims need loops of their own, so that the innermost loop has no division.
fn loop_split(program: &RowProgram, graph: &Graph, buffers: &BTreeMap<NodeId, Buffer>) -> usize {
    let inner = program.frame.inner();
    let last = inner.len().saturating_sub(1);
    (0..last).find(|split| divisions(program, graph, buffers, *split) == Some(0)).unwrap_or(last)
}

/// Divisions by the innermost variable in the program's statements; `None` if it cannot be written.
pub(crate) fn divisions(
    program: &RowProgram,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
    split: usize,
) -> Option<usize> {
    let mut e = Emitter::new(graph, buffers);
    let row = Expr::var("row", program.frame.rows());
    let (col, vars) = nested(&program.frame.inner(), split);
    let names: Vec<&str> = vars.iter().map(|v| v.0.as_str()).collect();
    let mut count = 0;
    let mut tally = |lines: &[Line]| {
        let by = |l: &Line, op: &str| l.text.matches(op).count();
        count +=
            lines.iter().map(|l| by(l, "col /") + by(l, "col %") + by(l, "col)")).sum::<usize>();
    };
    e.open(&["row"], false);
    e.base_level = 1;
    for r in program.passes.iter().flatten() {
        let Op::Reduce { src, .. } = &graph.node(*r).op else { return None };
        e.open(&names, false);
        let at = program.frame.source_index(graph, *r, &row, &col)?;
        e.value(*src, &at).ok()?;
        tally(&e.close(false).1);
        let outer = unflatten(&row, graph.shape(*r));
        e.bind(*r, &outer, Value::new("acc", graph.dtype(*r)));
    }
    e.open(&names, false);
    for n in &program.full_stores {
        let at = program.frame.index_in(graph.shape(*n), &row, &col);
        e.value(*n, &at).ok()?;
        let offset = index::dot(&at, &strides_of(graph.shape(*n))).print(false);
        e.line(format!("out[{offset}] = 0;"));
    }
    tally(&e.close(false).1);
    Some(count)
}

/// Loop variables: one for each of the first `split` inner dims, one for the rest together.
fn nested(inner: &[i64], split: usize) -> (Expr, Vec<(String, i64)>) {
    let mut shape: Vec<i64> = inner[..split].to_vec();
    shape.push(numel(&inner[split..]));
    let vars: Vec<(String, i64)> = shape
        .iter()
        .enumerate()
        .map(|(d, e)| (if d == split { "col".to_owned() } else { format!("k{d}") }, *e))
        .collect();
    let index: Vec<Expr> = vars.iter().map(|(n, e)| Expr::var(n, *e)).collect();
    (index::dot(&index, &strides_of(&shape)), vars)
}

/// Writes the file.
pub(crate) fn emit(
    what: &RowProgram,
    tune: &RowTune,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> Result<KernelFile, String> {
    let (rows, cols) = (what.frame.rows(), what.frame.cols());
    let serial = tune.threads == 1;
    let inner = what.frame.inner();
    let split = if serial { loop_split(what, graph, buffers) } else { 0 };
    let (col, loops) = nested(&inner, split);
    let width = loops.last().map_or(1, |l| l.1);
    let vec = if serial {
        tune.vec.min(width).max(1)
    } else {
        (1..=tune.vec).rev().find(|v| cols % v == 0 && tune.vec % v == 0).unwrap_or(1)
    };
    let items = (cols + tune.threads * vec - 1) / (tune.threads * vec);
    let mut e = Emitter::new(graph, buffers);
    e.streaming = tune.streaming;
    for taken in ["j", "item", "col0", "kCols", "kRows", "rows"] {
        e.declare(taken);
    }
    e.open(&["row"], false);
    e.base_level = 1;
    let row = Expr::var("row", rows);
    if tune.keep {
        e.keep_index =
            if serial { format!("[{}]", col.print(false)) } else { "[item][j]".to_owned() };
    }
    let lanes =
        Lanes { var: "col".into(), extent: width, width: vec, vector: !serial, linear: false };
    let names: Vec<&str> = loops.iter().map(|l| l.0.as_str()).collect();
    let mut pieces = Vec::new();
    for pass in &what.passes {
        e.open_lanes(&names, lanes.clone());
        let mut accumulators = Vec::new();
        for r in pass {
            // A sum of exponentials takes the elements that its maximum does.
            let online = what.online.iter().find(|o| o.sum == *r).copied();
            let of = online.map_or(*r, |o| o.maximum);
            let (Op::Reduce { src, .. }, Op::Reduce { kind, .. }) =
                (&graph.node(of).op, &graph.node(*r).op)
            else {
                return Err("a pass holds something that is no reduction".to_owned());
            };
            let at = what.frame.source_index(graph, of, &row, &col);
            let value = e.value(*src, &at.ok_or("a reduction over other rows")?)?;
            let name = e.fresh(&graph.node(*r).name);
            let mut acc = Accumulator::new(*kind, &name, graph.dtype(*src));
            if online.is_some() {
                e.line(Online::update(&name, &value.text));
                accumulators.push((*r, name, acc));
                continue;
            }
            if tune.precise && acc.dtype == DType::F32 && *kind == ReduceKind::Sum {
                acc.dtype = DType::F64;
            }
            acc.lanes = serial;
            if serial {
                acc.name = e.fresh(&format!("{name}_lane"));
            }
            for text in acc.update(&value, &col.print(false)) {
                e.line(text);
            }
            accumulators.push((*r, name, acc));
        }
        let (vectors, lines) = e.close(true);
        // What depends on the row alone comes before the pass.
        let (_, before) = e.take_lines();
        let mut before: Vec<String> = before.into_iter().map(|l| l.text).collect();
        let mut after = Vec::new();
        for (r, name, acc) in &accumulators {
            before.extend(if serial { acc.lane_declarations() } else { acc.declarations() });
            if let Some(online) = what.online.iter().find(|o| o.sum == *r) {
                before.push(format!("float {name}_high = -INFINITY;"));
                let maximum = accumulators.iter().find(|a| a.0 == online.maximum);
                let maximum = maximum.map(|a| a.1.clone()).unwrap_or_default();
                after.extend(online.finish(name, &maximum, &across(tune, "reduce", "Add")));
            } else {
                after.extend(combine(acc, name, tune));
            }
            let mut done = acc.clone();
            done.name.clone_from(name);
            done.lanes = false;
            let mut value = done.result();
            if acc.dtype == DType::F64 && graph.dtype(*r).compute() == DType::F32 {
                value = Value::new(format!("(float){name}"), DType::F32);
            }
            e.bind(*r, &unflatten(&row, graph.shape(*r)), value);
        }
        pieces.push(Piece::Lines(before));
        pieces.push(Piece::Pass { vectors, lines, stores: vec![], lanes: true });
        pieces.push(Piece::Lines(after));
    }
    let mut outs: Vec<(NodeId, String)> = Vec::new();
    if !what.full_stores.is_empty() {
        e.open_lanes(&names, lanes.clone());
        let mut stores = Vec::new();
        for n in &what.full_stores {
            let at = what.frame.index_in(graph.shape(*n), &row, &col);
            let value = e.value(*n, &at)?;
            let out = e.output_param(*n);
            let dtype = graph.dtype(*n);
            let text = to_storage(&value, dtype);
            let offset = index::dot(&at, &strides_of(graph.shape(*n)));
            if let Some(base) = lanes.vector_base(&offset) {
                let pack = e.fresh(&format!("{out}_vec"));
                e.line(format!("{pack}.at[j] = {text};"));
                let to = address(&out, &base);
                let store = if tune.streaming {
                    format!("store_streaming({to}, {pack});")
                } else {
                    format!("*reinterpret_cast<Vec<{}, kVec>*>({to}) = {pack};", dtype.storage())
                };
                stores.push((format!("Vec<{}, kVec> {pack};", dtype.storage()), store));
            } else {
                e.line(format!("{out}[{}] = {text};", offset.print(false)));
            }
            outs.push((*n, out));
        }
        let (vectors, lines) = e.close(false);
        let (_, before) = e.take_lines();
        pieces.push(Piece::Lines(before.into_iter().map(|l| l.text).collect()));
        pieces.push(Piece::Pass { vectors, lines, stores, lanes: false });
    }
    let mut last = Vec::new();
    for n in &what.row_stores {
        let at = unflatten(&row, graph.shape(*n));
        let value = e.value(*n, &at)?;
        let out = e.output_param(*n);
        let offset = index::dot(&at, &strides_of(graph.shape(*n))).print(false);
        last.push(format!("{out}[{offset}] = {};", to_storage(&value, graph.dtype(*n))));
        outs.push((*n, out));
    }
    let (_, before) = e.take_lines();
    pieces.push(Piece::Lines(before.into_iter().map(|l| l.text).collect()));
    if !last.is_empty() && !serial {
        last.insert(0, "if (threadIdx.x == 0) {".to_owned());
        last.push("}".to_owned());
    }
    pieces.push(Piece::Lines(last));

    let wide = rows * cols >= i64::from(i32::MAX);
    let index_type = if wide { "int64_t" } else { "int" };
    let size = tune.sizes.then_some(RunTimeSize {
        name: "rows",
        kind: index_type,
        value: rows,
        beyond: tune.rows_per_block,
    });
    let bound = if size.is_some() { "rows" } else { "kRows" };
    let mut body = vec![
        format!("constexpr int kRows = {rows};"),
        format!("constexpr int kCols = {cols};  // elements of a row"),
    ];
    if size.is_some() {
        body.remove(0);
    }
    if !serial {
        body.push(format!("constexpr int kThreads = {};  // per row", tune.threads));
    }
    body.push(format!(
        "constexpr int kVec = {vec};  // {}",
        if serial { "independent running values per row" } else { "elements per access" }
    ));
    if tune.keep && !serial {
        body.push(format!("constexpr int kItems = {items};  // accesses per thread"));
    }
    let block = if serial { tune.rows_per_block } else { tune.threads * tune.rows_per_block };
    body.push(String::new());
    body.push(format!(
        "__global__ void __launch_bounds__({block}) {}_kernel({}{}) {{",
        what.name,
        parameters(&e, &outs),
        size.map(|size| size.parameter()).unwrap_or_default()
    ));
    let per = tune.rows_per_block;
    let grid = (rows + per - 1) / per;
    let block = if tune.backwards && size.is_some() {
        "(gridDim.x - 1 - blockIdx.x)".to_owned()
    } else if tune.backwards {
        format!("({} - blockIdx.x)", grid - 1)
    } else {
        "blockIdx.x".to_owned()
    };
    let first = match (serial, per) {
        (true, _) => format!("{block} * {per} + threadIdx.x"),
        (false, 1) => block,
        (false, _) => format!("{block} * {per} + threadIdx.y"),
    };
    let exact = rows % per == 0 && (size.is_none() || per == 1);
    if !exact && !serial && tune.threads < 32 {
        // The rest of a warp that has rows must stay for the shuffles: it repeats the last row.
        body.push(format!("const {index_type} row = {first} < {bound} ? {first} : {bound} - 1;"));
    } else {
        body.push(format!("const {index_type} row = {first};"));
        if !exact {
            // Whole warps leave, so the shuffles below still find all their lanes.
            body.push(format!("if (row >= {bound}) return;"));
        }
    }
    body.extend(e.take_root());
    let kept_size = if serial { "[kCols]" } else { "[kItems][kVec]" };
    let mut declared = BTreeSet::new();
    let layout = Layout { tune, loops: &loops, vec, cols, items, index_type, emitter: &e };
    // One access per thread: the loads of all passes are under way before the first is used.
    if layout.is_single() {
        layout.begin_single(&mut body, &mut pieces);
    }
    for piece in pieces {
        match piece {
            Piece::Lines(lines) => body.extend(lines),
            Piece::Pass { vectors, lines, stores, lanes } => {
                for (name, dtype) in e.to_declare(&lines, &mut declared) {
                    body.push(format!("{} kept_{name}{kept_size};", dtype.register()));
                }
                layout.pass(&mut body, &vectors, &lines, &stores, lanes);
            }
        }
    }
    body.push("}".to_owned());
    let grid = size.map_or_else(|| grid.to_string(), |size| size.blocks(per));
    let launch = match (serial, per) {
        (true, _) => format!("{grid}, {per}"),
        (false, 1) => format!("{grid}, kThreads"),
        (false, _) => format!("{grid}, dim3(kThreads, {per})"),
    };
    Ok(finish(&e, (&what.name, &what.purpose), body, &outs, &launch, size))
}

/// From per-thread or per-lane values to the row's value.
fn combine(acc: &Accumulator, name: &str, tune: &RowTune) -> Vec<String> {
    let functor = acc.functor();
    if tune.threads == 1 {
        let lane = &acc.name;
        let t = acc.dtype.register();
        let mut out = vec![format!("{t} {name} = {lane}[0];")];
        if acc.is_arg() {
            let f = if acc.kind == ReduceKind::ArgMax { "arg_max" } else { "arg_min" };
            out.push(format!("int {name}_at = {lane}_at[0];"));
            out.push(format!(
                "for (int j = 1; j < kVec; ++j) {f}({name}, {name}_at, {lane}[j], {lane}_at[j]);"
            ));
        } else {
            let c = acc.combine(name, &format!("{lane}[j]"));
            out.push(format!("for (int j = 1; j < kVec; ++j) {name} = {c};"));
        }
        return out;
    }
    vec![if acc.is_arg() {
        format!("{}({name}, {name}_at);", across(tune, "arg", functor))
    } else {
        format!("{name} = {}({name});", across(tune, "reduce", functor))
    }]
}

/// The helper that combines the threads of a row.
fn across(tune: &RowTune, what: &str, functor: &str) -> String {
    match tune.threads {
        ..32 => format!("part_{what}<kThreads, {functor}>"),
        32 => format!("warp_{what}<{functor}>"),
        _ => format!("block_{what}<kThreads, {functor}>"),
    }
}
