//! The jail's helper for programs that do not register themselves: test binaries of other crates.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpwright_jail::init_if_requested();
    // Reached only when somebody starts it by hand.
    ExitCode::from(2)
}
