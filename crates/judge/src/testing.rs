//! Helpers of the unit tests.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use warpwright_jail::{Limits, Outcome, Requirement};
use warpwright_record::verdict::Profile;
use warpwright_test_support::{Need, missing};

use crate::admission::degenerate::Degenerate;
use crate::device::facts::Device;
use crate::judge::{BaselineSet, JudgeConfig, LocalJudge};

/// The judge on the cpu device that the tests of this process share: the fork servers of a judge import torch
/// once each, for seconds of a core. A test gets its own by [`own_judge`] if it counts, kills or replaces
/// parts of its judge.
pub(crate) fn shared_judge() -> &'static LocalJudge {
    // Never dropped. Its processes end when this process does.
    static SHARED: OnceLock<LocalJudge> = OnceLock::new();
    SHARED.get_or_init(|| own_judge(Device::Cpu))
}

/// A new judge on a device, with the project's own torch and the cache that tests share.
pub(crate) fn own_judge(device: Device) -> LocalJudge {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = fs_err::canonicalize(here.join("../..")).unwrap();
    let python = std::env::var_os("WARPWRIGHT_PYTHON")
        .map_or_else(|| workspace.join(".venv/bin/python"), PathBuf::from);
    LocalJudge::open(JudgeConfig {
        device,
        profile: Profile::Strict,
        seed: 1,
        baselines: BaselineSet::Usual,
        degenerate: Degenerate::Judged,
        isolation: Requirement::Any,
        python,
        cache: workspace.join("target/test-cache"),
        tier: None,
        share_baselines: true,
        libraries: warpwright_record::libraries::LibrarySet::default(),
        repeat_rate: 0.0,
        memory_limit: None,
        window: None,
    })
    .unwrap()
}

/// As [`own_judge`], for tests of forked processes: `None` if its jail has no fork server and `WARPWRIGHT_SKIP`
/// allows that.
pub(crate) fn forking_judge(device: Device) -> Option<LocalJudge> {
    let judge = own_judge(device);
    if judge.processes.host.jail.can_fork() {
        return Some(judge);
    }
    missing(Need::ForkServer);
    None
}

/// The last line of what a Python test of the oracle's package prints (a file of `tests/`).
pub(crate) fn python_test(file: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let tests = fs_err::canonicalize(tests).unwrap();
    let native = tests.with_file_name("native");
    let host = &shared_judge().processes.host;
    let spec = warpwright_jail::Spec::new(&host.python)
        .args(["-P", &tests.join(file).to_string_lossy()])
        .env("PYTHONPATH", format!("{}:{}", host.package.display(), tests.display()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Some of them compile.
        .limits(Limits { wall: Duration::from_mins(5), ..Limits::default() })
        .with_system()
        .with_python(&host.python)
        .read_only(&host.package)
        .read_only(&tests)
        .read_only(&native);
    let finished = host.jail.spawn(spec).unwrap().wait().unwrap();
    let complaint = String::from_utf8_lossy(&finished.stderr.bytes).into_owned();
    assert_eq!(finished.outcome, Outcome::Exited(0), "{complaint}");
    String::from_utf8_lossy(&finished.stdout.bytes).trim().to_owned()
}
