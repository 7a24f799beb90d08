//! Answers requests of a judge on the cpu device.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value as Json;
use warpwright_plan::image::Image;
use warpwright_plan::{LaunchPlan, Node, Op};

use super::executor::Executor;
use super::library::{Library, Loaded, Prepared};
use super::report::Report;
use super::team::Team;
use crate::artifact;
use crate::cores;
use crate::failure::{Failure, printable};
use crate::memory::Room;
use crate::outline::{Launches, Outline};
use crate::placement::{Calls, Placement};
use crate::staged::Program;
use crate::wire::{Done, KernelFacts, Load, Loaded as Answer, Ran, Request, Settle, Stage};

const PAGE: u64 = 4096;

/// The supervisor: what is loaded, and the executor that is ready.
pub(crate) struct HostSession {
    // First, so that it ends first.
    executor: Option<Executor>,
    arena: OwnedFd,
    bytes: u64,
    /// Where executors map the arena: reserved here, so that it is known.
    base: u64,
    team: Team,
    report: Report,
    current: Option<Current>,
}

/// A plan that is loaded.
struct Current {
    plan: LaunchPlan,
    libraries: Vec<Library>,
    placement: Option<Placement>,
    /// Once `prepare` ran with these blocks.
    prepared: Option<Prepared>,
    operations: u64,
}

fn json(answer: &impl Serialize) -> Result<Json, Failure> {
    serde_json::to_value(answer)
        .map_err(|error| Failure::System(format!("failed to write an answer: {error}")))
}

fn request<T>(found: Option<T>, missing: &str) -> Result<T, Failure> {
    found.ok_or_else(|| Failure::Request(missing.to_owned()))
}

impl HostSession {
    /// One with nothing loaded. `bytes` is the length of the arena.
    pub(crate) fn open(arena: OwnedFd, bytes: u64) -> Result<Self, Failure> {
        let base = reserve(bytes)?;
        let (team, report) = (Team::load()?, Report::create()?);
        Ok(Self { executor: None, arena, bytes, base, team, report, current: None })
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, asked: Request) -> Result<Json, Failure> {
        match asked {
            Request::Go(go) if go.graph => {
                Err(Failure::Request("the cpu device has no graphs".to_owned()))
            }
            Request::Go(_) => self.go(),
            Request::Turn | Request::Ping => json(&Done {}),
            Request::Load(load) => self.load(*load),
            Request::Settle(settle) => self.settle(&settle),
            Request::Prepare => self.prepare(),
            Request::Stage(stage) => self.stage(&stage),
            Request::Unload => {
                (self.executor, self.current) = (None, None);
                json(&Done {})
            }
            Request::Pin(pin) => cores::pin(&pin.cores).and_then(|()| json(&Done {})),
            Request::Inputs(_) | Request::Exchange(_) | Request::Facts | Request::Occupancy(_) => {
                Err(Failure::Request("only a GPU answers this".to_owned()))
            }
        }
    }

    fn load(&mut self, load: Load) -> Result<Json, Failure> {
        if self.current.is_some() {
            return Err(Failure::Request("a plan is loaded already".to_owned()));
        }
        let begun = Instant::now();
        let libraries = read(&load.plan, &load.artifact)?;
        let seconds = BTreeMap::from([("read".to_owned(), begun.elapsed().as_secs_f64())]);
        let fact = |name: &String| KernelFacts {
            name: name.clone(),
            registers: 0,
            static_shared: 0,
            local: 0,
        };
        let kernels = load.plan.kernels.iter().map(|kernel| fact(&kernel.name)).collect();
        self.current = Some(Current {
            plan: load.plan,
            libraries,
            placement: None,
            prepared: None,
            operations: 0,
        });
        json(&Answer { kernels, needs: Vec::new(), seconds })
    }

