//! Task synthesis: composes tasks from a catalogue of operators, tries them, and keeps those worth
//! training on.
//!
//! ```text
//! catalogue ──► compose ──► Proposal ──► try ──► measurements ──► decontaminate ──► data set
//! (operators    (a grammar   (source,    (runs, is deterministic,   (against suites,   (Parquet: rows,
//!  mined from    or a         operators)  has a time worth beating,  against itself)    splits, a card)
//!  torch)        policy)                  cannot be won by cheating)
//! ```
//!
//! A composer returns a [`Proposal`]: the source of a task in KernelBench form, and its provenance.
//! The judge's processes run it. This crate starts only one kind of process, in a jail: the one
//! that mines the catalogue.

mod admit;
mod catalogue;
mod compose;
mod dataset;
mod decontaminate;
mod mine;
mod proposal;

pub use admit::{LogError, Outcome, TimeRefusal, Trial, TrialLog, Window};
pub use catalogue::{
    Arity, CATALOGUE_FORMAT, Catalogue, CatalogueError, Class, Determinism, Domain, Dtype, Entry,
    Form, Input, Kind, LeftOut, Output, Parameter, ShapeError, Size, SizeError, Sizes, Symbol,
};
pub use compose::{
    AnswerError, Author, AuthorError, Budget, Built, ComposeError, Composer, Examine, Grammar,
    GrammarConfig, Level, Library, Llm, LlmConfig, Plan, PlanSource, Step, Turn,
};
pub use dataset::{
    Appended, Combination, DataSet, DataSetError, Device, FORMAT_VERSION, Measured, Pushed,
    Quantiles, Row, Shares, Split, SplitStats, Stats, TensorForm, card,
};
pub use decontaminate::{
    Copied, Decontamination, Finding, Histogram, Likeness, Nearest, Refusal, RefusalKind,
    SuiteError, SuiteSummary, Summary, Thresholds,
};
pub use mine::{Failed, MineError, Miner, Snippet, Source};
pub use proposal::{Proposal, Provenance};
