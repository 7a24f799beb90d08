//! `warpwright doctor`: checks this machine, and names the command that fixes what is missing.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use warpwright_build::{Python, Toolchain};
use warpwright_jail::{Jail, Level, Requirement};
use warpwright_judge::{Calibration, Effort, Kind, Trial};
use warpwright_record::verdict::Profile;
use warpwright_rollout::judge_host::JudgeOptions;
use warpwright_rollout::{folders, gpu, python};

use crate::args::{BaselinesArg, Common, Doctor, HostArgs, IsolationArg};
use crate::contract::VERSION;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{exit, judging};

/// Default number of seconds for judging pairs of kernels whose speed ratio is known.
const CALIBRATE_SECONDS: u64 = 75;
/// Judgements between two progress lines.
const SAY_EVERY: usize = 10;
/// Minimum free disk space for builds, in bytes.
const ROOM_BYTES: u64 = 2 << 30;

#[derive(Debug, Serialize)]
struct Findings {
    version: u32,
    /// Whether this machine can judge.
    ready: bool,
    /// Usable devices, best first.
    devices: Vec<DeviceFound>,
    checks: Vec<Check>,
    /// Results of `--calibrate`.
    calibration: Option<Calibration>,
}

#[derive(Debug, Serialize)]
struct DeviceFound {
    device: String,
    hardware: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Works.
    Ok,
    /// Works with limits, or only some commands need it.
    Weak,
    /// Missing, and judging needs it.
    Missing,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    detail: String,
    mend: Option<String>,
}

impl Check {
    fn new(
        name: &'static str,
        state: State,
        detail: impl Into<String>,
        mend: Option<&str>,
    ) -> Self {
        Self { name, state, detail: detail.into(), mend: mend.map(str::to_owned) }
    }
}

pub(crate) fn run(args: &Doctor, printer: Printer) -> Result<u8, Failure> {
    let mut findings = look(args);
    if args.calibrate {
        findings.calibration = Some(calibrate(args, printer)?);
    }
    printer.data(&render(&findings));
    let code = if findings.ready { exit::OK } else { exit::INFRASTRUCTURE };
    printer.object(&findings);
    Ok(code)
}

/// Measures the device's ceilings and the judge's timing error; the judge stores both in the cache.
fn calibrate(args: &Doctor, printer: Printer) -> Result<Calibration, Failure> {
    let common = Common {
        device: vec![args.device],
        seed: 0,
        require_tier: Some(args.require_tier),
        memory_limit: None,
        host: HostArgs {
            baselines: BaselinesArg::Default,
            require_isolation: IsolationArg::Any,
            python: args.python.clone(),
            cache: args.cache.clone(),
            json: args.json,
        },
        libraries: None,
    };
    // The kernels copy their input.
    let wanted = judging::options(&common, Profile::Strict).of_any_task();
    let wanted = JudgeOptions { window_ms: args.window_ms, ..wanted };
    let host = judging::open(&common, args.device, wanted, printer)?;
    printer.say(&format!("calibrating {}", host.device()));
    // Without a number of pairs, as long as one likes to wait.
    let seconds = args.seconds.or(args.pairs.is_none().then_some(CALIBRATE_SECONDS));
    let effort = Effort { pairs: args.pairs, seconds };
    let started = Instant::now();
    let said = |trials: &[Trial]| {
        if trials.len().is_multiple_of(SAY_EVERY) {
            let pairs = trials.iter().filter(|trial| trial.kind == Kind::Identical).count();
            let (all, passed) = (trials.len(), started.elapsed().as_secs());
            printer.say(&format!(
                "judged {all} kernel pairs of known speed ratio, {pairs} of them identical, in {passed} s"
            ));
        }
    };
    Ok(host.judge.calibrate_exactly(effort, &said)?)
}

fn look(args: &Doctor) -> Findings {
    let mut checks = Vec::new();
    let python = python::find(args.python.as_deref());
    let jail = isolation(&mut checks);
    runners(&mut checks, jail.as_ref());
    interpreter(&mut checks, python.as_ref());
    compilers(&mut checks, jail.as_ref(), python.as_ref());
    let devices = devices(&mut checks, python.as_ref());
    room(&mut checks, &folders::cache(args.cache.as_deref()));
    let ready = checks.iter().all(|check| check.state != State::Missing);
    Findings { version: VERSION, ready, devices, checks, calibration: None }
}

