//! Matrix products: `[.., m, k]` times `[.., k, n]`.

use super::operand::{Stack, locate, offset_of};
use super::tile::{self, Fill, Tiles};
use super::{Channels, HeavyOp, cublas};
use crate::emit::{HeavyContext, KernelFile};
use crate::index::Expr;
use crate::ir::{Graph, NodeId, axis};
use crate::plan::Products;

/// Maximum number of launches of a product with a two-level batch on a GPU. Beyond it, copying the
/// operand is cheaper.
const MOST_LAUNCHES: i64 = 8;

/// A product, or a batch of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    /// Rank of the arguments and the result: 2, or 3 with a batch in front.
    pub(crate) rank: usize,
    /// The batch is `split.0 * split.1`: operands may have one stride for each.
    pub(crate) split: (i64, i64),
    pub(crate) m: i64,
    pub(crate) n: i64,
    pub(crate) k: i64,
}

impl Product {
    pub(crate) fn batch(&self) -> i64 {
        self.split.0 * self.split.1
    }

    /// Rows and columns of an argument.
    fn sides(&self, position: usize) -> (i64, i64) {
        if position == 0 { (self.m, self.k) } else { (self.k, self.n) }
    }
}

/// Splits a batch so that most operands can be read in place. `offsets` come with rows and columns.
pub(crate) fn split_batch(batch: i64, offsets: &[(Expr, i64, i64)]) -> (i64, i64) {
    let fits = |split: (i64, i64)| {
        let regular = |(e, rows, cols): &&(Expr, i64, i64)| {
            Stack::of(e, 3, split).is_some_and(|s| s.blas(*rows, *cols).is_some())
        };
        offsets.iter().filter(regular).count()
    };
    let mut best = ((1, batch), fits((1, batch)));
    for outer in (2..=MOST_LAUNCHES.min(batch)).filter(|o| batch % o == 0) {
        let split = (outer, batch / outer);
        let count = fits(split);
        if count > best.1 {
            best = (split, count);
        }
    }
    best.0
}

/// Whether a product could read an operand at `offset`.
fn readable(offset: &Expr, rank: usize, split: (i64, i64), sides: (i64, i64)) -> bool {
    Stack::of(offset, rank, split).is_some_and(|s| s.blas(sides.0, sides.1).is_some())
}

impl HeavyOp for Product {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn takes_view(&self, position: usize, offset: &Expr) -> bool {
        readable(offset, self.rank, self.split, self.sides(position))
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn emit(&self, context: &mut HeavyContext<'_>) -> Result<KernelFile, String> {
        let mut stacks = Vec::new();
        for position in 0..2 {
            let operand = locate(context, position)?;
            let stack = Stack::of(&operand.offset, self.rank, self.split);
            stacks.push((operand.buffer, stack.ok_or("an operand is not a stack of matrices")?));
        }
        if !context.target.cpu {
            let whole = cublas::Call { a: 0, b: 1, depth: None, adds: false };
            let precision = match context.target.products {
                Products::Tf32 => (cublas::Precision::Tf32, ", in TF32"),
                Products::Float32 | Products::Split => (cublas::Precision::Full, ""),
            };
            return cublas::emit(self, context, &stacks, &[whole], precision);
        }
        let (inner, lead) = (self.split.1, self.rank - 2);
        let matrix = |stack: &Stack| {
            let batch = Expr::var("batch", self.batch());
            batch
                .div(inner)
                .mul(stack.outer)
                .add(&batch.rem(inner).mul(stack.inner))
                .add_const(stack.base)
        };
        let a = Fill::Strided {
            buffer: stacks[0].0,
            base: matrix(&stacks[0].1),
            row: stacks[0].1.row,
            col: stacks[0].1.col,
        };
        let b = Fill::Strided {
            buffer: stacks[1].0,
            base: matrix(&stacks[1].1),
            row: stacks[1].1.row,
            col: stacks[1].1.col,
        };
        let index = move |batch: &Expr, row: &Expr, col: &Expr| {
            let all = [batch.clone(), row.clone(), col.clone()];
            all[1 - lead..].to_vec()
        };
        let purpose = format!(
            "Matrix product: {} x [{}, {}] times [{}, {}].",
            self.batch(),
            self.m,
            self.k,
            self.k,
            self.n
        );
        tile::emit(
            context,
            &Tiles {
                purpose,
                batch: self.batch(),
                rows: self.m,
                cols: self.n,
                depth: self.k,
                index: &index,
                setup: vec![],
                a,
                b,
            },
        )
    }

    fn channels(&self, _: &Graph, _: &[NodeId]) -> Option<Channels> {
        let axis_n = self.rank - 1;
        Some(Channels { axis: axis_n, weights: 1, of_weight: axis(axis_n, self.n) })
    }

    fn as_product(&self) -> Option<&Product> {
        Some(self)
    }
}

/// Whether an operand in memory that is not a view can be read in place.
pub(crate) fn reads_in_place(graph: &Graph, op: &Product, position: usize, arg: NodeId) -> bool {
    op.takes_view(position, &offset_of(graph, arg).1)
}
