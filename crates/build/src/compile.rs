//! One source to one object, through the cache.

use std::path::Path;

use warpwright_record::verdict::{Diagnostic, Severity};

use crate::artifact::{Instrument, Target};
use crate::bench::{Bench, Object, Report};
use crate::cache;
use crate::diagnostics;
use crate::entry::Kind;
use crate::error::BuildError;
use crate::files::{read_json, write_json};
use crate::headers;
use crate::host;
use crate::process::{self, Command, Ended};
use crate::ptxas;
use crate::stop::Rejected;
use crate::toolchain::{Compiler, Family};
use crate::unit::{Language, Unit};

const REPORT: &str = "report.json";

impl Bench<'_> {
    /// Compiles `unit`, or finds its cached object.
    pub(crate) fn object(&self, unit: &Unit) -> Result<Result<Object, Rejected>, BuildError> {
        let host = !matches!((self.target, unit.language), (Target::Cuda { .. }, Language::Cuda));
        let command = match self.target {
            Target::Cuda { arch } if !host => self.nvcc(unit, arch)?,
            _ => self.cxx(unit)?,
        };
        let file = diagnostics::object_of_source(&unit.name);
        let key = self.key(unit, host, &command);
        if let Some(place) = self.cache.find(Kind::Object, &key)
            && let Ok(report) = read_report(&place)
        {
            return Ok(Ok(Object { path: place.join(file), report }));
        }
        let staged = self.cache.scratch()?;
        let run = |command: &Command| {
            let command = command.clone().args(unit_arguments(unit, host)).write(staged.path());
            let command = command.arg("-o").arg(staged.path().join(&file));
            process::run(self.jail, &command, self.settings)
        };
        let parts = match self.target {
            Target::Cuda { arch } if !host && !unit.torch => {
                self.in_two_parts(unit, arch, (staged.path(), &file))?
            }
            _ => None,
        };
        let ended = match (parts, self.fast(unit, host, &command)?) {
            (Some(output), _) => Ended::Exited { code: 0, output },
            (None, None) => run(&command)?,
            (None, Some(fast)) => match run(&fast)? {
                Ended::Exited { code, output } if code != 0 && headers::complains(&output) => {
                    self.discard_precompiled(&command, &self.texts[&unit.name]);
                    run(&command)?
                }
                ended => ended,
            },
        };
        let output = match self.accepted(&ended, &command.tool, &unit.name)? {
            Ok(output) => output,
            Err(mut rejected) => {
                // What ptxas says names no file, but only this one was compiled.
                for found in rejected.diagnostics.iter_mut().filter(|d| d.file.is_none()) {
                    found.file = Some(unit.name.clone());
                }
                return Ok(Err(rejected));
            }
        };
        let warnings =
            diagnostics::parse(&ptxas::without_reports(&output), self.originals, self.scrub);
        let warnings =
            warnings.into_iter().filter(|d| d.severity == Severity::Warning && of_candidate(d));
        let report = Report { warnings: warnings.collect(), kernels: ptxas::parse(&output) };
        write_json(&staged.path().join(REPORT), &report)?;
        let place = self.cache.publish(Kind::Object, &key, staged.path())?;
        Ok(Ok(Object { path: place.join(file), report }))
    }

    /// The report of `ptxas` on a `.cu` for a GPU, while the candidate is built for the host.
    pub(crate) fn resources(&self, unit: &Unit, arch: &str) -> Result<Report, BuildError> {
        let target = Target::Cuda { arch: arch.to_owned() };
        let bench = Bench { target: &target, ..*self };
        let object = bench.object(unit)?;
        Ok(match object {
            Ok(object) => object.report,
            Err(rejected) => {
                let mut warnings = rejected.diagnostics;
                warnings.truncate(3);
                for warning in &mut warnings {
                    warning.severity = Severity::Warning;
                    warning.message = format!("on {arch}: {}", warning.message);
                }
                Report { warnings, kernels: Vec::new() }
            }
        })
    }

    /// The command with torch's headers precompiled, if possible.
    fn fast(
        &self,
        unit: &Unit,
        host: bool,
        command: &Command,
    ) -> Result<Option<Command>, BuildError> {
        if !unit.torch || !host {
            return Ok(None);
        }
        let family = self.host_compiler(unit)?.family();
        Ok(self.with_precompiled(command, family, &self.texts[&unit.name]))
    }

    /// The compiler of a host file. The cpu device has one compiler for all files.
    fn host_compiler(&self, unit: &Unit) -> Result<&Compiler, BuildError> {
        match (&self.tools.clang, self.target) {
            (Some(clang), Target::Cuda { .. }) if unit.torch => Ok(clang),
            _ => self.tools.need_cxx(),
        }
    }

    fn key(&self, unit: &Unit, host: bool, command: &Command) -> String {
        let label = self.target.label();
        let tools = self.tools.describe();
        let arguments =
            command.clone().args(unit_arguments(unit, host)).stable_arguments(self.tree);
        let processor = if *self.target == Target::Cpu { host::processor() } else { String::new() };
        let mut parts: Vec<&[u8]> =
            vec![b"object 3", label.as_bytes(), self.support.hash.as_bytes(), unit.name.as_bytes()];
        parts.push(processor.as_bytes());
        parts.extend(tools.iter().map(String::as_bytes));
        parts.extend(arguments.iter().map(String::as_bytes));
        // The unit itself, and whatever it could include.
        for (name, text) in self.texts {
            let other_source =
                [".cu", ".cpp", ".cc", ".cxx", ".py"].iter().any(|e| name.ends_with(e));
            if *name == unit.name || !other_source {
                parts.push(name.as_bytes());
                parts.push(text.as_bytes());
            }
        }
        cache::key(parts)
    }

    pub(crate) fn nvcc(&self, unit: &Unit, arch: &str) -> Result<Command, BuildError> {
        let cuda = self.tools.need_nvcc()?;
        let cxx = self.tools.need_cxx()?;
        let mut command = Command::new("nvcc", &cuda.nvcc, self.tree)
            .args(["-O3", "-std=c++17", "--expt-relaxed-constexpr"])
            .args(["-Xptxas", "-v", "-Xcompiler", "-fPIC"])
            .arg(generated(arch))
            .arg("-ccbin")
            .arg(&cxx.path)
            .args(["-I", ".", "-I", "kernels"])
            .path_before(&cuda.root.join("bin"));
        if self.instrument == Instrument::Sanitize {
            command = command.arg("-lineinfo");
        }
        if unit.torch || self.texts.values().any(|text| has_device_lambda(text)) {
            // Not always: it pulls in headers that make every compile 60 % longer.
            command = command.arg("--extended-lambda");
        }
        for folder in cuda.folders() {
            command = command.read(&folder);
        }
        if let Some(include) = &cuda.cudnn_include {
            command = command.arg("-isystem").arg(include);
        }
        if unit.torch {
            command = self.with_torch(command)?;
        }
        Ok(command)
    }

    /// The compiler and the flags of a host file, without the arguments that name the unit.
    fn cxx(&self, unit: &Unit) -> Result<Command, BuildError> {
        let cxx = self.host_compiler(unit)?;
        let tool = match cxx.family() {
            Family::Gnu => "g++",
            Family::Clang => "clang++",
        };
        let mut command = Command::new(tool, &cxx.path, self.tree).arg("-fPIC");
        if *self.target == Target::Cpu {
            command = command
                .args(host::compile_flags())
                .args(host_instrument_flags(self.instrument))
                .arg("-I")
                .arg(&self.support.hostcuda)
                .arg("-I")
                .arg(&self.support.torch_cpu)
                .read(&self.support.hostcuda)
                .read(&self.support.torch_cpu);
        } else {
            // Calls from Python are as fast as at -O3; unoptimised they take three times as long.
            command = command.args(["-O1", "-std=c++17"]);
            let cuda = self.tools.need_nvcc()?;
            command = command.arg("-isystem").arg(cuda.root.join("include")).read(&cuda.root);
            if let Some(include) = &cuda.cudnn_include {
                command = command.arg("-isystem").arg(include).read(include);
            }
        }
        command = command.args(["-I", ".", "-I", "kernels"]);
        if unit.torch {
            command = self.with_torch(command)?;
        }
        Ok(command)
    }

    fn with_torch(&self, command: Command) -> Result<Command, BuildError> {
        let (python, torch) = self.tools.need_torch()?;
        let Some(python_include) = &python.include else {
            return Err(BuildError::MissingTool {
                tool: "Python.h".to_owned(),
                hint: format!("run `apt install python{}-dev`", python.version),
            });
        };
        let include = torch.root.join("include");
        let abi = u8::from(torch.cxx11_abi);
        Ok(command
            .arg("-isystem")
            .arg(&include)
            .arg("-isystem")
            .arg(include.join("torch/csrc/api/include"))
            .arg("-isystem")
            .arg(python_include)
            .arg("-DTORCH_API_INCLUDE_EXTENSION_H")
            .arg(format!("-D_GLIBCXX_USE_CXX11_ABI={abi}"))
            .read(&include)
            .read(python_include))
    }
}

