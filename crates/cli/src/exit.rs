//! Exit codes. They are part of the command line's contract and listed in
//! `docs/reference/exit-codes-and-errors.md`.

use warpwright_rollout::error::ErrorKind;

/// The exit code of an error.
pub(crate) fn of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage => USAGE,
        ErrorKind::Infrastructure => INFRASTRUCTURE,
        ErrorKind::Isolation => ISOLATION,
        ErrorKind::RecordVersion => RECORD_VERSION,
        ErrorKind::DiskFull => DISK_FULL,
        ErrorKind::Interrupted => INTERRUPTED,
    }
}

/// Success.
pub(crate) const OK: u8 = 0;
/// The caller's mistake: invalid arguments, an invalid task, a missing candidate.
pub(crate) const USAGE: u8 = 2;
/// The command succeeded; the candidate is not verified.
pub(crate) const NOT_VERIFIED: u8 = 3;
/// Infrastructure failure: the judge, a compiler, a policy or the machine failed. There is no
/// verdict.
pub(crate) const INFRASTRUCTURE: u8 = 4;
/// This machine cannot provide `--require-isolation full`.
pub(crate) const ISOLATION: u8 = 5;
/// A newer or another version wrote the record.
pub(crate) const RECORD_VERSION: u8 = 6;
/// No space left on the disk. Everything recorded before is intact.
pub(crate) const DISK_FULL: u8 = 7;
/// Interrupted by Ctrl-C or a termination signal; `--resume` resumes the run.
pub(crate) const INTERRUPTED: u8 = 130;
