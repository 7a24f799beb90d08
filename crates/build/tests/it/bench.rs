//! Fixtures of all tests: a builder with its own cache, candidates, and a Python that loads
//! artifacts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use warpwright_build::{Artifact, Builder, Failed, Outcome, Settings, Target, Toolchain};
use warpwright_jail::{Jail, Limits, Requirement, Spec};
use warpwright_record::candidate::Candidate;
use warpwright_test_support::{Need, missing};

/// A builder and the folder it keeps its cache in.
pub(crate) struct Bench {
    pub(crate) builder: Builder,
    pub(crate) folder: TempDir,
    pub(crate) jail: Arc<Jail>,
}

/// The interpreter with torch that `make setup` installs.
pub(crate) fn python() -> PathBuf {
    let given = std::env::var_os("WARPWRIGHT_PYTHON").map(PathBuf::from);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let path = given.unwrap_or_else(|| std::path::absolute(usual).unwrap());
    assert!(path.exists(), "no interpreter at {}: run `make setup`", path.display());
    let folder = fs_err::canonicalize(path.parent().unwrap()).unwrap();
    folder.join(path.file_name().unwrap())
}

pub(crate) fn bench() -> Bench {
    bench_with(Settings::default())
}

/// As [`bench`], for tests that compile for a GPU: `None` if there is no nvcc and `WARPWRIGHT_SKIP` allows that.
pub(crate) fn bench_with_nvcc() -> Option<Bench> {
    let bench = bench();
    if bench.builder.toolchain().nvcc.is_some() {
        return Some(bench);
    }
    missing(Need::Nvcc);
    None
}

pub(crate) fn bench_with(settings: Settings) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    bench_in(folder, &cache, settings)
}

/// As [`bench`], with the cache that the judge's tests fill, where torch's headers are precompiled on their second
/// use: reading them takes a minute. A test makes its candidates [`unique`], so that it compiles them itself.
pub(crate) fn bench_with_torch_headers() -> Bench {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("test-cache/build");
    bench_in(tempfile::tempdir().unwrap(), &cache, Settings::default())
}

fn bench_in(folder: TempDir, cache: &Path, settings: Settings) -> Bench {
    let jail = Arc::new(Jail::detect(Requirement::Any).unwrap());
    let toolchain = Toolchain::detect(&jail, &python()).unwrap();
    let builder = Builder::new(Arc::clone(&jail), toolchain, settings, cache).unwrap();
    Bench { builder, folder, jail }
}

/// A line comment of C++ that no other process writes.
pub(crate) fn unique() -> String {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("// {} {}\n", std::process::id(), time.as_nanos())
}

pub(crate) fn candidate(files: &[(&str, &str)]) -> Candidate {
    let files = files.iter().map(|(n, t)| ((*n).to_owned(), t.as_bytes().to_vec()));
    let model = ("model_new.py".to_owned(), b"import cuda_extension\n".to_vec());
    Candidate::from_files(std::iter::once(model).chain(files).collect())
}

pub(crate) fn sm_90a() -> Target {
    Target::Cuda { arch: "sm_90a".to_owned() }
}

#[track_caller]
pub(crate) fn built(outcome: Outcome) -> Artifact {
    match outcome {
        Outcome::Built(artifact) => artifact,
        Outcome::Failed(failed) => panic!("did not build: {failed:#?}"),
    }
}

#[track_caller]
pub(crate) fn failed(outcome: Outcome) -> Failed {
    match outcome {
        Outcome::Built(artifact) => panic!("was built: {artifact:#?}"),
        Outcome::Failed(failed) => failed,
    }
}

impl Bench {
    /// Runs Python with `ARTIFACT` set to the folder, and returns its output. A script that raises
    /// fails the test.
    #[track_caller]
    pub(crate) fn python(&self, artifact: &Artifact, script: &str) -> String {
        let python = python();
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
        let package = fs_err::canonicalize(package).unwrap();
        let script = format!(
            "import sys; sys.path.insert(0, {:?}); ARTIFACT = {:?}\n{script}",
            package.display().to_string(),
            artifact.dir.display().to_string()
        );
        let limits = Limits { wall: Duration::from_mins(2), ..Limits::default() };
        let spec = Spec::new(&python)
            .with_system()
            .with_python(&python)
            .read_only(&artifact.dir)
            .read_only(&package)
            .args(["-c", &script])
            .limits(limits);
        let finished = self.jail.run(spec).unwrap();
        let (out, err) = (finished.stdout.text(), finished.stderr.text());
        assert!(finished.outcome.is_success(), "{:?}\n{out}\n{err}", finished.outcome);
        out
    }
}

/// The target that builds fastest, for tests that work with any target.
pub(crate) fn quick() -> Target {
    Target::Cpu
}
