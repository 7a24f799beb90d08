//! What is only there to be fast decides nothing else than the plain way would (`tests/shortcuts.py`).

use std::path::Path;

use warpwright_jail::Outcome;

use crate::testing::judge;

#[test]
fn faster_ways_in_the_oracle_tell_the_same() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let tests = fs_err::canonicalize(tests).unwrap();
    let judge = judge();
    let host = &judge.host;
    let spec = warpwright_jail::Spec::new(&host.python)
        .args(["-P", &tests.join("shortcuts.py").to_string_lossy()])
        .env("PYTHONPATH", host.package.to_string_lossy())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .with_system()
        .with_python(&host.python)
        .read_only(&host.package)
        .read_only(&tests);
    let finished = host.jail.spawn(spec).unwrap().wait().unwrap();
    let told = String::from_utf8_lossy(&finished.stdout.bytes).into_owned();
    let complaint = String::from_utf8_lossy(&finished.stderr.bytes).into_owned();
    assert_eq!(finished.outcome, Outcome::Exited(0), "{complaint}");
    assert_eq!(told.trim(), "compared 109 2 9 5 14 6 2 13 2");
}
