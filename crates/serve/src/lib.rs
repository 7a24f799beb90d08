//! The HTTP server: the judge and the episode environment, for any trainer.
//!
//! ```text
//! request ─► authentication (auth) ─┬─► judge, rewards ─► idempotency (replays) ─► fleet's queue ─► response
//!                                   └─► gym, openenv ─► sessions ─► agent::episode, on a host thread
//! ```
//!
//! Errors have three forms, which a trainer cannot confuse. An error of the caller is a problem document
//! (RFC 9457). An error of the candidate is a verdict. An error of the server is an `infra_error` without a
//! reward.

mod answer;
mod app;
mod auth;
mod dashboard;
mod gym;
pub mod hosting;
mod http;
mod judge;
mod metrics;
mod openapi;
mod openenv;
mod problem;
mod protocol;
mod replays;
mod request;
mod rewards;
mod routes;
mod seen;
mod sessions;
mod utilisation;
mod voids;

pub use app::{App, Served, Settings};
pub use auth::{Tokens, TokensError};
pub use http::serve;
pub use judge::{BatchItem, InfraError, JudgeRequest, JudgeResponse};
pub use openapi::document;
pub use problem::{Kind, MEDIA_TYPE, Problem};
pub use routes::router;
pub use sessions::{Opening, SessionLimits, Sessions};
pub use utilisation::{DeviceUse, Uses};
pub use voids::Voids;
