//! Tests of the oracle's numerics: errors of honest programs against the judge's models of them, and the
//! inputs they are measured on (`tests/honest_sums.py`, `errors_by_size.py`, `other_inputs.py`,
//! `admission.py`), how those are sampled (`sampling.py`), truths by themselves (`truths.py`), elements near a
//! tie (`ties.py`), which references compute (`what_computes.py`), and what differs for large tasks
//! (`large_tasks.py`) and steps (`steps.py`).

use crate::testing::python_test;

#[test]
fn errors_of_sequential_sums_stay_within_the_model() {
    assert_eq!(python_test("honest_sums.py"), "tried 109 3");
}

#[test]
fn errors_are_estimated_per_magnitude_of_the_output() {
    assert_eq!(python_test("errors_by_size.py"), "looked at 12 5 1");
}

#[test]
fn families_change_inputs_as_documented() {
    assert_eq!(
        python_test("other_inputs.py"),
        "looked at 16 2 3 2 14\nlooked at 60 6 8 60\nlooked at 3 3 3"
    );
}

#[test]
fn admitted_families_do_not_depend_on_the_seed() {
    assert_eq!(python_test("admission.py"), "looked at 11 10");
}

#[test]
fn elements_near_a_tie_are_found_in_honest_programs() {
    assert_eq!(python_test("ties.py"), "looked at 3");
}

#[test]
fn sampled_inputs_have_their_distributions() {
    assert_eq!(python_test("sampling.py"), "looked at 2097152");
}

#[test]
fn truths_alone_agree_with_full_expectations() {
    assert_eq!(python_test("truths.py"), "compared 20");
}

#[test]
fn large_tasks_are_judged_without_copies() {
    assert_eq!(python_test("large_tasks.py"), "looked at 38");
}

#[test]
fn accumulating_scatters_need_a_kernel() {
    assert_eq!(python_test("what_computes.py"), "asked of 11 6");
}

#[test]
fn modes_of_torch_keep_no_output_from_being_copied() {
    assert_eq!(python_test("steps.py"), "tried 4");
}

#[test]
fn modes_do_not_import_the_compiler() {
    assert_eq!(python_test("operator_modes.py"), "modes 6 operators 6");
}