fn isolation(checks: &mut Vec<Check>) -> Option<Jail> {
    match Jail::detect(Requirement::Any) {
        Ok(jail) => {
            let found = jail.isolation();
            let (enforced, backend) = (found.enforced.join(", "), &found.backend);
            checks.push(match found.level {
                Level::Full => {
                    Check::new("isolation", State::Ok, format!("full, {backend}: {enforced}"), None)
                }
                Level::Partial => Check::new(
                    "isolation",
                    State::Weak,
                    format!("partial, {backend}: {enforced}; missing: {}", found.missing.join(", ")),
                    Some("install bubblewrap (`apt install bubblewrap`), or allow unprivileged user namespaces"),
                ),
            });
            Some(jail)
        }
        Err(error) => {
            let hint = error.hint();
            checks.push(Check::new("isolation", State::Missing, chain(&error), hint.as_deref()));
            None
        }
    }
}

/// Checks how runner processes start.
fn runners(checks: &mut Vec<Check>, jail: Option<&Jail>) {
    let Some(jail) = jail else { return };
    checks.push(match jail.fork_library() {
        Some(library) if jail.can_fork() => {
            let detail =
                format!("forked from a process that has imported torch, by {}", library.display());
            Check::new("runners", State::Ok, detail, None)
        }
        Some(_) => {
            let detail = "each imports torch itself: this isolation backend cannot fork them";
            let mend = "run as root, or allow unprivileged user namespaces";
            Check::new("runners", State::Weak, detail, Some(mend))
        }
        None => {
            let detail =
                "each imports torch itself: the fork library is not next to the executable";
            let mend = "run `make setup`, which builds libwarpwright_jail_fork.so, or set \
                        WARPWRIGHT_JAIL_FORK to its path";
            Check::new("runners", State::Weak, detail, Some(mend))
        }
    });
}

fn interpreter(checks: &mut Vec<Check>, python: Option<&python::Python>) {
    const MEND: Option<&str> = Some("run `make setup` in the project, or set WARPWRIGHT_PYTHON");
    let Some(python) = python else {
        checks.push(Check::new("python", State::Missing, "no interpreter was found", MEND));
        return;
    };
    let path = python.executable.display();
    let Some(version) = Python::find(&python.executable).map(|found| found.version) else {
        let detail = format!("{path} is not a working interpreter ({})", python.found);
        checks.push(Check::new("python", State::Missing, detail, MEND));
        return;
    };
    checks.push(Check::new(
        "python",
        State::Ok,
        format!("{version} at {path}, {}", python.found),
        None,
    ));
    checks.push(match &python.torch {
        Some(torch) if python.torch_is_compiled() => {
            Check::new("torch", State::Ok, torch.clone(), None)
        }
        Some(torch) => {
            let detail =
                format!("{torch}, not compiled to bytecode: importing it takes twice as long");
            let folder = python.site_packages.as_deref().unwrap_or(Path::new("."));
            let mend = format!("`{path} -m compileall -q -j 0 {}`", folder.display());
            Check::new("torch", State::Weak, detail, Some(&mend))
        }
        None => Check::new("torch", State::Missing, format!("not installed for {path}"), MEND),
    });
}

fn compilers(checks: &mut Vec<Check>, jail: Option<&Jail>, python: Option<&python::Python>) {
    const GXX: Option<&str> = Some("install a C++ compiler: `apt install g++`");
    const NVCC: Option<&str> = Some(
        "install the CUDA toolkit, or run `make setup`, which fetches nvcc from PyPI; a GPU needs it, \
         and the cpu device reports registers and spills with it",
    );
    let Some(jail) = jail else {
        let detail = "not checked: compilers run only in the jail";
        checks.push(Check::new("compilers", State::Missing, detail, None));
        return;
    };
    let none = Path::new("");
    let executable = python.map_or(none, |python| python.executable.as_path());
    let tools = match Toolchain::detect(jail, executable) {
        Ok(tools) => tools,
        Err(error) => {
            checks.push(Check::new("compilers", State::Missing, chain(&error), GXX));
            return;
        }
    };
    checks.push(match &tools.cxx {
        Some(cxx) => {
            Check::new("c++", State::Ok, format!("{} at {}", cxx.version, cxx.path.display()), None)
        }
        None => Check::new("c++", State::Missing, "no g++ and no clang++ on the PATH", GXX),
    });
    checks.push(match &tools.nvcc {
        Some(cuda) => Check::new(
            "nvcc",
            State::Ok,
            format!("{} at {}", cuda.version, cuda.nvcc.display()),
            None,
        ),
        None => Check::new("nvcc", State::Weak, "not found", NVCC),
    });
    if let Some(cutlass) = &tools.cutlass {
        let detail = format!("{} at {}", cutlass.version, cutlass.root.display());
        checks.push(Check::new("cutlass", State::Ok, detail, None));
    }
    let linker = tools.linker.as_ref().map(|linker| linker.name.clone());
    let mend = Some("`apt install mold` makes builds half a second faster");
    checks.push(linker.map_or_else(
        || Check::new("linker", State::Weak, "the default linker", mend),
        |name| Check::new("linker", State::Ok, name, None),
    ));
}

