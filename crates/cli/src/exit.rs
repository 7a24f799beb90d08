//! Exit codes. They are part of the command line's contract and listed in
//! `docs/reference/exit-codes-and-errors.md`.

/// Did what was asked, and the result is good.
pub(crate) const OK: u8 = 0;
/// The caller's mistake: arguments, a task that is not one, a candidate that is not there.
pub(crate) const USAGE: u8 = 2;
/// Did what was asked; the candidate is not verified.
pub(crate) const NOT_VERIFIED: u8 = 3;
/// Ours: the judge, a compiler, a policy or the machine failed. No verdict was given.
pub(crate) const INFRASTRUCTURE: u8 = 4;
/// `--require-isolation full` cannot be had on this machine.
pub(crate) const ISOLATION: u8 = 5;
/// The record was written by a newer or another version.
pub(crate) const RECORD_VERSION: u8 = 6;
/// No space left on the disk. What was recorded before is whole.
pub(crate) const DISK_FULL: u8 = 7;
/// Interrupted by Ctrl-C or a termination signal; `--resume` goes on.
pub(crate) const INTERRUPTED: u8 = 130;
