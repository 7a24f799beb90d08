//! Checks the answer of the process that ran the user's model. It is data of a stranger.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use warpwright_record::regions::{
    GraphBreak, InputSetTime, LeftOut, ModelRegions, REGIONS_VERSION, Region,
};
use warpwright_task::Task;

use super::RegionRequest;
use crate::error::RolloutError;

/// Most regions of a model.
const MAX_REGIONS: usize = 256;
/// Most bytes of a task's source.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Most characters of a text that is shown.
const MAX_TEXT: usize = 600;
/// Most modules of all regions.
const MAX_MODULES: usize = 100_000;

/// A divided model: its regions, and the tasks of those that are selected.
#[derive(Clone, Debug)]
pub struct Extracted {
    /// The regions, for `regions.json`.
    pub regions: ModelRegions,
    /// The tasks, in the order of the regions.
    pub tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Failed {
    kind: String,
    message: String,
}

#[derive(Deserialize)]
struct Answer {
    input_sets: Vec<InputSetTime>,
    regions: Vec<Region>,
    sources: BTreeMap<String, String>,
    left_out: Vec<LeftOut>,
    graph_breaks: Vec<GraphBreak>,
    torch: String,
}

#[derive(Deserialize)]
struct Refusal {
    failed: Option<Failed>,
}

/// Reads and checks the answer.
pub(super) fn read(bytes: &[u8], request: &RegionRequest) -> Result<Extracted, RolloutError> {
    let malformed = |why: String| {
        let name = request.model.name();
        let message =
            format!("failed to divide {name}: the answer of its process is malformed: {why}");
        RolloutError::usage(
            message,
            "check that the model's code does not write to other files".to_owned(),
        )
    };
    let refusal: Refusal =
        serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    if let Some(failed) = refusal.failed {
        return Err(refused(&failed, request));
    }
    let answer: Answer =
        serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    let modules: usize = answer.regions.iter().map(|region| region.modules.len()).sum();
    if answer.regions.len() > MAX_REGIONS || modules > MAX_MODULES {
        return Err(malformed(format!("it has {} regions", answer.regions.len())));
    }
    checked(answer, request).map_err(malformed)
}

/// The error of a model, or of inputs, that cannot be used.
fn refused(failed: &Failed, request: &RegionRequest) -> RolloutError {
    let name = request.model.name();
    let inputs = request.inputs.as_ref().map(|path| path.display().to_string());
    let inputs = inputs.unwrap_or_else(|| "the inputs".to_owned());
    let (attempt, hint) = match failed.kind.as_str() {
        "model" => {
            (format!("load {name}"), "the function has no parameters and returns a torch.nn.Module")
        }
        "inputs" => (
            format!("read {inputs}"),
            "`get_inputs` returns a list of positional arguments or a dict of keyword arguments; `get_workloads` lists arguments for it",
        ),
        "transformers" => (
            format!("load {name}"),
            "install transformers where the interpreter finds it, or name its folder with --packages",
        ),
        "forward" => (format!("run {name}"), "check that the inputs fit the model"),
        "no_regions" => (
            format!("divide {name}"),
            "raise --max-operators or lower --min-share, or write the task by hand",
        ),
        _ => (format!("divide {name}"), "run the model without warpwright first"),
    };
    RolloutError::usage(format!("failed to {attempt}: {}", line(&failed.message)), hint.to_owned())
}

/// The regions with clean texts, and the tasks of those that cover enough.
fn checked(answer: Answer, request: &RegionRequest) -> Result<Extracted, String> {
    let Answer { mut input_sets, mut regions, mut sources, mut left_out, mut graph_breaks, torch } =
        answer;
    for set in &mut input_sets {
        set.name = line(&set.name);
        if !set.milliseconds.is_finite() {
            return Err("a time is no number".to_owned());
        }
    }
    for one in &mut left_out {
        one.class = line(&one.class);
        one.reason = line(&one.reason);
        one.modules.iter_mut().for_each(|path| *path = line(path));
        one.share = share(one.share)?;
    }
    for one in &mut graph_breaks {
        one.reason = line(&one.reason);
        one.place = line(&one.place);
    }
    let mut names = HashSet::new();
    for region in &mut regions {
        region.share = share(region.share)?;
        region.selected = false;
        if !is_task_name(&region.task) || !names.insert(region.task.clone()) {
            return Err("a task's name is no name, or is there twice".to_owned());
        }
        if [&region.class].into_iter().chain(&region.modules).any(|text| *text != line(text)) {
            return Err("the name of a module has control characters".to_owned());
        }
    }
    regions.sort_by(|a, b| b.share.total_cmp(&a.share));
    let (mut covered, mut tasks, mut kept) = (0.0, Vec::new(), Vec::new());
    for mut region in regions {
        let source = sources.remove(&region.task).ok_or("a region has no source")?;
        if source.len() > MAX_SOURCE_BYTES {
            return Err("a task is too long".to_owned());
        }
        let task = Task::from_source(&region.task, source);
        if let Err(error) = task.facts() {
            left_out.push(without(&region, &error.to_string()));
            continue;
        }
        if covered < request.cover {
            covered += region.share;
            region.selected = true;
            tasks.push(task);
        }
        kept.push(region);
    }
    if tasks.is_empty() {
        return Err("no region became a task".to_owned());
    }
    let regions = ModelRegions {
        version: REGIONS_VERSION,
        model: request.model.name(),
        device: request.gpu.map_or_else(|| "cpu".to_owned(), |number| format!("cuda:{number}")),
        torch: line(&torch),
        cover: request.cover,
        covered: f64::min(covered, 1.0),
        input_sets,
        regions: kept,
        left_out,
        graph_breaks,
    };
    Ok(Extracted { regions, tasks })
}

/// A region whose task the program refuses.
fn without(region: &Region, reason: &str) -> LeftOut {
    LeftOut {
        class: region.class.clone(),
        modules: region.modules.iter().take(8).cloned().collect(),
        count: region.modules.len() as u64,
        share: region.share,
        reason: line(reason),
    }
}

fn share(share: f64) -> Result<f64, String> {
    if share.is_finite() {
        Ok(share.clamp(0.0, 1.0))
    } else {
        Err("a share is no number".to_owned())
    }
}

/// Whether a text can be the name of a file.
fn is_task_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.len() <= 64 && name.chars().all(letter)
}

