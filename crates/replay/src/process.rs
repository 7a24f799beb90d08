//! The process: its arguments, its environment, and the conversation from start to end.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde_json::Value as Json;

use crate::channel::{Channel, Closed};
use crate::context::Context;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::host::HostSession;
use crate::memory::{Extents, Memory};
use crate::session::{Paths, Session};
use crate::wire::{self, Received, Request};

/// Environment of the driver. Two hardware queues, as candidates' processes have: two streams still run in parallel.
/// Kernels are loaded by name (`loaded.rs`), so that no first launch waits: loading whole modules would take cuBLAS
/// three seconds. What a plan runs is machine code: the driver compiles none.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("CUDA_DEVICE_MAX_CONNECTIONS", "2"),
    ("CUDA_MODULE_LOADING", "LAZY"),
    ("CUDA_DISABLE_PTX_JIT", "1"),
];

/// Launches plans of kernels on one GPU, or on the cpu device, as the judge asks. The judge starts it.
#[derive(Debug, Parser)]
#[command(name = "warpwright-replayer")]
struct Arguments {
    /// Descriptor of the socket to the judge.
    #[arg(long)]
    channel: RawFd,
    /// Number of the GPU among those that are visible, or `cpu`.
    #[arg(long)]
    device: Device,
    /// Descriptor of the arena's memory.
    #[arg(long)]
    arena: RawFd,
    /// Bytes of the arena.
    #[arg(long)]
    arena_bytes: u64,
    /// Where inputs lie, in bytes from the arena's start.
    #[arg(long, default_value_t = 0)]
    apart_at: u64,
    /// Most bytes of inputs.
    #[arg(long, default_value_t = 0)]
    apart_bytes: u64,
    /// Library of cuBLAS; without it plans with matrix products are refused.
    #[arg(long)]
    cublas: Option<PathBuf>,
    /// Library of cuDNN; without it plans with convolutions are refused.
    #[arg(long)]
    cudnn: Option<PathBuf>,
}

/// What runs plans.
#[derive(Clone, Copy, Debug)]
enum Device {
    Gpu(u32),
    Cpu,
}

impl std::str::FromStr for Device {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "cpu" { Ok(Self::Cpu) } else { text.parse().map(Self::Gpu) }
    }
}

/// The program: reads its arguments, and answers until the judge closes the socket.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    for (name, value) in ENVIRONMENT {
        #[expect(unsafe_code, reason = "the driver reads its settings from the environment")]
        // SAFETY: this process has one thread until the driver is initialised.
        unsafe {
            std::env::set_var(name, value);
        }
    }
    match (adopt(arguments.channel), adopt(arguments.arena)) {
        (Ok(channel), Ok(arena)) if arguments.channel != arguments.arena => {
            let channel = Channel::new(UnixStream::from(channel));
            match arguments.device {
                Device::Gpu(gpu) => converse(channel, &arena, gpu, arguments),
                Device::Cpu => converse_on_host(channel, arena, arguments.arena_bytes),
            }
        }
        // Nobody to tell.
        _ => ExitCode::from(2),
    }
}

/// Takes over a descriptor that the judge has left open.
fn adopt(number: RawFd) -> Result<OwnedFd, Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::System(format!("failed to use descriptor {number}: {why}"))
    };
    if number <= 2 {
        return Err(fail(&"it is one of the standard streams"));
    }
    #[expect(unsafe_code, reason = "descriptors are inherited by number")]
    // SAFETY: the judge passes each number once, for this process alone; nothing else owns it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC) {
        Ok(()) => Ok(descriptor),
        Err(error) => {
            std::mem::forget(descriptor);
            Err(fail(&error))
        }
    }
}

fn converse(mut channel: Channel, arena: &OwnedFd, gpu: u32, arguments: Arguments) -> ExitCode {
    // What needs no context is done before others have to wait.
    let driver = silence().and_then(|()| Driver::load());
    let started = channel.starting(|| {
        let driver = driver?;
        let context = Context::create(driver, gpu)?;
        let extents = Extents {
            arena: arguments.arena_bytes,
            apart_at: arguments.apart_at,
            apart_bytes: arguments.apart_bytes,
        };
        let memory = Memory::map(&context, arena, extents)?;
        let paths = Paths { cublas: arguments.cublas, cudnn: arguments.cudnn };
        Ok(Session::new(context, memory, paths))
    });
    match started {
        Ok(Ok(mut session)) => {
            let Closed = serve(&mut channel, |asked, with| session.answer(asked, with));
            // To unload modules could wait for a kernel that never ends; all is gone with the process.
            std::mem::forget(session);
            ExitCode::SUCCESS
        }
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(Closed) => ExitCode::SUCCESS,
    }
}

fn converse_on_host(mut channel: Channel, arena: OwnedFd, bytes: u64) -> ExitCode {
    let started = channel.starting(|| {
        silence()?;
        HostSession::open(arena, bytes)
    });
    match started {
        Ok(Ok(mut session)) => {
            let Closed = serve(&mut channel, |asked, _| session.answer(asked));
            ExitCode::SUCCESS
        }
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(Closed) => ExitCode::SUCCESS,
    }
}

/// Sends to nowhere what kernels print: it must not be taken for an answer of ours.
fn silence() -> Result<(), Failure> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::System(format!("failed to discard what kernels print: {error}"))
    };
    let null = fs_err::OpenOptions::new().write(true).open("/dev/null");
    let null = null.map_err(|error| fail(&error))?;
    rustix::stdio::dup2_stdout(null.file()).map_err(|error| fail(&error))
}

/// Answers a request, with the descriptor that came with it.
type Answering<'a> = &'a mut dyn FnMut(Request, Option<OwnedFd>) -> Result<Json, Failure>;

/// Answers requests until the judge closes the conversation.
fn serve(
    channel: &mut Channel,
    mut answer: impl FnMut(Request, Option<OwnedFd>) -> Result<Json, Failure>,
) -> Closed {
    loop {
        if let Err(closed) = exchange(channel, &mut answer) {
            return closed;
        }
    }
}

fn exchange(channel: &mut Channel, answer: Answering<'_>) -> Result<(), Closed> {
    let frame = channel.receive()?;
    let Received { nonce, has_descriptor, request } = Received::read(&frame);
    let descriptor = has_descriptor.then(|| channel.descriptor()).transpose()?;
    let turned = matches!(request, Ok(Request::Turn));
    let reply = request.and_then(|request| answer(request, descriptor));
    // The next request begins a timed window.
    channel.awake = turned && reply.is_ok();
    channel.send(&wire::answer(reply, nonce))
}
