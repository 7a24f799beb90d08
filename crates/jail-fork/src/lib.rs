//! The jail's fork server for a process that is not Rust: one C function, in a library of its own.
//!
//! `python/warpwright_oracle/forkserver.py` loads `libwarpwright_jail_fork.so`, which lies beside the program,
//! once it has imported what takes long. All work is done by [`serve_forks`];
//! the other end is a [`ForkServer`](warpwright_jail::ForkServer).
//!
//! ```c
//! int warpwright_jail_serve(int (*go_on)(const char *program));
//! ```
//!
//! It serves requests from standard input until that ends, and returns 0, or 1 when it cannot. `go_on` runs in
//! forks only, confined; `program` is what was asked for as JSON: `program`, `args` and `env`. What it returns
//! is the fork's exit code. The caller must hold whatever locks its language has, and have one thread.
//!
//! It decides nothing, and knows neither Python nor runners.
#![expect(unsafe_code, reason = "a function for other languages")]

use std::ffi::{CString, c_char, c_int};

use warpwright_jail::{Program, serve_forks};

/// What a fork does once it is confined.
type GoOn = extern "C" fn(program: *const c_char) -> c_int;

/// See the crate's own description.
// SAFETY: the name is this library's alone.
#[unsafe(no_mangle)]
pub extern "C" fn warpwright_jail_serve(go_on: GoOn) -> c_int {
    let served = serve_forks(&|program: Program| {
        let Ok(text) = serde_json::to_vec(&program) else { return 1 };
        // JSON has no bytes of zero.
        let Ok(text) = CString::new(text) else { return 1 };
        go_on(text.as_ptr())
    });
    c_int::from(served.is_err())
}
