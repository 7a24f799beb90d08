//! What can be wrong with a catalogue, and with shapes given to a form.

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
        /// Why.
        source: std::io::Error,
    },
    /// Made by a newer program.
    #[error("failed to read the catalogue: it has format {found}, this program reads {known}")]
    Newer {
        /// Its format.
        found: u64,
        /// The newest that is known.
        known: u64,
    },
    /// Not JSON, or not what a catalogue has.
    #[error("failed to read the catalogue: {path}: {reason}")]
    Broken {
        /// Where in the JSON, e.g. `entries[3].forms[0].call`.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// Why shapes do not fit a form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Another number of tensors.
    #[error("failed to infer shapes: {wanted} tensors are needed, {given} were given")]
    Count {
        /// What the form takes.
        wanted: usize,
        /// What it was given.
        given: usize,
    },
    /// A tensor of another rank.
    #[error("failed to infer shapes: `{input}` has rank {wanted}, not {given}")]
    Rank {
        /// The tensor.
        input: String,
        /// Its rank in this form.
        wanted: usize,
        /// What it was given.
        given: usize,
    },
    /// A dimension that must equal another, or a certain number.
    #[error("failed to infer shapes: dimension {dimension} of `{input}` is {given}, not {wanted}")]
    Dimension {
        /// The tensor.
        input: String,
        /// Which of its dimensions, from 0.
        dimension: usize,
        /// What it must be.
        wanted: u64,
        /// What it is.
        given: u64,
    },
    /// A size that the operator does not accept.
    #[error("failed to infer shapes: {symbol} is {size}, which {rule}")]
    Refused {
        /// The symbol.
        symbol: String,
        /// Its size.
        size: u64,
        /// What it breaks.
        rule: String,
    },
    /// A size that no input has and that was not chosen.
    #[error("failed to infer shapes: {symbol} was not chosen")]
    Unchosen {
        /// The symbol.
        symbol: String,
    },
    /// A size without a value.
    #[error(transparent)]
    Size(#[from] SizeError),
}