/// The error that an answer reports, if it is one.
pub(super) fn refused_by(bytes: &[u8], request: &RegionRequest) -> Option<RolloutError> {
    let refusal: Refusal = serde_json::from_slice(bytes).ok()?;
    refusal.failed.map(|failed| refused(&failed, request))
}

/// A text on one line, of bounded length.
pub(super) fn line(text: &str) -> String {
    let clean =
        |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
    text.chars().take(MAX_TEXT).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::ModelSource;

    fn request() -> RegionRequest {
        RegionRequest {
            model: ModelSource::parse("model.py:build").unwrap(),
            inputs: None,
            gpu: None,
            dtype: None,
            cover: 0.8,
            max_operators: 64,
            min_share: 0.01,
            separate: false,
            seed: 0,
            python: "python3".into(),
            packages: Vec::new(),
        }
    }

    const TASK: &str = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\ndef get_inputs():\n    return [torch.randn(4)]\n";

    fn answer(regions: &[(&str, f64, &str)]) -> serde_json::Value {
        let described = |(task, share, _): &(&str, f64, &str)| {
            serde_json::json!({
                "task": task, "class": "Block", "share": share, "modules": ["blocks.0"], "calls": {"inputs": 1},
                "operators": 1, "workloads": ["inputs"], "inputs": [], "weights": [], "arguments": [], "keywords": {},
                "outputs": {"kind": "tensor", "index": 0},
            })
        };
        let sources: serde_json::Map<_, _> = regions
            .iter()
            .map(|(name, _, source)| ((*name).to_owned(), (*source).into()))
            .collect();
        serde_json::json!({
            "input_sets": [{"name": "inputs", "milliseconds": 1.0}],
            "regions": regions.iter().map(described).collect::<Vec<_>>(),
            "sources": sources, "left_out": [], "graph_breaks": [], "torch": "2.11.0",
        })
    }

    fn read_json(value: &serde_json::Value) -> Result<Extracted, RolloutError> {
        read(value.to_string().as_bytes(), &request())
    }

    #[test]
    fn regions_are_selected_until_enough_is_covered() {
        let all = [("a", 0.2, TASK), ("b", 0.5, TASK), ("c", 0.15, TASK), ("d", 0.1, TASK)];
        let found = read_json(&answer(&all)).unwrap();
        let names: Vec<_> = found.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert!((found.regions.covered - 0.85).abs() < 1e-9);
        assert!(!found.regions.regions.iter().any(|region| region.selected && region.task == "d"));
    }

    #[test]
    fn answers_of_hostile_models_are_refused() {
        for task in ["../a", "", "a/b", "A", "a\n"] {
            assert!(read_json(&answer(&[(task, 0.5, TASK)])).is_err(), "{task:?}");
        }
        for text in ["", "[]", "{}", "null", "{\"failed\": 3}"] {
            assert!(read(text.as_bytes(), &request()).is_err(), "{text}");
        }
        let mut twice = answer(&[("a", 0.5, TASK)]);
        let region = twice["regions"][0].clone();
        twice["regions"].as_array_mut().unwrap().push(region);
        assert!(read_json(&twice).is_err());
        let mut odd = answer(&[("a", 0.5, TASK)]);
        odd["regions"][0]["modules"][0] = "a\u{1b}[31m".into();
        assert!(read_json(&odd).is_err());
    }

    #[test]
    fn invalid_task_is_left_out_and_named() {
        let found = read_json(&answer(&[("a", 0.5, TASK), ("b", 0.3, "x = (")])).unwrap();
        assert_eq!(found.tasks.len(), 1);
        assert_eq!(found.regions.left_out.len(), 1);
    }
}
