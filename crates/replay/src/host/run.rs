//! Runs a program: launches by the entries of their libraries, everything else by the host. One operation after the
//! other, in the order of the plan, which is one that streams and events allow.

use std::ffi::c_void;

use super::report::Report;
use crate::outline::{Action, Element};
use crate::staged::{Frame, Program};

/// `hostcuda::Geometry`.
#[repr(C)]
struct Geometry {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u64,
}

type Run = unsafe extern "C" fn(*const Geometry, *const *const c_void) -> i32;

/// Runs all calls; the error of a launch that could not be. Allocates nothing.
pub(super) fn run(program: &Program, report: &Report) -> Result<(), i32> {
    for call in 0..program.calls() {
        let frame = program.frame(call);
        for (index, node) in program.nodes().iter().enumerate() {
            report.at(index);
            let code = act(&node.action, frame);
            if code != 0 {
                return Err(code);
            }
        }
    }
    Ok(())
}

/// `cudaErrorInvalidValue`.
const INVALID_VALUE: i32 = 1;

fn act(action: &Action, frame: Frame<'_>) -> i32 {
    match action {
        Action::Launch { function, grid, block, shared, .. } => {
            let geometry = Geometry { grid: *grid, block: *block, shared: u64::from(*shared) };
            let arguments = frame.arguments(action).cast_const().cast::<*const c_void>();
            #[expect(unsafe_code, reason = "a kernel")]
            // SAFETY: none. This is the candidate's code; the process is made to be its own.
            unsafe {
                let run = std::mem::transmute::<*mut c_void, Run>(*function);
                run(&raw const geometry, arguments)
            }
        }
        Action::Fill { word, value, element, width, height, pitch } => {
            let to = pointer(frame.word(*word));
            for row in 0..*height {
                fill(to.wrapping_add(row * pitch), *value, *element, *width);
            }
            0
        }
        Action::Copy { word, width, height, to_pitch, from_pitch } => {
            let (to, from) = (pointer(frame.word(*word)), pointer(frame.word(word + 1)));
            for row in 0..*height {
                let (to, from) =
                    (to.wrapping_add(row * to_pitch), from.wrapping_add(row * from_pitch));
                #[expect(unsafe_code, reason = "memory of the device")]
                // SAFETY: the outline has checked that these bytes lie in a block or in an image, and the
                // placement that blocks lie in the arena. What is written belongs to the candidate.
                unsafe {
                    std::ptr::copy(from, to, *width);
                }
            }
            0
        }
        Action::Upload { word, at, bytes } => {
            let Some(source) = frame.bytes.get(*at..at + bytes) else { return INVALID_VALUE };
            #[expect(unsafe_code, reason = "memory of the device")]
            // SAFETY: as above.
            unsafe {
                std::ptr::copy(source.as_ptr(), pointer(frame.word(*word)), source.len());
            }
            0
        }
        // Refused when the plan is loaded.
        Action::Gemm { .. }
        | Action::Gemv { .. }
        | Action::Matmul { .. }
        | Action::Convolution { .. }
        | Action::Nothing => 801,
    }
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn fill(to: *mut u8, value: u32, element: Element, count: usize) {
    let [a, b, ..] = value.to_le_bytes();
    #[expect(unsafe_code, reason = "memory of the device")]
    // SAFETY: as for copies.
    unsafe {
        match element {
            Element::One => to.write_bytes(a, count),
            Element::Two => {
                for index in 0..count {
                    to.wrapping_add(2 * index).cast::<[u8; 2]>().write_unaligned([a, b]);
                }
            }
            Element::Four => {
                for index in 0..count {
                    to.wrapping_add(4 * index).cast::<u32>().write_unaligned(value);
                }
            }
        }
    }
}
