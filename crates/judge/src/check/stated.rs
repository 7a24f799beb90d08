//! The tolerance that a workload states itself, as benchmarks do: a result has to satisfy it besides the judge's own
//! rule, on the task's own inputs, for which it was chosen. As in benchmarks, it is about the distance from the
//! reference's result in its own precision: roundings of the reference are no errors of the candidate.

use warpwright_record::inputs::InputFamily;
use warpwright_task::WorkloadTolerance;

use crate::check::compare::{Compared, Terms};
use crate::check::tolerance::{Steps, Tolerance};

/// One element of this many may be outside it. Benchmarks say so, and the judge's own rule is about every element.
const ONE_OF: u64 = 100;

/// The rule for outputs of the family that were compared by `terms`, if the workload states one.
pub(crate) fn terms(
    stated: Option<WorkloadTolerance>,
    family: InputFamily,
    terms: Terms,
) -> Option<Terms> {
    let WorkloadTolerance { atol, rtol } = stated?;
    let applies = family == InputFamily::Own && terms.dtype.is_real();
    applies.then_some(Terms {
        tolerance: Tolerance { atol, rtol },
        steps: Steps::default(),
        ..terms
    })
}

/// Whether too many elements are outside the stated tolerance.
pub(crate) fn exceeded(told: &Compared) -> bool {
    told.wrong > told.count / ONE_OF
}
