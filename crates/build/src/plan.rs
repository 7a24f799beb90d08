//! Facts about a candidate before compilation: units, launchers, inline sources, and the cache key
//! of all of them.

use std::path::Path;

use warpwright_record::verdict::{Diagnostic, FailureClass, Severity};

use crate::artifact::{Instrument, Launcher, Request, Target};
use crate::builder::Builder;
use crate::cache;
use crate::diagnostics;
use crate::files::Texts;
use crate::host;
use crate::inline::Module;
use crate::launchers;
use crate::screen::Sources;
use crate::stop::{Stop, rejected};
use crate::unit::{self, Language, Unit};

/// Facts about a candidate before compilation.
pub(crate) struct Plan {
    /// The candidate's own texts, including harvested sources.
    pub originals: Texts,
    /// The texts that compilers see.
    pub texts: Texts,
    /// Number of kernels that the sources define, if `hostcuda` has read them.
    pub kernels: u32,
    pub workspace: Vec<Unit>,
    pub modules: Vec<(Module, Vec<Unit>)>,
    pub launchers: Vec<Launcher>,
    /// Launchers that Python could not call. They are reported only if everything compiles; before
    /// that, the compiler's messages are more useful.
    pub uncallable: Vec<Diagnostic>,
    pub warnings: Vec<Diagnostic>,
}

impl Builder {
    /// Reads signatures and inline sources, and creates the texts for the target.
    pub(crate) fn plan(
        &self,
        sources: &Sources,
        target: &Target,
        request: &Request,
    ) -> Result<Plan, Stop> {
        let workspace = unit::workspace_units(sources);
        let (launchers, uncallable) = exposed(sources, &workspace);
        let mut warnings = Vec::new();
        let mut originals = sources.files.clone();
        let mut modules = Vec::new();
        if sources.wants_harvest {
            let model = &sources.files["model_new.py"];
            let reference = request.reference.as_deref();
            let harvest = self
                .harvest(model, &sources.files, reference)?
                .map_err(|why| Stop::Failed(FailureClass::Build, why))?;
            for module in harvest.modules {
                for flag in &module.dropped_flags {
                    let message = format!(
                        "{}: flag {flag} is ignored: candidates choose no flags",
                        module.name
                    );
                    warnings.push(warning("model_new.py", message));
                }
                let units = module.units(&mut originals);
                modules.push((module, units));
            }
            if modules.is_empty() && !harvest.problem.is_empty() {
                let message = format!("no inline sources were found: {}", harvest.problem);
                warnings.push(warning("model_new.py", self.scrub(Path::new("/")).clean(&message)));
            }
        }
        let all: Vec<Unit> =
            workspace.iter().chain(modules.iter().flat_map(|(_, units)| units)).cloned().collect();
        let (texts, kernels) = unit::texts_for(target, &originals, &all)
            .map_err(|diagnostics| rejected(FailureClass::Build, diagnostics))?;
        Ok(Plan { originals, texts, kernels, workspace, modules, launchers, uncallable, warnings })
    }

    pub(crate) fn key(&self, plan: &Plan, target: &Target, request: &Request) -> String {
        let label = target.label();
        let tools = self.toolchain().describe();
        let resources = format!("{:?}", request.resources);
        let instrument = format!("{:?}", instrument(target, request.instrument));
        let libraries = self.toolchain().label(target, request.libraries);
        let processor = if *target == Target::Cpu { host::processor() } else { String::new() };
        let warnings: Vec<&str> = plan.warnings.iter().map(|w| w.message.as_str()).collect();
        let warnings = warnings.join("\n");
        let launchers = format!("{:?}", plan.launchers);
        let mut parts: Vec<&[u8]> = vec![
            b"artifact 5",
            libraries.as_bytes(),
            launchers.as_bytes(),
            label.as_bytes(),
            resources.as_bytes(),
            instrument.as_bytes(),
            processor.as_bytes(),
            self.support().hash.as_bytes(),
            warnings.as_bytes(),
        ];
        parts.extend(tools.iter().map(String::as_bytes));
        let keys: Vec<&str> = plan.modules.iter().map(|(m, _)| m.key.as_str()).collect();
        parts.extend(keys.iter().map(|k| k.as_bytes()));
        for (name, text) in plan.texts.iter().filter(|(name, _)| *name != "model_new.py") {
            parts.extend([name.as_bytes(), text.as_bytes()]);
        }
        cache::key(parts)
    }
}

/// The instrument that has an effect on this target.
fn instrument(target: &Target, asked: Instrument) -> Instrument {
    match (target, asked) {
        // CUPTI needs nothing of a binary: what is profiled is what is judged.
        (Target::Cuda { .. }, Instrument::Profile) => Instrument::None,
        _ => asked,
    }
}

/// Launchers of every `.cu` that has no binding file of its own, and those that Python cannot call.
/// The latter are errors, unless there are bindings that may use them.
fn exposed(sources: &Sources, units: &[Unit]) -> (Vec<Launcher>, Vec<Diagnostic>) {
    let bindings = units.iter().any(|u| u.torch);
    let severity = if bindings { Severity::Warning } else { Severity::Error };
    let mut launchers: Vec<Launcher> = Vec::new();
    let mut uncallable = Vec::new();
    for unit in units.iter().filter(|u| u.language == Language::Cuda && !u.torch) {
        let stem = unit.name.trim_end_matches(".cu");
        if sources.host.iter().any(|h| *h == format!("{stem}_binding.cpp")) {
            continue;
        }
        match launchers::read(&unit.name, &sources.files) {
            Ok(found) => launchers.extend(found),
            Err(refusals) => uncallable.extend(refusals.into_iter().map(|refusal| {
                let message = format!("{}: {}", refusal.construct, refusal.reason);
                let mut found = diagnostics::error(Some(&refusal.file), message);
                found.severity = severity;
                found.line = Some(refusal.line);
                found.column = Some(refusal.column);
                found.excerpt = diagnostics::excerpt(&found, &sources.files);
                found
            })),
        }
    }
    launchers.sort_by(|a, b| a.name.cmp(&b.name));
    launchers.dedup_by(|a, b| a.name == b.name);
    (launchers, uncallable)
}

/// A warning that the builder itself creates.
pub(crate) fn warning(file: &str, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, ..diagnostics::error(Some(file), message) }
}
