//! Reads a training run's folder for its report page.

use std::path::Path;

use serde::Deserialize;
use warpwright_learn::fit::Epoch;
use warpwright_learn::online::State;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_report::training::Stage as Shown;
use warpwright_report::training::{Curve, Sample, Training, write_training};

use crate::error::TrainError;
use crate::figures::{self, Figure};
use crate::folder::{Begun, StageFolder};
use crate::stage::Stage;

/// Whether a folder is a training run.
pub fn is_training(dir: &Path) -> bool {
    dir.join("train.json").is_file()
}

/// Writes the report page of the run in `dir`.
pub fn present(dir: &Path, page: &Path) -> Result<(), TrainError> {
    Ok(write_training(&told(dir, true)?, page)?)
}

/// The run in `dir` without its kernels, which take long to collect.
pub fn outline(dir: &Path) -> Result<Training, TrainError> {
    told(dir, false)
}

fn told(dir: &Path, with_samples: bool) -> Result<Training, TrainError> {
    let begun = Begun::read(dir)?;
    let name = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let shapes = held_out_shapes(&begun.config);
    let mut training = Training {
        title: name.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        facts: vec![
            ("devices".to_owned(), begun.devices.join(", ")),
            ("seed".to_owned(), begun.seed.to_string()),
            ("folder".to_owned(), name.display().to_string()),
        ],
        is_cpu: begun.devices.iter().any(|device| device == "cpu"),
        stages: Vec::new(),
    };
    if shapes > 0 {
        let told = format!("{shapes} of each task with workloads");
        training.facts.push(("held-out workloads".to_owned(), told));
    }
    for stage in Stage::ALL {
        let path = dir.join(stage.name());
        if path.is_dir() {
            training.stages.push(shown(stage, &StageFolder { path }, with_samples)?);
        }
    }
    Ok(training)
}

/// `tasks.held_out_shapes` of a configuration.
fn held_out_shapes(config: &str) -> i64 {
    let table = toml::from_str::<toml::Table>(config).unwrap_or_default();
    let key = table.get("tasks").and_then(|tasks| tasks.get("held_out_shapes"));
    key.and_then(toml::Value::as_integer).unwrap_or(0)
}

#[derive(Default, Deserialize)]
struct Fitted {
    epochs: Vec<Epoch>,
}

#[derive(Deserialize)]
struct Played {
    episodes: usize,
}

fn shown(stage: Stage, folder: &StageFolder, with_samples: bool) -> Result<Shown, TrainError> {
    let is_done = folder.is_done();
    let mut steps_of_samples = 0;
    let mut shown =
        Shown { name: stage.name().to_owned(), is_done, step: "epoch", ..Shown::default() };
    match stage {
        Stage::Pretrain | Stage::Sft | Stage::Rft | Stage::Value => {
            let epochs = if is_done {
                folder.result::<Fitted>()?.epochs
            } else {
                folder.state::<Vec<Epoch>>()?
            };
            shown.curves = curves(&epochs.iter().map(figures::of_epoch).collect::<Vec<_>>());
        }
        Stage::SingleTurn | Stage::Ppo => {
            let state: State = if is_done { folder.result()? } else { folder.state()? };
            shown.step = "step";
            let steps: Vec<_> = state.updates.iter().map(figures::of_update).collect();
            shown.curves = curves(&steps);
            steps_of_samples = state.updates.len();
        }
        Stage::Demos | Stage::Collect if is_done => {
            shown.told = Some(format!("{} episodes", folder.result::<Played>()?.episodes));
            steps_of_samples = 1;
        }
        Stage::Demos | Stage::Collect | Stage::Eval => {}
    }
    if with_samples {
        shown.samples = samples(folder, steps_of_samples)?;
    }
    Ok(shown)
}

fn curves(steps: &[Vec<Figure>]) -> Vec<Curve> {
    let curves = figures::curves(steps).into_iter();
    curves.map(|(name, values)| Curve { name, values, ..Curve::default() }).collect()
}

/// The best kernels of the first, the middle and the last of `steps` training steps.
fn samples(folder: &StageFolder, steps: usize) -> Result<Vec<Sample>, TrainError> {
    let dir = folder.path.join("record");
    if steps == 0 || !dir.join("run.json").is_file() {
        return Ok(Vec::new());
    }
    let reader = RunReader::open(&dir)?;
    let episodes: Vec<Episode> = History::read(&reader)?.episodes.into_values().collect();
    let each = episodes.len().div_ceil(steps).max(1);
    let parts: Vec<&[Episode]> = episodes.chunks(each).collect();
    let mut wanted = vec![0, parts.len() / 2, parts.len().saturating_sub(1)];
    wanted.dedup();
    let mut samples = Vec::new();
    for number in wanted {
        let reward = |episode: &&Episode| {
            let verdict = episode.end.as_ref()?.final_verdict.as_ref()?;
            Some(verdict.reward.bounded)
        };
        let part = parts.get(number).copied().unwrap_or_default();
        let best = part
            .iter()
            .max_by(|a, b| reward(a).partial_cmp(&reward(b)).unwrap_or(std::cmp::Ordering::Equal));
        let Some(best) = best else { continue };
        let Some(candidate) = best.end.as_ref().and_then(|end| end.candidate.as_ref()) else {
            continue;
        };
        let mut files = Vec::new();
        for file in &candidate.files {
            // Unreadable files are omitted from the report.
            let text =
                reader.blob(file.blob).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            files.push((file.path.clone(), text.unwrap_or_else(|error| error.to_string())));
        }
        let worth =
            reward(&best).map_or_else(|| "no verdict".to_owned(), |r| format!("reward {r:.2}"));
        let title = format!("{}: {worth}, the best of step {}", best.setup.task, number + 1);
        samples.push(Sample { title, files });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_shapes_are_read_from_the_configuration() {
        assert_eq!(held_out_shapes("[tasks]\ntrain = []\nheld_out_shapes = 2\n"), 2);
        assert_eq!(held_out_shapes("[tasks]\ntrain = []\n"), 0);
        assert_eq!(held_out_shapes("not = [toml"), 0);
    }
}
