//! Records candidates for a GPU that the machine need not have, to learn which of them have launch plans.

use std::time::Duration;

use warpwright_build::{Outcome, Request, Target};
use warpwright_plan::{Code, Op};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Failure, FailureClass};
use warpwright_task::Task;

use super::{NoPlan, OPERATOR, Subject};
use crate::error::JudgeError;
use crate::judge::machine::allowed_by;
use crate::judge::{self, LocalJudge};
use crate::process::described::Described;
use crate::process::host::{Host, PlanTools};
use crate::process::oracle::{INIT, OTHER, candidate_mode, profile_name};
use crate::process::replayer::PlanOf;
use crate::process::{embedded, recorder_library};
use crate::session::libraries::Libraries;

/// Architecture that candidates are built for.
const ARCH: &str = "sm_90a";
/// What an H200 answers to a recorder's questions: the attributes that a driver reported.
const ANSWERS: &str = include_str!("../../../tests/fixtures/h200.json");
/// Operators that the host tier allows in `forward`: those of `rules.py`, and those that torch composes of them.
const MOVEMENT: &[&str] = &[
    "_to_copy",
    "clone",
    "constant_pad_nd",
    "copy",
    "copy_",
    "fill_",
    "full",
    "full_like",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "repeat",
    "resize_",
    "scalar_tensor",
    "zero_",
    "zeros",
    "zeros_like",
];
/// Longest that one recording may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// What came of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordingTrial {
    /// It has a launch plan.
    Recorded {
        /// Launches of kernels in one call.
        launches: usize,
        /// Other operations in one call: fills, copies, library calls.
        others: usize,
    },
    /// It does not build.
    NotBuilt(Box<Failure>),
    /// Its host code failed while it was recorded.
    Failed(Box<Failure>),
    /// It cannot be recorded.
    Refused {
        /// Why.
        reason: String,
        /// Whether it computes with torch in `forward`, which the host tier refuses as well.
        forbidden: bool,
    },
}

/// Builds and records candidates without a GPU, as for an H200.
///
/// It measures recordability only: nothing is launched, compared or timed, and the reference is never called.
pub struct RecordingTrials<'j> {
    judge: &'j LocalJudge,
    host: Host,
}

impl LocalJudge {
    /// Opens trials of recording, with this judge's compilers and jail.
    ///
    /// # Errors
    /// [`JudgeError::Setup`] if there is no compiler for CUDA.
    pub fn recording_trials(&self) -> Result<RecordingTrials<'_>, JudgeError> {
        let ours = &self.processes.host;
        let cache = &self.machine.config.cache;
        let failed = |error| JudgeError::infrastructure("write the recorder's sources", error);
        let embedded = embedded::write(cache).map_err(failed)?;
        let recorder = recorder_library::library(&ours.jail, self.toolchain(), &embedded, cache)?;
        let answers = serde_json::from_str(ANSWERS)
            .map_err(|error| JudgeError::infrastructure("read a GPU's attributes", error))?;
        let host = ours.with_plans(PlanTools {
            code: Code::Gpu,
            recorder,
            replayer: "none".into(),
            cublas: None,
            cudnn: None,
            answers,
        });
        Ok(RecordingTrials { judge: self, host })
    }
}

