//! A traced and planned reference, from which all versions of its kernels are written.

use warpwright_agent::judge::DeviceFacts;
use warpwright_record::verdict::Profile;

use crate::algebra;
use crate::ir::Graph;
use crate::lower::{self, Unsupported};
use crate::plan::{self, Fusion, Plan, Products, Target};
use crate::program::{self, Files};
use crate::trace::{self, Trace};
use crate::tune::Knobs;

/// A draft; see the module.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) trace: Trace,
    target: Target,
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

    /// Lowers and plans a trace.
    pub(crate) fn new(trace: Trace, target: Target) -> Result<Self, NoDraft> {
        let graph = lower::lower(&trace, target.split()).map_err(NoDraft::Unsupported)?;
        let form = |graph| Form::new(graph, Fusion::Full).map_err(NoDraft::Unplanned);
        let split = (target.products == Products::Split)
            .then(|| algebra::split_products(&graph, target.processors))
            .flatten();
        let likely = split.as_ref().is_some_and(|apart| apart.likely);
        let split = split.map(|apart| form(apart.graph)).transpose()?;
        Ok(Self { whole: form(graph)?, split, likely, trace, target })
    }

    /// The device.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether a form with split products exists, and if so, whether it should be clearly faster.
    pub(crate) fn splits(&self) -> Option<bool> {
        self.split.as_ref().map(|_| self.likely)
    }

    fn form(&self, knobs: &Knobs) -> &Form {
        self.split.as_ref().filter(|_| knobs.split && !knobs.safe).unwrap_or(&self.whole)
    }

    /// The kernels of a version.
    pub(crate) fn plan(&self, knobs: &Knobs) -> &Plan {
        &self.form(knobs).plan
    }

    /// The files of a version.
    pub(crate) fn files(&self, knobs: &Knobs) -> Result<Files, String> {
        let form = self.form(knobs);
        program::write(&self.trace, &form.graph, &form.plan, &self.target, knobs)
    }

    /// The files of a version with one kernel per operator.
    pub(crate) fn unfused(&self, knobs: &Knobs) -> Result<Files, String> {
        let form = Form::new(self.whole.graph.clone(), Fusion::None)?;
        program::write(&self.trace, &form.graph, &form.plan, &self.target, knobs)
    }
}
