//! Products on the cpu device: one thread per block of the result, in register tiles.
//!
//! The host compiler vectorises plain loops over local arrays, so the kernel packs a chunk of both
//! operands into such arrays and multiplies those. A tile of 8 x 32 sums stays in registers for the
//! length of a chunk. The caller decides how operands are packed: strided matrices here, gathered
//! windows in a convolution.

use super::epilogue;
use crate::dtype::DType;
use crate::emit::elementwise::{finish, parameters};
use crate::emit::scalar::{Value, from_storage, to_storage};
use crate::emit::{Emitter, HeavyContext, KernelFile, RunTimeSize};
use crate::index::{self, Expr, strides_of, unflatten};
use crate::ir::NodeId;

/// Tile of sums kept in registers: rows, and columns that the host compiler turns into vectors.
const TILE_ROWS: i64 = 8;
const TILE_COLS: i64 = 32;

/// How one operand is packed.
pub(crate) enum Fill {
    /// A matrix at `base` (which may depend on `batch`), with these strides.
    Strided { buffer: NodeId, base: Expr, row: i64, col: i64 },
    /// Packed by the given statements.
    Custom { buffer: NodeId, lines: Pack },
}

/// Writes statements that fill `a_pack[i][k]` or `b_pack[t][k][j]` for `k < depth`, given a way to
/// read an element of the buffer.
pub(crate) type Pack = Box<dyn Fn(&dyn Fn(&str) -> String) -> Vec<String>>;

/// A product to write.
pub(crate) struct Tiles<'a> {
    /// Description for the file's comment.
    pub(crate) purpose: String,
    pub(crate) batch: i64,
    pub(crate) rows: i64,
    pub(crate) cols: i64,
    /// Products per result.
    pub(crate) depth: i64,
    /// Index of the heavy node, from batch, row and column.
    pub(crate) index: &'a dyn Fn(&Expr, &Expr, &Expr) -> Vec<Expr>,
    /// Statements once per block, after `batch`, `row0` and `col0` are known.
    pub(crate) setup: Vec<String>,
    pub(crate) a: Fill,
    pub(crate) b: Fill,
}

/// Sizes of a block.
struct Block {
    tile_rows: i64,
    rows: i64,
    cols: i64,
    chunk: i64,
    /// Whether they divide the rows of the result.
    exact: bool,
}

impl Block {
    /// Where the launcher takes sizes, they are equal for numbers of rows next to each other.
    fn of(what: &Tiles<'_>, context: &HeavyContext<'_>) -> Self {
        let (processors, variant) = (context.target.processors, context.variant);
        let power = |rows: i64| 1 << (64 - (rows - 1).max(0).leading_zeros());
        let by_rows = context.sizes && what.batch == 1;
        let wanted = if by_rows { power(context.like.unwrap_or(what.rows)) } else { what.rows };
        let tile_rows = wanted.min(TILE_ROWS);
        let up = |value: i64, to: i64| (value + to - 1) / to * to;
        let (rows_most, cols_most, chunk) =
            [(128, 64, 128), (256, 128, 256), (64, 32, 256)][variant % 3];
        let cols = if what.cols <= TILE_COLS { TILE_COLS } else { cols_most };
        let mut rows = up(wanted, tile_rows).min(rows_most / tile_rows * tile_rows);
        let blocks = |rows: i64| what.batch * up(wanted, rows) / rows * up(what.cols, cols) / cols;
        while rows > tile_rows && blocks(rows) < 2 * processors {
            rows = up(rows / 2, tile_rows);
        }
        let exact = what.rows % rows == 0;
        Self { tile_rows, rows, cols, chunk: chunk.min(what.depth.max(1)), exact }
    }
}

/// Statements that pack one operand.
fn fill(
    e: &mut Emitter<'_>,
    which: &Fill,
    a: bool,
    what: &Tiles<'_>,
    block: &Block,
) -> Vec<String> {
    match which {
        Fill::Custom { buffer, lines } => {
            let name = e.param(*buffer);
            let dtype = e.graph.dtype(*buffer);
            lines(&|at: &str| from_storage(&format!("{name}[{at}]"), dtype))
        }
        Fill::Strided { buffer, base, row, col } => {
            let name = e.param(*buffer);
            let dtype = e.graph.dtype(*buffer);
            let start =
                format!("const {}* {name}_from = {name} + {};", dtype.storage(), base.print(true));
            let read = |at: String| from_storage(&format!("{name}_from[{at}]"), dtype);
            let mut out = vec!["{".to_owned(), start];
            out.extend(if a {
                strided_rows(*row, *col, &read, block)
            } else {
                strided_cols(*row, *col, &read, what, block)
            });
            out.push("}".to_owned());
            out
        }
    }
}

