//! How many sequences a decoder has room for, and of what length.

use crate::model::Model;

/// Positions attended to are rounded up to this many, so that shapes repeat.
const BUCKET: i64 = 64;
/// Rows of a product are filled up to this many: products of very few rows add up in another order (on the
/// host below 4, measured with MKL 2024.2), and what is drawn beside a sequence would show in its last bits.
pub(crate) const LEAST_ROWS: usize = 16;
/// Rows of a GPU's tile: a product of fewer takes as long.
const ROWS: usize = 64;
/// Most bytes of keys and values beyond what was asked for.
const AMPLE: u64 = 4 << 30;

/// How large a decoder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Sequences at once.
    pub(crate) rows: usize,
    /// Tokens of each.
    pub(crate) positions: i64,
}

impl Room {
    /// For so many at once, of at most so many tokens.
    pub(crate) fn of(slots: usize, longest: i64) -> Self {
        Self { rows: slots.max(LEAST_ROWS), positions: rounded(longest) }
    }

    /// For a GPU: so large that hardly any request makes it grow, which would record all steps anew, if that
    /// takes little memory; so many rows cost a step no more than few do.
    pub(crate) fn ample(slots: usize, longest: i64, model: &Model) -> Self {
        let ample = Self::of(slots.next_multiple_of(ROWS), model.config.max_position_embeddings);
        if ample.bytes(model) <= AMPLE { ample } else { Self::of(slots, longest) }
    }

    /// Whether a decoder of this size may serve where `other` would do.
    pub(super) fn serves(self, other: Self) -> bool {
        let most = (2 * other.rows).max(ROWS);
        self.positions >= other.positions && (other.rows..=most).contains(&self.rows)
    }

    /// Whether all that `other` has room for fits.
    pub(crate) fn holds(self, other: Self) -> bool {
        self.rows >= other.rows && self.positions >= other.positions
    }

    /// With more rows or positions where either asks for them.
    pub(crate) fn with(self, other: Self) -> Self {
        let (rows, positions) = (self.rows.max(other.rows), self.positions.max(other.positions));
        Self { rows, positions }
    }

    /// Bytes of keys and values.
    fn bytes(self, model: &Model) -> u64 {
        let config = &model.config;
        let each = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
        let size = model.compute.elt_size_in_bytes() as u64;
        self.rows as u64 * self.positions.unsigned_abs() * each.unsigned_abs() * size
    }
}

/// So many positions or a few more, so that shapes repeat.
pub(super) fn rounded(positions: i64) -> i64 {
    (positions + BUCKET - 1) / BUCKET * BUCKET
}
