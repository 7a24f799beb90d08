//! What honest programs are off by, and what the judge's models say of it (`tests/honest_sums.py`).

use crate::testing::python_test;

#[test]
fn sums_in_order_stay_within_the_model() {
    assert_eq!(python_test("honest_sums.py"), "tried 163 3");
}

#[test]
fn adding_up_at_one_place_is_computing() {
    assert_eq!(python_test("what_computes.py"), "asked of 11 6");
}
