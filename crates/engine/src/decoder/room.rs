//! The size of a decoder: number of sequences and their length.

use crate::model::Model;

/// Attended positions are rounded up to a multiple of this, so that shapes repeat.
const BUCKET: i64 = 64;
/// Rows of a product are padded to this many. Products of very few rows add up in another order (on
/// the host below 4, measured with MKL 2024.2), so the last bits of a sequence would depend on the
/// batch size.
pub(crate) const LEAST_ROWS: usize = 16;
/// Rows of a GPU's tile: a product of fewer rows takes as long.
const ROWS: usize = 64;
/// Limit on the bytes of keys and values allocated beyond the request.
const AMPLE: u64 = 4 << 30;

/// The size of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Concurrent sequences.
    pub(crate) rows: usize,
    /// Tokens per sequence.
    pub(crate) positions: i64,
}

impl Room {
    /// For `slots` sequences of at most `longest` tokens.
    pub(crate) fn of(slots: usize, longest: i64) -> Self {
        Self { rows: slots.max(LEAST_ROWS), positions: rounded(longest) }
    }

    /// For a GPU: large enough that hardly any request makes it grow, which would record all graphs
    /// anew, if that takes little memory. Unused rows up to a tile cost no time.
    pub(crate) fn ample(slots: usize, longest: i64, model: &Model) -> Self {
        let ample = Self::of(slots.next_multiple_of(ROWS), model.config.max_position_embeddings);
        if ample.bytes(model) <= AMPLE { ample } else { Self::of(slots, longest) }
    }

    /// Whether a decoder of this size may be used where `other` would do.
    pub(super) fn serves(self, other: Self) -> bool {
        let most = (2 * other.rows).max(ROWS);
        self.positions >= other.positions && (other.rows..=most).contains(&self.rows)
    }

    /// Whether `other` fits.
    pub(crate) fn holds(self, other: Self) -> bool {
        self.rows >= other.rows && self.positions >= other.positions
    }

    /// The maximum of both in rows and positions.
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

/// `positions` rounded up, so that shapes repeat.
pub(super) fn rounded(positions: i64) -> i64 {
    (positions + BUCKET - 1) / BUCKET * BUCKET
}
