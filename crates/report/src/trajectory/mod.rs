//! Episodes as trajectories: shown to a person, and exported for training.
//!
//! [`conversation::Conversation`] is what the policy saw and said, [`show::show`] makes it readable,
//! [`export::export`] writes it as lines of JSON. `docs/reference/trajectories.md` has the forms.

pub mod conversation;
pub mod export;
pub mod show;
