//! Stage `eval`: evaluation on held-out tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use warpwright_report::evaluation::Evaluation;
use warpwright_report::evaluation::gap::Gap;
use warpwright_report::evaluation::scores::Scores;
use warpwright_rollout::engine::Weights;
use warpwright_rollout::rollout_workers::Make;
use warpwright_teacher::Teacher;

use crate::config::{BaselinePolicy, InitialModel};
use crate::error::TrainError;
use crate::folder::StageFolder;
use crate::observer::TrainEvent;
use crate::run::Run;
use crate::stage::Stage;
use crate::stages::StageWork;

/// Limit on the messages of a policy without weights: more than the versions that it can write.
const BASELINE_TURNS: u32 = 4000;

pub(super) struct EvalStage;

impl StageWork for EvalStage {
    /// Evaluates the policy of every stage and the baseline policies on the held-out tasks: whole
    /// episodes, and first messages alone.
    fn run(&self, run: &Run<'_, '_>, folder: &StageFolder) -> Result<(), TrainError> {
        let Some(eval) = &run.config.eval else { return folder.finish(&()) };
        let lengths: &[(&str, u32)] = if eval.single_turn {
            &[("", run.config.max_turns), ("-first", 1)]
        } else {
            &[("", run.config.max_turns)]
        };
        let mut arms = BTreeMap::new();
        let trained = Stage::ALL.into_iter().filter(|s| s.trains() && *s != Stage::Value);
        let mut policies: Vec<(&str, PathBuf)> = Vec::new();
        if let InitialModel::Pretrained { path } = run.model {
            policies.push(("base", path.clone()));
        }
        for stage in trained {
            policies.push((stage.name(), run.stage_folder(stage)?.checkpoint()));
        }
        for (policy, checkpoint) in policies.into_iter().filter(|(_, folder)| folder.exists()) {
            let mut engine = None;
            for (suffix, turns) in lengths {
                let name = format!("{policy}{suffix}");
                let of = StageFolder::open(folder.path.join(&name))?;
                if !of.is_done() {
                    let weights = Weights::Checkpoint(checkpoint.clone());
                    let engine = match &mut engine {
                        Some(engine) => engine,
                        none => none.insert(run.engine(&weights)?),
                    };
                    let make = run.natives(engine, policy)?;
                    compete(run, &of, "native", make, *turns, eval.episodes_per_task)?;
                }
                arms.insert(name.clone(), results(run, &name, &of)?);
            }
        }
        for baseline in &eval.baseline_policies {
            let (name, make): (_, Make<'_>) = match baseline {
                BaselinePolicy::Teacher => ("teacher", Box::new(|| Box::new(Teacher::new()))),
                BaselinePolicy::Exhaustive => {
                    ("exhaustive", Box::new(|| Box::new(Teacher::exhaustive())))
                }
            };
            let of = StageFolder::open(folder.path.join(name))?;
            if !of.is_done() {
                compete(run, &of, "teacher", make, BASELINE_TURNS, 1)?;
            }
            arms.insert(name.to_owned(), results(run, name, &of)?);
        }
        let known: Vec<&Evaluation> = arms.values().collect();
        let gaps = lengths.iter().filter_map(|(suffix, _)| {
            let of = |name: &str| arms.get(&format!("{name}{suffix}"));
            // A run from a pretrained policy may have no stage rft.
            let before = ["rft", "base"].into_iter().find_map(|name| Some((name, of(name)?)));
            let ((name, from), to) = (before?, of("ppo")?);
            Some((format!("{name} to ppo{suffix}"), Gap::of(from, to, &known)))
        });
        let gaps: BTreeMap<String, Gap> = gaps.collect();
        for (name, gap) in &gaps {
            run.observe(&TrainEvent::Gap { name, gap });
        }
        let scores: BTreeMap<&String, &Scores> =
            arms.iter().map(|(name, arm)| (name, &arm.overall)).collect();
        folder.finish(&serde_json::json!({ "policies": scores, "gaps": gaps }))
    }
}

/// Plays `each` episodes per held-out task, measuring every candidate.
fn compete(
    run: &Run<'_, '_>,
    of: &StageFolder,
    policy: &'static str,
    make: Make<'_>,
    turns: u32,
    each: usize,
) -> Result<(), TrainError> {
    let rollouts = run.afresh.with_turns(turns);
    let plays = run.plays(run.held_out, each);
    let played = run.play_all(of, &rollouts, (run.held_out, &[plays]), (policy, make), |_| ())?;
    of.finish(&serde_json::json!({ "episodes": played.len() }))
}

/// Reads a policy's results.
fn results(run: &Run<'_, '_>, name: &str, of: &StageFolder) -> Result<Evaluation, TrainError> {
    let evaluation = Evaluation::read(&of.path.join("record"))?;
    run.observe(&TrainEvent::Evaluated { name, evaluation: &evaluation });
    Ok(evaluation)
}
