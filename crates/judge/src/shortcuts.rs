//! What is only there to be fast decides nothing else than the plain way would (`tests/shortcuts.py`).

use crate::testing::python_test;

#[test]
fn faster_ways_in_the_oracle_tell_the_same() {
    assert_eq!(python_test("shortcuts.py"), "compared 109 2 11 5 14 6 2 13 2");
}
