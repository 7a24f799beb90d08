//! Composers: what gives [`Proposal`]s.
//!
//! [`Grammar`] draws a [`Plan`] (a small graph of operators on concrete shapes) from the catalogue, by
//! shape inference alone, and renders it as source. The same seed gives the same proposal.

mod build;
mod error;
mod grammar;
mod guard;
mod level;
mod library;
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
pub use plan::{Plan, Source as PlanSource, Step};

use crate::proposal::Proposal;

/// Makes tasks that have not been tried.
pub trait Composer {
    /// What [`Provenance::composer`](crate::Provenance::composer) says of its proposals.
    fn name(&self) -> &str;

    /// One proposal. Where the composer draws, it draws from `seed` only.
    fn compose(&self, seed: u64) -> Result<Proposal, ComposeError>;
}