/// The arguments that name the unit; they follow the flags common to its kind.
fn unit_arguments(unit: &Unit, host: bool) -> Vec<String> {
    let mut arguments = Vec::new();
    if unit.torch {
        let module = unit.module.as_deref().unwrap_or("cuda_extension");
        arguments.push(format!("-DTORCH_EXTENSION_NAME={module}"));
    }
    arguments.push("-c".to_owned());
    if host {
        arguments.extend(["-x".to_owned(), "c++".to_owned()]);
    }
    arguments.push(unit.name.clone());
    arguments
}

/// Flags appended to those of every host build; the last one counts.
fn host_instrument_flags(instrument: Instrument) -> &'static [&'static str] {
    match instrument {
        Instrument::None
        | Instrument::EmptyKernels
        | Instrument::TrapKernels
        | Instrument::EmptyLibraries => &[],
        Instrument::Profile => &["-DHOSTCUDA_TRACE"],
        Instrument::Sanitize => &[
            "-O1",
            "-g1",
            "-fno-omit-frame-pointer",
            "-fsanitize=address",
            "-fsanitize-recover=address",
        ],
    }
}

/// Code for this architecture only. `-arch=sm_90a` would also generate PTX for `compute_90`, which
/// lacks the architecture-specific instructions.
fn generated(arch: &str) -> String {
    format!("-gencode=arch={},code={arch}", arch.replacen("sm_", "compute_", 1))
}

/// Whether the text has a device lambda such as `[=] __device__ (int i)`.
fn has_device_lambda(text: &str) -> bool {
    text.split(']').skip(1).any(|rest| {
        let rest = rest.trim_start();
        rest.starts_with("__device__") || rest.starts_with("__host__")
    })
}

/// Whether a warning concerns the candidate's own text.
fn of_candidate(diagnostic: &Diagnostic) -> bool {
    diagnostic.file.as_deref().is_none_or(|f| !f.starts_with(['<', '/', '.']))
}

fn read_report(place: &Path) -> Result<Report, BuildError> {
    read_json(&place.join(REPORT))
}
