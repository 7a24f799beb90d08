//! Brings void verdicts of the judges into the record of a run, so that no reader counts them.

use warpwright_record::history::{Episode, History};
use warpwright_record::void::VoidTurns;

/// Rounds in which episodes whose verdict became void are measured again. More than one are rare.
pub(crate) const ROUNDS: usize = 3;

/// Void verdicts that a record does not mention yet: those that it has, and those that were found `since` then, which
/// may be about episodes that are forgotten here.
pub(crate) fn unmentioned(
    all: impl IntoIterator<Item = VoidTurns>,
    history: &History,
    since: Option<jiff::Timestamp>,
) -> Vec<VoidTurns> {
    let has = |voided: &VoidTurns| history.episodes.values().any(|episode| given(episode, voided));
    let mut found: Vec<VoidTurns> = Vec::new();
    for voided in all {
        let known = history.voided.contains(&voided) || found.contains(&voided);
        if !known && (since.is_some_and(|since| voided.time >= since) || has(&voided)) {
            found.push(voided);
        }
    }
    found
}

/// Whether an episode was given one of these verdicts.
fn given(episode: &Episode, voided: &VoidTurns) -> bool {
    let end = episode.end.as_ref();
    let ends = end.and_then(|end| end.final_verdict.as_ref());
    let best = end.and_then(|end| end.best_verdict.as_ref());
    let way = episode.verdicts().map(|(_, given)| &given.verdict);
    way.chain(ends).chain(best).any(|verdict| voided.covers(verdict))
}
