//! The same candidate with something taken away: its kernels do nothing, or the libraries' products do.
//!
//! Nothing is compiled again. An object that defines the functions by which kernels are launched, or by
//! which cuBLAS and cuDNN compute, is linked before the libraries that have them. On the cpu device, where
//! launches and products are templates of `hostcuda`, it defines what these ask before they begin. So it
//! does not matter how a source spells `__global__`, or what macros and templates it goes through.

use std::fmt::Write as _;
use std::path::PathBuf;

use fs_err as fs;
use warpwright_record::verdict::Diagnostic;

use crate::allowed;
use crate::artifact::{Instrument, Target};
use crate::cache::{self, Kind};
use crate::compile::Bench;
use crate::elf::Linkage;
use crate::error::BuildError;
use crate::imports::{Imported, finding};
use crate::process::{self, Command, Ended};

/// What `hostcuda` asks before a kernel, and before a product.
const HOST_LAUNCHES: &str = "hostcuda_launches";
const HOST_LIBRARIES: &str = "hostcuda_libraries";
/// How the mangled names of `hostcuda`'s products and launches begin.
const HOST_PRODUCT: &str = "_ZN8hostcuda4gemmI";
const HOST_LAUNCH: &str = "_ZN8hostcuda6launchI";

/// Definitions by which a candidate would put functions of its own in the place of those that are taken
/// away.
pub(crate) fn taken(symbols: &[Linkage], file: &str) -> Vec<Diagnostic> {
    let runtime =
        |name: &&String| allowed::LAUNCHES.contains(&name.as_str()) || allowed::library_work(name);
    let ours = |name: &&String| [HOST_LAUNCHES, HOST_LIBRARIES].contains(&name.as_str());
    let defined = symbols.iter().flat_map(|s| s.defined.iter().filter(runtime));
    let strong = symbols.iter().flat_map(|s| s.strong.iter().filter(ours));
    let mut names: Vec<&String> = defined.chain(strong).collect();
    names.sort();
    names.dedup();
    let told = |name| finding(file, format!("forbidden definition of {name}"));
    names.into_iter().map(told).collect()
}

/// What should have been taken away and is still there.
pub(crate) fn left(instrument: Instrument, imported: &Imported, file: &str) -> Option<Diagnostic> {
    let still = match instrument {
        Instrument::EmptyKernels | Instrument::TrapKernels => imported.launches,
        Instrument::EmptyLibraries => !imported.library_work.is_empty(),
        _ => false,
    };
    still.then(|| finding(file, "forbidden: names the runtime's functions by version".to_owned()))
}

/// On the cpu device products and launches are no imports.
pub(crate) fn on_host(symbols: &[Linkage], imported: &mut Imported) {
    let has = |beginning: &str| {
        symbols.iter().any(|s| s.defined.iter().any(|name| name.starts_with(beginning)))
    };
    imported.launches |= has(HOST_LAUNCH);
    if has(HOST_PRODUCT) {
        imported.library_work.push("cublas gemm".to_owned());
    }
}

impl Bench<'_> {
    /// The object that stands in for what this build takes away; `None` where there is nothing to take.
    pub(crate) fn stand_in(&self, symbols: &[Linkage]) -> Result<Option<PathBuf>, BuildError> {
        let text = source(self.instrument, self.target, symbols);
        text.map(|text| self.ours(&text, &["-c"], "stand_in.o")).transpose()
    }

    /// A library to link against where the driver is asked to describe tensors: machines that only compile
    /// have no driver, and its name is all that stays of this one.
    pub(crate) fn driver(&self, symbols: &[Linkage]) -> Result<Option<PathBuf>, BuildError> {
        let mut text = String::new();
        for name in allowed::DRIVER {
            if symbols.iter().any(|s| s.undefined.contains(name)) {
                let _ = writeln!(text, "extern \"C\" int {name}() {{ return 0; }}");
            }
        }
        let shared = ["-shared", "-Wl,-soname,libcuda.so.1"];
        let text = Some(text).filter(|text| *self.target != Target::Cpu && !text.is_empty());
        text.map(|text| self.ours(&text, &shared, "libcuda.so")).transpose()
    }

    /// Compiles a text of our own to a file of that name, once.
    fn ours(&self, text: &str, arguments: &[&str], name: &str) -> Result<PathBuf, BuildError> {
        let tools = self.tools.describe();
        let parts = ["of our own 1", text, name].into_iter();
        let parts = parts.chain(tools.iter().map(String::as_str));
        let key = cache::key(parts.map(str::as_bytes));
        if let Some(place) = self.cache.find(Kind::Object, &key) {
            return Ok(place.join(name));
        }
        let staged = self.cache.scratch()?;
        let place = self.cache.scratch()?;
        let source = place.path().join("source.cpp");
        fs::write(&source, text)?;
        let cxx = self.tools.need_cxx()?;
        let command = Command::new("the host compiler", &cxx.path, place.path())
            .args(["-O1", "-fPIC", "-w"])
            .args(arguments)
            .arg(&source)
            .arg("-o")
            .arg(staged.path().join(name))
            .write(staged.path());
        match process::run(self.jail, &command, self.settings)? {
            Ended::Exited { code: 0, .. } => {}
            Ended::Exited { output, .. } | Ended::Stopped { output, .. } => {
                return Err(BuildError::BrokenTool { tool: command.tool, reason: output });
            }
        }
        Ok(self.cache.publish(Kind::Object, &key, staged.path())?.join(name))
    }
}

