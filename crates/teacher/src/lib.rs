//! The built-in policy without weights: operator graph -> fused CUDA, by rules.
//!
//! [`Teacher`] is a [`Policy`](warpwright_agent::policy::Policy) like any other: it sees tool
//! results and makes tool calls, and its episodes are recorded like a model's. What it does:
//!
//! 1. **trace** — `python3 -m utils.trace` in the workspace prints the reference's operator graph,
//!    decomposed to pointwise functions, reductions, views and a few heavy operators (`trace.rs`);
//! 2. **lower** — each call becomes nodes of one small language, in which a node is a function from
//!    an index to a value and every view is index arithmetic (`lower/`, `ir.rs`, `index.rs`);
//!    the graph is then rewritten into one with less work (`algebra.rs`);
//! 3. **plan** — nodes are grouped into kernels: elementwise, row programs, heavy operators with
//!    their epilogues (`plan/`);
//! 4. **write** — each group becomes one `.cu` file with an `extern "C"` launcher, and the whole a
//!    `model_new.py` (`emit/`, `heavy/`, `program.rs`, `module.rs`, `tune.rs`); kernels that read nothing but
//!    weights run once, in its `prepare()` (`constant.rs`), and those of forward behind one launcher
//!    (`chain.rs`);
//! 5. **search** — compile, verify, profile, then a few variants of launch parameters, guided by
//!    the measured time and the floor that the unavoidable bytes set (`policy.rs`).
//!
//! Operator families are separate files behind two traits: `lower::Family` turns traced calls
//! into nodes, `heavy::HeavyOp` writes kernels that are a world of their own (matrix products,
//! convolutions). What no family knows ends the episode with the operators' names.
//!
//! It is not a compiler: shapes are static, only forward passes in eval mode exist, and where a
//! rule is missing it says so rather than calling back into torch.

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
mod trace;
mod tune;

use std::collections::BTreeMap;

pub use demonstration::{Demonstrator, Drafts, Flaws, first_messages};
use draft::Draft;
pub use policy::Teacher;
use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

/// Writes the teacher's version of a traced reference, without an episode: what `utils/trace.py`
/// printed in, files by workspace-relative path out. With `plain` set, the plainest code that the
/// teacher falls back to. For tests and for looking at what the rules make of a model.
///
/// # Errors
///
/// A sentence: the trace is unreadable, or which operators have no rule.
pub fn translate(
    trace: &str,
    device: &DeviceFacts,
    profile: Profile,
    plain: bool,
) -> Result<BTreeMap<String, String>, String> {
    let draft = Draft::of(trace, device, profile)?;
    draft.files(&tune::Knobs { safe: plain, split: true, chain: true, ..tune::Knobs::default() })
}