/// `step * (int64_t)(variable)` without redundant factors.
fn times(variable: &str, step: i64) -> String {
    match step {
        0 => "0".to_owned(),
        1 => format!("(int64_t)({variable})"),
        _ => format!("(int64_t)({variable}) * {step}"),
    }
}

fn strided_rows(row: i64, col: i64, read: &dyn Fn(String) -> String, block: &Block) -> Vec<String> {
    let at = format!("{} + {}", times("row0 + i", row), times("k0 + k", col));
    let exact = block.exact;
    let value = read(at);
    // The loop over what is contiguous is the inner one.
    if col == 1 || row != 1 {
        let (start, end) = if exact {
            (String::new(), String::new())
        } else {
            (
                "const int limit = row0 + i < kRows ? depth : 0;\nfor (int k = limit; k < depth; ++k) a_pack[i][k] = 0;".to_owned(),
                String::new(),
            )
        };
        let limit = if exact { "depth" } else { "limit" };
        return vec![
            "for (int i = 0; i < kBlockRows; ++i) {".to_owned(),
            start,
            format!("for (int k = 0; k < {limit}; ++k) a_pack[i][k] = {value};"),
            end,
            "}".to_owned(),
        ];
    }
    let limit = if exact { "kBlockRows" } else { "limit" };
    let mut out = Vec::new();
    if !exact {
        out.push(
            "const int limit = kRows - row0 < kBlockRows ? kRows - row0 : kBlockRows;".to_owned(),
        );
    }
    out.push("for (int k = 0; k < depth; ++k) {".to_owned());
    out.push(format!("for (int i = 0; i < {limit}; ++i) a_pack[i][k] = {value};"));
    if !exact {
        out.push("for (int i = limit; i < kBlockRows; ++i) a_pack[i][k] = 0;".to_owned());
    }
    out.push("}".to_owned());
    out
}

fn strided_cols(
    row: i64,
    col: i64,
    read: &dyn Fn(String) -> String,
    what: &Tiles<'_>,
    block: &Block,
) -> Vec<String> {
    let exact = what.cols % block.cols == 0;
    let value = read(format!("{} + {}", times("k0 + k", row), times("first + j", col)));
    let mut out = vec![
        "for (int t = 0; t < kBlockCols / kTileCols; ++t) {".to_owned(),
        "const int first = col0 + t * kTileCols;".to_owned(),
    ];
    let limit = if exact { "kTileCols" } else { "limit" };
    if !exact {
        out.push("const int left = kCols - first;".to_owned());
        out.push(
            "const int limit = left < 0 ? 0 : left < kTileCols ? left : kTileCols;".to_owned(),
        );
    }
    let (over_k, over_j) =
        ("for (int k = 0; k < depth; ++k)", format!("for (int j = 0; j < {limit}; ++j)"));
    let (first, second) =
        if row == 1 && col != 1 { (&*over_j, over_k) } else { (over_k, &*over_j) };
    out.push(format!("{first} {{"));
    out.push(format!("{second} b_pack[t][k][j] = {value};"));
    out.push("}".to_owned());
    if !exact {
        out.push("for (int k = 0; k < depth; ++k) {".to_owned());
        out.push("for (int j = limit; j < kTileCols; ++j) b_pack[t][k][j] = 0;".to_owned());
        out.push("}".to_owned());
    }
    out.push("}".to_owned());
    out
}

/// Statements, and the parameters they write through.
type Stores = (Vec<String>, Vec<(NodeId, String)>);