    fn settle(&mut self, settle: &Settle) -> Result<Json, Failure> {
        self.executor = None;
        let room = self.room();
        let current = request(self.current.as_mut(), "no plan is loaded")?;
        current.prepared = None;
        current.placement = Some(Placement::settle(&current.plan.blocks, &settle.at, room)?);
        json(&Done {})
    }

    fn prepare(&mut self) -> Result<Json, Failure> {
        self.executor = None;
        let current = request(self.current.as_mut(), "no plan is loaded")?;
        current.prepared = None;
        if current.plan.prepare.is_empty() {
            return json(&Ran { launches: 0 });
        }
        let prepared = Prepared::reserve(&current.libraries)?;
        let current = request(self.current.as_ref(), "no plan is loaded")?;
        let (nodes, calls) = (&current.plan.prepare, Calls::lasting_only());
        let executor = self.executor(current, nodes, &calls, |loaded| {
            prepared.note_before(loaded);
            Ok(Some(&prepared))
        })?;
        executor.run(&self.report)?;
        drop(executor);
        let operations = nodes.len() as u64;
        let current = request(self.current.as_mut(), "no plan is loaded")?;
        current.prepared = Some(prepared);
        json(&Ran { launches: operations })
    }

    fn stage(&mut self, stage: &Stage) -> Result<Json, Failure> {
        self.executor = None;
        if stage.graph {
            return Err(Failure::Request("the cpu device has no graphs".to_owned()));
        }
        let room = self.room();
        let current = request(self.current.as_ref(), "no plan is loaded")?;
        let placement = request(current.placement.as_ref(), "the blocks have no places yet")?;
        let calls = placement.calls(&current.plan.blocks, stage.calls, &stage.at, room)?;
        if current.prepared.is_none() && !current.plan.prepare.is_empty() {
            return Err(Failure::Request("the plan has not been prepared".to_owned()));
        }
        let nodes = &current.plan.forward;
        let operations = (nodes.len() as u64).saturating_mul(u64::from(stage.calls));
        let executor = self.executor(current, nodes, &calls, |loaded| {
            if let Some(prepared) = &current.prepared {
                prepared.write(loaded)?;
            }
            Ok(None)
        })?;
        self.executor = Some(executor);
        let current = request(self.current.as_mut(), "no plan is loaded")?;
        current.operations = operations;
        json(&Done {})
    }

    fn go(&mut self) -> Result<Json, Failure> {
        let executor = request(self.executor.as_ref(), "no calls are staged")?;
        let went = executor.run(&self.report);
        if went.is_err() {
            self.executor = None;
        }
        went?;
        let current = request(self.current.as_ref(), "no plan is loaded")?;
        json(&Ran { launches: current.operations })
    }

    /// Makes an executor that is ready to run these nodes. `begin` runs in it once its libraries are loaded. If it
    /// returns a `Prepared`, that notes the variables when all nodes have run.
    fn executor<'p>(
        &self,
        current: &Current,
        nodes: &[Node],
        calls: &Calls,
        begin: impl FnOnce(&Loaded) -> Result<Option<&'p Prepared>, Failure>,
    ) -> Result<Executor, Failure> {
        let placement = request(current.placement.as_ref(), "the blocks have no places yet")?;
        let plan = &current.plan;
        Executor::fork(labels(plan, nodes), &self.report, || {
            map(&self.arena, self.base, self.bytes)?;
            self.team.start();
            let loaded = Loaded::load(plan, &current.libraries)?;
            let told = begin(&loaded)?;
            let outline = Outline::of(plan, (nodes, Launches::Run), &loaded)?;
            let maps = &plan.tensor_maps;
            let program = Program::fill(outline, maps, placement, calls, self.base, &loaded)?;
            self.touch(plan, placement, calls);
            let after = move || {
                if let Some(prepared) = told {
                    prepared.note_after(&loaded);
                }
            };
            Ok((program, after))
        })
    }

    /// Touches every page that the calls use: a page fault would be timed.
    fn touch(&self, plan: &LaunchPlan, placement: &Placement, calls: &Calls) {
        let lasting = placement.offsets().iter().enumerate();
        let lasting = lasting.filter_map(|(index, offset)| Some((index, (*offset)?)));
        let own = (0..calls.count()).flat_map(|call| calls.of(call));
        for (index, offset) in lasting.chain(own) {
            let bytes = plan.blocks.get(index).map_or(0, |block| block.bytes);
            let end = (offset + bytes).min(self.bytes);
            for page in (offset / PAGE * PAGE..end).step_by(PAGE as usize) {
                let at = std::ptr::with_exposed_provenance_mut::<u8>((self.base + page) as usize);
                #[expect(unsafe_code, reason = "memory of the device")]
                // SAFETY: the placement has checked that the block lies in the arena, which is mapped; the judge
                // writes nothing meanwhile.
                unsafe {
                    at.write_volatile(at.read_volatile());
                }
            }
        }
    }

    fn room(&self) -> Room {
        Room { arena: self.bytes, apart_at: 0, apart: 0 }
    }
}

