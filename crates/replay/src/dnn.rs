//! Convolutions of cuDNN, which is loaded when the first plan needs it.
//!
//! Descriptors are made from the plan's fields when it is loaded. cuDNN says which algorithms it expects to be fast;
//! those that it refuses when they are queued are not tried again.

mod functions;
mod made;

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::path::Path;

use functions::Functions;
pub(crate) use made::Shape;
use made::{Choice, Made, Maker, Owned, WORKSPACE_BYTES, check, is_refusal};
use warpwright_plan::{Convolution, LaunchPlan, LibraryCall, Op};

use crate::context::Context;
use crate::driver::{Address, Handle};
use crate::failure::Failure;

/// Most different convolutions of a plan: cuDNN takes up to milliseconds to choose for each.
const MAX_SHAPES: usize = 512;
/// Smallest workspace that is worth asking for.
const SMALLEST_WORKSPACE: usize = 1 << 20;

/// The different convolutions of a plan, in order.
pub(crate) fn shapes(plan: &LaunchPlan) -> Vec<Shape> {
    let mut found = Vec::new();
    for node in plan.prepare.iter().chain(&plan.forward) {
        let Op::Convolution(convolution) = &node.op else { continue };
        let shape = shape(convolution);
        // More are refused.
        if found.len() <= MAX_SHAPES && !found.contains(&shape) {
            found.push(shape);
        }
    }
    found
}

/// A convolution without its addresses.
pub(crate) fn shape(convolution: &Convolution) -> Shape {
    let Ok(shape) = convolution.try_map::<(), std::convert::Infallible>(&mut |_| Ok(()));
    shape
}

/// Streams in which a plan convolves.
pub(crate) fn streams(plan: &LaunchPlan) -> BTreeSet<usize> {
    let nodes = plan.prepare.iter().chain(&plan.forward);
    let convolves = nodes.filter(|node| matches!(node.op, Op::Convolution(_)));
    convolves.map(|node| node.stream as usize).collect()
}

/// cuDNN, with a handle for each stream that has needed one, and the convolutions of the plan that is loaded.
pub(crate) struct Dnn {
    functions: Functions,
    lanes: Vec<Option<Lane>>,
    made: Vec<Made>,
    owned: Owned,
}

/// What a stream has.
#[derive(Clone, Copy)]
struct Lane {
    handle: Handle,
    workspace: Address,
    bytes: usize,
}

/// Where the operands of a convolution lie.
struct Operands {
    source: *mut c_void,
    filter: *mut c_void,
    result: *mut c_void,
    bias: *mut c_void,
    residual: *mut c_void,
}

