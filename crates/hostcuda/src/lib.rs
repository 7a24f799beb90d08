//! CUDA C++ on the host: lexer, rewriter, and the headers that the rewritten text targets.
//!
//! The principal entry points are [`translate`] (CUDA C++ in, host C++ out, or a list of
//! [`Refusal`]s), [`write_headers`] and [`compile_flags`] (what the host compiler needs), and
//! [`launchers`] (the signatures of `extern "C"` functions, used for both devices).
//!
//! ```
//! let source = r#"extern "C" void scale(float* x, int n, cudaStream_t stream) {}"#;
//! let found = warpwright_hostcuda::launchers(source, "scale.cu").unwrap();
//! assert_eq!(found[0].name, "scale");
//! assert!(found[0].has_stream);
//! ```
//!
//! This crate starts no process and depends on nothing above it: `build` compiles the translated text.

mod alias;
mod brackets;
mod casts;
mod code;
mod condition;
mod context;
mod ctype;
mod division;
mod edit;
mod expand;
mod function;
mod headers;
mod host_part;
mod include;
mod launch;
mod launcher;
pub mod lexer;
mod linear;
mod macros;
mod phase;
mod places;
mod pointer;
pub mod refusal;
mod rewrite;
mod shared;
mod shuffle;
mod signature;
mod unsupported;

pub use headers::{compile_flags, fingerprint, write_headers};
pub use host_part::host_part;
pub use include::Resolve;
pub use launcher::{launchers, launchers_with};
pub use refusal::Refusal;
pub use rewrite::{Translated, translate, translate_with};
pub use signature::{Element, Launcher, Param, ParamKind, Returns};
