//! Measures a whole model with and without kernels in place of its modules.
//!
//! The process executes the host code of candidates. Its figures are data of a stranger: they are checked for their
//! form, and never become a verdict or a reward.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use warpwright_build::Outcome;
use warpwright_jail::Jail;
use warpwright_judge::LocalJudge;
use warpwright_record::history::{Episode, History};
use warpwright_record::interval::Interval;
use warpwright_record::reader::RunReader;
use warpwright_record::regions::ModelRegions;
use warpwright_record::whole_model::{
    InputSetFigures, RegionGain, RegionTimes, WHOLE_MODEL_VERSION, WholeModel,
};
use warpwright_task::Task;

use super::RegionRequest;
use super::answer::{line, refused_by};
use super::process::{self, Work};
use crate::error::RolloutError;

/// The verified candidate for a region.
#[derive(Clone, Debug)]
pub struct RegionKernels {
    /// Name of the task.
    pub task: String,
    /// Its `model_new.py`.
    pub source: String,
    /// The folder of its build.
    pub artifact: PathBuf,
}

/// The best verified final candidate of each task of a run, built again if the cache lacks the build.
pub fn final_kernels(
    judge: &LocalJudge,
    run: &Path,
    tasks: &[Task],
) -> Result<Vec<RegionKernels>, RolloutError> {
    let reader = RunReader::open(run)?;
    let history = History::read(&reader)?;
    let mut kernels = Vec::new();
    for task in tasks {
        let of_task = history.episodes.values().filter(|episode| episode.setup.task == task.name);
        let best = of_task
            .filter(|episode| speedup(episode).is_some())
            .max_by(|a, b| speedup(a).unwrap_or(0.0).total_cmp(&speedup(b).unwrap_or(0.0)));
        let stored = best.and_then(|episode| episode.end.as_ref()?.candidate.as_ref());
        let Some(stored) = stored else { continue };
        let candidate = reader.candidate(&stored.files)?;
        let source = candidate.files().get("model_new.py").cloned().unwrap_or_default();
        let (Ok(source), Outcome::Built(artifact)) =
            (String::from_utf8(source), judge.build(task, &candidate)?)
        else {
            continue;
        };
        kernels.push(RegionKernels { task: task.name.clone(), source, artifact: artifact.dir });
    }
    Ok(kernels)
}

/// The speed-up of a verified final candidate.
fn speedup(episode: &Episode) -> Option<f64> {
    let verdict = episode.end.as_ref()?.final_verdict.as_ref()?;
    verdict.verified.then_some(verdict.reward.speedup)
}

#[derive(Deserialize)]
struct Answer {
    input_sets: Vec<InputSetFigures>,
    regions: Vec<RegionGain>,
    missing: std::collections::BTreeMap<String, String>,
    times: Vec<RegionTimes>,
}

/// Measures the model with these kernels. `oracle` is the folder with the package `warpwright_oracle`.
pub fn measure(
    jail: &Jail,
    request: &RegionRequest,
    regions: &ModelRegions,
    kernels: &[RegionKernels],
    oracle: &Path,
) -> Result<WholeModel, RolloutError> {
    let malformed = |why: String| {
        let name = request.model.name();
        let message =
            format!("failed to measure {name}: the answer of its process is malformed: {why}");
        RolloutError::usage(message, None)
    };
    let selected: Vec<_> = regions.regions.iter().filter(|region| region.selected).collect();
    let kernels_json: Vec<Json> = kernels
        .iter()
        .map(|one| json!({"task": one.task, "source": one.source, "artifact": one.artifact}))
        .collect();
    let mut fields = serde_json::Map::new();
    fields.insert("regions".to_owned(), json!(selected));
    fields.insert("kernels".to_owned(), json!(kernels_json));
    let work = Work {
        module: "measure",
        fields,
        packages: vec![oracle.to_owned()],
        read: kernels.iter().map(|one| one.artifact.clone()).collect(),
    };
    let bytes = process::run(jail, request, work)?;
    if let Some(error) = refused_by(&bytes, request) {
        return Err(error);
    }
    let answer: Answer =
        serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    checked(answer, regions, kernels).map_err(malformed)
}

