//! What a trainer's protocol adds to the server.

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The paths that one trainer's protocol needs. A new trainer is a file with an implementation, an entry
/// of `PROTOCOLS` in `routes.rs`, and its paths in `openapi.rs`.
pub(crate) trait TrainerProtocol: Sync {
    /// The paths with their handlers.
    fn routes(&self) -> Router<Arc<App>>;
}
