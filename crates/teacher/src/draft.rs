//! A traced and planned reference, from which all versions of its kernels are written.
//!
//! A task with one set of inputs has one graph. Of a task with workloads, each graph is planned by
//! itself, and `several.rs` makes one candidate of all.

use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

use crate::algebra;
use crate::ir::Graph;
use crate::lower::{self, Unsupported};
use crate::plan::{self, Fusion, Plan, Products, Step, Target};
use crate::program::{self, Files, Of};
use crate::several::{self, General};
use crate::trace::{self, Trace, Traced};
use crate::tune::Knobs;

/// A draft; see the module.
#[derive(Debug)]
pub(crate) struct Draft {
    target: Target,
    /// At least one.
    planned: Vec<Workload>,
    /// For sizes that no workload has.
    general: Vec<General>,
    several: bool,
}

/// Workloads whose inputs are alike.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) names: Vec<String>,
    pub(crate) planned: Planned,
}

/// A traced and planned graph.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) trace: Trace,
    whole: Form,
    /// The form with large float32 products split into parts, if that should be faster.
    split: Option<Form>,
    likely: bool,
}

/// A graph and its planned kernels.
#[derive(Debug)]
struct Form {
    graph: Graph,
    plan: Plan,
}

impl Form {
    fn new(graph: Graph, fusion: Fusion) -> Result<Self, String> {
        let plan = plan::plan(&graph, fusion)?;
        Ok(Self { graph, plan })
    }
}

/// Why a task has no draft.
#[derive(Debug)]
pub(crate) enum NoDraft {
    Unsupported(Unsupported),
    Unplanned(String),
}

impl Planned {
    /// Lowers and plans a trace.
    pub(crate) fn new(trace: Trace, target: &Target) -> Result<Self, NoDraft> {
        let graph = lower::lower(&trace, target.split()).map_err(NoDraft::Unsupported)?;
        let form = |graph| Form::new(graph, Fusion::Full).map_err(NoDraft::Unplanned);
        let split = (target.products == Products::Split)
            .then(|| algebra::split_products(&graph, target.processors))
            .flatten();
        let likely = split.as_ref().is_some_and(|apart| apart.likely);
        let split = split.map(|apart| form(apart.graph)).transpose()?;
        Ok(Self { whole: form(graph)?, split, likely, trace })
    }

    fn form(&self, knobs: &Knobs) -> &Form {
        self.split.as_ref().filter(|_| knobs.split && !knobs.safe).unwrap_or(&self.whole)
    }

    /// What a version is written from.
    pub(crate) fn of<'d>(&'d self, target: &'d Target, knobs: &'d Knobs) -> Of<'d> {
        let Form { graph, plan } = self.form(knobs);
        Of { trace: &self.trace, graph, plan, target, knobs, suffix: "" }
    }
}

impl Draft {
    /// The draft of the output of `utils/trace.py`; the error is a sentence that gives the reason.
    pub(crate) fn of(trace: &str, device: &DeviceFacts, profile: Profile) -> Result<Self, String> {
        let target = Target::of(device, profile);
        Self::new(trace::parse(trace)?, target).map_err(|none| match none {
            NoDraft::Unsupported(u) => {
                format!("no rule for these operators: {}", u.operators.join(", "))
            }
            NoDraft::Unplanned(reason) => reason,
        })
    }

    /// Lowers and plans what was traced.
    pub(crate) fn new(traced: Traced, target: Target) -> Result<Self, NoDraft> {
        match traced {
            Traced::Single(trace) => {
                let planned = Planned::new(*trace, &target)?;
                let planned = vec![Workload { names: vec![], planned }];
                Ok(Self { target, planned, general: vec![], several: false })
            }
            Traced::Several(several) => {
                let mut planned = Vec::new();
                for (names, value) in &several.workloads {
                    let trace = trace::read(value).map_err(NoDraft::Unplanned)?;
                    let planned_one = Planned::new(trace, &target)?;
                    planned.push(Workload { names: names.clone(), planned: planned_one });
                }
                let general = several::generalise(&several, &target);
                Ok(Self { target, planned, general, several: true })
            }
        }
    }

    /// The device.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Number of traced operators of one graph.
    pub(crate) fn operators(&self) -> usize {
        self.planned.first().map_or(0, |workload| workload.planned.trace.nodes.len())
    }

    /// Whether a form with split products exists, and if so, whether it should be clearly faster.
    pub(crate) fn splits(&self) -> Option<bool> {
        let apart = |workload: &&Workload| workload.planned.split.is_some();
        let mut forms = self.planned.iter().filter(apart).peekable();
        forms.peek()?;
        Some(forms.any(|workload| workload.planned.likely))
    }

    /// The kernels of a version, of all workloads.
    pub(crate) fn steps(&self, knobs: &Knobs) -> Vec<&Step> {
        self.planned.iter().flat_map(|workload| &workload.planned.form(knobs).plan.steps).collect()
    }

    /// The files of a version.
    pub(crate) fn files(&self, knobs: &Knobs) -> Result<Files, String> {
        match self.planned.as_slice() {
            [only] if !self.several => program::write(&only.planned.of(&self.target, knobs)),
            workloads => several::write(workloads, &self.general, &self.target, knobs),
        }
    }

    /// The files of a version with one kernel per operator. Those of a task with workloads are
    /// fused.
    pub(crate) fn unfused(&self, knobs: &Knobs) -> Result<Files, String> {
        let [Workload { planned, .. }] = self.planned.as_slice() else { return self.files(knobs) };
        if self.several {
            return self.files(knobs);
        }
        let Form { graph, plan } = &Form::new(planned.whole.graph.clone(), Fusion::None)?;
        let (trace, target) = (&planned.trace, &self.target);
        program::write(&Of { trace, graph, plan, target, knobs, suffix: "" })
    }
}
