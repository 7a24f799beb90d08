//! The cpu device: kernels are machine code of the host, which a process of its own runs.
//!
//! ```text
//! judge ── wire ──► supervisor ── fork per window ──► executor: arena, team, kernels, then confined
//! ```
//!
//! This process never loads a kernel. For `prepare`, and for each window, it forks an executor, which maps the arena,
//! starts a team of threads, loads the libraries (which run nothing when they are loaded), makes the calls ready and
//! confines itself. Only then it may be told to run. So each window begins with the first values of all variables but
//! those that `prepare` left, as on a GPU, and what a kernel breaks is an executor.
//!
//! | module | what it does |
//! |---|---|
//! | `session` | answers requests |
//! | `executor` | forks executors, speaks with them, and says how they ended |
//! | `confine` | what is left to an executor: seccomp, and no time-stamp counter |
//! | `report` | what an executor leaves behind for the supervisor |
//! | `library` | loaded kernels; the variables that `prepare` left |
//! | `team` | the threads |
//! | `run` | runs a program |

mod confine;
mod executor;
mod library;
mod report;
mod run;
mod session;
mod team;

pub(crate) use session::HostSession;
