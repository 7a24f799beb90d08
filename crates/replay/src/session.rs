//! Answers requests: from a plan that is loaded to a window that is run.
//!
//! ```text
//! load ─► settle ─► prepare ─► (inputs ─► stage ─► exchange ─► turn ─► go)* ─► unload
//! ```
//!
//! `prepare` is left out where the plan has no nodes for it; `exchange` may be.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value as Json;
use warpwright_plan::{LaunchPlan, Node};

use crate::blas::{self, Blas};
use crate::context::{Context, SCRATCH_BYTES};
use crate::cores;
use crate::dnn::{self, Dnn};
use crate::failure::Failure;
use crate::graph::Graph;
use crate::launch::{Launcher, Libraries};
use crate::loaded::{Checked, Modules};
use crate::memory::Memory;
use crate::outline::{Launches, MAX_STREAMS, Outline};
use crate::placement::{Calls, Placement};
use crate::staged::{Exchanged, Program};
use crate::variables::{Before, Changed};
use crate::wire::{
    Done, Exchange, Go, Inputs, Load, Loaded, MAX_EXCHANGE_BYTES, Occupancy, Ran, Request, Settle,
    Stage,
};

/// The GPU, and the plan that is loaded, if any.
pub(crate) struct Session {
    context: Context,
    memory: Memory,
    paths: Paths,
    blas: Option<Blas>,
    dnn: Option<Dnn>,
    current: Option<Current>,
    /// The error after which the context answers nothing else.
    lost: Option<Failure>,
}

/// Where libraries lie, if they are there.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) cublas: Option<PathBuf>,
    pub(crate) cudnn: Option<PathBuf>,
}

/// A plan that is loaded.
struct Current {
    // First, so that it is dropped first.
    window: Option<Window>,
    modules: Modules,
    checked: Checked,
    placement: Option<Placement>,
    launches: Launches,
    /// Whether no kernel has run since the modules were loaded, so that their variables have their first values.
    fresh: bool,
    /// Once `prepare` ran with these blocks: the variables that it changed.
    prepared: Option<Changed>,
}

/// Calls that are staged.
struct Window {
    graph: Option<Graph>,
    program: Program,
    exchanged: Option<Exchanged>,
    /// Where in the memory of inputs its blocks end, from the arena's start.
    inputs_end: Option<u64>,
}

fn json(answer: &impl Serialize) -> Result<Json, Failure> {
    serde_json::to_value(answer)
        .map_err(|error| Failure::System(format!("failed to write an answer: {error}")))
}

fn request<T>(found: Option<T>, missing: &str) -> Result<T, Failure> {
    found.ok_or_else(|| Failure::Request(missing.to_owned()))
}

impl Session {
    pub(crate) fn new(context: Context, memory: Memory, paths: Paths) -> Self {
        Self { context, memory, paths, blas: None, dnn: None, current: None, lost: None }
    }

    /// Answers a request. Once the context is lost, every answer is why.
    pub(crate) fn answer(
        &mut self,
        request: Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<Json, Failure> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        self.dispatch(request, descriptor).map_err(|failure| {
            let cuda = matches!(failure, Failure::Cuda { .. });
            if !cuda && !matches!(failure, Failure::Cublas { .. } | Failure::Cudnn { .. }) {
                return failure;
            }
            // After an error of a kernel, every call of the driver returns it again.
            let Err(again) = self.context.synchronise("wait for the GPU") else { return failure };
            let first = if cuda { failure } else { again };
            self.lost.insert(first).clone()
        })
    }

    fn dispatch(&mut self, request: Request, descriptor: Option<OwnedFd>) -> Result<Json, Failure> {
        match request {
            Request::Go(go) => self.go(go),
            Request::Turn => self.context.wake().and_then(|()| json(&Done {})),
            Request::Ping => {
                self.context.synchronise("wait for the GPU")?;
                json(&Done {})
            }
            Request::Inputs(inputs) => self.inputs(inputs, descriptor),
            Request::Load(load) => self.load(*load),
            Request::Settle(settle) => self.settle(&settle),
            Request::Prepare => self.prepare(),
            Request::Stage(stage) => self.stage(&stage),
            Request::Exchange(exchange) => self.exchange(exchange),
            Request::Unload => self.unload(),
            Request::Pin(pin) => cores::pin(&pin.cores).and_then(|()| json(&Done {})),
            Request::Facts => json(&self.context.facts()?),
            Request::Occupancy(of) => {
                let current = request_current(&mut self.current)?;
                let blocks = current.modules.occupancy(of.kernel, of.threads, of.shared)?;
                json(&Occupancy { blocks })
            }
        }
    }

