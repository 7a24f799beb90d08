//! The figures of a step of training by name: for curves, and for boards that draw them.

use warpwright_learn::course::Update;
use warpwright_learn::fit::Epoch;
use warpwright_learn::monitor::Ratios;

/// A name and a value. What a step has not is left out.
pub(crate) type Figure = (String, f64);

pub(crate) fn of_update(update: &Update) -> Vec<Figure> {
    let report = &update.report;
    let mut figures = named([
        ("reward", Some(report.reward)),
        ("verified", Some(update.passed)),
        ("faster", Some(update.faster)),
        ("entropy", Some(report.entropy)),
        ("explained variance", report.explained_variance),
        ("flat tasks", Some(report.flat)),
        ("spread within tasks", Some(report.spread)),
        ("tokens", Some(update.tokens)),
        ("turns", Some(update.turns)),
        ("cut short", Some(update.cut)),
        ("loss", Some(report.loss)),
        ("value loss", report.value_loss),
        ("gradient norm", Some(report.norm)),
        ("learning rate", Some(update.rate)),
        ("moved, nats an episode", update.moved()),
    ]);
    figures.extend(ratios("trainer to sampler", report.mismatch.as_ref()));
    figures.extend(ratios("trainer to sampler, rare", report.rare_mismatch.as_ref()));
    figures.extend(ratios("after to before", report.moved.as_ref()));
    figures.extend(named([
        ("alarms", Some(report.alarms.len() as f64)),
        ("failed episodes", Some(update.failed as f64)),
        ("verdicts judged", Some(update.judged.judged as f64)),
        ("verdicts given again", Some(update.judged.repeated as f64)),
        ("judge's queue", queue(update)),
        ("seconds of play", Some(update.play_seconds)),
        ("seconds of learning", Some(update.learn_seconds)),
        ("episodes a minute", per_minute(report.episodes, update.play_seconds)),
    ]));
    figures
}

pub(crate) fn of_epoch(epoch: &Epoch) -> Vec<Figure> {
    named([
        ("loss", Some(epoch.loss)),
        ("held out", Some(epoch.held_out)),
        ("explained variance", epoch.explained_variance),
        ("gradient norm", Some(epoch.norm)),
    ])
}

fn ratios(of: &str, ratios: Option<&Ratios>) -> Vec<Figure> {
    let Some(ratios) = ratios else { return Vec::new() };
    let each = [
        ("mean ratio", ratios.mean),
        ("effective share", ratios.effective_share),
        ("divergence", ratios.kl),
        ("clipped", ratios.clipped),
    ];
    each.into_iter().map(|(name, value)| (format!("{of}: {name}"), value)).collect()
}

/// How many candidates were waiting for their verdicts, over the time of play (Little's law).
fn queue(update: &Update) -> Option<f64> {
    (update.play_seconds > 0.0).then(|| update.judged.seconds / update.play_seconds)
}

fn per_minute(episodes: usize, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| 60.0 * episodes as f64 / seconds)
}

fn named<const N: usize>(figures: [(&str, Option<f64>); N]) -> Vec<Figure> {
    figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Steps of figures as a curve for each name, in the order in which names come up.
pub(crate) fn curves(steps: &[Vec<Figure>]) -> Vec<(String, Vec<f64>)> {
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
    fn a_figure_that_some_steps_have_not_has_gaps_there() {
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