/// The loop that stores a block, with everything that follows the product.
fn store(
    e: &mut Emitter<'_>,
    context: &HeavyContext<'_>,
    what: &Tiles<'_>,
    flat_index: bool,
) -> Result<Stores, String> {
    let graph = context.graph;
    let shape = graph.shape(context.node);
    e.open(&["batch"], false);
    e.open(&["row"], false);
    e.open(&["col", "flat"], false);
    let (batch, row, col) =
        (Expr::var("batch", what.batch), Expr::var("row", what.rows), Expr::var("col", what.cols));
    let at = (what.index)(&batch, &row, &col);
    let flat = if flat_index {
        let position = index::dot(&at, &strides_of(shape));
        e.line(format!("const int64_t flat = {};", position.print(true)));
        Expr::var("flat", index::numel(shape))
    } else {
        index::dot(&at, &strides_of(shape))
    };
    let at = if flat_index { unflatten(&flat, shape) } else { at };
    context.bind(e, &at, Value::new("sum[i][j]", graph.dtype(context.node)));
    let mut outs = Vec::new();
    for node in &context.stores {
        let here = if graph.shape(*node) == shape {
            at.clone()
        } else {
            unflatten(&flat, graph.shape(*node))
        };
        let value = e.value(*node, &here)?;
        let out = e.output_param(*node);
        let offset = index::dot(&here, &strides_of(graph.shape(*node)));
        let wide = index::numel(shape) >= i64::from(i32::MAX);
        e.line(format!(
            "{out}[{}] = {};",
            offset.print(wide),
            to_storage(&value, graph.dtype(*node))
        ));
        outs.push((*node, out));
    }
    let inner = e.close(false).1;
    let per_row = e.close(false).1;
    let per_batch = e.close(false).1;
    let text = |lines: Vec<crate::emit::Line>| lines.into_iter().map(|l| l.text);
    let mut out: Vec<String> = text(per_batch).collect();
    out.push("for (int i = 0; i < kBlockRows && row0 + i < kRows; ++i) {".to_owned());
    out.push("const int row = row0 + i;".to_owned());
    out.extend(text(per_row));
    if what.cols % TILE_COLS == 0 {
        out.push("for (int j = 0; j < kBlockCols && col0 + j < kCols; ++j) {".to_owned());
    } else {
        out.push(
            "const int cols = kCols - col0 < kBlockCols ? kCols - col0 : kBlockCols;".to_owned(),
        );
        out.push("for (int j = 0; j < cols; ++j) {".to_owned());
    }
    out.push("const int col = col0 + j;".to_owned());
    out.extend(text(inner));
    out.push("}".to_owned());
    out.push("}".to_owned());
    Ok((out, outs))
}

/// Writes the file.
pub(crate) fn emit(context: &HeavyContext<'_>, what: &Tiles<'_>) -> Result<KernelFile, String> {
    // Row and column as they are, or where the epilogue's views need it, one position for both.
    attempt(context, what, false).or_else(|_| attempt(context, what, true))
}

