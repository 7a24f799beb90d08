//! All calls of a program as one CUDA graph.

use std::ffi::c_int;

use crate::context::Context;
use crate::driver::{Driver, Handle};
use crate::failure::Failure;
use crate::launch::{Launcher, Libraries};
use crate::staged::Program;

/// Most operations of a graph: to make one takes microseconds for each.
const MAX_OPERATIONS: usize = 1 << 16;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: cuBLAS may load what it needs meanwhile.
const RELAXED: c_int = 2;

/// A graph that can be launched.
pub(crate) struct Graph {
    driver: &'static Driver,
    exec: Handle,
}

impl Graph {
    /// Captures a program, and brings the graph to the device.
    pub(crate) fn capture(
        context: &Context,
        libraries: Libraries<'_>,
        program: &Program,
    ) -> Result<Self, Failure> {
        if program.operations() > MAX_OPERATIONS {
            return Err(Failure::Request(format!(
                "{} operations are more than the {MAX_OPERATIONS} of a graph",
                program.operations()
            )));
        }
        let d = context.driver;
        let stream = context.main_stream();
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the stream is of the context.
        let begin = unsafe { (d.capture_begin)(stream, RELAXED) };
        d.check("begin to capture a graph", begin)?;
        let queued = Launcher { context, libraries, capturing: true }.queue(program, None);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: both handles are written to live locals. The graph is destroyed once, after what is
        // made of it.
        let (end, instantiate) = unsafe {
            let end = (d.capture_end)(stream, &raw mut graph);
            let usable = end == 0 && queued.is_ok();
            let made = if usable { (d.graph_instantiate)(&raw mut exec, graph, 0) } else { 0 };
            if !graph.is_null() {
                (d.graph_destroy)(graph);
            }
            (end, made)
        };
        queued?;
        d.check("capture a graph", end)?;
        d.check("instantiate a graph", instantiate)?;
        let made = Self { driver: d, exec };
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the graph is alive.
        let upload = unsafe { (d.graph_upload)(made.exec, stream) };
        d.check("upload a graph", upload)?;
        Ok(made)
    }

    /// Queues it.
    pub(crate) fn launch(&self, context: &Context) -> Result<(), Failure> {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the graph is alive, and the stream is of its context.
        let code = unsafe { (self.driver.graph_launch)(self.exec, context.main_stream()) };
        self.driver.check("launch a graph", code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: made in `capture`, and destroyed once.
        unsafe {
            (self.driver.graph_exec_destroy)(self.exec);
        }
    }
}
