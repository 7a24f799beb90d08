//! The judge and the environment for everybody's trainer, over HTTP.
//!
//! ```text
//! request ─► who asks (auth) ─┬─► what is asked (judge, rewards) ─► once (replays) ─► fleet's queue ─► response
//!                             └─► gym, openenv ─► sessions ─► agent::episode, hosted by whoever has devices
//! ```
//!
//! What a caller did wrong is a problem document (RFC 9457), what the candidate did wrong is a verdict, and
//! what we did wrong is an `infra_error` without a reward: three things that no trainer can mix up.

mod answer;
mod app;
mod auth;
mod dashboard;
mod gym;
mod http;
mod judge;
mod metrics;
mod openapi;
mod openenv;
mod problem;
mod replays;
mod rewards;
mod seen;
mod sessions;

pub use app::{App, Served, Settings, router};
pub use auth::{Tokens, TokensError};
pub use dashboard::{DeviceUse, Uses};
pub use http::serve;
pub use judge::{Given, InfraError, JudgeRequest, JudgeResponse};
pub use openapi::document;
pub use problem::{Kind, MEDIA_TYPE, Problem};
pub use sessions::{Opening, SessionLimits, Sessions};
