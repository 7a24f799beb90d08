//! Lanes: neighbouring elements in one thread, and when they are accessed as one vector.

use crate::index::Expr;

/// Consecutive elements that one thread handles together.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// The variable that runs over the lanes; lane 0 is `{var}0`.
    pub(crate) var: String,
    /// Extent of that variable.
    pub(crate) extent: i64,
    /// Number of lanes.
    pub(crate) width: i64,
    /// Whether to use vector loads and stores (16 bytes), rather than leave it to the compiler.
    pub(crate) vector: bool,
    /// Whether offsets of neighbours are written as that of lane 0 plus the lane.
    pub(crate) linear: bool,
}

impl Lanes {
    /// An index at lane 0, if all lanes have the same.
    pub(crate) fn first_lane(&self, index: &[Expr]) -> Option<Vec<Expr>> {
        if !self.vector || self.width == 1 || self.extent % self.width != 0 {
            return None;
        }
        let first = Expr::var("#q", self.extent / self.width).mul(self.width);
        let split = first.add(&Expr::var("#j", self.width));
        let start = Expr::var(&format!("{}0", self.var), self.extent);
        let replace =
            |e: &Expr, by: &Expr| e.substitute(&|v| (*v.name == *self.var).then(|| by.clone()));
        let shared = index.iter().all(|e| replace(e, &split).stride_of("#j") == Some(0));
        shared.then(|| index.iter().map(|e| replace(e, &start)).collect())
    }

    /// The offset of lane 0, if the lanes are contiguous and aligned in memory and are accessed as
    /// vectors.
    pub(crate) fn vector_base(&self, offset: &Expr) -> Option<Expr> {
        if self.vector { self.base(offset) } else { None }
    }

    /// The same for lanes in a loop over neighbours: the offset of lane 0, to which the lane is
    /// added. This saves every lane the divisions in the offset.
    pub(crate) fn linear_base(&self, offset: &Expr) -> Option<Expr> {
        if self.linear { self.base(offset) } else { None }
    }

    fn base(&self, offset: &Expr) -> Option<Expr> {
        if self.width == 1 || self.extent % self.width != 0 {
            return None;
        }
        let first = Expr::var("#q", self.extent / self.width).mul(self.width);
        let lane = Expr::var("#j", self.width);
        let split = first.add(&lane);
        let e = offset.substitute(&|v| (*v.name == *self.var).then(|| split.clone()));
        if e.stride_of("#j") != Some(1) || (self.vector && !e.divisible_but(self.width, "#j")) {
            return None;
        }
        let start = Expr::var(&format!("{}0", self.var), self.extent);
        Some(offset.substitute(&|v| (*v.name == *self.var).then(|| start.clone())))
    }
}
