//! Records candidates: their launches become plans, or the judge learns why they cannot.

pub(crate) mod trial;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use serde_json::{Value as Json, json};
use warpwright_build::Artifact;
use warpwright_plan::{NotRecordable, Sources, merge};
use warpwright_record::candidate::Candidate;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Failure;

use super::TaskSession;
use super::libraries::Libraries;
use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::device::device_arbiter::{DeviceArbiter, Purpose};
use crate::error::JudgeError;
use crate::process::failure::{Trouble, classify};
use crate::process::host::{Host, PlanTools};
use crate::process::oracle::{candidate_mode, profile_name};
use crate::process::recorder::{Given, GivenWeights, Recorded, record};
use crate::process::replayer::PlanOf;
use crate::process::wire::Value;

/// Longest reason for a caveat, in characters.
const MOST_TEXT: usize = 300;

/// How a recorder begins to name a torch operator.
const OPERATOR: &str = "torch operator ";

/// The part of a mode that names tasks with gradients (`steps.py`).
const STEP: &str = "backward";

/// How often two recordings are made again that lie too much alike.
const RETRIES: u32 = 2;

/// A candidate as launch plans.
pub(super) struct Plans {
    /// BLAKE3 of the candidate's files.
    pub(super) candidate: String,
    /// For each set of weights that is judged, by name.
    pub(super) of: Vec<(&'static str, Arc<PlanOf>)>,
    /// Structure of the inputs of both recordings, and the numbers among them.
    pub(super) trees: [Json; 2],
    /// Milliseconds of `prepare()` on the host.
    pub(super) prepare_ms: f64,
}

/// Why a candidate is not judged in the device tier.
#[derive(Debug)]
pub(super) struct NoPlan {
    pub(super) reason: String,
    /// How its host code failed, if it did.
    pub(super) failure: Option<Box<Failure>>,
    /// Whether the machine has no device tier.
    pub(super) of_machine: bool,
    /// Whether no other tier may judge the candidate.
    pub(super) wrong_in_any_tier: bool,
}

impl NoPlan {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), failure: None, of_machine: false, wrong_in_any_tier: false }
    }

    fn not_recordable(why: &NotRecordable) -> Self {
        Self { wrong_in_any_tier: why.is_race(), ..Self::new(why.to_string()) }
    }

    /// No candidate has one here.
    pub(super) fn of_machine(reason: String) -> Self {
        Self { of_machine: true, ..Self::new(reason) }
    }

    fn failed(failure: Failure) -> Self {
        // The rest is the candidate's word.
        let reason = failure.message.lines().next().unwrap_or_default();
        let reason: String = reason.chars().take(MOST_TEXT).collect();
        Self { failure: Some(Box::new(failure)), ..Self::new(reason) }
    }
}

impl Plans {
    /// Why wrong results may be those of the plan alone: a condition on a number among the inputs that both
    /// recordings met on the same side. With two draws this happens with a probability of `p^2 + (1 - p)^2` if `p` of
    /// all draws are on one side, so a candidate is not blamed for it.
    pub(super) fn in_doubt(&self, found: &Findings) -> Option<NoPlan> {
        let [one, other] = &self.trees;
        let wrong = found.failure.is_some() && found.integrity.is_empty();
        let why = "a number among the inputs may decide what it launches";
        (wrong && one != other).then(|| NoPlan::new(why))
    }

    /// Whether no kernel reaches beyond the plans.
    pub(super) fn needs_nothing(&self) -> bool {
        self.of.iter().all(|(_, plan)| plan.needs.is_empty())
    }
}

/// What one of the judge's own steps comes to: a plan's part, or why there is none.
type Planned<T> = Result<Result<T, NoPlan>, JudgeError>;

