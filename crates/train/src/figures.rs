//! The metrics of a training step by name, for TensorBoard, the report and the dashboard. Names are verl's where verl
//! has the metric; `docs/reference/training-metrics.md` defines each.

use warpwright_learn::fit::Epoch;
use warpwright_learn::monitor::Ratios;
use warpwright_learn::run_monitor::Update;

/// Name and value of a metric. Metrics that a step does not have are left out.
pub type Figure = (String, f64);

/// The metrics of a training step of reinforcement learning.
pub fn of_update(update: &Update) -> Vec<Figure> {
    let report = &update.report;
    let mut figures = named([
        ("critic/rewards/mean", Some(report.reward)),
        ("judge/pass_rate", Some(update.pass_rate)),
        ("judge/faster_rate", Some(update.faster_rate)),
        ("actor/entropy", Some(report.entropy)),
        ("critic/vf_explained_var", report.explained_variance),
        ("rollout/zero_variance_share", Some(report.zero_variance_share)),
        ("rollout/reward_std_within_prompt", Some(report.reward_std)),
        ("response_length/mean", Some(update.response_tokens)),
        ("num_turns/mean", Some(update.turns)),
        ("rollout/truncated_rate", Some(update.truncated_rate)),
        ("actor/pg_loss", Some(report.loss)),
        ("critic/vf_loss", report.value_loss),
        ("actor/grad_norm", Some(report.grad_norm)),
        ("actor/lr", Some(update.lr)),
        ("actor/kl_per_episode", update.kl_per_episode()),
    ]);
    if let Some(ratios) = &report.update_ratios {
        figures.extend(named([
            ("actor/ppo_kl", Some(ratios.kl)),
            ("actor/pg_clipfrac", Some(ratios.clipped)),
            ("actor/mean_ratio", Some(ratios.mean)),
            ("actor/effective_sample_share", Some(ratios.effective_share)),
        ]));
    }
    figures.extend(of_sampler("rollout_corr", report.rollout_ratios.as_ref()));
    figures.extend(of_sampler("rollout_corr_rare", report.rare_rollout_ratios.as_ref()));
    figures.extend(named([
        ("alarms", Some(report.alarms.len() as f64)),
        ("rollout/failed_episodes", Some(update.failed as f64)),
        ("judge/verdicts", Some(update.judged.judged as f64)),
        ("judge/cached_verdicts", Some(update.judged.repeated as f64)),
        ("judge/queue_depth", queue(update)),
        ("timing_s/gen", Some(update.play_seconds)),
        ("timing_s/update_actor", Some(update.learn_seconds)),
        ("rollout/episodes_per_minute", per_minute(report.episodes, update.play_seconds)),
    ]));
    figures
}

/// The metrics of an epoch of supervised training.
pub fn of_epoch(epoch: &Epoch) -> Vec<Figure> {
    named([
        ("train/loss", Some(epoch.loss)),
        ("val/loss", Some(epoch.validation_loss)),
        ("critic/vf_explained_var", epoch.explained_variance),
        ("actor/grad_norm", Some(epoch.norm)),
    ])
}

/// Importance ratios of the trainer to the sampler.
fn of_sampler(group: &str, ratios: Option<&Ratios>) -> Vec<Figure> {
    let Some(ratios) = ratios else { return Vec::new() };
    let each = [
        ("kl", ratios.kl),
        ("mean_ratio", ratios.mean),
        ("effective_sample_share", ratios.effective_share),
    ];
    each.into_iter().map(|(name, value)| (format!("{group}/{name}"), value)).collect()
}

/// Mean number of candidates that wait for their verdicts during rollouts (Little's law).
fn queue(update: &Update) -> Option<f64> {
    (update.play_seconds > 0.0).then(|| update.judged.seconds / update.play_seconds)
}

fn per_minute(episodes: usize, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| 60.0 * episodes as f64 / seconds)
}

fn named<const N: usize>(figures: [(&str, Option<f64>); N]) -> Vec<Figure> {
    figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Turns the metrics of steps into one curve per name, in the order in which names first occur.
pub fn curves(steps: &[Vec<Figure>]) -> Vec<(String, Vec<f64>)> {
    let mut curves: Vec<(String, Vec<f64>)> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        for (name, value) in step {
            let at = curves.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                curves.push((name.clone(), vec![f64::NAN; steps.len()]));
                curves.len() - 1
            });
            curves[at].1[number] = *value;
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_metric_leaves_a_gap() {
        let step = |figures: &[(&str, f64)]| -> Vec<Figure> {
            figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let steps = [step(&[("a", 1.0)]), step(&[("b", 5.0), ("a", 2.0)]), step(&[("a", 3.0)])];
        let curves = curves(&steps);
        assert_eq!(curves[0], ("a".to_owned(), vec![1.0, 2.0, 3.0]));
        assert_eq!(curves[1].0, "b");
        let gaps: Vec<bool> = curves[1].1.iter().map(|value| value.is_nan()).collect();
        assert_eq!(gaps, [true, false, true]);
    }
}