impl RecordingTrials<'_> {
    /// Builds a candidate of a task and records it with two sets of weights, as the judge does.
    ///
    /// # Errors
    /// An infrastructure error, or one of the reference.
    pub fn record(&self, task: &Task, candidate: &Candidate) -> Result<RecordingTrial, JudgeError> {
        let target = Target::Cuda { arch: ARCH.to_owned() };
        let libraries = self.judge.machine.config.libraries.and(allowed_by(task));
        let tools = self.judge.processes.builder.toolchain();
        judge::need_libraries(tools, &task.name, libraries)?;
        let reference = Some(task.source.clone());
        let request = Request { reference, libraries, ..Request::default() };
        let builder = &self.judge.processes.builder;
        let built = builder.build_with(candidate, &target, &request);
        let artifact =
            match built.map_err(|e| JudgeError::infrastructure("build a candidate", e))? {
                Outcome::Built(artifact) => artifact,
                Outcome::Failed(failed) => {
                    return Ok(RecordingTrial::NotBuilt(Box::new(Failure {
                        diagnostics: failed.diagnostics,
                        output_tail: failed.raw_tail,
                        ..crate::process::failure::failure(failed.class, failed.message)
                    })));
                }
            };
        let libraries = match Libraries::of(&artifact, Code::Gpu) {
            Ok(libraries) => libraries,
            Err(why) => return Ok(refused(why)),
        };
        let source = candidate.files().get("model_new.py");
        let source = String::from_utf8_lossy(source.map_or(&[][..], Vec::as_slice)).into_owned();
        let mut first: Option<PlanOf> = None;
        // One after the other: the weights of large tasks are copied several times.
        for weights in [INIT, OTHER] {
            let plan = match self.recorded(task, weights, (&source, &artifact.dir, &libraries))? {
                Ok(plan) => plan,
                Err(why) => return Ok(unplanned(why)),
            };
            match &first {
                Some(first) if !plan.plan.same_but_constants(&first.plan) => {
                    let why = "it launches other work with other weights";
                    return Ok(refused(why));
                }
                _ => first = Some(plan),
            }
        }
        let nodes = first.map(|plan| plan.plan.forward).unwrap_or_default();
        let launches = nodes.iter().filter(|node| matches!(node.op, Op::Launch(_))).count();
        Ok(RecordingTrial::Recorded { launches, others: nodes.len() - launches })
    }

    fn recorded(
        &self,
        task: &Task,
        weights: &str,
        (source, artifact, libraries): (&str, &std::path::Path, &Libraries),
    ) -> Result<Result<PlanOf, NoPlan>, JudgeError> {
        let machine = &self.judge.machine;
        // The oracle is that of the cpu device.
        let oracles = &self.judge.processes.host;
        let settings = machine.settings();
        let described = Described::of(oracles, task, settings, weights, &machine.arbiter)?;
        let tools = self.host.plans.as_ref();
        let subject = Subject {
            source,
            artifact,
            settings: (profile_name(machine.config.profile), candidate_mode(task)),
            weights: &described.weights,
            inputs: &described.inputs,
            libraries,
            tools: tools.map_err(|why| JudgeError::infrastructure("record", why.clone()))?,
            compiler: "nvcc",
            patience: PATIENCE,
            seed: 1,
        };
        let done = subject.record(&self.host, &machine.arbiter)?;
        Ok(done.map(|(plan, _)| plan))
    }
}

fn unplanned(why: NoPlan) -> RecordingTrial {
    match why.failure {
        Some(failure) if failure.class != FailureClass::NotRecordable => {
            RecordingTrial::Failed(failure)
        }
        _ => refused(why.reason),
    }
}

fn refused(reason: impl Into<String>) -> RecordingTrial {
    let reason = reason.into();
    let operator = reason.strip_prefix(OPERATOR).and_then(|rest| rest.split(' ').next());
    let forbidden = operator.is_some_and(|name| !MOVEMENT.contains(&name));
    RecordingTrial::Refused { reason, forbidden }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::shared_judge;

    /// Its `forward` raises: trials never call it.
    const REFERENCE: &str = "
import torch

class Model(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(rows))

    def forward(self, x):
        raise RuntimeError('it is not called')

def get_init_inputs():
    return [8]

def get_inputs():
    return [torch.randn(4, 8)]
";
    const MODEL: &str = "
import torch
import cuda_extension

class ModelNew(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(rows))

    def forward(self, x):
        y = torch.empty_like(x)
        cuda_extension.add(x, self.w, y)
        return y
";
    const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void rows(const float* x, const float* w, float* y) {
  int i = threadIdx.x;
  y[i] = x[i] + w[i % 8];
}
extern "C" void add(const float* x, const float* w, float* y, cudaStream_t s) {
  rows<<<1, 32, 0, s>>>(x, w, y);
}
"#;

    #[test]
    fn trials_never_call_the_reference() {
        let trials = shared_judge().recording_trials().unwrap();
        let task = Task::from_source("t", REFERENCE);
        let trial = |model: &str, kernel: &str| {
            let files = [("model_new.py", model), ("kernels/k.cu", kernel)];
            let files: BTreeMap<_, _> =
                files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
            trials.record(&task, &Candidate::from_files(files)).unwrap()
        };
        let recorded = RecordingTrial::Recorded { launches: 1, others: 0 };
        assert_eq!(trial(MODEL, KERNEL), recorded);
        let torch = trial(&MODEL.replace("return y", "return torch.relu(y)"), KERNEL);
        let RecordingTrial::Refused { reason, forbidden: true } = torch else {
            panic!("it is recorded")
        };
        assert_eq!(reason, "torch operator relu");
        let broken = trial(MODEL, &KERNEL.replace("float* y", "flot* y"));
        assert!(matches!(broken, RecordingTrial::NotBuilt(_)));
        let raises = trial(&MODEL.replace("return y", "raise ValueError('no')"), KERNEL);
        assert!(matches!(raises, RecordingTrial::Failed(_)));
    }
}
