//! Column programs: reductions and scans whose neighbours in memory belong to different rows.
//!
//! Each thread takes a few neighbouring rows and walks along them, so that a warp (or the host's
//! vector unit) reads consecutive memory at every step. Where that would leave a GPU idle, several
//! threads of a block share a row and combine their partial results. Scans use the same form: the
//! running value is available at every element to later operations.

use std::collections::{BTreeMap, BTreeSet};

use super::elementwise::{finish, mentions, parameters};
use super::rows::RowProgram;
use super::scalar::{Value, to_storage};
use super::{Accumulator, Buffer, Emitter, KernelFile, Lanes, Line, address};
use crate::dtype::DType;
use crate::index::{self, Expr, strides_of, unflatten};
use crate::ir::{Graph, NodeId, Op, ReduceKind, ScanKind};

/// Launch parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnTune {
    pub(crate) threads: i64,
    /// Threads of a block that share a row, each walking over a part of it.
    pub(crate) along: i64,
    /// Neighbouring rows per thread.
    pub(crate) vec: i64,
    /// Vector accesses over those rows, rather than a loop for the compiler.
    pub(crate) vector: bool,
    pub(crate) streaming: bool,
    /// Accumulate float sums in double.
    pub(crate) precise: bool,
    /// Keep elements between passes in a local array, rather than load and compute them again.
    pub(crate) keep: bool,
}

struct Pass {
    before: Vec<String>,
    vectors: Vec<String>,
    lines: Vec<Line>,
    packs: Vec<(String, String)>,
    after: Vec<String>,
}