impl Dnn {
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let functions = Functions::load(path)?;
        Ok(Self { functions, lanes: Vec::new(), made: Vec::new(), owned: Owned::default() })
    }

    /// Makes the convolutions of a plan ready, in place of those before. The context has the streams, and is idle.
    pub(crate) fn provide(
        &mut self,
        context: &Context,
        streams: &BTreeSet<usize>,
        shapes: &[Shape],
    ) -> Result<(), Failure> {
        self.forget();
        if shapes.len() > MAX_SHAPES {
            let why = format!("it has more than {MAX_SHAPES} different convolutions");
            return Err(Failure::Plan(why));
        }
        for index in streams {
            self.lane(context, *index)?;
        }
        let first = streams.first().and_then(|index| self.lanes.get(*index).copied().flatten());
        let Some(Lane { handle, .. }) = first else { return Ok(()) };
        let Self { functions, made, owned, .. } = self;
        let mut maker = Maker { functions, handle, owned };
        for shape in shapes {
            made.push(maker.make(shape)?);
        }
        let best = self.made.iter().filter_map(|made| made.choices.first());
        let wanted = best.map(|choice| choice.memory).max().unwrap_or(0);
        let each = wanted.min(WORKSPACE_BYTES / streams.len().max(1));
        for index in 0..self.lanes.len() {
            let each = if streams.contains(&index) { each } else { 0 };
            self.reserve(context, index, each)?;
        }
        Ok(())
    }

    /// Destroys the convolutions. None may be running.
    pub(crate) fn forget(&mut self) {
        self.made.clear();
        self.owned.end();
    }

    /// Makes the handle of a stream, unless there is one.
    fn lane(&mut self, context: &Context, index: usize) -> Result<(), Failure> {
        if self.lanes.get(index).copied().flatten().is_some() {
            return Ok(());
        }
        let stream = context.streams().get(index).copied();
        let stream =
            stream.ok_or_else(|| Failure::Plan(format!("stream {index} has not been made")))?;
        let (mut handle, f) = (std::ptr::null_mut(), &self.functions);
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: `handle` outlives the call; the stream is of the context, which is current.
        unsafe {
            check("create a handle of cuDNN", (f.create)(&raw mut handle))?;
            check("give cuDNN a stream", (f.set_stream)(handle, stream))?;
        }
        if self.lanes.len() <= index {
            self.lanes.resize(index + 1, None);
        }
        if let Some(lane) = self.lanes.get_mut(index) {
            *lane = Some(Lane { handle, workspace: 0, bytes: 0 });
        }
        Ok(())
    }

    /// Gives a stream a workspace, smaller where the device has no room for so much.
    fn reserve(&mut self, context: &Context, index: usize, wanted: usize) -> Result<(), Failure> {
        let Some(Some(lane)) = self.lanes.get_mut(index) else { return Ok(()) };
        if lane.bytes >= wanted && wanted > 0 {
            return Ok(());
        }
        let d = context.driver;
        if lane.bytes > 0 {
            let old = std::mem::take(&mut lane.workspace);
            lane.bytes = 0;
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: it was allocated, and the context is idle.
            d.check("free a workspace of cuDNN", unsafe { (d.memory_free)(old) })?;
        }
        let mut bytes = wanted;
        while bytes > 0 {
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: the place of the address outlives the call.
            let code = unsafe { (d.memory_alloc)(&raw mut lane.workspace, bytes) };
            if code == 0 {
                lane.bytes = bytes;
                break;
            }
            bytes = if bytes > SMALLEST_WORKSPACE { bytes / 2 } else { 0 };
        }
        Ok(())
    }

    /// Queues the convolution of this number in its stream. The places are those of [`LibraryCall::try_map`].
    pub(crate) fn convolve(
        &self,
        stream: usize,
        index: usize,
        places: &[Address],
    ) -> Result<(), Failure> {
        let lane = self.lanes.get(stream).copied().flatten();
        let (Some(lane), Some(made)) = (lane, self.made.get(index)) else {
            return Err(Failure::Plan(format!("stream {stream} has no handle of cuDNN")));
        };
        let place = |index: usize| {
            std::ptr::without_provenance_mut(places.get(index).copied().unwrap_or(0) as usize)
        };
        let [source, filter, result, bias, residual] = [0, 1, 2, 3, 4].map(place);
        let residual = if made.residual { residual } else { result };
        let at = Operands { source, filter, result, bias, residual };
        let mut refused = 0;
        loop {
            let fused = made.descriptors.epilogue.is_some() && !made.apart.get();
            while let Some(choice) = made.choices.get(made.chosen.get()) {
                let fits = choice.memory <= lane.bytes;
                let code = if fits { self.run(lane, made, *choice, &at, fused) } else { refused };
                if fits && !is_refusal(code) {
                    return check("convolve", code);
                }
                refused = code;
                made.chosen.set(made.chosen.get() + 1);
            }
            if !fused {
                let why = format!("cuDNN has no algorithm for a convolution: status {refused}");
                return Err(Failure::Plan(why));
            }
            made.apart.set(true);
            made.chosen.set(0);
        }
    }

    fn run(&self, lane: Lane, made: &Made, choice: Choice, at: &Operands, fused: bool) -> c_int {
        let f = &self.functions;
        let Lane { handle, workspace, bytes } = lane;
        let Choice { algorithm, math, .. } = choice;
        let of = &made.descriptors;
        let workspace: *mut c_void = std::ptr::without_provenance_mut(workspace as usize);
        let pointer = |factor: &u64| std::ptr::from_ref(factor).cast::<c_void>();
        let [alpha, beta, one, zero] =
            [&made.factors.alpha, &made.factors.beta, &made.factors.one, &made.factors.zero]
                .map(pointer);
        #[expect(unsafe_code, reason = "calls of cuDNN")]
        // SAFETY: handle and descriptors are alive. The factors are as long as a double. The operands are device
        // addresses, which cuDNN does not follow on the host; the workspace is as long as said.
        unsafe {
            let set = (f.set_math)(of.convolution, math);
            if set != 0 {
                return set;
            }
            let Some((bias, activation)) = of.epilogue else {
                let (first, at_first, second, at_second) = if made.transposed {
                    (of.filter, at.filter, of.source, at.source)
                } else {
                    (of.source, at.source, of.filter, at.filter)
                };
                let run = if made.transposed { f.transposed } else { f.forward };
                return run(
                    handle,
                    alpha,
                    first,
                    at_first,
                    second,
                    at_second,
                    of.convolution,
                    algorithm,
                    workspace,
                    bytes,
                    beta,
                    of.result,
                    at.result,
                );
            };
            if fused {
                return (f.fused)(
                    handle,
                    alpha,
                    of.source,
                    at.source,
                    of.filter,
                    at.filter,
                    of.convolution,
                    algorithm,
                    workspace,
                    bytes,
                    beta,
                    of.result,
                    at.residual,
                    bias,
                    at.bias,
                    activation,
                    of.result,
                    at.result,
                );
            }
            // One after the other: what the fused call is documented to compute.
            let in_place = at.residual == at.result;
            let held = if in_place { beta } else { zero };
            let code = (f.forward)(
                handle,
                alpha,
                of.source,
                at.source,
                of.filter,
                at.filter,
                of.convolution,
                algorithm,
                workspace,
                bytes,
                held,
                of.result,
                at.result,
            );
            if code != 0 {
                return code;
            }
            let residual = if in_place {
                0
            } else {
                (f.add)(handle, beta, of.result, at.residual, one, of.result, at.result)
            };
            let added = (f.add)(handle, one, bias, at.bias, one, of.result, at.result);
            let activated = if made.rectifies {
                (f.activate)(
                    handle, activation, one, of.result, at.result, zero, of.result, at.result,
                )
            } else {
                0
            };
            // After the convolution itself, a refusal is an error.
            if [residual, added, activated] == [0; 3] { 0 } else { EXECUTION_FAILED }
        }
    }
}

/// `CUDNN_STATUS_EXECUTION_FAILED`.
const EXECUTION_FAILED: c_int = 5000;