    fn inputs(&mut self, inputs: Inputs, descriptor: Option<OwnedFd>) -> Result<Json, Failure> {
        let descriptor = request(descriptor, "no descriptor came with the inputs")?;
        self.memory.replace_inputs(&self.context, &descriptor, inputs.bytes)?;
        let room = self.memory.room();
        if let Some(current) = &mut self.current {
            let reach = room.apart_at.saturating_add(room.apart);
            // What was to be exchanged belongs to the memory that is gone.
            current.window.iter_mut().for_each(|window| window.exchanged = None);
            current.window.take_if(|window| window.inputs_end.is_some_and(|end| end > reach));
        }
        json(&Done {})
    }

    fn load(&mut self, load: Load) -> Result<Json, Failure> {
        if self.current.is_some() {
            return Err(Failure::Request("a plan is loaded already".to_owned()));
        }
        let mut checked = Checked::read(load.plan, &load.artifact)?;
        let begun = Instant::now();
        self.provide_blas(&checked.plan)?;
        checked.seconds.insert("blas".to_owned(), begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        self.provide_dnn(&checked.plan)?;
        checked.seconds.insert("dnn".to_owned(), begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let modules = Modules::load(self.context.driver, &checked)?;
        checked.seconds.insert("modules".to_owned(), begun.elapsed().as_secs_f64());
        let answer = Loaded {
            kernels: modules.facts(&checked.plan)?,
            needs: checked.needs.clone(),
            seconds: checked.seconds.clone(),
        };
        self.current = Some(Current {
            window: None,
            modules,
            checked,
            placement: None,
            launches: Launches::Run,
            fresh: true,
            prepared: None,
        });
        json(&answer)
    }

    /// Makes the handles of cuBLAS that a plan needs.
    fn provide_blas(&mut self, plan: &LaunchPlan) -> Result<(), Failure> {
        let streams = blas::streams(plan);
        let Some(last) = streams.last().copied() else { return Ok(()) };
        if last >= MAX_STREAMS {
            return Err(Failure::Plan(format!("a node is in stream {last} of {MAX_STREAMS}")));
        }
        self.context.provide(last + 1, 0)?;
        let blas = if let Some(blas) = &mut self.blas {
            blas
        } else {
            let path = self.paths.cublas.as_deref();
            let path = request(path, "the plan needs cuBLAS, and the replayer has none")?;
            self.blas.insert(Blas::load(path)?)
        };
        blas.provide(&self.context, &streams, &blas::lt::shapes(plan))
    }

    /// Makes the convolutions of a plan ready.
    fn provide_dnn(&mut self, plan: &LaunchPlan) -> Result<(), Failure> {
        let streams = dnn::streams(plan);
        let Some(last) = streams.last().copied() else { return Ok(()) };
        if last >= MAX_STREAMS {
            return Err(Failure::Plan(format!("a node is in stream {last} of {MAX_STREAMS}")));
        }
        self.context.provide(last + 1, 0)?;
        let dnn = if let Some(dnn) = &mut self.dnn {
            dnn
        } else {
            let path = self.paths.cudnn.as_deref();
            let missing = || Failure::NoCudnn("the replayer has none".to_owned());
            self.dnn.insert(Dnn::load(path.ok_or_else(missing)?)?)
        };
        dnn.provide(&self.context, &streams, &dnn::shapes(plan))
    }

    fn settle(&mut self, settle: &Settle) -> Result<Json, Failure> {
        let current = request_current(&mut self.current)?;
        current.window = None;
        current.prepared = None;
        let blocks = &current.checked.plan.blocks;
        current.placement = Some(Placement::settle(blocks, &settle.at, self.memory.room())?);
        current.launches = if settle.without_launches { Launches::LeftOut } else { Launches::Run };
        json(&Done {})
    }

    fn prepare(&mut self) -> Result<Json, Failure> {
        let current = request_current(&mut self.current)?;
        current.window = None;
        current.prepared = None;
        let nodes = &current.checked.plan.prepare;
        // What it finds in variables must not depend on what ran before, e.g. for other weights.
        if !current.fresh && !nodes.is_empty() {
            current.modules.reload(&current.checked)?;
        }
        let program = current.program(nodes, &Calls::lasting_only(), self.memory.base)?;
        let variables = &current.checked.variables;
        let before = Before::look(&self.context, &current.modules, variables)?;
        current.fresh = false;
        let libraries = Libraries { blas: self.blas.as_ref(), dnn: self.dnn.as_ref() };
        run(&mut self.context, libraries, &program)?;
        current.prepared = Some(before.changed(&self.context, &current.modules, variables)?);
        json(&Ran { launches: program.operations() as u64 })
    }

    fn stage(&mut self, stage: &Stage) -> Result<Json, Failure> {
        let (room, base) = (self.memory.room(), self.memory.base);
        let current = request_current(&mut self.current)?;
        current.window = None;
        let placement = request(current.placement.as_ref(), "the blocks have no places yet")?;
        let blocks = &current.checked.plan.blocks;
        let calls = placement.calls(blocks, stage.calls, &stage.at, room)?;
        let inputs_end = calls.end_behind(blocks, room.apart_at);
        if current.prepared.is_none() && !current.checked.plan.prepare.is_empty() {
            return Err(Failure::Request("the plan has not been prepared".to_owned()));
        }
        current.fresh = false;
        current.modules.reload(&current.checked)?;
        if let Some(prepared) = &current.prepared {
            prepared.write(&self.context, &current.modules, &current.checked.variables)?;
        }
        let program = current.program(&current.checked.plan.forward, &calls, base)?;
        Launcher::provide(&mut self.context, &program)?;
        let libraries = Libraries { blas: self.blas.as_ref(), dnn: self.dnn.as_ref() };
        let graph =
            stage.graph.then(|| Graph::capture(&self.context, libraries, &program)).transpose()?;
        self.context.synchronise("wait for the GPU")?;
        current.window = Some(Window { graph, program, exchanged: None, inputs_end });
        json(&Done {})
    }

    fn exchange(&mut self, exchange: Exchange) -> Result<Json, Failure> {
        let (room, base) = (self.memory.room(), self.memory.base);
        let Exchange { call, at, own, other } = exchange;
        let current = request_current(&mut self.current)?;
        let window = request(current.window.as_mut(), "no calls are staged")?;
        let call = call as usize;
        let fits = own.len() == other.len()
            && own.len() <= MAX_EXCHANGE_BYTES
            && room.in_apart(at, own.len() as u64)
            && call < window.program.calls().max(1)
            && window.graph.is_none();
        if !fits {
            let bytes = own.len();
            return Err(Failure::Request(format!(
                "{bytes} bytes at {at} cannot be exchanged around call {call} of this window"
            )));
        }
        window.exchanged = Some(Exchanged { call, at: base.wrapping_add(at), own, other });
        json(&Done {})
    }

    fn go(&mut self, go: Go) -> Result<Json, Failure> {
        let current = request_current(&mut self.current)?;
        let window = request(current.window.as_ref(), "no calls are staged")?;
        let program = &window.program;
        if go.graph {
            let graph = request(window.graph.as_ref(), "the calls were staged without a graph")?;
            graph.launch(&self.context)?;
        } else {
            let libraries = Libraries { blas: self.blas.as_ref(), dnn: self.dnn.as_ref() };
            let exchanged = window.exchanged.as_ref();
            Launcher { context: &self.context, libraries, capturing: false }
                .queue(program, exchanged)?;
        }
        self.context.synchronise(program.label())?;
        json(&Ran { launches: program.operations() as u64 })
    }

    fn unload(&mut self) -> Result<Json, Failure> {
        self.context.synchronise("wait for the GPU")?;
        if let Some(mut current) = self.current.take() {
            current.window = None;
            current.modules.unload()?;
        }
        if let Some(dnn) = &mut self.dnn {
            dnn.forget();
        }
        self.memory.unmap_inputs(&self.context)?;
        // Kernels of the next plan find nothing there that those of this one left.
        self.context.overwrite(self.context.scratch, SCRATCH_BYTES)?;
        self.blas.iter().try_for_each(|blas| blas.overwrite(&self.context))?;
        self.context.synchronise("wait for the GPU")?;
        json(&Done {})
    }
}

fn request_current(current: &mut Option<Current>) -> Result<&mut Current, Failure> {
    request(current.as_mut(), "no plan is loaded")
}

impl Current {
    fn program(&self, nodes: &[Node], calls: &Calls, base: u64) -> Result<Program, Failure> {
        let placement = request(self.placement.as_ref(), "the blocks have no places yet")?;
        let plan = &self.checked.plan;
        let outline = Outline::of(plan, (nodes, self.launches), &self.modules)?;
        Program::fill(outline, &plan.tensor_maps, placement, calls, base, &self.modules)
    }
}

/// Runs a program at once, and waits for it.
fn run(context: &mut Context, libraries: Libraries<'_>, program: &Program) -> Result<(), Failure> {
    Launcher::provide(context, program)?;
    Launcher { context, libraries, capturing: false }.queue(program, None)?;
    context.synchronise(program.label())
}
