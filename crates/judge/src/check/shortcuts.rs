//! Tests that fast paths of the oracle decide the same as the plain ones (`tests/shortcuts.py`).

use crate::testing::python_test;

#[test]
fn fast_paths_of_the_oracle_change_no_result() {
    assert_eq!(python_test("shortcuts.py"), "compared 109 2 12 5 14 6 2 13 2");
}
