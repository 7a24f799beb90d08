//! Composers: what gives [`Proposal`]s.
//!
//! [`Grammar`] draws a [`Plan`] (a small graph of operators on concrete shapes) from the catalogue, by
//! shape inference alone, and renders it as source. The same seed gives the same proposal.
//!
//! [`Llm`] asks an [`Author`], a language model, and tells it what was wrong with its answers.

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

/// Tries a proposal, or hears why there is none; gives the reason for which it is refused, where there is
/// one and another proposal may be made.
pub type Examine<'e> = &'e mut dyn FnMut(Result<Proposal, ComposeError>) -> Option<String>;

/// Makes tasks that have not been tried. Several threads may ask at once.
pub trait Composer: Send + Sync {
    /// What [`Provenance::composer`](crate::Provenance::composer) says of its proposals.
    fn name(&self) -> &str;

    /// One proposal. Where the composer draws, it draws from `seed` only.
    fn compose(&self, seed: u64) -> Result<Proposal, ComposeError>;

    /// Proposals of a seed until one is taken: a composer that learns from refusals makes others in
    /// place of one that was refused, a few times. The error means that other seeds will fare no better.
    fn compose_until(&self, seed: u64, examine: Examine<'_>) -> Result<(), AuthorError> {
        examine(self.compose(seed));
        Ok(())
    }
}