fn devices(checks: &mut Vec<Check>, python: Option<&python::Python>) -> Vec<DeviceFound> {
    let mut devices = Vec::new();
    let gpus = gpu::all();
    let torch_has_cuda =
        python.and_then(|python| Python::find(&python.executable)?.torch()?.cuda).is_some();
    if gpus.is_empty() {
        let mend = Some("the cpu device needs none; for a GPU, install the NVIDIA driver");
        checks.push(Check::new("gpu", State::Weak, "no NVIDIA GPU is visible", mend));
    } else if torch_has_cuda {
        for gpu in gpus {
            let device = format!("cuda:{}", gpu.number);
            let detail = format!("{device}: {}, driver {}", gpu.name, gpu::driver());
            checks.push(Check::new("gpu", State::Ok, detail, None));
            devices.push(DeviceFound { device, hardware: gpu.name });
        }
    } else {
        let detail = format!("{} visible, but torch is built without CUDA", gpus.len());
        checks.push(Check::new("gpu", State::Weak, detail, Some("install a CUDA build of torch")));
    }
    let machine = warpwright_record::run::Machine::here();
    let hardware = format!("{}, {} cores", machine.cpu, machine.cores);
    checks.push(Check::new("cpu device", State::Ok, hardware.clone(), None));
    devices.push(DeviceFound { device: "cpu".to_owned(), hardware });
    devices
}

fn room(checks: &mut Vec<Check>, cache: &Path) {
    let existing = cache.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let free = rustix::fs::statvfs(existing).map(|stat| stat.f_bavail * stat.f_frsize);
    let path = cache.display();
    checks.push(match free {
        Ok(free) if free >= ROOM_BYTES => Check::new(
            "cache",
            State::Ok,
            format!("{path}, {} GB free", free / 1_000_000_000),
            None,
        ),
        Ok(free) => {
            let detail = format!("{path}, only {} MB free", free / 1_000_000);
            let mend = Some("free disk space, or set WARPWRIGHT_CACHE to a folder on another disk");
            Check::new("cache", State::Weak, detail, mend)
        }
        Err(error) => Check::new("cache", State::Weak, format!("{path}: {error}"), None),
    });
}

fn render(findings: &Findings) -> String {
    let mut text = String::new();
    for check in &findings.checks {
        let mark = match check.state {
            State::Ok => "ok     ",
            State::Weak => "weak   ",
            State::Missing => "MISSING",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{mark} {:<11} {}", check.name, check.detail);
        if let Some(mend) = &check.mend {
            let _ = writeln!(text, "{:19} -> {mend}", "");
        }
    }
    if let Some(measured) = &findings.calibration {
        let _ = writeln!(
            text,
            "\ncalibrated {}: copy bandwidth {:.1} GB/s, launch cost through torch {:.2} us",
            measured.device,
            measured.bandwidth_bytes_per_second as f64 / 1e9,
            measured.launch_microseconds
        );
        if let Some(exactness) = &measured.exactness {
            let _ = writeln!(text, "{exactness}");
        }
    }
    let devices: Vec<_> = findings.devices.iter().map(|d| d.device.as_str()).collect();
    if findings.ready {
        let _ = writeln!(text, "\nready: tasks can be judged on {}", devices.join(", "));
    } else {
        let _ = writeln!(text, "\nnot ready: fix the MISSING entries above");
    }
    text
}