/// Names of operations, for errors.
fn labels(plan: &LaunchPlan, nodes: &[Node]) -> Vec<String> {
    let label = |node: &Node| match &node.op {
        Op::Launch(launch) => {
            let kernel = plan.kernels.get(launch.kernel as usize);
            let name = kernel.map_or("", |kernel| kernel.name.as_str());
            let name = name.rsplit_once('@').map_or(name, |(name, _)| name);
            format!("launch {}", printable(name))
        }
        Op::Fill(_) => "fill memory".to_owned(),
        Op::Copy(_) => "copy memory".to_owned(),
        Op::Upload(_) => "upload bytes".to_owned(),
        Op::Gemm(_) | Op::Gemv(_) | Op::Matmul(_) | Op::Convolution(_) => {
            "call a library".to_owned()
        }
    };
    nodes.iter().map(label).collect()
}

/// Reads the libraries of a plan, and checks the plan against them.
fn read(plan: &LaunchPlan, folder: &Path) -> Result<Vec<Library>, Failure> {
    let files = artifact::images(folder, &plan.modules)?;
    let images: Result<Vec<Image>, _> = files.iter().map(|file| Image::read_host(file)).collect();
    let images = images.map_err(|error| Failure::Plan(error.to_string()))?;
    plan.check(&images).map_err(|error| Failure::Plan(error.to_string()))?;
    let is_own = |op: &Op| matches!(op, Op::Launch(_) | Op::Fill(_) | Op::Copy(_) | Op::Upload(_));
    if !plan.prepare.iter().chain(&plan.forward).all(|node| is_own(&node.op)) {
        let why = "the cpu device replays no calls of NVIDIA's libraries";
        return Err(Failure::Plan(why.to_owned()));
    }
    let library = |(module, file): (&warpwright_plan::Module, &Vec<u8>)| {
        let whole = module.offset == 0;
        let library = Library::of(folder.join(&module.file), file).filter(|_| whole);
        library.ok_or_else(|| Failure::Plan("a module is no whole library".to_owned()))
    };
    plan.modules.iter().zip(&files).map(library).collect()
}

/// Reserves addresses for the arena; where.
fn reserve(bytes: u64) -> Result<u64, Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::System(format!("failed to reserve addresses for the arena: {why}"))
    };
    let length = usize::try_from(bytes).map_err(|error| fail(&error))?;
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: new pages where nothing is, which nobody can reach.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(fail(&std::io::Error::last_os_error()));
    }
    Ok(at.expose_provenance() as u64)
}

/// Maps the arena, in an executor.
fn map(arena: &OwnedFd, base: u64, bytes: u64) -> Result<(), Failure> {
    let at = std::ptr::with_exposed_provenance_mut(base as usize);
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: these addresses were reserved for it, and nothing is there.
    let mapped = unsafe {
        libc::mmap(
            at,
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            arena.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        let why = std::io::Error::last_os_error();
        return Err(Failure::System(format!("failed to map the arena: {why}")));
    }
    Ok(())
}
