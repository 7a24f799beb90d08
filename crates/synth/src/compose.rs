//! Composers: create [`Proposal`]s.
//!
//! [`Grammar`] samples a [`Plan`] (a small graph of operators on concrete shapes) from the
//! catalogue, using shape inference only, and renders it as source. The same seed gives the same
//! proposal.
//!
//! [`Llm`] asks an [`Author`], a language model, and reports the faults of its answers to it.

mod build;
mod cost;
mod error;
mod grammar;
mod guard;
mod level;
mod library;
mod llm;
mod mutate;
mod names;
mod plan;
mod render;
mod sizes;

pub use build::Built;
pub use error::ComposeError;
pub use grammar::{Budget, Grammar, GrammarConfig};
pub use level::Level;
pub use library::Library;
pub use llm::{AnswerError, Author, AuthorError, Llm, LlmConfig, Turn};
pub use plan::{Plan, Source as PlanSource, Step};

use crate::proposal::Proposal;

/// Tries a proposal, or receives the reason why there is none. Returns the reason of a refusal, if
/// there is one and another proposal may be made.
pub type Examine<'e> = &'e mut dyn FnMut(Result<Proposal, ComposeError>) -> Option<String>;

/// Creates untried tasks. Several threads may call it concurrently.
pub trait Composer: Send + Sync {
    /// Name in [`Provenance::composer`](crate::Provenance::composer).
    fn name(&self) -> &str;

    /// One proposal. All random choices depend on `seed` only.
    fn compose(&self, seed: u64) -> Result<Proposal, ComposeError>;

    /// Proposals of a seed until one is accepted: a composer that uses refusals replaces a refused
    /// proposal a few times. An error means that other seeds would fail too.
    fn compose_until(&self, seed: u64, examine: Examine<'_>) -> Result<(), AuthorError> {
        examine(self.compose(seed));
        Ok(())
    }
}
