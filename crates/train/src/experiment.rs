//! Runs an experiment: several arms continue from the same shared stages, each with several seeds,
//! and are compared.
//!
//! ```text
//! OUT/shared/             the stages done once: a training run
//! OUT/arms/NAME/seed-N/   a training run per arm and seed. Its first stages are the shared ones, then those
//!                         that an earlier arm did with the same configuration and seed
//! OUT/verdicts.jsonl      the verdicts of all runs
//! OUT/experiment.json  experiment.md  report.html
//! ```

mod config;
mod results;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fs_err as fs;
use serde::Serialize;
use warpwright_learn::collapse::Collapse;
use warpwright_learn::online::State;
use warpwright_report::training::{Training, write_training};
use warpwright_rollout::folders;
use warpwright_rollout::judge_host::JudgeHost;

pub use self::config::Experiment;
use self::config::Variant;
use self::results::Ran;
pub use self::results::{ArmResult, table};
use crate::error::TrainError;
use crate::folder::{StageFolder, write_json};
use crate::launch::{Launch, Plan};
use crate::observer::{Observer, TrainEvent};
use crate::stage::Stage;

/// Content of `experiment.json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    version: u32,
    collapse: Collapse,
    seeds: &'a [u64],
    shared: &'a [Stage],
    devices: Vec<String>,
    arms: &'a [ArmResult],
}

const VERSION: u32 = 1;

/// An experiment on open devices.
pub struct Laboratory<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its folder.
    pub out: &'a Path,
    /// Seed of the shared stages.
    pub seed: u64,
    /// The open devices.
    pub hosts: &'a [JudgeHost],
    /// Ends the experiment when it is set.
    pub stop: &'a AtomicBool,
    /// Sees what happens.
    pub observer: &'a dyn Observer,
    /// The command line, for the records.
    pub command: String,
}

impl Laboratory<'_> {
    /// Runs everything that is not done yet. Returns the results of all arms.
    pub fn run(&self) -> Result<Vec<ArmResult>, TrainError> {
        let Experiment { seeds, shared, base, arms, .. } = self.experiment;
        let common = self.out.join("shared");
        self.go(&common, base, shared.clone(), self.seed)?;
        let all = seeds.len() * arms.len();
        let mut done = 0;
        // Seed by seed: an interrupted experiment has equally many runs of each arm.
        for seed in seeds {
            for (number, arm) in arms.iter().enumerate() {
                let out = self.folder(&arm.name, *seed);
                begin_with(&common, shared, &out)?;
                for before in &arms[..number] {
                    let common = arm.variant.common_stages(&before.variant);
                    begin_with(&self.folder(&before.name, *seed), &common, &out)?;
                }
                let own = arm.variant.own(shared);
                done += 1;
                let is_done = own.iter().all(|stage| of(&out, *stage).is_done());
                if is_done || has_failed(&out) {
                    continue;
                }
                self.observer.observe(&TrainEvent::Arm {
                    name: &arm.name,
                    seed: *seed,
                    number: done,
                    of: all,
                });
                match self.go(&out, &arm.variant, own, *seed) {
                    Err(failure) if has_failed(&out) => {
                        self.observer.observe(&TrainEvent::ArmFailed(&failure));
                    }
                    went => went?,
                }
            }
            self.tell()?;
        }
        self.tell()
    }

    fn folder(&self, arm: &str, seed: u64) -> std::path::PathBuf {
        self.out.join("arms").join(arm).join(format!("seed-{seed}"))
    }

    fn go(
        &self,
        out: &Path,
        variant: &Variant,
        stages: Vec<Stage>,
        seed: u64,
    ) -> Result<(), TrainError> {
        let plan = Plan {
            config: variant.config.clone(),
            text: variant.text.clone(),
            folder: self.experiment.folder.clone(),
            out: out.to_owned(),
            seed,
            task_seed: self.seed,
            stages,
            verdicts: self.out.join("verdicts.jsonl"),
            command: self.command.clone(),
        };
        Launch::prepare(plan, self.observer)?.go(self.hosts, self.stop, self.observer).map(|_| ())
    }

    /// Writes the results of the finished runs.
    fn tell(&self) -> Result<Vec<ArmResult>, TrainError> {
        let mut arms = Vec::new();
        for arm in &self.experiment.arms {
            let (mut runs, mut failed) = (Vec::new(), Vec::new());
            for seed in &self.experiment.seeds {
                let folder = self.folder(&arm.name, *seed);
                if let Some(state) = online(&folder)? {
                    runs.push(Ran::of(*seed, &state.updates, &self.experiment.collapse));
                } else if has_failed(&folder) {
                    failed.push(*seed);
                }
            }
            arms.push((arm.name.clone(), runs, failed));
        }
        let arms = results::compare(arms);
        let devices: Vec<String> = self.hosts.iter().map(JudgeHost::device).collect();
        let told = Told {
            version: VERSION,
            collapse: self.experiment.collapse,
            seeds: &self.experiment.seeds,
            shared: &self.experiment.shared,
            devices: devices.clone(),
            arms: &arms,
        };
        write_json(&self.out.join("experiment.json"), &told)?;
        fs::write(self.out.join("experiment.md"), table(&arms))
            .map_err(|error| TrainError::io("write the experiment's table", error))?;
        let name = self.out.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let training = Training {
            title: name,
            facts: vec![
                ("devices".to_owned(), devices.join(", ")),
                ("seeds".to_owned(), format!("{seeds:?}", seeds = self.experiment.seeds)),
            ],
            is_cpu: devices.iter().any(|device| device == "cpu"),
            stages: results::shown(&arms),
        };
        write_training(&training, &self.out.join("report.html"))?;
        Ok(arms)
    }
}

/// Copies stages that another run has finished. Each is copied completely or not at all.
fn begin_with(other: &Path, stages: &[Stage], out: &Path) -> Result<(), TrainError> {
    let failed = |error: std::io::Error| TrainError::io("copy the shared stages", error);
    let done: Vec<Stage> =
        stages.iter().copied().take_while(|stage| of(other, *stage).is_done()).collect();
    // The first stage that trains the model creates its config and tokenizer.
    let model = done.iter().any(|stage| stage.trains()).then_some("model");
    for name in model.into_iter().chain(done.iter().map(|stage| stage.name())) {
        let (from, to) = (other.join(name), out.join(name));
        if to.exists() || !from.exists() {
            continue;
        }
        let part = out.join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(failed)?;
        }
        folders::copy(&from, &part).map_err(failed)?;
        fs::rename(&part, &to).map_err(failed)?;
    }
    Ok(())
}

/// Whether one of a run's stages failed for good.
fn has_failed(run: &Path) -> bool {
    Stage::ALL.into_iter().any(|stage| of(run, stage).has_failed())
}

/// The folder of a run's last RL stage that has begun.
pub fn last_rl_stage(run: &Path) -> Option<StageFolder> {
    [Stage::Ppo, Stage::SingleTurn]
        .map(|stage| of(run, stage))
        .into_iter()
        .find(|f| f.path.is_dir())
}

/// The state of the last RL stage that has begun, if it is done.
pub fn online(run: &Path) -> Result<Option<State>, TrainError> {
    let done = last_rl_stage(run).filter(StageFolder::is_done);
    done.map(|folder| folder.result()).transpose()
}

/// A stage's folder, which may not exist.
fn of(run: &Path, stage: Stage) -> StageFolder {
    StageFolder { path: run.join(stage.name()) }
}