impl TaskSession<'_> {
    /// Records a candidate with both sets of weights.
    pub(super) fn record(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        tools: &PlanTools,
    ) -> Planned<Plans> {
        let libraries = match Libraries::of(artifact, tools.code) {
            Ok(libraries) => libraries,
            Err(why) => return Ok(Err(NoPlan::new(why))),
        };
        let source = candidate.files().get("model_new.py");
        let source = String::from_utf8_lossy(source.map_or(&[][..], Vec::as_slice)).into_owned();
        let (machine, rest, played) = (self.machine, self.oracle.rest(), self.oracle.played);
        let inputs = self.inputs_to_record()?;
        // A distance between two blocks is the same in two recordings once in 128 times. In four it is so once in two
        // million times: the recordings of the other weights lie elsewhere.
        let seeds: [u32; 2] = self.random.random();
        // With both sets: what the host reads of weights may be anywhere in a plan.
        let weights = [self.weights_to_record(played)?, self.weights_to_record(rest)?];
        let subject = |weights, seed| Subject {
            source: &source,
            artifact: &artifact.dir,
            settings: (profile_name(machine.config.profile), candidate_mode(&self.task)),
            weights,
            inputs: &inputs,
            libraries: &libraries,
            tools,
            compiler: &machine.compiler,
            patience: self.patience(),
            seed,
        };
        let [of_played, of_rest] = &weights;
        let [seed_of_played, seed_of_rest] = seeds;
        let record =
            |weights, seed| subject(weights, seed).record(&self.processes.host, &machine.arbiter);
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| record(of_rest, seed_of_rest));
            (record(of_played, seed_of_played), second.join())
        });
        let died = |_| JudgeError::infrastructure("record a candidate", "a thread of ours died");
        let ((first, prepare_ms), (second, _)) = match (first?, second.map_err(died)??) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        if !second.plan.same_but_constants(&first.plan) {
            return Ok(Err(NoPlan::new("it launches other work with other weights")));
        }
        let of = vec![(played, Arc::new(first)), (rest, Arc::new(second))];
        let trees = inputs.map(|value| value.tree);
        let candidate = candidate.hash().to_owned();
        Ok(Ok(Plans { candidate, of, trees, prepare_ms }))
    }

    /// The weights of a variant, and the arguments of the constructor, on the host.
    pub(super) fn weights_to_record(
        &mut self,
        variant: &'static str,
    ) -> Result<Arc<GivenWeights>, JudgeError> {
        if let Some((_, weights)) = self.recorded_weights.iter().find(|(name, _)| *name == variant)
        {
            return Ok(Arc::clone(weights));
        }
        let shared = self.machine.arbiter.share(Purpose::Reference);
        let weights = Arc::new(GivenWeights::of(&mut self.oracle, variant)?);
        drop(shared);
        self.recorded_weights.push((variant, Arc::clone(&weights)));
        Ok(weights)
    }

    /// Inputs for two recordings: the same shapes, and where numbers are among them those of two draws.
    fn inputs_to_record(&mut self) -> Result<[Value; 2], JudgeError> {
        let known = self.oracle.opened.sizes.inputs.clone();
        if !has_numbers(&known.tree) {
            return Ok([known.clone(), known]);
        }
        let _shared = self.machine.arbiter.share(Purpose::Reference);
        let mut drawn = || {
            let draw = Draw::fresh(InputFamily::Own, &mut self.random);
            let set = self.oracle.inputs(&[draw], 0)?.sets.pop();
            let missing = || JudgeError::infrastructure("draw inputs", "the oracle sent none");
            let mut set = set.ok_or_else(missing)?;
            for place in &mut set.tensors {
                place.offset = None;
            }
            Ok::<_, JudgeError>(set)
        };
        Ok([drawn()?, drawn()?])
    }
}

/// A candidate that is recorded with one set of weights.
struct Subject<'a> {
    source: &'a str,
    artifact: &'a Path,
    /// Names of the profile and the mode.
    settings: (&'static str, &'static str),
    weights: &'a GivenWeights,
    /// For each recording.
    inputs: &'a [Value; 2],
    libraries: &'a Libraries,
    tools: &'a PlanTools,
    compiler: &'a str,
    patience: Duration,
    /// Moves addresses.
    seed: u32,
}

/// Why two recordings are no plan.
enum Unrecorded {
    /// The candidate failed.
    Failed(Failure),
    Refused(NotRecordable),
}

