//! Runs a command with named mounts, no network, limits on its whole process tree, and a deadline, and
//! says what of that was really enforced.
//!
//! Everything that we did not write ourselves runs here: compilers on a candidate's files, the processes
//! that hold references and candidates, an agent's shell. The crate knows none of them.
//!
//! A [`Jail`] is a way of confining that was found to work on this machine, by starting a probe inside and
//! looking at what it could do ([`Jail::isolation`]). A [`Spec`] names everything that a program may see and
//! use; nothing is inherited. [`Jail::run`] gives [`Finished`]; [`Jail::spawn`] gives a [`Child`], which dies
//! with everything it started when it is dropped, or when this process is. A [`Process`] is one of a jail's
//! processes, to end it without ending the jail.
//!
//! ```no_run
//! use warpwright_jail::{Jail, Requirement, Spec};
//!
//! fn main() -> Result<(), warpwright_jail::JailError> {
//!     warpwright_jail::init_if_requested();
//!     let jail = Jail::detect(Requirement::Any)?;
//!     let finished = jail.run(Spec::new("echo").arg("hello").with_system())?;
//!     assert!(finished.outcome.is_success());
//!     Ok(())
//! }
//! ```
//!
//! Set-up needs a process with one thread, so the jail starts its own program again as a helper: a program
//! that uses jails calls [`init_if_requested`] first thing in `main`; test binaries find the executable
//! `warpwright-jail-init` beside them. `docs/concepts/jail.md` lists every step in order, with what happens when it
//! fails.
//!
//! A program whose start takes long can be forked instead of executed: a [`ForkServer`] is a process that has
//! made itself ready and calls [`serve_forks`]; forks of it enter jails, by the same steps.
//!
//! What it is not: a virtual machine. A bug in the kernel is a way out. Nor does it decide what a program's
//! failure means: that a candidate crashed, hung or ran out of memory is an [`Outcome`], a value, while
//! [`JailError`] is about us.

mod capture;
mod child;
mod detect;
mod error;
mod fork;
mod freezer;
mod init;
mod isolation;
mod locate;
mod plan;
mod prepare;
mod process;
mod scratch;
mod spec;
mod supervisor;
mod sys;
mod system;
mod tree;

pub use capture::Captured;
pub use child::{Child, Finished, Killer, Outcome};
pub use detect::Jail;
pub use error::JailError;
pub use fork::{ForkServer, Warm};
pub use freezer::{FreezeError, Freezer};
pub use init::{Program, init_if_requested, serve_forks};
pub use isolation::{Backend, Isolation, Level, Requirement};
pub use process::Process;
pub use spec::{Access, Gpu, Limits, Mount, Network, Output, Spec, Stdin};