/// The figures, with clean texts.
fn checked(
    answer: Answer,
    regions: &ModelRegions,
    kernels: &[RegionKernels],
) -> Result<WholeModel, String> {
    let Answer { mut input_sets, regions: mut gains, missing, times } = answer;
    let known: HashSet<&str> = kernels.iter().map(|one| one.task.as_str()).collect();
    let mut seen = HashSet::new();
    for gain in &mut gains {
        if !known.contains(gain.task.as_str()) || !seen.insert(gain.task.clone()) {
            return Err("a region is unknown, or is there twice".to_owned());
        }
        gain.reason = gain.reason.as_deref().map(line);
        if gain.gain.is_some_and(|gain| !is_figure(gain)) {
            return Err("a gain is no number".to_owned());
        }
    }
    for set in &mut input_sets {
        set.name = line(&set.name);
        let figures = set.milliseconds.values().chain(set.speedup.values());
        if !figures.copied().all(is_figure) || !set.milliseconds.contains_key("patched") {
            return Err("a time is missing, or no number".to_owned());
        }
        if set.fastest.as_ref().is_some_and(|name| !set.milliseconds.contains_key(name)) {
            return Err("the fastest call has no time".to_owned());
        }
        for names in [&set.milliseconds, &set.speedup] {
            if names.keys().any(|name| !CALLS.contains(&name.as_str())) {
                return Err("a time is of an unknown call".to_owned());
            }
        }
    }
    if input_sets.is_empty() || times.iter().any(|one| one.times.len() != input_sets.len()) {
        return Err("an input set is missing".to_owned());
    }
    let selected = regions.regions.iter().filter(|region| region.selected);
    let names: HashSet<&str> = selected.map(|region| region.task.as_str()).collect();
    if times.iter().any(|one| !names.contains(one.task.as_str())) {
        return Err("a time is of an unknown region".to_owned());
    }
    let kept = |task: &str| gains.iter().any(|gain| gain.kept && gain.task == task);
    let replaced = regions.regions.iter().filter(|r| kept(&r.task)).map(|r| r.share).sum::<f64>();
    Ok(WholeModel {
        version: WHOLE_MODEL_VERSION,
        model: regions.model.clone(),
        device: regions.device.clone(),
        covered: regions.covered,
        replaced: replaced.min(1.0),
        input_sets,
        regions: gains,
        missing: missing.into_iter().map(|(name, why)| (line(&name), line(&why))).collect(),
        times,
    })
}

/// The calls that are timed.
const CALLS: [&str; 5] = ["eager", "compile", "reduce_overhead", "patched", "patched_graph"];

fn is_figure(figure: Interval) -> bool {
    let Interval { value, low, high } = figure;
    [value, low, high].iter().all(|number| number.is_finite() && *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions() -> ModelRegions {
        ModelRegions {
            version: 1,
            model: "m.py:build".to_owned(),
            device: "cpu".to_owned(),
            torch: "2.11.0".to_owned(),
            cover: 0.8,
            covered: 0.0,
            input_sets: Vec::new(),
            regions: Vec::new(),
            left_out: Vec::new(),
            graph_breaks: Vec::new(),
        }
    }

    fn answer(time: f64, task: &str) -> Answer {
        let figure = json!({"value": time, "low": time, "high": time});
        let set = json!({
            "name": "a", "milliseconds": {"eager": figure, "patched": figure}, "speedup": {"eager": figure},
            "error": {"eager": null}, "peak_bytes": {"eager": null}, "profiled": {"before": 1.0, "after": 1.0},
        });
        let gain = json!({"task": task, "kept": true, "gain": figure, "reason": null});
        let text = json!({"input_sets": [set], "regions": [gain], "missing": {}, "times": []});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn figures_of_hostile_models_are_refused() {
        let artifact = PathBuf::from("/x");
        let kernels = [RegionKernels { task: "block".to_owned(), source: String::new(), artifact }];
        assert!(checked(answer(1.0, "block"), &regions(), &kernels).is_ok());
        assert!(checked(answer(1.0, "other"), &regions(), &kernels).is_err());
        for time in [0.0, -1.0] {
            assert!(checked(answer(time, "block"), &regions(), &kernels).is_err());
        }
        let mut unknown = answer(1.0, "block");
        unknown.input_sets[0].fastest = Some("other".to_owned());
        assert!(checked(unknown, &regions(), &kernels).is_err());
        let mut odd = answer(1.0, "block");
        odd.input_sets.clear();
        assert!(checked(odd, &regions(), &kernels).is_err());
    }
}
