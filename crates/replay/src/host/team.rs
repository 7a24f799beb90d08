//! The team of threads on which kernels run: that of the OpenMP runtime which their libraries use.

use std::ffi::{c_int, c_uint, c_void};

use libloading::os::unix::Library;

use crate::failure::Failure;

const NAME: &str = "libgomp.so.1";

type Body = extern "C" fn(*mut c_void);

/// The runtime.
pub(crate) struct Team {
    parallel: unsafe extern "C" fn(Body, *mut c_void, c_uint, c_uint),
    threads: unsafe extern "C" fn() -> c_int,
    // Last: what is above points into it.
    _library: Library,
}

extern "C" fn nothing(_: *mut c_void) {}

impl Team {
    /// Loads the runtime, and starts no thread.
    pub(crate) fn load() -> Result<Self, Failure> {
        let fail =
            |error: libloading::Error| Failure::System(format!("failed to load {NAME}: {error}"));
        #[expect(unsafe_code, reason = "calls of a foreign library")]
        // SAFETY: the system's library, whose initialisers expect nothing; the symbols have these types.
        unsafe {
            let library = Library::new(NAME).map_err(fail)?;
            let parallel = *library.get(b"GOMP_parallel\0").map_err(fail)?;
            let threads = *library.get(b"omp_get_max_threads\0").map_err(fail)?;
            Ok(Self { parallel, threads, _library: library })
        }
    }

    /// Starts as many threads as a parallel region has. They wait for the next one.
    pub(crate) fn start(&self) {
        #[expect(unsafe_code, reason = "calls of a foreign library")]
        // SAFETY: the body takes no notice of its argument.
        unsafe {
            let threads = (self.threads)();
            (self.parallel)(
                nothing,
                std::ptr::null_mut(),
                c_uint::try_from(threads).unwrap_or(1),
                0,
            );
        }
    }
}
