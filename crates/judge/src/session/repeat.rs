//! Repeats: some verdicts of the device tier are made again in a new replayer, whose context holds nothing of other
//! candidates. Where both differ, the first replayer's verdicts since its last agreement are void.

use std::sync::Arc;
use std::time::Instant;

use rand::RngExt;
use warpwright_build::Artifact;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::Stage;
use warpwright_record::void::VoidTurns;

use super::TaskSession;
use super::recording::{NoPlan, Plans};
use crate::check::findings::Findings;
use crate::device::arena::Arena;
use crate::error::JudgeError;
use crate::process::replayer::{Replayer, Standing};
use crate::process::replayer_pool::ReplayerPool;

/// A replayer that has judged a candidate, or how it stood if it is gone.
pub(super) struct Judged {
    pub(super) standing: Standing,
    pub(super) replayer: Option<Replayer>,
}

impl TaskSession<'_> {
    /// Whether this verdict is one of those that are repeated. Nobody can foresee it.
    pub(super) fn is_to_be_repeated(&mut self) -> bool {
        self.random.random_bool(self.machine.config.repeat_rate.clamp(0.0, 1.0))
    }

    /// Judges plans again, which `by` has judged with these findings, in a new replayer. Where the two
    /// disagree, what the new one found counts. `before`: the findings before either.
    pub(super) fn repeat(
        &mut self,
        (pool, by): (&ReplayerPool, Judged),
        plans: &Plans,
        (artifact, arena): (&Artifact, &Arc<Arena>),
        stage: Stage,
        (before, found): (Findings, &mut Findings),
    ) -> Result<Option<NoPlan>, JudgeError> {
        let repeating = Instant::now();
        let Judged { standing, mut replayer } = by;
        let mut fresh = pool.take_fresh(arena);
        if fresh.is_err() && replayer.take().is_some() {
            // The device may have no memory for one more context. What is gone need not be confirmed.
            fresh = pool.take_fresh(arena);
        }
        let fresh = match fresh {
            Ok(fresh) => fresh,
            Err(error) => {
                pool.give_back(replayer, arena);
                return Err(error);
            }
        };
        let mut again = before;
        let (fresh, went) = self.judge_once(fresh, plans, (artifact, arena), stage, &mut again);
        let differs = matches!(went, Ok(None)).then(|| disagreement(found, &again)).flatten();
        let Some(reason) = differs else {
            if matches!(went, Ok(None))
                && let Some(replayer) = &mut replayer
            {
                replayer.agreed();
            }
            // The pool has as many as before.
            let (goes, stays) = if replayer.is_some() { (fresh, replayer) } else { (None, fresh) };
            pool.end(goes);
            pool.give_back(stays, arena);
            found.seconds.repeat = repeating.elapsed().as_secs_f64();
            return went;
        };
        pool.end(replayer);
        pool.give_back(fresh, arena);
        let lost = standing.turn - standing.agreed;
        again.caveats.push(format!(
            "a replayer was ended: its verdict on this candidate was not confirmed in a new GPU context ({reason}); \
             this is the verdict of the new context, and the last {lost} of that replayer are void"
        ));
        again.seconds.repeat = repeating.elapsed().as_secs_f64();
        let voided = VoidTurns {
            replayer: standing.id,
            after: standing.agreed,
            through: standing.turn,
            time: jiff::Timestamp::now(),
            task: self.task.name.clone(),
            candidate: plans.candidate.clone(),
            reason,
        };
        let kept = self.machine.voids.add(voided);
        kept.map_err(|e| JudgeError::infrastructure("record that verdicts are void", e))?;
        *found = again;
        Ok(None)
    }
}

/// How two runs of the same plans differ beyond noise. Those that both failed agree: how a wrong candidate fails may
/// depend on inputs and on memory that nobody wrote, and neither verdict earns anything.
fn disagreement(first: &Findings, second: &Findings) -> Option<String> {
    if first.bad() != second.bad() {
        return Some(format!("{}, then {}", told(first), told(second)));
    }
    let (Some(one), Some(other)) = (first.times.candidate, second.times.candidate) else {
        return None;
    };
    let differ = !first.bad() && !agree(one, other);
    differ.then(|| format!("{:.4} ms a call, then {:.4} ms", one.value, other.value))
}

/// Whether two measurements of the same kernels differ by no more than their noise allows: the larger of 5 % and
/// three half widths of the wider interval.
pub fn agree(one: Interval, other: Interval) -> bool {
    one.agrees_with(other)
}

/// What a run came to, in a word.
fn told(found: &Findings) -> String {
    if let Some(finding) = found.integrity.first() {
        return finding.class.clone();
    }
    let class = found.failure.as_ref().and_then(|f| serde_json::to_value(f.class).ok());
    let class = class.as_ref().and_then(serde_json::Value::as_str);
    class.unwrap_or("verified").to_owned()
}

#[cfg(test)]
mod tests {
    use warpwright_record::verdict::{FailureClass, IntegrityFinding, Times};

    use super::*;
    use crate::process::failure::failure;

    fn interval(value: f64, half: f64) -> Interval {
        Interval { value, low: value * (1.0 - half), high: value * (1.0 + half) }
    }

    fn timed(value: f64, half: f64) -> Findings {
        let times = Times { candidate: Some(interval(value, half)), ..Times::default() };
        Findings { times, ..Findings::default() }
    }

    fn failed(class: FailureClass) -> Findings {
        Findings { failure: Some(failure(class, "it is wrong")), ..timed(1.0, 0.01) }
    }

    #[test]
    fn times_agree_within_their_noise() {
        let cases = [
            (interval(1.0, 0.001), interval(1.04, 0.001), true),
            (interval(1.0, 0.001), interval(1.06, 0.001), false),
            (interval(1.06, 0.001), interval(1.0, 0.001), false),
            // A wide interval allows more, on either side.
            (interval(1.0, 0.03), interval(1.08, 0.001), true),
            (interval(1.0, 0.001), interval(1.08, 0.03), true),
            (interval(1.0, 0.03), interval(1.1, 0.03), false),
            (interval(f64::NAN, 0.1), interval(1.0, 0.1), false),
            (interval(0.0, 0.1), interval(1.0, 0.1), false),
        ];
        for (one, other, expected) in cases {
            assert_eq!(agree(one, other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn repeats_disagree_in_result_or_time() {
        let (good, slower) = (timed(1.0, 0.01), timed(1.2, 0.01));
        let (wrong, hung) = (failed(FailureClass::Mismatch), failed(FailureClass::Hang));
        assert_eq!(disagreement(&good, &good.clone()), None);
        assert_eq!(disagreement(&good, &slower).unwrap(), "1.0000 ms a call, then 1.2000 ms");
        assert_eq!(disagreement(&good, &wrong).unwrap(), "verified, then mismatch");
        assert_eq!(disagreement(&wrong, &good).unwrap(), "mismatch, then verified");
        assert_eq!(disagreement(&wrong, &hung), None, "neither earns anything");
        let class = "foreign_write".to_owned();
        let finding = IntegrityFinding { class, message: String::new() };
        let wrote = Findings { integrity: vec![finding], ..timed(1.0, 0.01) };
        assert_eq!(disagreement(&wrote, &good).unwrap(), "foreign_write, then verified");
        // A verification without times.
        assert_eq!(disagreement(&Findings::default(), &Findings::default()), None);
    }
}
