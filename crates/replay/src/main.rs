//! The replayer: see the crate's documentation.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpwright_replay::main()
}