/// Definitions of what is taken away, as far as these objects use it.
fn source(instrument: Instrument, target: &Target, symbols: &[Linkage]) -> Option<String> {
    let kernels = match instrument {
        Instrument::EmptyKernels | Instrument::TrapKernels => true,
        Instrument::EmptyLibraries => false,
        _ => return None,
    };
    let mut names: Vec<&str> = if *target == Target::Cpu {
        let asked = if kernels { HOST_LAUNCHES } else { HOST_LIBRARIES };
        let used = symbols.iter().any(|s| s.defined.contains(asked));
        used.then_some(asked).into_iter().collect()
    } else {
        let launches = |name: &str| allowed::LAUNCHES.contains(&name);
        let away =
            |name: &&String| if kernels { launches(name) } else { allowed::library_work(name) };
        symbols.iter().flat_map(|s| s.undefined.iter().filter(away)).map(String::as_str).collect()
    };
    names.sort_unstable();
    names.dedup();
    // Zero is success to CUDA, cuBLAS and cuDNN, and "no" to `hostcuda`.
    let body =
        if instrument == Instrument::TrapKernels { "__builtin_trap();" } else { "return 0;" };
    let mut text = String::new();
    for name in names {
        let _ = writeln!(
            text,
            "extern \"C\" __attribute__((visibility(\"hidden\"))) int {name}() {{ {body} }}"
        );
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn object(undefined: &[&str], defined: &[&str]) -> Linkage {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<HashSet<_>>();
        Linkage { undefined: set(undefined), defined: set(defined), strong: set(defined) }
    }

    #[test]
    fn what_is_used_is_taken_away() {
        let gpu = Target::Cuda { arch: "sm_90a".to_owned() };
        let symbols = [object(&["__cudaLaunchKernel", "cublasSgemm_v2", "cudaMemcpyAsync"], &[])];
        let of = |instrument| source(instrument, &gpu, &symbols).unwrap_or_default();
        let line = |name: &str, body: &str| {
            format!(
                "extern \"C\" __attribute__((visibility(\"hidden\"))) int {name}() {{ {body} }}\n"
            )
        };
        assert_eq!(of(Instrument::EmptyKernels), line("__cudaLaunchKernel", "return 0;"));
        assert_eq!(of(Instrument::TrapKernels), line("__cudaLaunchKernel", "__builtin_trap();"));
        assert_eq!(of(Instrument::EmptyLibraries), line("cublasSgemm_v2", "return 0;"));
        assert_eq!(of(Instrument::None), "");
    }

    #[test]
    fn own_definitions_of_the_runtime_are_refused() {
        let symbols = [object(&[], &["cudaLaunchKernel", "launch", "cublasSgemm_v2"])];
        let told: Vec<_> = taken(&symbols, "a").into_iter().map(|d| d.message).collect();
        assert_eq!(
            told,
            ["forbidden definition of cublasSgemm_v2", "forbidden definition of cudaLaunchKernel"]
        );
        assert!(taken(&[object(&["cudaLaunchKernel"], &["launch"])], "a").is_empty());
    }
}
