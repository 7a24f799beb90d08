//! Cases traced by torch, written by the teacher, built in a few libraries, compared by torch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;
use warpwright_agent::judge::DeviceFacts;
use warpwright_build::{Artifact, Builder, Outcome, Settings, Target, Toolchain};
use warpwright_jail::{Jail, Limits, Requirement, Spec};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::Profile;

/// Number of cases whose kernels are compiled as one file.
const CASES_PER_FILE: usize = 12;

/// A traced case.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) trace: String,
}

/// A builder, and the folder it works in.
pub(crate) struct Bench {
    builder: Builder,
    folder: TempDir,
    jail: Arc<Jail>,
}

/// The interpreter with torch that `make setup` installs.
fn python() -> PathBuf {
    let given = std::env::var_os("WARPWRIGHT_PYTHON").map(PathBuf::from);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let path = given.unwrap_or_else(|| std::path::absolute(usual).unwrap());
    assert!(path.exists(), "no interpreter at {}: run `make setup`", path.display());
    let folder = fs_err::canonicalize(path.parent().unwrap()).unwrap();
    folder.join(path.file_name().unwrap())
}

/// The device the kernels are written for; they run on the host either way.
pub(crate) fn device(name: &str) -> DeviceFacts {
    let cpu = name == "cpu";
    DeviceFacts {
        device: name.to_owned(),
        hardware: String::new(),
        arch: (!cpu).then(|| "sm_90".to_owned()),
        processors: if cpu { 2 } else { 132 },
        bandwidth_bytes_per_second: None,
        cache_bytes: 50 << 20,
        shared_bytes_per_block: 227 << 10,
        libraries: warpwright_record::libraries::LibrarySet::default(),
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        let jail = Arc::new(Jail::detect(Requirement::Any).unwrap());
        let toolchain = Toolchain::detect(&jail, &python()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        let builder =
            Builder::new(Arc::clone(&jail), toolchain, Settings::default(), &cache).unwrap();
        Self { builder, folder, jail }
    }

    fn python(&self, args: &[String], folders: &[&Path]) -> (bool, String) {
        let python = python();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tests = fs_err::canonicalize(here.join("tests")).unwrap();
        let template = fs_err::canonicalize(here.join("../agent/template")).unwrap();
        let limits =
            Limits { wall: Duration::from_mins(20), output_bytes: 256 << 20, ..Limits::default() };
        let mut spec = Spec::new(&python)
            .with_system()
            .with_python(&python)
            .read_only(&tests)
            .read_only(&template)
            .env("PYTHONPATH", template.display().to_string())
            .args(["-W", "ignore", "-B"])
            .arg(tests.join("harness.py").display().to_string())
            .args(args.iter().map(String::as_str))
            .limits(limits);
        for folder in folders {
            spec = spec.read_only(folder);
        }
        let finished = self.jail.run(spec).unwrap();
        let (out, err) = (finished.stdout.text().clone(), finished.stderr.text());
        let good = finished.outcome.is_success();
        assert!(good || !out.trim().is_empty(), "{:?}\n{err}", finished.outcome);
        (good, out)
    }

    /// Samples and traces cases.
    pub(crate) fn trace(&self, seed: u64, count: u64, family: Option<&str>) -> Vec<Case> {
        let mut args: Vec<String> =
            ["trace", "--seed", &seed.to_string(), "--count", &count.to_string()]
                .map(str::to_owned)
                .to_vec();
        args.extend(family.iter().flat_map(|f| ["--family".to_owned(), (*f).to_owned()]));
        let (good, out) = self.python(&args, &[]);
        assert!(good, "the tracer failed: {out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Traces references from their sources.
    pub(crate) fn trace_sources(&self, sources: &BTreeMap<String, String>) -> Vec<Case> {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        for (name, text) in sources {
            fs_err::write(folder.path().join(format!("{name}.py")), text).unwrap();
        }
        open_to_all(folder.path());
        let path = folder.path().display().to_string();
        let args = ["trace".to_owned(), "--files".to_owned(), path];
        let (good, out) = self.python(&args, &[folder.path()]);
        assert!(good, "the tracer failed: {out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Writes every case for `device`, runs all on the host, and lists the errors.
    pub(crate) fn conform(&self, cases: &[Case], device: &DeviceFacts, plain: bool) -> Vec<String> {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        let mut wrong = Vec::new();
        let mut kernels: Vec<String> = Vec::new();
        for (i, case) in cases.iter().enumerate() {
            let id = format!("case_{i:03}");
            let files =
                match warpwright_teacher::translate(&case.trace, device, Profile::Strict, plain) {
                    Ok(files) => files,
                    Err(reason) => {
                        wrong.push(format!("{id} {}: {reason}", case.name));
                        continue;
                    }
                };
            let place = folder.path().join(&id);
            fs_err::create_dir_all(&place).unwrap();
            fs_err::write(place.join("name"), &case.name).unwrap();
            fs_err::write(place.join("model.py"), &case.model).unwrap();
            fs_err::write(place.join("model_new.py"), &files["model_new.py"]).unwrap();
            kernels.push(without_graphs(&together(&id, &files)));
        }
        let artifact = self.build(&kernels, &Target::Cpu);
        let library = folder.path().join("libkernels.so");
        fs_err::copy(artifact.dir.join("libkernels.so"), &library).unwrap();
        open_to_all(folder.path());
        let args = ["compare".to_owned(), folder.path().display().to_string()];
        let (good, out) = self.python(&args, &[folder.path()]);
        wrong.extend(out.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned));
        assert!(good || !wrong.is_empty(), "the comparison failed and said nothing");
        wrong
    }

    /// Compiles the kernels of some cases for a real GPU architecture.
    pub(crate) fn compile_for(&self, cases: &[Case], device: &DeviceFacts, arch: &str) -> Artifact {
        let texts: Vec<String> = cases
            .iter()
            .enumerate()
            .filter_map(|(i, c)| {
                let files =
                    warpwright_teacher::translate(&c.trace, device, Profile::Strict, false).ok()?;
                Some(together(&format!("case_{i:03}"), &files))
            })
            .collect();
        self.build(&texts, &Target::Cuda { arch: arch.to_owned() })
    }

    fn build(&self, kernels: &[String], target: &Target) -> Artifact {
        let mut files = BTreeMap::new();
        files.insert("model_new.py".to_owned(), b"import cuda_extension\n".to_vec());
        for (k, texts) in kernels.chunks(CASES_PER_FILE).enumerate() {
            let body = texts.concat();
            let used = LIBRARIES.iter().filter(|(word, _)| body.contains(word));
            let libraries: String = used.map(|(_, h)| format!("#include <{h}>\n")).collect();
            let graphs = if body.contains("refusedGraph") { NO_GRAPHS } else { "" };
            let text = format!("{INCLUDES}{libraries}{graphs}{body}");
            files.insert(format!("kernels/batch_{k}.cu"), text.into_bytes());
        }
        match self.builder.build(&Candidate::from_files(files), target).unwrap() {
            Outcome::Built(artifact) => artifact,
            Outcome::Failed(failed) => panic!("did not build: {failed:#?}"),
        }
    }
}

const INCLUDES: &str = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n\
                        #include <cuda_bf16.h>\n#include <cmath>\n#include <cstddef>\n\
                        #include <cstdint>\n#include <vector>\n";

/// Stub functions of CUDA graphs that refuse to capture: the cpu device has none.
const NO_GRAPHS: &str = "
typedef void* refusedGraph_t;
typedef void* refusedGraphExec_t;
enum { refusedStreamCaptureModeThreadLocal };
static inline cudaError_t refusedStreamBeginCapture(cudaStream_t, int) { return cudaErrorNotSupported; }
static inline cudaError_t refusedStreamEndCapture(cudaStream_t, refusedGraph_t*) { return cudaErrorNotSupported; }
static inline cudaError_t refusedGraphInstantiate(refusedGraphExec_t*, refusedGraph_t, int) { return cudaErrorNotSupported; }
static inline cudaError_t refusedGraphLaunch(refusedGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
static inline void refusedGraphDestroy(refusedGraph_t) {}
static inline void refusedGraphExecDestroy(refusedGraphExec_t) {}
";

/// `text` with a device that refuses to capture graphs.
fn without_graphs(text: &str) -> String {
    let names = ["Graph", "StreamBeginCapture", "StreamEndCapture", "StreamCaptureMode"];
    names.iter().fold(text.to_owned(), |text, name| {
        text.replace(&format!("cuda{name}"), &format!("refused{name}"))
    })
}

/// Header required by a file that contains this word.
const LIBRARIES: [(&str, &str); 2] =
    [("cublasHandle_t", "cublas_v2.h"), ("cudnnHandle_t", "cudnn.h")];

/// All kernel files of a case, each in its own namespace, with launchers named after the case.
fn together(id: &str, files: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for (path, text) in files {
        let Some(name) = path.strip_prefix("kernels/").and_then(|p| p.strip_suffix(".cu")) else {
            continue;
        };
        let body: String =
            text.lines().filter(|l| !l.starts_with("#include")).map(|l| format!("{l}\n")).collect();
        // Those of other files, too: a chain calls them.
        let mut names: Vec<String> = files
            .keys()
            .filter_map(|path| Some(path.strip_prefix("kernels/")?.strip_suffix(".cu")?.to_owned()))
            .collect();
        let chains: Vec<String> =
            names.iter().filter(|name| name.starts_with("chain")).cloned().collect();
        let holds = |chain: &String| (0..4).map(|part| format!("{chain}_hold_{part}")).collect();
        names.extend(chains.iter().flat_map::<Vec<String>, _>(holds));
        let mut renamed = String::new();
        for (i, part) in body.split("_launcher").enumerate() {
            if i > 0 {
                renamed.push_str("_launcher");
            }
            let start =
                part.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
            let (before, word) = part.split_at(start);
            renamed.push_str(before);
            if names.iter().any(|name| name == word) {
                renamed.push_str(&format!("{id}_"));
            }
            renamed.push_str(word);
        }
        let body = renamed;
        out.push_str(&format!("namespace {id}_{name} {{\n{body}}}\n"));
    }
    out
}

/// Makes files readable: the jailed interpreter runs as another user.
fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let folder = fs_err::metadata(path).unwrap().is_dir();
    let mode = if folder { 0o755 } else { 0o644 };
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    if folder {
        for entry in fs_err::read_dir(path).unwrap() {
            open_to_all(&entry.unwrap().path());
        }
    }
}