impl Subject<'_> {
    /// Two recordings and what they agree on; milliseconds of `prepare()`. Recordings at like distances, which
    /// happen by chance, are made again. Where the second call is not like the first, a call before both warms
    /// the candidate up.
    fn record(&self, host: &Host, arbiter: &DeviceArbiter) -> Planned<(PlanOf, f64)> {
        let mut left = RETRIES;
        // Why it is not recorded without a call that warms it up.
        let mut cold: Option<NotRecordable> = None;
        loop {
            let seed = u64::from(self.seed) + 2 * u64::from(left);
            match self.record_once(seed, cold.is_some(), host, arbiter)? {
                Err(Unrecorded::Refused(NotRecordable::Recorder { .. })) if left > 0 => left -= 1,
                Err(Unrecorded::Refused(why)) if cold.is_none() && may_be_of_first_call(&why) => {
                    cold = Some(why);
                }
                Err(Unrecorded::Refused(why)) => {
                    return Ok(Err(NoPlan::not_recordable(&cold.unwrap_or(why))));
                }
                Err(Unrecorded::Failed(failure)) => return Ok(Err(NoPlan::failed(failure))),
                Ok(done) => return Ok(Ok(done)),
            }
        }
    }

    fn record_once(
        &self,
        seed: u64,
        warm_up: bool,
        host: &Host,
        arbiter: &DeviceArbiter,
    ) -> Result<Result<(PlanOf, f64), Unrecorded>, JudgeError> {
        let kernels = json!(self.libraries.kernels);
        let one = |inputs: &Value, number: u64| {
            let given = Given {
                source: self.source,
                artifact: self.artifact,
                settings: self.settings,
                weights: self.weights,
                inputs,
                kernels: &kernels,
                device: &self.tools.answers,
                warm_up,
                seed: seed + number,
            };
            record(host, &given, self.patience, arbiter)
        };
        let [of_first, of_second] = self.inputs;
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| one(of_second, 1));
            (one(of_first, 0), second.join())
        });
        let died = |_| JudgeError::infrastructure("record a candidate", "a thread of ours died");
        let (first, second) = match (first, second.map_err(died)?) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(Trouble::Judge(error)), _) | (_, Err(Trouble::Judge(error))) => return Err(error),
            (Err(Trouble::Candidate(stumble)), _) | (_, Err(Trouble::Candidate(stumble))) => {
                return Ok(Err(Unrecorded::Failed(classify(&stumble, None, ""))));
            }
            (Err(Trouble::Unplanned(why)), _) | (_, Err(Trouble::Unplanned(why))) => {
                return Ok(Err(Unrecorded::Refused(NotRecordable::Refused(why))));
            }
        };
        let prepare_ms = first.prepare_ms.min(second.prepare_ms);
        let merged = self.merged([&first, &second]).map_err(Unrecorded::Refused);
        Ok(merged.map(|plan| (plan, prepare_ms)))
    }

    /// What two recordings agree on.
    fn merged(&self, both: [&Recorded; 2]) -> Result<PlanOf, NotRecordable> {
        let [inputs, _] = self.inputs;
        let input_bytes: Vec<u64> = inputs.tensors.iter().map(|place| place.bytes).collect();
        let [first, second] = both.map(|recorded| |block| recorded.contents(block));
        let sources = Sources {
            code: self.tools.code,
            libraries: &self.libraries.bytes,
            compiler: self.compiler,
            weights: &self.weights.weights_content,
            init: &self.weights.init_content,
            input_bytes: &input_bytes,
            contents: [&first, &second],
        };
        let merged = merge(both.map(|recorded| &recorded.recording), &sources)?;
        if self.settings.1.split(':').any(|part| part == STEP) {
            let outputs = halves(&merged.plan.outputs.tree).map(|[outputs, _]| outputs);
            let gradients = halves(&inputs.tree).map(|[_, gradients]| gradients);
            let (outputs, gradients) = (outputs.unwrap_or_default(), gradients.unwrap_or_default());
            if let Some(node) = merged.plan.late_output(&outputs, &gradients) {
                return Err(NotRecordable::LateOutput { node });
            }
        }
        Ok(PlanOf { plan: merged.plan, constants: merged.constants, needs: merged.needs })
    }
}

/// The numbers of the tensors in both halves of a step's inputs or results.
fn halves(tree: &Json) -> Option<[Vec<u32>; 2]> {
    let items = ["tuple", "list"].into_iter().find_map(|kind| tree.get(kind)?.as_array());
    let items = items.or_else(|| tree.get("call")?.get("positional")?.as_array())?;
    let [first, second] = items.as_slice() else { return None };
    Some([first, second].map(|half| {
        let mut numbers = Vec::new();
        tensors_in(half, &mut numbers);
        numbers
    }))
}

fn tensors_in(tree: &Json, numbers: &mut Vec<u32>) {
    match tree {
        Json::Array(items) => items.iter().for_each(|item| tensors_in(item, numbers)),
        Json::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
                    Some(number) if name == "tensor" => numbers.push(number),
                    _ => tensors_in(value, numbers),
                }
            }
        }
        _ => {}
    }
}

/// Whether only the first call may be why: it makes tables with torch, or launches other work than the later
/// ones.
fn may_be_of_first_call(why: &NotRecordable) -> bool {
    match why {
        NotRecordable::SecondCallDiffers { .. } => true,
        NotRecordable::Refused(reason) => reason.starts_with(OPERATOR),
        _ => false,
    }
}

/// Whether a value has anything but tensors and containers in it.
fn has_numbers(tree: &Json) -> bool {
    match tree {
        Json::Array(items) => items.iter().any(has_numbers),
        Json::Object(fields) => {
            fields.iter().any(|(name, value)| name != "tensor" && has_numbers(value))
        }
        Json::Number(_) | Json::Bool(_) => true,
        Json::Null | Json::String(_) => false,
    }
}

#[cfg(test)]
mod tests;
