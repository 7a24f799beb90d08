//! Links objects to a shared library and checks its imports.

use std::path::{Path, PathBuf};

use fs_err as fs;
use warpwright_record::verdict::{Diagnostic, Severity};

use crate::ablation;
use crate::artifact::{Instrument, Target};
use crate::bench::{Bench, Object};
use crate::elf;
use crate::error::BuildError;
use crate::imports::{self, Imported};
use crate::process::{self, Command};
use crate::stop::Rejected;

/// The kind of library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// Launchers only: every symbol must be defined.
    Kernels,
    /// A Python module: linked to torch's libraries, with the interpreter's symbols undefined.
    Module,
}

/// Result of linking, without infrastructure errors.
pub(crate) enum Linked {
    Done(Imported),
    Rejected(Rejected),
    Forbidden(Vec<Diagnostic>),
}

impl Bench<'_> {
    /// Links `objects` to `folder/name` and reads the imports of the result.
    pub(crate) fn link(
        &self,
        library: Library,
        objects: &[Object],
        folder: &Path,
        name: &str,
    ) -> Result<Linked, BuildError> {
        let cxx = self.tools.need_cxx()?;
        let output = folder.join(name);
        let mut symbols = Vec::new();
        for object in objects {
            symbols.extend(elf::linkage(&fs::read(&object.path)?));
        }
        let taken = ablation::taken(&symbols, name);
        if !taken.is_empty() {
            return Ok(Linked::Forbidden(taken));
        }
        let ours = [self.stand_in(&symbols)?, self.entry_points(&symbols)?];
        let mut command = Command::new("the linker", &cxx.path, self.tree)
            .args(["-shared", "-fPIC", "-Wl,-z,defs", "-Wl,--build-id=none"])
            .args(["-Wl,-z,noexecstack", "-Wl,-z,text"])
            .write(output.parent().unwrap_or(folder))
            .arg("-o")
            .arg(&output);
        if let Some(linker) = &self.tools.linker {
            command = command.arg(format!("-fuse-ld={}", linker.name));
        }
        for object in objects {
            command = command.arg(&object.path).read(&object.path);
        }
        // What an object defines is not looked for in libraries.
        for object in ours.iter().flatten() {
            command = command.arg(object).read(object);
        }
        command = command.arg("-Wl,--as-needed");
        if let Some(driver) = self.driver(&symbols)? {
            command = command.arg(&driver).read(&driver);
        }
        if *self.target == Target::Cpu {
            command = command.arg("-fopenmp");
            if self.sanitized_on_host() {
                command = command.arg("-fsanitize=address");
            }
        } else {
            for path in self.cuda_libraries()? {
                command = command.arg(&path).read(&path);
            }
        }
        if library == Library::Module {
            // The interpreter's symbols come from the process. Everything unresolved is reported,
            // and what is not the interpreter's is an error below.
            command = command.arg("-Wl,--warn-unresolved-symbols");
            for path in self.torch_libraries()? {
                command = command.arg(&path);
            }
            let (_, torch) = self.tools.need_torch()?;
            command = command.read(&torch.root.join("lib"));
        }
        let ended = process::run(self.jail, &command, self.settings)?;
        let said = match self.accepted(&ended, &command.tool, name)? {
            Ok(said) => said,
            Err(rejected) => return Ok(Linked::Rejected(rejected)),
        };
        let unresolved: Vec<Diagnostic> =
            crate::diagnostics::parse(&said, self.originals, self.scrub)
                .into_iter()
                .filter(|d| d.severity == Severity::Error && !is_python(&d.message))
                .collect();
        if !unresolved.is_empty() {
            let raw_tail = crate::diagnostics::tail(&said, self.scrub);
            return Ok(Linked::Rejected(Rejected { diagnostics: unresolved, raw_tail }));
        }
        let ours: &[&str] = if self.sanitized_on_host() { &["libasan"] } else { &[] };
        let host = *self.target == Target::Cpu;
        let mut imported = imports::look(&fs::read(&output)?, name, ours, host);
        imported.findings.extend(ablation::left(self.instrument, &imported, name));
        ablation::on_host(&symbols, &mut imported);
        if !imported.findings.is_empty() {
            return Ok(Linked::Forbidden(imported.findings));
        }
        Ok(Linked::Done(imported))
    }

    fn sanitized_on_host(&self) -> bool {
        *self.target == Target::Cpu && self.instrument == Instrument::Sanitize
    }

    /// Libraries of the toolkit that the candidate's text mentions. cuBLAS and cuDNN are large, and
    /// a launcher that does not name them does not load them.
    fn cuda_libraries(&self) -> Result<Vec<PathBuf>, BuildError> {
        let cuda = self.tools.need_nvcc()?;
        let mentions = |word: &str| self.texts.values().any(|text| text.contains(word));
        let mut paths: Vec<PathBuf> = Vec::new();
        paths.extend(cuda.cudart.clone());
        if mentions("cublas") {
            paths.extend(cuda.cublas.clone());
        }
        if mentions("cublasLt") {
            paths.extend(cuda.cublas_lt.clone());
        }
        if mentions("cudnn") {
            paths.extend(cuda.cudnn.clone());
        }
        Ok(paths)
    }

    fn torch_libraries(&self) -> Result<Vec<PathBuf>, BuildError> {
        let (_, torch) = self.tools.need_torch()?;
        let mut names = vec!["libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so"];
        if *self.target != Target::Cpu {
            names.extend(["libtorch_cuda.so", "libc10_cuda.so"]);
        }
        let paths = names.into_iter().map(|name| torch.root.join("lib").join(name));
        Ok(paths.filter(|path| path.is_file()).collect())
    }
}

fn is_python(message: &str) -> bool {
    let symbol = message.rsplit(": ").next().unwrap_or_default();
    symbol.starts_with("Py") || symbol.starts_with("_Py")
}