/// Writes the file. `scan` is the scan along the rows, if there is one; then there are no passes.
pub(crate) fn emit(
    what: &RowProgram,
    scan: Option<NodeId>,
    tune: &ColumnTune,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> Result<KernelFile, String> {
    let rows = what.frame.rows();
    let last = what.frame.outer().last().copied().unwrap_or(1);
    // Accesses are powers of two wide; the host's loops may be of any length.
    let fits = |v: &i64| last % v == 0 && (!tune.vector || v.count_ones() == 1);
    let vec = (1..=tune.vec).rev().find(fits).unwrap_or(1);
    let inner = what.frame.inner();
    let loops: Vec<(String, i64)> =
        inner.iter().enumerate().map(|(d, e)| (format!("k{d}"), *e)).collect();
    let inner_vars: Vec<Expr> = loops.iter().map(|(n, e)| Expr::var(n, *e)).collect();
    let col = index::dot(&inner_vars, &strides_of(&inner));
    let row = Expr::var("row", rows);
    // The first loop whose steps the threads of a row can share.
    let shared = if scan.is_some() || tune.along == 1 { None } else { widest(&inner) };
    let along = shared.map_or(1, |d| tune.along.min(inner[d]));
    let mut e = Emitter::new(graph, buffers);
    e.streaming = tune.streaming;
    for taken in ["j", "row0", "step", "wanted", "kRows", "kVec"] {
        e.declare(taken);
    }
    let vector = tune.vector && vec > 1;
    if tune.keep {
        e.keep_index = format!("[{}][j]", col.print(false));
    }
    e.open(&["row"], true);
    e.base_level = 1;
    let lanes = Lanes { var: "row".into(), extent: rows, width: vec, vector, linear: !vector };
    let names: Vec<&str> = loops.iter().map(|l| l.0.as_str()).collect();
    let mut passes: Vec<Pass> = Vec::new();
    for pass in &what.passes {
        e.open_lanes(&names, lanes.clone());
        let mut accumulators = Vec::new();
        for r in pass {
            let Op::Reduce { src, kind, .. } = &graph.node(*r).op else {
                return Err("a pass holds something that is no reduction".to_owned());
            };
            let at = what.frame.source_index(graph, *r, &row, &col);
            let value = e.value(*src, &at.ok_or("a reduction over other rows")?)?;
            let name = e.fresh(&graph.node(*r).name);
            let mut acc = Accumulator::new(*kind, &name, graph.dtype(*src));
            if tune.precise && acc.dtype == DType::F32 && *kind == ReduceKind::Sum {
                acc.dtype = DType::F64;
            }
            for text in acc.update(&value, &col.print(false)) {
                e.line(text);
            }
            accumulators.push((*r, acc));
        }
        let (vectors, lines) = e.close(tune.keep);
        let mut before = row_lines(&mut e);
        let mut after = Vec::new();
        for (r, acc) in &accumulators {
            before.extend(acc.lane_declarations());
            after.extend(together(acc, along));
            let mut value = acc.result();
            if acc.dtype == DType::F64 && graph.dtype(*r).compute() == DType::F32 {
                value = Value::new(format!("(float){}", value.text), DType::F32);
            }
            e.bind(*r, &unflatten(&row, graph.shape(*r)), value);
        }
        passes.push(Pass { before, vectors, lines, packs: vec![], after });
    }
    let mut outs = Vec::new();
    if !what.full_stores.is_empty() {
        e.open_lanes(&names, lanes.clone());
        let mut before = Vec::new();
        if let Some(scan) = scan {
            before = begin_scan(&mut e, scan, what, &row, &col, tune)?;
        }
        let mut packs = Vec::new();
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
                let storage = dtype.storage();
                let to = address(&out, &base);
                packs.push((
                    format!("Vec<{storage}, kVec> {pack};"),
                    format!("*reinterpret_cast<Vec<{storage}, kVec>*>({to}) = {pack};"),
                ));
            } else {
                let to = lanes.linear_base(&offset).map_or_else(
                    || offset.print(false),
                    |base| format!("{} + j", base.print(false)),
                );
                e.line(format!("{out}[{to}] = {text};"));
            }
            outs.push((*n, out));
        }
        let (vectors, lines) = e.close(false);
        let mut all = row_lines(&mut e);
        all.extend(before);
        passes.push(Pass { before: all, vectors, lines, packs, after: vec![] });
    }
    let mut tail = Vec::new();
    for n in &what.row_stores {
        let at = unflatten(&row, graph.shape(*n));
        let value = e.value(*n, &at)?;
        let out = e.output_param(*n);
        let offset = index::dot(&at, &strides_of(graph.shape(*n))).print(false);
        tail.push(format!("{out}[{offset}] = {};", to_storage(&value, graph.dtype(*n))));
        outs.push((*n, out));
    }
    let mut after = row_lines(&mut e);
    if !tail.is_empty() {
        let tail = lane_loop(&tail);
        after.extend((along > 1).then(|| "if (threadIdx.y == 0) {".to_owned()));
        after.extend(tail);
        after.extend((along > 1).then(|| "}".to_owned()));
    }
    if let Some(last) = passes.last_mut() {
        last.after.extend(after);
    }
    let wide = rows * what.frame.cols() >= i64::from(i32::MAX);
    let t = if wide { "int64_t" } else { "int" };
    let groups = rows / vec;
    let blocks = (groups + tune.threads - 1) / tune.threads;
    let mut body = vec![
        format!("constexpr {t} kRows = {rows};"),
        format!("constexpr int kThreads = {};", tune.threads),
        format!("constexpr int kVec = {vec};  // neighbouring rows per thread"),
    ];
    if along > 1 {
        body.push(format!("constexpr int kAlong = {along};  // threads per row"));
    }
    body.push(String::new());
    body.push(format!(
        "__global__ void __launch_bounds__(kThreads{}) {}_kernel({}) {{",
        if along > 1 { " * kAlong" } else { "" },
        what.name,
        parameters(&e, &outs)
    ));
    let first = format!("(({t})blockIdx.x * kThreads + (int)threadIdx.x) * kVec");
    if groups % tune.threads == 0 {
        body.push(format!("const {t} row0 = {first};"));
    } else if along > 1 {
        // No thread may leave before the others have taken its share: these repeat the last rows.
        body.push(format!("const {t} wanted = {first};"));
        body.push(format!("const {t} row0 = wanted < kRows ? wanted : kRows - kVec;"));
    } else {
        body.push(format!("const {t} row0 = {first};"));
        body.push("if (row0 >= kRows) return;".to_owned());
    }
    body.extend(e.take_root());
    let mut declared = BTreeSet::new();
    for pass in passes {
        for (name, dtype) in e.to_declare(&pass.lines, &mut declared) {
            body.push(format!("{} kept_{name}[{}][kVec];", dtype.register(), what.frame.cols()));
        }
        body.extend(pass.before);
        if !(pass.lines.is_empty() && pass.vectors.is_empty()) {
            for (d, (name, extent)) in loops.iter().enumerate() {
                if shared != Some(d) {
                    // What is kept is in registers only where every step knows its place.
                    body.extend((tune.keep && tune.vector).then(|| "#pragma unroll".to_owned()));
                    body.push(format!("for (int {name} = 0; {name} < {extent}; ++{name}) {{"));
                } else if extent % along == 0 {
                    // A constant number of steps, several of whose loads can be under way.
                    let steps = extent / along;
                    body.push("#pragma unroll 4".to_owned());
                    body.push(format!("for (int step = 0; step < {steps}; ++step) {{"));
                    body.push(format!("const int {name} = step * kAlong + (int)threadIdx.y;"));
                } else {
                    body.push(format!(
                        "for (int {name} = (int)threadIdx.y; {name} < {extent}; {name} += kAlong) {{"
                    ));
                }
            }
            body.extend(pass.vectors);
            body.extend(pass.packs.iter().map(|p| p.0.clone()));
            body.extend(lane_loop(&e.with_kept(&pass.lines)));
            body.extend(pass.packs.into_iter().map(|p| p.1));
            body.extend(loops.iter().map(|_| "}".to_owned()));
        }
        body.extend(pass.after);
    }
    body.push("}".to_owned());
    let body = body
        .into_iter()
        .map(|l| l.replace("const int row =", &format!("const {t} row =")))
        .collect();
    let launch = if along > 1 {
        format!("{blocks}, dim3(kThreads, kAlong)")
    } else {
        format!("{blocks}, kThreads")
    };
    Ok(finish(&e, (&what.name, &what.purpose), body, &outs, &launch, None))
}

