//! Candidates with CUTLASS and cub on a GPU, in both tiers. `make test-gpu` runs these tests.

use crate::support::{Case, config};
use warpwright_judge::{Device, JudgeConfig, LocalJudge};
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{FailureClass, Stage, Tier, Verdict};
use warpwright_task::Task;
use warpwright_test_support::{Need, missing};

const CUTLASS: (&str, &str, &str) = (
    include_str!("../../../../tests/integrity/tasks/linear_half.py"),
    include_str!("../fixtures/libraries/cutlass_linear.py"),
    include_str!("../fixtures/libraries/cutlass_linear.cu"),
);
/// Not recorded: its parameters have gaps.
const COLLECTIVES: (&str, &str, &str) = (
    include_str!("../../../../tests/integrity/tasks/linear_half.py"),
    include_str!("../fixtures/libraries/cutlass_linear.py"),
    include_str!("../fixtures/libraries/cutlass_collectives.cu"),
);
const CUB: (&str, &str, &str) = (
    include_str!("../../../../tests/integrity/tasks/row_squares.py"),
    include_str!("../fixtures/libraries/cub_row_squares.py"),
    include_str!("../fixtures/libraries/cub_row_squares.cu"),
);

fn judged(judge: &LocalJudge, (task, model, kernel): (&str, &str, &str), stage: Stage) -> Verdict {
    let kernels = vec![("k.cu", kernel.to_owned())];
    let case = Case { task: task.to_owned(), model: model.to_owned(), kernels };
    let mut session = judge.task(&Task::from_source("case", task)).unwrap();
    session.judge(&case.candidate(), stage).unwrap()
}

/// Judges a candidate in these tiers, with its library allowed.
fn verified_in(tiers: &[Tier], case: (&str, &str, &str), library: Library) {
    for tier in tiers {
        let libraries: LibrarySet = [library].iter().collect();
        let wanted = JudgeConfig { tier: Some(*tier), libraries, ..config(Device::Cuda(0)) };
        let judge = match LocalJudge::open(wanted) {
            Err(error) if error.to_string().contains("CUTLASS") => return missing(Need::Cutlass),
            judge => judge.unwrap(),
        };
        let verdict = judged(&judge, case, Stage::Measured);
        assert!(verdict.verified, "{tier} tier: {:#?}", verdict.failure);
        assert_eq!((verdict.tier, &verdict.integrity[..]), (*tier, &[][..]));
        assert_eq!(verdict.libraries.allowed, [library]);
        assert_eq!(verdict.libraries.used, [library]);
    }
}

#[test]
fn gpu_cub_is_judged_in_both_tiers() {
    verified_in(&[Tier::Device, Tier::Host], CUB, Library::Cccl);
}

#[test]
fn gpu_cutlass_is_judged_in_both_tiers() {
    verified_in(&[Tier::Device, Tier::Host], CUTLASS, Library::Cutlass);
}

/// They are those of compute capability 9.0.
#[test]
fn gpu_collectives_of_cutlass_are_judged() {
    let judge = LocalJudge::open(config(Device::Cuda(0))).unwrap();
    let hopper = judge.facts().arch.as_deref() == Some("sm_90a");
    drop(judge);
    if hopper {
        verified_in(&[Tier::Host], COLLECTIVES, Library::Cutlass);
    }
}

#[test]
fn gpu_libraries_are_refused_by_default() {
    let judge = LocalJudge::open(config(Device::Cuda(0))).unwrap();
    let verdict = judged(&judge, CUB, Stage::Verified);
    let failure = verdict.failure.unwrap();
    assert_eq!(failure.class, FailureClass::ForbiddenImport);
    assert!(failure.message.contains("`--libraries cccl`"), "{}", failure.message);
    assert!(verdict.libraries.is_empty());
}

/// The option allows nothing, and the same candidate is refused for the task without that line.
#[test]
fn gpu_libraries_of_a_task_are_allowed_for_it_alone() {
    let judge = LocalJudge::open(config(Device::Cuda(0))).unwrap();
    let (task, model, kernel) = CUB;
    let task = format!("libraries = [\"cccl\"]\n{task}");
    let verdict = judged(&judge, (&task, model, kernel), Stage::Verified);
    assert!(verdict.verified, "{:#?}", verdict.failure);
    assert_eq!(verdict.libraries.allowed, [Library::Cccl]);
    assert_eq!(verdict.libraries.used, [Library::Cccl]);
    assert!(!judged(&judge, CUB, Stage::Verified).verified);
}
