//! Float32 products as products on TF32 tensor cores: equally accurate, and on some devices twice
//! as fast.
//!
//! Each operand is the sum of two TF32 numbers, `x = h + l + r` with `|r| <= 2^-22 |x|`
//! (`algebra/split.rs`), and `a b = h_a h_b + l_a h_b + h_a l_b + ...`, where the rest is below
//! float32's own rounding. Products of TF32 numbers are exact in float32. Tensor cores truncate
//! their sums instead of rounding them, so the error grows with the number of terms. The large
//! product is therefore summed in float32 every [`DEPTH`] terms; the small ones are 2^-11 of it and
//! need not be. With few terms, passing over the result once per call costs more than the products.
//! Then the parts are concatenated, and one call sums all three products. The idea is that of
//! CUTLASS's example 27 (`ampere_3xtf32_fast_accurate_tensorop_gemm`) and of Ootomo and Yokota,
//! "Recovering single precision accuracy from Tensor Cores", IJHPCA 2022.
//!
//! Measured on an H200 (`docs/results/kernelbench-split-matmul.csv`): 2.0 to 2.2 times as fast as
//! cuBLAS's float32 on products that are large on all sides. The largest error is 0.5 to 2.5 times
//! that of cuBLAS's float32. The concatenated form was only tried with torch's products, before it
//! was implemented: 2.0 to 4.8 times the error.

use super::operand::{Stack, locate};
use super::product::Product;
use super::{Channels, HeavyOp, cublas};
use crate::emit::{HeavyContext, KernelFile};
use crate::index::Expr;
use crate::ir::{Graph, NodeId};

/// Number of terms that tensor cores add before a rounded sum takes over.
pub(crate) const DEPTH: i64 = 1024;

/// The parts of an operand of [`SplitProduct`], in the order of its arguments: high and low part of
/// the first operand, then of the second.
const PARTS: usize = 2;

const HOW: &str = ", on tensor cores, from two TF32 parts of each operand";
const HOW_JOINED: &str = ", on tensor cores, from TF32 parts of each operand side by side";

/// The settings of a split product; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitProduct {
    /// The product of the operands, or of the joined parts.
    pub(crate) of: Product,
    /// Whether the parts of each operand are one argument.
    pub(crate) joined: bool,
}

impl SplitProduct {
    /// Arguments per operand.
    fn parts(&self) -> usize {
        if self.joined { 1 } else { PARTS }
    }
}

impl HeavyOp for SplitProduct {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn takes_view(&self, position: usize, offset: &Expr) -> bool {
        self.of.takes_view(position / self.parts(), offset)
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn emit(&self, context: &mut HeavyContext<'_>) -> Result<KernelFile, String> {
        let mut stacks: Vec<(NodeId, Stack)> = Vec::new();
        for position in 0..2 * self.parts() {
            let operand = locate(context, position)?;
            let stack = Stack::of(&operand.offset, self.of.rank, self.of.split);
            stacks.push((operand.buffer, stack.ok_or("an operand is not a stack of matrices")?));
        }
        let how = if self.joined { HOW_JOINED } else { HOW };
        let tf32 = (cublas::Precision::Tf32, how);
        if self.joined {
            let call = cublas::Call { a: 0, b: 1, depth: None, adds: false };
            return cublas::emit(&self.of, context, &stacks, &[call], tf32);
        }
        let (high_a, low_a, high_b, low_b) = (0, 1, 2, 3);
        let call = |a, b, depth, adds| cublas::Call { a, b, depth, adds };
        let calls = [
            call(low_a, high_b, None, false),
            call(high_a, low_b, None, true),
            call(high_a, high_b, Some(DEPTH), true),
        ];
        cublas::emit(&self.of, context, &stacks, &calls, tf32)
    }

    fn channels(&self, _: &Graph, _: &[NodeId]) -> Option<Channels> {
        None
    }
}
