//! Queues the calls of a program. This is what a timed window consists of.
//!
//! A call begins and ends in the first stream: the others wait for its begin, and its end waits for them. So no call
//! overlaps the one before.

use std::ffi::c_uint;

use crate::blas::Blas;
use crate::context::Context;
use crate::dnn::Dnn;
use crate::driver::{Address, CopyRows, Driver, Handle, LaunchConfig, Rows};
use crate::failure::Failure;
use crate::outline::{Action, Element, Node};
use crate::staged::{Exchanged, Frame, Program};

/// The libraries that were loaded.
#[derive(Clone, Copy)]
pub(crate) struct Libraries<'a> {
    pub(crate) blas: Option<&'a Blas>,
    pub(crate) dnn: Option<&'a Dnn>,
}

/// Queues programs in the streams of a context.
#[derive(Clone, Copy)]
pub(crate) struct Launcher<'a> {
    pub(crate) context: &'a Context,
    pub(crate) libraries: Libraries<'a>,
    /// Whether the streams are being captured. Programmatic serialization is left out then: in a graph, what follows a
    /// kernel does not wait for the kernel that it overlaps, so a call could begin before the one before has ended.
    pub(crate) capturing: bool,
}

impl<'a> Launcher<'a> {
    /// Makes the streams and events that a program needs.
    pub(crate) fn provide(context: &mut Context, program: &Program) -> Result<(), Failure> {
        context.provide(program.streams(), program.streams() + program.events())
    }

    /// Queues all calls in order. What is exchanged is there during its call only.
    pub(crate) fn queue(
        self,
        program: &Program,
        exchanged: Option<&Exchanged>,
    ) -> Result<(), Failure> {
        for step in steps(program.calls(), exchanged) {
            match step {
                Step::Call(call) => self.call(program, program.frame(call))?,
                Step::Write(at, bytes) => self.write(at, bytes)?,
            }
        }
        Ok(())
    }

    /// Queues a write to the device in the first stream, in which every call begins and ends.
    fn write(self, at: Address, bytes: &[u8]) -> Result<(), Failure> {
        let (driver, stream) = (self.context.driver, self.context.main_stream());
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the bytes live as long as the window, which outlives what it queues; the session has checked
        // that as many lie at `at`.
        let code = unsafe { (driver.upload)(at, bytes.as_ptr().cast(), bytes.len(), stream) };
        driver.check("exchange inputs", code)
    }

    fn call(self, program: &Program, frame: Frame<'_>) -> Result<(), Failure> {
        let count = program.streams();
        let streams = self.context.streams().get(..count);
        let events = self.context.events().split_at_checked(count);
        let (Some(streams), Some((forks, events))) = (streams, events) else {
            return Err(Failure::Request("the streams of the calls were not made".to_owned()));
        };
        // A program without operations has none.
        let Some((main, others)) = streams.split_first() else { return Ok(()) };
        // The first of these events is that of the call's begin, the others those of the streams' ends.
        let (begin, ends) = forks.split_first().unwrap_or((main, &[]));
        if !others.is_empty() {
            self.record(*begin, *main)?;
            others.iter().try_for_each(|stream| self.wait(*stream, *begin))?;
        }
        for node in program.nodes() {
            let stream = streams.get(node.stream).copied().unwrap_or(*main);
            for event in &node.waits {
                self.wait(stream, event_of(events, *event))?;
            }
            self.node(node, frame, stream)?;
            if let Some(event) = node.records {
                self.record(event_of(events, event), stream)?;
            }
        }
        for (stream, end) in others.iter().zip(ends) {
            self.record(*end, *stream)?;
            self.wait(*main, *end)?;
        }
        Ok(())
    }

    fn record(self, event: Handle, stream: Handle) -> Result<(), Failure> {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: both handles are of the context; the driver refuses null.
        let code = unsafe { (self.context.driver.event_record)(event, stream) };
        self.context.driver.check("record an event", code)
    }

    fn wait(self, stream: Handle, event: Handle) -> Result<(), Failure> {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: as above.
        let code = unsafe { (self.context.driver.stream_wait)(stream, event, 0) };
        self.context.driver.check("wait for an event", code)
    }

    fn node(self, node: &Node, frame: Frame<'_>, stream: Handle) -> Result<(), Failure> {
        let driver = self.context.driver;
        let code = match &node.action {
            Action::Launch { .. } => self.launch(&node.action, frame, stream),
            Action::Gemm { word, product } => {
                let operands = [0, 1, 2].map(|operand| frame.word(word + operand));
                return self.blas()?.multiply(node.stream, product, operands);
            }
            Action::Gemv { word, product } => {
                let operands = [0, 1, 2].map(|operand| frame.word(word + operand));
                return self.blas()?.multiply_vector(node.stream, product, operands);
            }
            Action::Matmul { word, places, index } => {
                let places = frame.words(*word, *places);
                return self.blas()?.multiply_lt((node.stream, stream), *index, places);
            }
            Action::Convolution { word, places, index } => {
                let Some(dnn) = self.libraries.dnn else {
                    return Err(Failure::Plan("cuDNN was not loaded".to_owned()));
                };
                return dnn.convolve(node.stream, *index, frame.words(*word, *places));
            }
            other => transfer(driver, other, frame, stream),
        };
        if code == 0 { Ok(()) } else { Err(driver.failure(node.label.clone(), code)) }
    }

