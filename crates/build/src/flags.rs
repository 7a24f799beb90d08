//! The compilers' command lines: which compiler a unit has, and its flags.

use warpwright_record::libraries::Library;

use crate::artifact::{Instrument, Target};
use crate::bench::Bench;
use crate::error::BuildError;
use crate::host;
use crate::libraries::{self, CLEARED, NO_NVTX};
use crate::process::Command;
use crate::toolchain::{Compiler, Family};
use crate::unit::Unit;

impl Bench<'_> {
    /// The compiler of a host file. The cpu device has one compiler for all files.
    pub(crate) fn host_compiler(&self, unit: &Unit) -> Result<&Compiler, BuildError> {
        match (&self.tools.clang, self.target) {
            (Some(clang), Target::Cuda { .. }) if unit.torch => Ok(clang),
            _ => self.tools.need_cxx(),
        }
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
        if self.libraries.contains(Library::Cutlass) {
            let cutlass = self.tools.need_cutlass()?;
            for include in cutlass.includes() {
                command = command.arg("-isystem").arg(&include).read(&include);
            }
        }
        if self.libraries.contains(Library::Cccl) {
            command = command.arg(NO_NVTX);
        }
        if cxx.clears_variables() && !libraries::mentioned(self.texts).is_empty() {
            command = command.args(["-Xcompiler", CLEARED]);
        }
        if unit.torch {
            command = self.with_torch(command)?;
        }
        Ok(command)
    }

    /// The compiler and the flags of a host file, without the arguments that name the unit.
    pub(crate) fn cxx(&self, unit: &Unit) -> Result<Command, BuildError> {
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
pub(crate) fn unit_arguments(unit: &Unit, host: bool) -> Vec<String> {
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