fn attempt(context: &HeavyContext<'_>, what: &Tiles<'_>, flat: bool) -> Result<KernelFile, String> {
    let mut block = Block::of(what, context);
    // The rows of one result, or the number of results.
    let name = if what.batch == 1 { "rows" } else { "batches" };
    let value = if what.batch == 1 { what.rows } else { what.batch };
    let size = context.sizes.then_some(RunTimeSize { name, kind: "int", value, beyond: 1 << 16 });
    let takes_rows = size.is_some() && what.batch == 1;
    block.exact &= !takes_rows;
    let mut e = context.emitter();
    for taken in [
        "i", "j", "k", "t", "r", "sum", "a_pack", "b_pack", "row0", "col0", "k0", "depth", "first",
        "limit", "left", "cols", "acc", "a", "p", "tap", "channel", "plane", "at", "inside",
        "element", "at_d", "at_h", "at_w", "tap_d", "tap_h", "tap_w", "ud", "uh", "uw", "id", "ih",
        "iw", "rows", "batches",
    ] {
        e.declare(taken);
    }
    let t: &str = match context.graph.dtype(context.node).compute() {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::I64 => "int64_t",
        _ => "int",
    };
    let fill_a = fill(&mut e, &what.a, true, what, &block);
    let fill_b = fill(&mut e, &what.b, false, what, &block);
    let (stores, outs) = store(&mut e, context, what, flat)?;
    let up = |a: i64, b: i64| (a + b - 1) / b;
    let known = if takes_rows { String::new() } else { format!("kRows = {}, ", what.rows) };
    let row_blocks = format!("constexpr int kRowBlocks = {};", up(what.rows, block.rows));
    let mut body: Vec<String> = vec![
        format!("constexpr int {known}kCols = {}, kDepth = {};", what.cols, what.depth),
        format!(
            "constexpr int kTileRows = {}, kTileCols = {TILE_COLS};  // sums in registers",
            block.tile_rows
        ),
        format!("constexpr int kBlockRows = {}, kBlockCols = {};", block.rows, block.cols),
        format!("constexpr int kChunk = {};  // products between two packings", block.chunk),
    ];
    body.extend((!takes_rows).then_some(row_blocks));
    body.extend([
        format!("constexpr int kColBlocks = {};", up(what.cols, block.cols)),
        String::new(),
        "// One thread computes one block of one batch entry.".to_owned(),
        format!(
            "__global__ void __launch_bounds__(1) {}_kernel({}{}) {{",
            context.name,
            parameters(&e, &outs),
            size.map(|size| size.parameter()).unwrap_or_default()
        ),
    ]);
    if takes_rows {
        body.push("const int kRows = rows;".to_owned());
        body.push("const int kRowBlocks = (kRows + kBlockRows - 1) / kBlockRows;".to_owned());
    } else if size.is_some() {
        body.push("(void)batches;".to_owned());
    }
    body.extend([
        "const int batch = blockIdx.x / (kRowBlocks * kColBlocks);".to_owned(),
        "const int row0 = (int)blockIdx.x / kColBlocks % kRowBlocks * kBlockRows;".to_owned(),
        "const int col0 = (int)blockIdx.x % kColBlocks * kBlockCols;".to_owned(),
        format!("{t} sum[kBlockRows][kBlockCols];"),
        format!("{t} a_pack[kBlockRows][kChunk];"),
        format!("{t} b_pack[kBlockCols / kTileCols][kChunk][kTileCols];"),
        "for (int i = 0; i < kBlockRows; ++i) {".to_owned(),
        "for (int j = 0; j < kBlockCols; ++j) sum[i][j] = 0;".to_owned(),
        "}".to_owned(),
    ]);
    body.extend(e.take_root());
    body.extend(what.setup.iter().cloned());
    body.push("for (int k0 = 0; k0 < kDepth; k0 += kChunk) {".to_owned());
    body.push("const int depth = kDepth - k0 < kChunk ? kDepth - k0 : kChunk;".to_owned());
    body.extend(fill_a.into_iter().filter(|l| !l.is_empty()));
    body.extend(fill_b.into_iter().filter(|l| !l.is_empty()));
    let product = format!(
        "for (int t = 0; t < kBlockCols / kTileCols; ++t) {{
for (int r = 0; r < kBlockRows; r += kTileRows) {{
{t} acc[kTileRows][kTileCols];
for (int i = 0; i < kTileRows; ++i) {{
for (int j = 0; j < kTileCols; ++j) acc[i][j] = 0;
}}
for (int k = 0; k < depth; ++k) {{
#pragma GCC unroll 8
for (int i = 0; i < kTileRows; ++i) {{
const {t} a = a_pack[r + i][k];
for (int j = 0; j < kTileCols; ++j) acc[i][j] += a * b_pack[t][k][j];
}}
}}
for (int i = 0; i < kTileRows; ++i) {{
for (int j = 0; j < kTileCols; ++j) sum[r + i][t * kTileCols + j] += acc[i][j];
}}
}}
}}"
    );
    body.extend(product.lines().map(str::to_owned));
    body.push("}".to_owned());
    body.extend(stores);
    body.push("}".to_owned());
    let (row_blocks, col_blocks) = (up(what.rows, block.rows), up(what.cols, block.cols));
    let blocks = match size {
        Some(size) if takes_rows => format!("{} * {col_blocks}", size.blocks(block.rows)),
        Some(size) => format!("{} * {}", size.blocks(1), row_blocks * col_blocks),
        None => (what.batch * row_blocks * col_blocks).to_string(),
    };
    let purpose = epilogue::comment(context, &what.purpose);
    Ok(finish(&e, (&context.name, &purpose), body, &outs, &format!("{blocks}, 1"), size))
}