/// The dim of a row with the most steps.
fn widest(inner: &[i64]) -> Option<usize> {
    (0..inner.len()).max_by_key(|d| inner[*d]).filter(|d| inner[*d] > 1)
}

/// Combines the partial results of the threads of a row.
fn together(acc: &Accumulator, along: i64) -> Vec<String> {
    if along == 1 {
        return vec![];
    }
    let (name, functor) = (&acc.name, acc.functor());
    let call = if acc.is_arg() {
        format!("column_arg<kThreads, kAlong, {functor}>({name}[j], {name}_at[j]);")
    } else {
        format!("{name}[j] = column_reduce<kThreads, kAlong, {functor}>({name}[j]);")
    };
    vec![format!("for (int j = 0; j < kVec; ++j) {{ {call} }}")]
}

/// Statements over the lanes.
fn lane_loop(lines: &[String]) -> Vec<String> {
    let mut out = vec!["#pragma unroll".to_owned(), "for (int j = 0; j < kVec; ++j) {".to_owned()];
    if lines.iter().any(|l| mentions(l, "row")) {
        out.push("const int row = row0 + j;".to_owned());
    }
    out.extend(lines.iter().cloned());
    out.push("}".to_owned());
    out
}

/// Statements that depend on the row alone, for all lanes.
fn row_lines(e: &mut Emitter<'_>) -> Vec<String> {
    let (mut out, lines) = e.take_lines();
    if !lines.is_empty() {
        let lines: Vec<String> = lines.into_iter().map(|l| l.text).collect();
        out.extend(lane_loop(&lines));
    }
    out
}

/// Emits the running update and binds the scan's value at the element; returns the declarations.
fn begin_scan(
    e: &mut Emitter<'_>,
    scan: NodeId,
    what: &RowProgram,
    row: &Expr,
    col: &Expr,
    tune: &ColumnTune,
) -> Result<Vec<String>, String> {
    let Op::Scan { kind, src, .. } = &e.graph.node(scan).op else {
        return Err("not a scan".to_owned());
    };
    let at = what.frame.index(row, col);
    let value = e.value(*src, &at)?;
    let name = e.fresh(&format!("{}_running", e.graph.node(scan).name));
    let dtype = e.graph.dtype(scan).compute();
    // Rounding errors add up along a scan: floats run in double where that costs little.
    let running = if tune.precise && dtype == DType::F32 { DType::F64 } else { dtype };
    let v = value.cast(running);
    let acc = format!("{name}[j]");
    let (identity, update) = match kind {
        ScanKind::Sum => (0.0, format!("{acc} + {v}")),
        ScanKind::Prod => (1.0, format!("{acc} * {v}")),
        ScanKind::LogSumExp => (f64::NEG_INFINITY, format!("log_add_exp({acc}, {v})")),
    };
    e.line(format!("{acc} = {update};"));
    let text = if running == dtype { acc } else { format!("({}){acc}", dtype.register()) };
    e.bind(scan, &at, Value::new(text, dtype));
    let first = super::scalar::literal(identity, running);
    Ok(vec![
        format!("{} {name}[kVec];", running.register()),
        format!("for (int j = 0; j < kVec; ++j) {{ {name}[j] = {first}; }}"),
    ])
}
