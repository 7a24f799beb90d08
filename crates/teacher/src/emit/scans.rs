//! Scans on the GPU: running sums, products and log-sum-exps, with everything around them fused in.
//!
//! Several threads share a row. They take a tile of it, each a few consecutive elements: every
//! thread combines its own elements, the threads exchange their partial results, and each passes
//! over its elements again with the prefix before them. The row's running value is carried from
//! tile to tile.
//!
//! | neighbours in memory | threads of a row | rows of a block |
//! |---|---|---|
//! | along the scan | lanes of a warp, or a block | side by side in `threadIdx.y` |
//! | in other rows | `threadIdx.y` | 32, side by side in `threadIdx.x` |
//!
//! A running sum is a double, a running log-sum-exp a pair: the largest element, and the sum of the
//! exponentials of all elements less the largest. Combining two pairs takes one exponential, where
//! adding logarithms takes an exponential and a logarithm for each element.

use std::collections::BTreeMap;

use super::elementwise::{finish, mentions, parameters};
use super::rows::RowProgram;
use super::scalar::{Value, to_storage};
use super::{Buffer, Emitter, KernelFile, Lanes, address};
use crate::dtype::DType;
use crate::index::{self, Expr, strides_of};
use crate::ir::{Graph, NodeId, Op, ScanKind};

/// Launch parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanTune {
    /// Neighbours in memory belong to different rows.
    pub(crate) column: bool,
    /// Threads that share a row; a power of two, and with `column` unset at least a warp.
    pub(crate) along: i64,
    /// Rows of a block; with `along` beyond a warp and `column` unset it is 1.
    pub(crate) rows_per_block: i64,
    /// Consecutive elements of a thread.
    pub(crate) vec: i64,
}

/// The type of the running value, its neutral element, the functor that combines two of them, the
/// conversion of an element to one, and its result.
struct Running {
    register: String,
    identity: String,
    functor: &'static str,
    lift: fn(&str) -> String,
    result: fn(&str) -> String,
}

impl Running {
    fn of(kind: ScanKind, dtype: DType) -> Self {
        let float = dtype.is_float();
        let wide = if float { "double" } else { "int64_t" };
        match kind {
            ScanKind::Sum | ScanKind::Prod => Self {
                register: wide.to_owned(),
                identity: if kind == ScanKind::Sum { "0" } else { "1" }.to_owned(),
                functor: if kind == ScanKind::Sum { "Add" } else { "Multiply" },
                lift: str::to_owned,
                result: str::to_owned,
            },
            ScanKind::LogSumExp => {
                let t = if dtype == DType::F64 { "double" } else { "float" };
                Self {
                    register: format!("LogSum<{t}>"),
                    identity: format!("LogSum<{t}>{{-INFINITY, 0}}"),
                    functor: "LogAdd",
                    lift: |x| format!("{{{x}, 1}}"),
                    result: |x| format!("log_of({x})"),
                }
            }
        }
    }
}

