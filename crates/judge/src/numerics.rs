//! What honest programs are off by, what the judge's models say of it, and on which inputs they are
//! tried (`tests/honest_sums.py`, `errors_by_size.py`, `other_inputs.py`, `admission.py`), what they say of
//! elements near a tie (`ties.py`), and which references compute (`what_computes.py`).

use crate::testing::python_test;

#[test]
fn sums_in_order_stay_within_the_model() {
    assert_eq!(python_test("honest_sums.py"), "tried 109 3");
}

#[test]
fn outputs_of_several_scales_have_errors_by_size() {
    assert_eq!(python_test("errors_by_size.py"), "looked at 12 5 1");
}

#[test]
fn families_change_what_they_say() {
    assert_eq!(
        python_test("other_inputs.py"),
        "looked at 13 3 2 14\nlooked at 60 6 8 60\nlooked at 3 3 3"
    );
}

#[test]
fn which_families_a_task_is_given_depends_on_no_draw() {
    assert_eq!(python_test("admission.py"), "looked at 8 10");
}

#[test]
fn honest_programs_have_what_is_near_a_tie() {
    assert_eq!(python_test("ties.py"), "looked at 3");
}

#[test]
fn adding_up_at_one_place_is_computing() {
    assert_eq!(python_test("what_computes.py"), "asked of 11 6");
}
