//! Cold starts: a new process builds, compares and times a candidate, and keeps nothing. Kernels
//! are evaluated in this way without a judge. `cold.py` is that process.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use warpwright_build::template;
use warpwright_jail::{Gpu, Limits, Outcome, Spec};
use warpwright_judge::Device;
use warpwright_rollout::judge_host::JudgeHost;

use super::subjects::Stream;
use super::{DeviceContext, Subject, median};
use crate::failure::Failure;
use crate::printer::Printer;

const SCRIPT: &str = include_str!("cold.py");

/// Times of the cold-start runs.
#[derive(Debug, Serialize)]
pub(crate) struct Cold {
    /// How the extension was built.
    pub(crate) how: String,
    /// From the start of the process to its end, seconds.
    pub(crate) seconds: Vec<f64>,
    /// Seconds by stage.
    pub(crate) stages: Vec<BTreeMap<String, f64>>,
}

impl Cold {
    pub(crate) fn median(&self) -> f64 {
        median(self.seconds.clone())
    }
}

/// Output of the script.
#[derive(Deserialize)]
struct Told {
    how: String,
    seconds: BTreeMap<String, f64>,
}

/// Runs `runs` cold starts, after one that is not counted: torch's own cache keeps the compiled
/// reference, as on a machine in use.
pub(super) fn measure(
    at: &DeviceContext<'_>,
    subject: &mut Subject,
    cache: &Path,
    runs: usize,
    printer: Printer,
) -> Result<Cold, Failure> {
    let folder = cache.join("cold");
    let failed = |error: std::io::Error| {
        let message = format!("failed to prepare a cold-start run: {error}");
        Failure::infrastructure(message, "check that the cache folder is writable".to_owned())
    };
    fs_err::create_dir_all(folder.join("inductor")).map_err(failed)?;
    fs_err::write(folder.join("cold.py"), SCRIPT).map_err(failed)?;
    let mut cold = Cold { how: String::new(), seconds: Vec::new(), stages: Vec::new() };
    for run in 0..=runs {
        at.go_on()?;
        let work = folder.join(format!("run-{run}"));
        prepare(at.host, subject, &work).map_err(failed)?;
        let started = Instant::now();
        let told = once(at.host, &folder, &work)?;
        let seconds = started.elapsed().as_secs_f64();
        printer.say(&format!("cold-start run {run} of {runs}: {seconds:.1} s"));
        if run > 0 {
            cold.seconds.push(seconds);
            cold.stages.push(told.seconds);
        }
        cold.how = told.how;
    }
    Ok(cold)
}

/// Writes a candidate as the sources of an extension, and the request.
fn prepare(host: &JudgeHost, subject: &mut Subject, work: &Path) -> std::io::Result<()> {
    fs_err::create_dir_all(work.join("kernels"))?;
    let cpu = host.judge.config().device == Device::Cpu;
    let texts = subject.texts(if cpu { Stream::None } else { Stream::Current });
    let mut flags = vec!["-O3".to_owned()];
    let mut include = Vec::new();
    let (kernel, text) = if cpu {
        let headers = work.join("headers");
        fs_err::create_dir_all(&headers)?;
        warpwright_hostcuda::write_headers(&headers)?;
        include.push(headers.display().to_string());
        flags = warpwright_hostcuda::compile_flags();
        // A host compiler reads no CUDA: it gets what our own builder gives it.
        let translated =
            warpwright_hostcuda::translate(&texts.kernel, "fused.cu").map_err(|refusals| {
                let all: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                std::io::Error::other(all.join("; "))
            })?;
        ("kernels/fused.cpp", translated.cpp)
    } else {
        ("kernels/fused.cu", texts.kernel)
    };
    let binding = "kernels/fused_binding.cpp";
    for (name, text) in [(kernel, text), (binding, texts.binding), ("model_new.py", texts.model)] {
        fs_err::write(work.join(name), text)?;
    }
    for (name, text) in template::FIXED {
        fs_err::write(work.join(name), text)?;
    }
    fs_err::write(work.join("reference.py"), &subject.task.source)?;
    let at = |name: &str| work.join(name).display().to_string();
    let mut cuda_flags = vec!["-O3".to_owned()];
    cuda_flags.extend(host.judge.facts().arch.as_ref().map(|arch| format!("-arch={arch}")));
    let sources = ["binding.cpp", kernel, binding].map(at);
    let request = json!({
        "device": if cpu { "cpu" } else { "cuda:0" },
        "folder": work,
        "sources": sources,
        "include": include,
        "cxx_flags": flags,
        "cuda_flags": cuda_flags,
        "cuda_home": host.judge.toolchain().nvcc.as_ref().map(|cuda| &cuda.root),
    });
    fs_err::write(work.join("request.json"), request.to_string())
}

/// Runs one process to its end.
fn once(host: &JudgeHost, folder: &Path, work: &Path) -> Result<Told, Failure> {
    let limits = Limits { wall: Duration::from_mins(10), processes: 512, ..Limits::default() };
    let mut spec = Spec::new(&host.python)
        .label("cold start")
        .arg(folder.join("cold.py").to_string_lossy())
        .arg(work.join("request.json").to_string_lossy())
        .env("TORCHINDUCTOR_CACHE_DIR", folder.join("inductor").to_string_lossy())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", work.to_string_lossy())
        .with_system()
        .with_python(&host.python)
        .read_write(folder)
        .limits(limits);
    let cuda = host.judge.toolchain().nvcc.as_ref().map(|cuda| cuda.root.clone());
    if let Device::Cuda(number) = host.judge.config().device {
        spec = spec.gpu(Gpu::All).env("CUDA_VISIBLE_DEVICES", number.to_string());
        if let Some(root) = cuda {
            spec = spec
                .env("CUDA_HOME", root.to_string_lossy())
                .env("PATH", format!("{}:/usr/bin:/bin", root.join("bin").display()))
                .read_only(&root);
        }
    }
    let failed = |why: String| {
        let hint = "skip the cold starts with `--cold-runs 0`".to_owned();
        Failure::infrastructure(format!("failed to run a cold start: {why}"), hint)
    };
    let finished = host.jail.run(spec).map_err(|error| failed(error.to_string()))?;
    if finished.outcome != Outcome::Exited(0) {
        let text = finished.stderr.text();
        let tail: Vec<&str> = text.lines().rev().take(8).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(failed(format!("{}: {}", ending(finished.outcome), tail.join("\n"))));
    }
    let text = finished.stdout.text();
    // Nothing at all is no JSON either, and told as that.
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|error| failed(format!("{error} in its output `{last}`")))
}

/// How a process ended, as text.
fn ending(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("its process exited with {code}"),
        Outcome::Signalled(signal) => format!("signal {signal} ended its process"),
        Outcome::DeadlineExceeded => "its process exceeded the wall-clock limit".to_owned(),
        Outcome::CpuExceeded => "its process exceeded the CPU time limit".to_owned(),
        Outcome::OutOfMemory => "its process ran out of memory".to_owned(),
        Outcome::Killed => "its process was killed".to_owned(),
    }
}
