//! Compiles a `.cu` for a GPU in two parallel parts: device code by nvcc, host code by the host
//! compiler, which needs a tenth of the time of NVIDIA's front end.
//!
//! ```text
//! a.cu ─┬─► nvcc -cubin ─► cubin ─► fatbinary ─► its kernels, registered ─┐
//!       └─► host_part ───► host compiler ─► object with their functions ──┴─► one object
//! ```
//!
//! The object is equivalent to nvcc's: the same calls of the runtime, the same names. nvcc compiles
//! the whole file if that is not certain (a file without a host part, a part that does not compile,
//! a kernel without its function). It also reports a file's errors best.

use std::fmt::Write as _;
use std::path::Path;

use fs_err as fs;

use crate::bench::Bench;
use crate::elf;
use crate::error::BuildError;
use crate::host;
use crate::libraries;
use crate::process::{self, Command, Ended};
use crate::unit::Unit;

impl Bench<'_> {
    /// Compiles a `.cu` that does not use torch to `staged/file`. Returns nvcc's output and the hash of the fat
    /// binary; `None` if nvcc must compile the whole file.
    pub(crate) fn in_two_parts(
        &self,
        unit: &Unit,
        arch: &str,
        (staged, file): (&Path, &str),
        dependencies: &Path,
    ) -> Result<Option<(String, String)>, BuildError> {
        let (cuda, cxx) = (self.tools.need_nvcc()?, self.tools.need_cxx()?);
        let fatbinary = cuda.root.join("bin/fatbinary");
        let text = host::part(&self.texts[&unit.name], &unit.name, self.texts);
        let (Some(text), Some(number)) = (text, arch.strip_prefix("sm_")) else { return Ok(None) };
        // The host's compiler alone cannot read those libraries.
        if !fatbinary.is_file() || !libraries::mentioned(self.texts).is_empty() {
            return Ok(None);
        }
        let place = self.cache.scratch()?;
        let at = |name: &str| place.path().join(name);
        let (source, host_object, cubin, fat) =
            (at("host.cpp"), at("host.o"), at("device.cubin"), at("device.fatbin"));
        fs::write(&source, text)?;
        let run = |command: Command| {
            let ended = process::run(self.jail, &command.write(place.path()), self.settings)?;
            Ok::<_, BuildError>(match ended {
                Ended::Exited { code: 0, output } => Some(output),
                _ => None,
            })
        };
        let device = self.nvcc(unit, arch)?.args(["-cubin", &unit.name]).arg("-o").arg(&cubin);
        let device = libraries::listing(device, dependencies);
        let beside = Path::new(&unit.name).parent().unwrap_or(Path::new("."));
        let host = Command::new("the host compiler", &cxx.path, self.tree)
            // Warnings are nvcc's to give.
            .args(["-O2", "-std=c++17", "-fPIC", "-w", "-isystem"])
            .arg(cuda.root.join("include"))
            .args(["-I", ".", "-I", "kernels", "-I"])
            .arg(beside)
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&host_object)
            .read(&cuda.root);
        let (device, host) = std::thread::scope(|scope| {
            let device = scope.spawn(|| run(device));
            let host = run(host);
            let died = |_| BuildError::BrokenTool {
                tool: "nvcc".to_owned(),
                reason: "the thread that runs it panicked".to_owned(),
            };
            (device.join().map_err(died).and_then(|d| d), host)
        });
        let (Some(said), Some(_)) = (device?, host?) else { return Ok(None) };
        let Some(kernels) = elf::kernels(&fs::read(&cubin)?) else { return Ok(None) };
        let Some(functions) = elf::functions(&fs::read(&host_object)?) else { return Ok(None) };
        if kernels.is_empty() || !kernels.iter().all(|kernel| functions.contains(kernel)) {
            return Ok(None);
        }
        let wrap = Command::new("fatbinary", &fatbinary, place.path())
            .arg("-64")
            .arg(format!("--create={}", fat.display()))
            .arg(format!("--image3=kind=elf,sm={number},file={}", cubin.display()))
            .read(&cuda.root);
        if run(wrap)?.is_none() {
            return Ok(None);
        }
        let image = blake3::hash(&fs::read(&fat)?).to_hex().to_string();
        let Some(registration) = registration(&kernels, &fat) else { return Ok(None) };
        fs::write(at("registration.cpp"), registration)?;
        let join = Command::new("the linker", &cxx.path, place.path())
            .args(["-O1", "-fPIC", "-w", "-r", "-nostdlib", "-o"])
            .arg(staged.join(file))
            .arg(&host_object)
            .arg(at("registration.cpp"))
            .write(staged);
        Ok(run(join)?.map(|_| (said, image)))
    }
}

/// A file that registers a fat binary's kernels under the addresses of their host functions, as
/// nvcc's generated code does. `None` for names that no compiler generates.
fn registration(kernels: &[String], fat: &Path) -> Option<String> {
    let fat = fat.to_str().filter(|path| !path.contains(['"', '\\', '\n']))?;
    let plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$.".contains(&b));
    if !kernels.iter().all(|name| plain(name)) {
        return None;
    }
    let mut text = format!(
        "asm(\".section .nv_fatbin,\\\"a\\\"\\n.balign 8\\nwarpwright_fatbin:\\n.incbin \\\"{fat}\\\"\\n.previous\\n\");\n"
    );
    text += "extern \"C\" {
extern const char warpwright_fatbin[] __attribute__((visibility(\"hidden\")));
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
}
static struct { int magic, version; const void* data; void* unused; } wrapper
    __attribute__((section(\".nvFatBinSegment\"), aligned(8))) = {0x466243b1, 1, warpwright_fatbin, nullptr};
static void** handle;
";
    for (number, name) in kernels.iter().enumerate() {
        let _ = writeln!(text, "extern \"C\" char kernel_{number}[] asm(\"{name}\");");
    }
    text += "__attribute__((constructor)) static void enter() {
  handle = __cudaRegisterFatBinary(&wrapper);
";
    for (number, name) in kernels.iter().enumerate() {
        let _ = writeln!(
            text,
            "  __cudaRegisterFunction(handle, kernel_{number}, (char*)\"{name}\", \"{name}\", -1, nullptr, \
             nullptr, nullptr, nullptr, nullptr);"
        );
    }
    text += "  __cudaRegisterFatBinaryEnd(handle);
}
__attribute__((destructor)) static void leave() { __cudaUnregisterFatBinary(handle); }
";
    Some(text)
}