    fn blas(self) -> Result<&'a Blas, Failure> {
        self.libraries.blas.ok_or_else(|| Failure::Plan("cuBLAS was not loaded".to_owned()))
    }

    fn launch(self, action: &Action, frame: Frame<'_>, stream: Handle) -> i32 {
        let Action::Launch { function, grid, block, shared, attributes, programmatic, .. } = action
        else {
            return 0;
        };
        let arguments = frame.arguments(action);
        let none = std::ptr::null_mut();
        let [gx, gy, gz] = *grid;
        let [bx, by, bz] = *block;
        let left_out = usize::from(self.capturing && *programmatic);
        let attributes =
            attributes.get(left_out_last(attributes.len(), left_out)).unwrap_or_default();
        let driver = self.context.driver;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the function is of a loaded module. The table holds a pointer per parameter, each to as
        // many bytes as the parameter has (`Outline::launch`, `Modules::load`); the driver copies them
        // before it returns.
        unsafe {
            if attributes.is_empty() {
                return (driver.launch)(
                    *function, gx, gy, gz, bx, by, bz, *shared, stream, arguments, none,
                );
            }
            let config = LaunchConfig {
                grid: *grid,
                block: *block,
                shared: *shared,
                stream,
                attributes: attributes.as_ptr(),
                attribute_count: attributes.len() as c_uint,
            };
            (driver.launch_ex)(&raw const config, *function, arguments, none)
        }
    }
}

/// A part of a window.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Call(usize),
    Write(Address, &'a [u8]),
}

/// The parts of a window in order. A window without calls has what an exchange costs.
fn steps(calls: usize, exchanged: Option<&Exchanged>) -> impl Iterator<Item = Step<'_>> {
    let writes = move |call: usize| {
        let here = exchanged.filter(|exchanged| exchanged.call == call);
        let write = |(at, bytes)| Step::Write(at, bytes);
        let [own, other] = [
            here.map(|exchanged| (exchanged.at, exchanged.own.as_slice())),
            here.map(|exchanged| (exchanged.at, exchanged.other.as_slice())),
        ];
        (own.map(write), other.map(write))
    };
    (0..calls.max(1)).flat_map(move |call| {
        let (before, after) = writes(call);
        let this = (call < calls).then_some(Step::Call(call));
        before.into_iter().chain(this).chain(after)
    })
}

/// All but so many of the last of `count`.
fn left_out_last(count: usize, left_out: usize) -> std::ops::RangeTo<usize> {
    ..count.saturating_sub(left_out)
}

fn event_of(events: &[Handle], index: usize) -> Handle {
    events.get(index).copied().unwrap_or(std::ptr::null_mut())
}

/// Queues a fill, a copy or an upload; the driver's code.
fn transfer(driver: &Driver, action: &Action, frame: Frame<'_>, stream: Handle) -> i32 {
    match *action {
        Action::Fill { word, value, element, width, height, pitch } => {
            let at = frame.word(word);
            let lines = height.min(1) * width;
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: these are addresses of the device, which the host does not follow.
            unsafe {
                match (element, height) {
                    (_, 0) => 0,
                    _ if lines == 0 => 0,
                    (Element::One, 1) => (driver.fill8)(at, value as u8, width, stream),
                    (Element::Two, 1) => (driver.fill16)(at, value as u16, width, stream),
                    (Element::Four, 1) => (driver.fill32)(at, value, width, stream),
                    (Element::One, _) => {
                        (driver.fill8_rows)(at, pitch, value as u8, width, height, stream)
                    }
                    (Element::Two, _) => {
                        (driver.fill16_rows)(at, pitch, value as u16, width, height, stream)
                    }
                    (Element::Four, _) => {
                        (driver.fill32_rows)(at, pitch, value, width, height, stream)
                    }
                }
            }
        }
        Action::Copy { word, width, height, to_pitch, from_pitch } => {
            let (to, from) = (frame.word(word), frame.word(word + 1));
            if width == 0 || height == 0 {
                return 0;
            }
            let rows = CopyRows {
                from: Rows::device(from, from_pitch),
                to: Rows::device(to, to_pitch),
                width,
                height,
            };
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: as above; the struct has the layout of cuda.h.
            unsafe {
                if height == 1 {
                    (driver.copy)(to, from, width, stream)
                } else {
                    (driver.copy_rows)(&raw const rows, stream)
                }
            }
        }
        Action::Upload { word, at, bytes } => {
            let Some(source) = frame.bytes.get(at..at + bytes) else { return 0 };
            if source.is_empty() {
                return 0;
            }
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: the source is as long as said, and lives as long as the program, which outlives
            // what it queues.
            unsafe {
                (driver.upload)(frame.word(word), source.as_ptr().cast(), bytes, stream)
            }
        }
        Action::Launch { .. }
        | Action::Gemm { .. }
        | Action::Gemv { .. }
        | Action::Matmul { .. }
        | Action::Convolution { .. }
        | Action::Nothing => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_exchanged_around_their_call_only() {
        let exchanged = Exchanged { call: 1, at: 64, own: vec![1], other: vec![2] };
        let all: Vec<Step<'_>> = steps(3, Some(&exchanged)).collect();
        let writes = [Step::Write(64, &[1]), Step::Write(64, &[2])];
        let [own, other] = writes;
        assert_eq!(all, [Step::Call(0), own, Step::Call(1), other, Step::Call(2)]);
        let plain: Vec<Step<'_>> = steps(2, None).collect();
        assert_eq!(plain, [Step::Call(0), Step::Call(1)]);
        assert_eq!(steps(0, None).count(), 0);
        let first = Exchanged { call: 0, ..exchanged };
        let empty: Vec<Step<'_>> = steps(0, Some(&first)).collect();
        assert_eq!(empty, [Step::Write(64, &[1]), Step::Write(64, &[2])]);
    }
}
