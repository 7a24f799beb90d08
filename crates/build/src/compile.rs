//! One source to one object, through the cache.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;
use warpwright_record::libraries::Library;
use warpwright_record::verdict::{Diagnostic, Severity};

use crate::artifact::Target;
use crate::bench::{Bench, Object, Report};
use crate::cache;
use crate::diagnostics;
use crate::entry::Kind;
use crate::error::BuildError;
use crate::files::{read_json, write_json};
use crate::flags::unit_arguments;
use crate::headers;
use crate::host;
use crate::libraries;
use crate::process::{self, Command, Ended};
use crate::ptxas;
use crate::stop::Rejected;
use crate::unit::{Language, Unit};

const REPORT: &str = "report.json";
/// Where nvcc lists the files that it read.
const DEPENDENCIES: &str = "read.d";

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
        // Where nvcc keeps what it makes on its way, beside the object that the candidate's host code is part of.
        let kept = (!host).then(|| self.cache.scratch()).transpose()?;
        let run = |command: &Command| {
            let mut command = command.clone().args(unit_arguments(unit, host)).write(staged.path());
            if let Some(kept) = &kept {
                command =
                    command.arg("--keep").arg("--keep-dir").arg(kept.path()).write(kept.path());
                command = libraries::listing(command, &kept.path().join(DEPENDENCIES));
            }
            let command = command.arg("-o").arg(staged.path().join(&file));
            process::run(self.jail, &command, self.settings)
        };
        let parts = match self.target {
            Target::Cuda { arch } if !unit.torch => match &kept {
                Some(kept) => {
                    let dependencies = kept.path().join(DEPENDENCIES);
                    self.in_two_parts(unit, arch, (staged.path(), &file), &dependencies)?
                }
                None => None,
            },
            _ => None,
        };
        let (parts, image) = parts.unzip();
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
                if *self.target != Target::Cpu {
                    libraries::explain(&mut rejected.diagnostics, self.libraries);
                }
                return Ok(Err(rejected));
            }
        };
        let warnings =
            diagnostics::parse(&ptxas::without_reports(&output), self.originals, self.scrub);
        let warnings =
            warnings.into_iter().filter(|d| d.severity == Severity::Warning && of_candidate(d));
        let image = match (image, &kept) {
            (None, Some(kept)) => Some(kept_image(kept.path(), &unit.name)?),
            (image, _) => image,
        };
        let used = match &kept {
            Some(kept) => self.used(unit, &kept.path().join(DEPENDENCIES))?,
            None => BTreeSet::new(),
        };
        let report = Report {
            libraries: used,
            warnings: warnings.collect(),
            kernels: ptxas::parse(&output),
            device_images: image.into_iter().collect(),
        };
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
                Report { warnings, ..Report::default() }
            }
        })
    }

    /// The libraries that a unit used. Torch's headers include some of thrust, so that in their company only what
    /// the candidate names itself counts.
    fn used(&self, unit: &Unit, file: &Path) -> Result<BTreeSet<Library>, BuildError> {
        let mut used = libraries::read(file, self.tools.cutlass.as_ref())?;
        if unit.torch {
            let named = libraries::mentioned(self.texts);
            used.retain(|library| named.contains(library));
        }
        Ok(used)
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

    fn key(&self, unit: &Unit, host: bool, command: &Command) -> String {
        let label = self.target.label();
        let tools = self.tools.describe();
        let libraries = self.tools.label(self.target, self.libraries);
        let arguments =
            command.clone().args(unit_arguments(unit, host)).stable_arguments(self.tree);
        let processor = if *self.target == Target::Cpu { host::processor() } else { String::new() };
        let mut parts: Vec<&[u8]> = vec![
            b"object 5",
            label.as_bytes(),
            libraries.as_bytes(),
            self.support.hash.as_bytes(),
            unit.name.as_bytes(),
        ];
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
}

/// The hash of the fat binary that nvcc put into the object of a unit.
fn kept_image(folder: &Path, unit: &str) -> Result<String, BuildError> {
    let mut name = Path::new(unit).file_stem().unwrap_or_default().to_owned();
    name.push(".fatbin");
    let bytes = fs::read(folder.join(name))?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

/// Whether a warning concerns the candidate's own text.
fn of_candidate(diagnostic: &Diagnostic) -> bool {
    diagnostic.file.as_deref().is_none_or(|f| !f.starts_with(['<', '/', '.']))
}

fn read_report(place: &Path) -> Result<Report, BuildError> {
    read_json(&place.join(REPORT))
}
