//! What all system calls share: their results as errors, text for them, and a call by its number.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;

use libc::{c_int, c_long};

pub(super) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn check_long(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A path or name as a C string; an inner NUL is an error, never a silent cut.
pub(crate) fn c_string(text: impl AsRef<OsStr>) -> io::Result<CString> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// A raw system call by number, for the probe: only calls whose arguments may all be zero or integers.
pub(crate) fn attempt(number: c_long, arguments: [usize; 3]) -> io::Result<i64> {
    // SAFETY: used with integer arguments or null pointers only, which the kernel checks.
    check_long(unsafe {
        libc::syscall(number, arguments[0], arguments[1], arguments[2], 0_usize, 0_usize)
    })
}