/// Writes the file.
pub(crate) fn emit(
    what: &RowProgram,
    scan: NodeId,
    tune: &ScanTune,
    graph: &Graph,
    buffers: &BTreeMap<NodeId, Buffer>,
) -> Result<KernelFile, String> {
    let Op::Scan { kind, src, .. } = &graph.node(scan).op else {
        return Err("not a scan".to_owned());
    };
    let (rows, cols, vec) = (what.frame.rows(), what.frame.cols(), tune.vec);
    let dtype = graph.dtype(scan).compute();
    let running = Running::of(*kind, dtype);
    let element = if *kind == ScanKind::LogSumExp {
        dtype
    } else if dtype.is_float() {
        DType::F64
    } else {
        DType::I64
    };
    let mut e = Emitter::new(graph, buffers);
    for taken in
        ["j", "col0", "start", "own", "running", "carry", "total", "wanted", "kRows", "kCols"]
    {
        e.declare(taken);
    }
    e.open(&["row"], false);
    e.base_level = 1;
    "[j]".clone_into(&mut e.keep_index);
    let (row, col) = (Expr::var("row", rows), Expr::var("col", cols));
    let at = what.frame.index(&row, &col);
    let lanes = Lanes { var: "col".into(), extent: cols, width: vec, vector: true, linear: false };

    // The elements.
    e.open_lanes(&["col"], lanes.clone());
    let value = e.value(*src, &at)?;
    let name = e.fresh("element");
    e.line(format!("{name}[j] = {};", value.cast(element)));
    let lifted = (running.lift)(&format!("{name}[j]"));
    e.line(format!("own = {}()(own, {}{lifted});", running.functor, prefix(&running, &lifted)));
    let (vectors, lines) = e.close(true);
    let (_, row_lines) = e.take_lines();

    // The running value at each of them, and what follows it.
    e.open_lanes(&["col"], lanes.clone());
    e.line(format!(
        "running = {}()(running, {}{lifted});",
        running.functor,
        prefix(&running, &lifted)
    ));
    let base = graph.node(scan).name.clone();
    let result = Value::new((running.result)("running"), element).cast(dtype);
    let result = e.define(&base, &result, dtype);
    e.bind(scan, &at, result);
    let (mut packs, mut outs) = (Vec::new(), Vec::new());
    for n in &what.full_stores {
        let at = what.frame.index_in(graph.shape(*n), &row, &col);
        let value = e.value(*n, &at)?;
        let out = e.output_param(*n);
        let text = to_storage(&value, graph.dtype(*n));
        let offset = index::dot(&at, &strides_of(graph.shape(*n)));
        if let Some(base) = lanes.vector_base(&offset) {
            let pack = e.fresh(&format!("{out}_vec"));
            e.line(format!("{pack}.at[j] = {text};"));
            let storage = graph.dtype(*n).storage();
            let to = address(&out, &base);
            packs.push((
                format!("Vec<{storage}, kVec> {pack};"),
                format!("*reinterpret_cast<Vec<{storage}, kVec>*>({to}) = {pack};"),
            ));
        } else {
            e.line(format!("{out}[{}] = {text};", offset.print(false)));
        }
        outs.push((*n, out));
    }
    let (after_vectors, after_lines) = e.close(false);
    let (_, more_row_lines) = e.take_lines();

    let wide = rows * cols >= i64::from(i32::MAX);
    let t = if wide { "int64_t" } else { "int" };
    let per = tune.rows_per_block;
    let mut body = vec![
        format!("constexpr {t} kRows = {rows};"),
        format!("constexpr int kCols = {cols};  // elements of a row"),
        format!("constexpr int kAlong = {};  // threads per row", tune.along),
        format!("constexpr int kVec = {vec};  // consecutive elements of a thread"),
        String::new(),
        format!(
            "__global__ void __launch_bounds__({}) {}_kernel({}) {{",
            tune.along * per,
            what.name,
            parameters(&e, &outs)
        ),
    ];
    let (lane, place) =
        if tune.column { ("threadIdx.y", "threadIdx.x") } else { ("threadIdx.x", "threadIdx.y") };
    let first = format!("({t})blockIdx.x * {per} + (int){place}");
    if rows % per == 0 {
        body.push(format!("const {t} row = {first};"));
    } else {
        // No thread may leave before the others have its share: these repeat the last row.
        body.push(format!("const {t} wanted = {first};"));
        body.push(format!("const {t} row = wanted < kRows ? wanted : kRows - 1;"));
    }
    body.extend(e.take_root());
    body.extend(row_lines.into_iter().chain(more_row_lines).map(|l| l.text));
    let Running { register, identity, functor, .. } = &running;
    body.push(format!("{register} carry = {identity};"));
    body.push("for (int start = 0; start < kCols; start += kAlong * kVec) {".to_owned());
    body.push(format!("const int col0 = start + (int){lane} * kVec;"));
    body.push(format!("{} {name}[kVec];", element.register()));
    for (kept, dtype) in &e.kept {
        body.push(format!("{} kept_{kept}[kVec];", dtype.register()));
    }
    let guard = Guard::of(cols, tune.along * vec, vec);
    body.push(format!("{register} own = {identity};"));
    guard.lay(&mut body, &vectors, &[], e.with_kept(&lines));
    let share = match (tune.column, tune.along) {
        (true, _) => format!("column_before<kAlong, {per}, {functor}>"),
        (false, 32) => format!("warp_before<{functor}>"),
        (false, _) => format!("block_before<kAlong, {functor}>"),
    };
    body.push(format!("{register} total;"));
    body.push(format!("{register} running = {share}(own, total, {register}({identity}));"));
    body.push(format!("running = {functor}()(carry, running);"));
    body.push(format!("carry = {functor}()(carry, total);"));
    guard.lay(&mut body, &after_vectors, &packs, e.with_kept(&after_lines));
    body.push("}".to_owned());
    body.push("}".to_owned());
    let grid = (rows + per - 1) / per;
    let launch = if tune.column {
        format!("{grid}, dim3({per}, kAlong)")
    } else {
        format!("{grid}, dim3(kAlong, {per})")
    };
    Ok(finish(&e, (&what.name, &what.purpose), body, &outs, &launch, None))
}

/// The type before a braced initialiser.
fn prefix(running: &Running, lifted: &str) -> String {
    if lifted.starts_with('{') { running.register.clone() } else { String::new() }
}

/// Which elements of a tile exist.
enum Guard {
    All,
    /// A thread has all of its elements, or none.
    Threads,
    Elements,
}

impl Guard {
    fn of(cols: i64, tile: i64, vec: i64) -> Self {
        if cols % tile == 0 {
            Self::All
        } else if cols % vec == 0 {
            Self::Threads
        } else {
            Self::Elements
        }
    }

    /// Lays out a loop over a thread's elements.
    fn lay(
        &self,
        body: &mut Vec<String>,
        vectors: &[String],
        packs: &[(String, String)],
        lines: Vec<String>,
    ) {
        if matches!(self, Self::Threads) {
            body.push("if (col0 < kCols) {".to_owned());
        }
        body.extend(vectors.iter().cloned());
        body.extend(packs.iter().map(|p| p.0.clone()));
        body.push("#pragma unroll".to_owned());
        body.push("for (int j = 0; j < kVec; ++j) {".to_owned());
        if matches!(self, Self::Elements) {
            body.push("if (col0 + j < kCols) {".to_owned());
        }
        if lines.iter().any(|l| mentions(l, "col")) {
            body.push("const int col = col0 + j;".to_owned());
        }
        body.extend(lines);
        if matches!(self, Self::Elements) {
            body.push("}".to_owned());
        }
        body.push("}".to_owned());
        body.extend(packs.iter().map(|p| p.1.clone()));
        if matches!(self, Self::Threads) {
            body.push("}".to_owned());
        }
    }
}
