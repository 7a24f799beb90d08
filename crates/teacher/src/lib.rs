//! The built-in policy: translates operator graphs to fused CUDA kernels by rules, without weights.
//!
//! [`Teacher`] is a [`Policy`](warpwright_agent::policy::Policy) like any other: it reads tool
//! results and makes tool calls, and its episodes are recorded like a model's. Its steps:
//!
//! 1. **trace**: `python3 -m utils.trace` in the workspace prints the reference's operator graph,
//!    decomposed into pointwise functions, reductions, views and a few heavy operators (`trace.rs`).
//! 2. **lower**: each call becomes nodes of a small language, in which a node is a function from an
//!    index to a value and every view is index arithmetic (`lower/`, `ir.rs`, `index.rs`). The graph
//!    is then rewritten into one with less work (`algebra.rs`).
//! 3. **plan**: nodes are grouped into kernels: elementwise, row programs, heavy operators with
//!    their epilogues (`plan/`).
//! 4. **write**: each group becomes one `.cu` file with an `extern "C"` launcher, and the whole a
//!    `model_new.py` (`emit/`, `heavy/`, `program.rs`, `module.rs`, `tune.rs`). Kernels that read only
//!    weights run once, in its `prepare()` (`constant.rs`). One launcher starts those of forward
//!    (`chain.rs`).
//! 5. **search**: compile, verify, profile, then a few variants of launch parameters, guided by the
//!    measured time and the lower bound set by the unavoidable memory traffic (`policy.rs`).
//!
//! Operator families are separate files behind two traits: `lower::Family` turns traced calls into
//! nodes; `heavy::HeavyOp` writes kernels of matrix products, convolutions and recurrent layers. If
//! no family supports an operator, the episode ends with the operators' names.
//!
//! It is not a compiler: shapes are static, and only forward passes in eval mode are supported. It
//! never falls back to calling torch.

#![expect(
    clippy::format_push_string,
    clippy::many_single_char_names,
    reason = "program text is assembled in Strings, which cannot fail; operands are a, b, x, y"
)]

mod algebra;
mod alike;
mod chain;
mod constant;
mod demonstration;
mod draft;
mod dtype;
mod emit;
mod heavy;
mod index;
mod ir;
mod lower;
mod module;
mod plan;
mod policy;
mod program;
mod search;
mod several;
mod sizes;
mod trace;
mod tune;

use std::collections::BTreeMap;

pub use demonstration::{Demonstrator, Drafts, Flaws, first_messages};
use draft::Draft;
pub use policy::Teacher;
use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

/// Writes the built-in policy's version of a traced reference, without an episode. `trace` is the
/// output of `utils/trace.py`; the result has the files by workspace-relative path. `plain` selects
/// the plainest code, the policy's fallback. For tests and for inspecting the rules.
///
/// # Errors
///
/// A message: the trace cannot be read, or operators have no rule.
pub fn translate(
    trace: &str,
    device: &DeviceFacts,
    profile: Profile,
    plain: bool,
) -> Result<BTreeMap<String, String>, String> {
    let draft = Draft::of(trace, device, profile)?;
    draft.files(&tune::Knobs { safe: plain, split: true, chain: true, ..tune::Knobs::default() })
}
