//! The jail's claims about its isolation.

use warpwright_jail::{Backend, Jail, JailError, Level, Requirement};
use warpwright_test_support::{Need, missing};

use crate::support::{is_root, jails, namespaces, run_again_without_privileges};

#[test]
fn namespaces_reach_full_isolation_and_landlock_does_not() {
    for (backend, jail) in jails() {
        let isolation = jail.isolation();
        let expected = if backend == Backend::Landlock { Level::Partial } else { Level::Full };
        assert_eq!(isolation.level, expected, "{isolation:#?}");
        assert_eq!(isolation.missing.is_empty(), expected == Level::Full, "{isolation:#?}");
        assert!(isolation.enforced.iter().any(|claim| claim == "no network"), "{isolation:#?}");
    }
    assert!(!namespaces().is_empty());
}

#[test]
fn full_isolation_is_refused_on_a_partial_backend() {
    let among = [Backend::Landlock];
    let partial =
        Jail::detect_among(&among, Requirement::Any).expect("the control: it works at all");
    assert_eq!(partial.isolation().level, Level::Partial);
    let error = Jail::detect_among(&among, Requirement::Full).expect_err("partial is not full");
    assert!(matches!(&error, JailError::NotFull { missing, .. } if !missing.is_empty()), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn detection_chooses_the_best_backend() {
    let jail = Jail::detect(Requirement::Full).expect("full isolation on a test machine");
    let expected = if is_root() { Backend::Namespaces } else { Backend::Bubblewrap };
    assert_eq!(jail.isolation().backend, expected.name());
}

#[test]
fn all_tests_pass_without_privileges() {
    if !is_root() {
        // The other tests of this run show it.
        missing(Need::Root);
        return;
    }
    let (worked, output) = run_again_without_privileges();
    assert!(worked, "{output}");
    assert!(output.contains("test result: ok"), "{output}");
}
