//! Errors of catalogues and of shape inference.

use std::path::PathBuf;

use super::size::SizeError;

/// Why a catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The file cannot be read.
    #[error("failed to read the catalogue `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The catalogue has another format version.
    #[error(
        "failed to read the catalogue: it has format {found}, but this program reads format {known}"
    )]
    Newer {
        /// Format version of the catalogue.
        found: u64,
        /// Format version that this program reads.
        known: u64,
    },
    /// The file is not JSON, or breaks a rule of the format.
    #[error("failed to read the catalogue: {path}: {reason}")]
    Broken {
        /// Location in the JSON, e.g. `entries[3].forms[0].call`.
        path: String,
        /// The fault.
        reason: String,
    },
}

/// Why shapes do not fit a form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Wrong number of tensors.
    #[error("failed to infer shapes: the operator takes {wanted} tensors, not {given}")]
    Count {
        /// Number that the form takes.
        wanted: usize,
        /// Number given.
        given: usize,
    },
    /// A tensor has the wrong rank.
    #[error("failed to infer shapes: `{input}` has rank {wanted}, not {given}")]
    Rank {
        /// The tensor.
        input: String,
        /// Its rank in this form.
        wanted: usize,
        /// Rank given.
        given: usize,
    },
    /// A dimension differs from the required one.
    #[error("failed to infer shapes: dimension {dimension} of `{input}` is {given}, not {wanted}")]
    Dimension {
        /// The tensor.
        input: String,
        /// Index of the dimension, from 0.
        dimension: usize,
        /// Required size.
        wanted: u64,
        /// Actual size.
        given: u64,
    },
    /// A size that the operator does not accept.
    #[error("failed to infer shapes: {symbol} is {size}, which {rule}")]
    Refused {
        /// The symbol.
        symbol: String,
        /// Its size.
        size: u64,
        /// The rule that it breaks.
        rule: String,
    },
    /// A symbol that no input determines and that was not chosen.
    #[error("failed to infer shapes: symbol {symbol} has no value")]
    Unchosen {
        /// The symbol.
        symbol: String,
    },
    /// A size without a value.
    #[error(transparent)]
    Size(#[from] SizeError),
}
