//! Ablations: the same candidate with its kernels, or the libraries' products, replaced by stubs.
//!
//! Nothing is compiled again. An object that defines the launch functions, or the compute functions
//! of cuBLAS and cuDNN, is linked before the libraries that have them. On the cpu device, launches
//! and products are templates of `hostcuda`, and the object defines the functions that they query
//! before they begin. The spelling of `__global__` in the source, and its macros and templates,
//! therefore make no difference.

use std::fmt::Write as _;
use std::path::PathBuf;

use fs_err as fs;
use warpwright_record::verdict::Diagnostic;

use crate::allowed;
use crate::artifact::{Instrument, Target};
use crate::bench::Bench;
use crate::cache;
use crate::elf::Linkage;
use crate::entry::Kind;
use crate::entry_points;
use crate::error::BuildError;
use crate::imports::{Imported, finding};
use crate::process::{self, Command, Ended};

/// The functions that `hostcuda` calls before a kernel, and before a product.
const HOST_LAUNCHES: &str = "hostcuda_launches";
const HOST_LIBRARIES: &str = "hostcuda_libraries";
/// The function by which a recorder is installed.
const HOST_RECORDER: &str = "hostcuda_set_recorder";
/// Prefixes of the mangled names of `hostcuda`'s products and launches.
const HOST_PRODUCT: &str = "_ZN8hostcuda4gemmI";
const HOST_LAUNCH: &str = "_ZN8hostcuda6launchI";

/// Definitions with which a candidate would replace the functions that an ablation stubs, or a recorder's.
pub(crate) fn taken(symbols: &[Linkage], file: &str) -> Vec<Diagnostic> {
    let runtime =
        |name: &&String| allowed::LAUNCHES.contains(&name.as_str()) || allowed::library_work(name);
    let hooks = [HOST_LAUNCHES, HOST_LIBRARIES, HOST_RECORDER];
    let ours = |name: &&String| hooks.contains(&name.as_str());
    let defined = symbols.iter().flat_map(|s| s.defined.iter().filter(runtime));
    let strong = symbols.iter().flat_map(|s| s.strong.iter().filter(ours));
    let mut names: Vec<&String> = defined.chain(strong).collect();
    names.sort();
    names.dedup();
    let told = |name| finding(file, format!("forbidden definition of {name}"));
    names.into_iter().map(told).collect()
}

/// The function that the ablation should have removed and did not.
pub(crate) fn left(instrument: Instrument, imported: &Imported, file: &str) -> Option<Diagnostic> {
    let still = match instrument {
        Instrument::EmptyKernels | Instrument::TrapKernels => imported.launches,
        Instrument::EmptyLibraries => !imported.library_work.is_empty(),
        _ => false,
    };
    still.then(|| finding(file, "forbidden: names the runtime's functions by version".to_owned()))
}

/// Adds the products and launches of a cpu build, which are not imports.
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
    /// The object with this build's stubs; `None` if there is nothing to stub.
    pub(crate) fn stand_in(&self, symbols: &[Linkage]) -> Result<Option<PathBuf>, BuildError> {
        let text = source(self.instrument, self.target, symbols);
        text.map(|text| self.ours(&text, &["-c"], "stand_in.o")).transpose()
    }

    /// A library to link against if the candidate calls the driver to describe tensors. Machines
    /// that only compile have no driver; only this library's name remains in the result.
    pub(crate) fn driver(&self, symbols: &[Linkage]) -> Result<Option<PathBuf>, BuildError> {
        let mut text = String::new();
        let all = entry_points::asked(symbols);
        for name in allowed::DRIVER {
            if all || symbols.iter().any(|s| s.undefined.contains(name)) {
                let _ = writeln!(text, "extern \"C\" int {name}() {{ return 0; }}");
            }
        }
        let shared = ["-shared", "-Wl,-soname,libcuda.so.1"];
        let text = Some(text).filter(|text| *self.target != Target::Cpu && !text.is_empty());
        text.map(|text| self.ours(&text, &shared, "libcuda.so")).transpose()
    }

    /// Compiles our own source text to a file of that name, once.
    pub(crate) fn ours(
        &self,
        text: &str,
        arguments: &[&str],
        name: &str,
    ) -> Result<PathBuf, BuildError> {
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

/// Stub definitions of the functions that these objects use.
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
    fn used_launches_and_libraries_are_stubbed() {
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
    fn redefinition_of_runtime_functions_is_refused() {
        let symbols = [object(&[], &["cudaLaunchKernel", "launch", "cublasSgemm_v2"])];
        let told: Vec<_> = taken(&symbols, "a").into_iter().map(|d| d.message).collect();
        assert_eq!(
            told,
            ["forbidden definition of cublasSgemm_v2", "forbidden definition of cudaLaunchKernel"]
        );
        assert!(taken(&[object(&["cudaLaunchKernel"], &["launch"])], "a").is_empty());
        for hook in [HOST_LAUNCHES, HOST_LIBRARIES, HOST_RECORDER] {
            assert_eq!(taken(&[object(&[], &[hook])], "a").len(), 1, "{hook}");
            let defined = HashSet::from([hook.to_owned()]);
            let weak = Linkage { defined, ..Linkage::default() };
            assert!(taken(&[weak], "a").is_empty(), "{hook} of the headers");
        }
    }
}
