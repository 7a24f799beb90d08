//! The steps of a build: screen, harvest, compile, link, check, publish.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use fs_err as fs;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Diagnostic, FailureClass, KernelResources, Severity};

use crate::artifact::{
    ARTIFACT_VERSION, Artifact, BuildManifest, Failed, InlineModule, InlineTable, KernelsAlone,
    Launcher, LauncherTable, Outcome, Request, Resources, Target,
};
use crate::bench::{Bench, Object, Report};
use crate::builder::Builder;
use crate::diagnostics::{self, Scrub};
use crate::elf;
use crate::entry::Kind;
use crate::error::BuildError;
use crate::files::{self, Texts};
use crate::imports::Imported;
use crate::inline::Module;
use crate::libraries;
use crate::link::{Library, Linked};
use crate::plan::{Plan, warning};
use crate::screen;
use crate::stop::{Rejected, Stop, rejected};
use crate::unit::{Language, Unit};

impl Builder {
    /// Builds with the defaults of [`Request`].
    pub fn build(&self, candidate: &Candidate, target: &Target) -> Result<Outcome, BuildError> {
        self.build_with(candidate, target, &Request::default())
    }

    /// Builds `candidate` for `target`, or returns the cached result of an earlier build.
    pub fn build_with(
        &self,
        candidate: &Candidate,
        target: &Target,
        request: &Request,
    ) -> Result<Outcome, BuildError> {
        let start = Instant::now();
        match self.try_build(candidate, target, request, start) {
            Ok(artifact) => Ok(Outcome::Built(artifact)),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Failed(class, why)) => Ok(Outcome::Failed(failed(class, why, start))),
        }
    }

    fn try_build(
        &self,
        candidate: &Candidate,
        target: &Target,
        request: &Request,
        start: Instant,
    ) -> Result<Artifact, Stop> {
        let sources =
            screen::screen(candidate).map_err(|r| rejected(r.class, vec![r.diagnostic]))?;
        let plan = self.plan(&sources, target, request)?;
        let key = self.key(&plan, target, request);
        if let Some(dir) = self.cache().find(Kind::Artifact, &key)
            && let Ok(manifest) = files::read_json::<BuildManifest>(&dir.join("build.json"))
            && let Ok(table) = files::read_json::<LauncherTable>(&dir.join("launchers.json"))
        {
            return Ok(artifact(dir, table.launchers, manifest, true, start));
        }
        let tree = self.cache().scratch()?;
        let staged = self.cache().scratch()?;
        files::write_tree(tree.path(), &plan.texts)?;
        let scrub = self.scrub(tree.path());
        let bench = self.bench((target, request), tree.path(), (&plan.texts, &plan), &scrub);
        let (mut report, has_extension, imported) = std::thread::scope(|scope| {
            let asked = self.ask_resources(scope, &plan, target, request);
            let built = self.compile_and_link(&bench, &plan, staged.path());
            let reports = asked.into_iter().filter_map(|handle| handle.join().ok());
            let (mut report, has_extension, imported) = built?;
            for more in reports {
                report.kernels.extend(more.kernels);
                report.warnings.extend(more.warnings);
            }
            Ok::<_, Stop>((report, has_extension, imported))
        })?;
        let (errors, warnings): (Vec<_>, Vec<_>) =
            plan.uncallable.iter().cloned().partition(|d| d.severity == Severity::Error);
        if !errors.is_empty() {
            return Err(rejected(FailureClass::Build, errors));
        }
        let (launchers, absent) = there(&plan.launchers, staged.path())?;
        if launchers.is_empty() && !absent.is_empty() && !has_extension {
            let errors =
                absent.iter().map(|w| diagnostics::error(w.file.as_deref(), w.message.clone()));
            return Err(rejected(FailureClass::Build, errors.collect()));
        }
        let warnings = warnings.into_iter().chain(absent);
        report.warnings.splice(0..0, plan.warnings.iter().cloned().chain(warnings));
        report.kernels.sort_by(|a, b| (&a.name, &a.arch).cmp(&(&b.name, &b.arch)));
        report.kernels.dedup();
        report.device_images.sort_unstable();
        report.device_images.dedup();
        let manifest = BuildManifest {
            version: ARTIFACT_VERSION,
            key: key.clone(),
            target: target.label(),
            tools: self.toolchain().describe(),
            has_extension,
            inline: !plan.modules.is_empty(),
            own_kernels: imported.own_kernels,
            library_calls: imported.library_calls.into_iter().collect(),
            kernels_alone: imported.alone,
            kernels: report.kernels,
            device_images: report.device_images,
            libraries: report.libraries.into_iter().collect(),
            warnings: diagnostics::ranked(report.warnings),
        };
        write_tables(staged.path(), &plan, &launchers, &manifest)?;
        let dir = self.cache().publish(Kind::Artifact, &key, staged.path())?;
        Ok(artifact(dir, launchers, manifest, false, start))
    }

    /// What the compilers of a plan share. They see `texts`, which are in the folder `tree`.
    fn bench<'b>(
        &'b self,
        (target, request): (&'b Target, &Request),
        tree: &'b Path,
        (texts, plan): (&'b Texts, &'b Plan),
        scrub: &'b Scrub,
    ) -> Bench<'b> {
        Bench {
            jail: self.jail(),
            tools: self.toolchain(),
            settings: self.settings(),
            cache: self.cache(),
            support: self.support(),
            headers: self.headers(),
            target,
            instrument: request.instrument,
            libraries: request.libraries,
            tree,
            texts,
            originals: &plan.originals,
            scrub,
        }
    }

    /// Starts a thread per `.cu` that queries `ptxas`, if the caller requested it.
    fn ask_resources<'scope, 'env>(
        &'env self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        plan: &'env Plan,
        target: &'env Target,
        request: &'env Request,
    ) -> Vec<std::thread::ScopedJoinHandle<'scope, Report>> {
        let (Target::Cpu, Resources::Report { arch }) = (target, &request.resources) else {
            return Vec::new();
        };
        if self.toolchain().nvcc.is_none() {
            return Vec::new();
        }
        let ask = move || -> Result<Report, BuildError> {
            let tree = self.cache().scratch()?;
            files::write_tree(tree.path(), &plan.originals)?;
            let scrub = self.scrub(tree.path());
            let bench = self.bench((target, request), tree.path(), (&plan.originals, plan), &scrub);
            let mut all = Report::default();
            let plain = |u: &&Unit| u.language == Language::Cuda && !u.torch;
            for unit in plan.workspace.iter().filter(plain) {
                let report = bench.resources(unit, arch)?;
                all.kernels.extend(report.kernels);
                all.warnings.extend(report.warnings);
            }
            Ok(all)
        };
        let told = move || {
            ask().unwrap_or_else(|error| {
                let warnings = vec![warning("kernels", format!("no GPU resources: {error}"))];
                Report { warnings, ..Report::default() }
            })
        };
        vec![scope.spawn(told)]
    }

    /// Compiles all objects, then links every library.
    fn compile_and_link(
        &self,
        bench: &Bench<'_>,
        plan: &Plan,
        staged: &Path,
    ) -> Result<(Report, bool, Computes), Stop> {
        let units: Vec<&Unit> =
            plan.workspace.iter().chain(plan.modules.iter().flat_map(|(_, u)| u)).collect();
        let objects = self.compile_all(bench, &units)?;
        let refused: Vec<Diagnostic> = objects
            .iter()
            .flat_map(|(name, object)| {
                object.report.libraries.iter().map(move |used| (name, *used))
            })
            .filter(|(_, used)| !bench.libraries.contains(*used))
            .map(|(name, used)| libraries::refusal(name, used))
            .collect();
        if !refused.is_empty() {
            return Err(rejected(FailureClass::ForbiddenImport, refused));
        }
        let of = |units: &mut dyn Iterator<Item = &Unit>| -> Vec<Object> {
            units.filter_map(|u| objects.get(&u.name).cloned()).collect()
        };
        let mut computes = Computes { own_kernels: plan.kernels, ..Computes::default() };
        let mut launches = false;
        let mut link = |library, objects: &[Object], name: &str| {
            let imported = done(bench.link(library, objects, staged, name)?)?;
            let alone = bench.kernels_alone(staged, name)?;
            computes.alone.extend(alone.map(|alone| (name.to_owned(), alone)));
            launches |= imported.launches;
            computes.library_calls.extend(imported.library_work);
            Ok::<_, Stop>(())
        };
        let plain = of(&mut plan.workspace.iter().filter(|u| !u.torch));
        if !plain.is_empty() {
            link(Library::Kernels, &plain, "libkernels.so")?;
        }
        let has_extension = plan.workspace.iter().any(|u| u.torch);
        if has_extension {
            let all = of(&mut plan.workspace.iter());
            link(Library::Module, &all, "cuda_extension.so")?;
        }
        for (module, units) in &plan.modules {
            fs::create_dir_all(staged.join("inline"))?;
            let name = library_of(module);
            link(Library::Module, &of(&mut units.iter()), &name)?;
        }
        let mut report = Report::default();
        for object in objects.values() {
            report.warnings.extend(object.report.warnings.iter().cloned());
            report.kernels.extend(object.report.kernels.iter().cloned());
            report.device_images.extend(object.report.device_images.iter().cloned());
            report.libraries.extend(object.report.libraries.iter().copied());
        }
        // On a GPU compilers tell the kernels; where none does, what launches has some.
        let compiled = report.kernels.len() as u32;
        computes.own_kernels = computes.own_kernels.max(compiled).max(u32::from(launches));
        Ok((report, has_extension, computes))
    }

    /// Compiles `units`, several in parallel. All of them are tried, so that one failure does not
    /// hide another.
    fn compile_all(
        &self,
        bench: &Bench<'_>,
        units: &[&Unit],
    ) -> Result<BTreeMap<String, Object>, Stop> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let work = || {
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = bench.object(unit);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.push((unit.name.clone(), result));
            }
        };
        let threads = self.settings().jobs.clamp(1, units.len().max(1));
        if threads == 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(work);
                }
            });
        }
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by(|a, b| a.0.cmp(&b.0));
        let mut objects = BTreeMap::new();
        let mut failures = Rejected { diagnostics: Vec::new(), raw_tail: String::new() };
        for (name, result) in results {
            match result? {
                Ok(object) => {
                    objects.insert(name, object);
                }
                Err(why) => {
                    failures.diagnostics.extend(why.diagnostics);
                    failures.raw_tail += &why.raw_tail;
                }
            }
        }
        if failures.diagnostics.is_empty() {
            Ok(objects)
        } else {
            Err(Stop::Failed(FailureClass::Build, failures))
        }
    }
}

/// The parts of a candidate that can compute on the device.
#[derive(Default)]
struct Computes {
    own_kernels: u32,
    library_calls: BTreeSet<String>,
    alone: BTreeMap<String, KernelsAlone>,
}

fn done(linked: Linked) -> Result<Imported, Stop> {
    match linked {
        Linked::Done(imported) => Ok(imported),
        Linked::Rejected(why) => Err(Stop::Failed(FailureClass::Build, why)),
        Linked::Forbidden(findings) => Err(rejected(FailureClass::ForbiddenImport, findings)),
    }
}

fn library_of(module: &Module) -> String {
    format!("inline/{}.so", module.key)
}

/// The launchers that the library exports, and a warning for each missing one: only the compiler
/// knows which branches of `#if` are compiled.
fn there(
    launchers: &[Launcher],
    staged: &Path,
) -> Result<(Vec<Launcher>, Vec<Diagnostic>), BuildError> {
    let library = staged.join("libkernels.so");
    let exports = if library.exists() { elf::exports(&fs::read(&library)?) } else { None };
    let Some(exports) = exports else { return Ok((launchers.to_vec(), Vec::new())) };
    let (found, absent): (Vec<Launcher>, Vec<Launcher>) =
        launchers.iter().cloned().partition(|launcher| exports.contains(&launcher.name));
    let told = |launcher: Launcher| {
        let message =
            format!("launcher {} was not compiled: it is not in the library", launcher.name);
        warning(&launcher.file, message)
    };
    Ok((found, absent.into_iter().map(told).collect()))
}

fn write_tables(
    staged: &Path,
    plan: &Plan,
    launchers: &[Launcher],
    manifest: &BuildManifest,
) -> Result<(), BuildError> {
    files::write_json(&staged.join("build.json"), manifest)?;
    let launchers = LauncherTable {
        version: ARTIFACT_VERSION,
        library: "libkernels.so".to_owned(),
        launchers: launchers.to_vec(),
    };
    files::write_json(&staged.join("launchers.json"), &launchers)?;
    if !plan.modules.is_empty() {
        let entry = |(module, _): &(Module, Vec<Unit>)| {
            let library = library_of(module);
            (module.key.clone(), InlineModule { name: module.name.clone(), library })
        };
        let modules = plan.modules.iter().map(entry).collect();
        let table = InlineTable { version: ARTIFACT_VERSION, modules };
        files::write_json(&staged.join("inline.json"), &table)?;
    }
    Ok(())
}

fn artifact(
    dir: PathBuf,
    launchers: Vec<Launcher>,
    manifest: BuildManifest,
    cached: bool,
    start: Instant,
) -> Artifact {
    let kernels: Vec<KernelResources> = manifest.kernels;
    Artifact {
        dir,
        launchers,
        has_extension: manifest.has_extension,
        inline: manifest.inline,
        kernels,
        own_kernels: manifest.own_kernels,
        library_calls: manifest.library_calls,
        kernels_alone: manifest.kernels_alone,
        device_images: manifest.device_images,
        libraries: manifest.libraries,
        warnings: manifest.warnings,
        cached,
        seconds: start.elapsed().as_secs_f64(),
    }
}

fn failed(class: FailureClass, why: Rejected, start: Instant) -> Failed {
    let errors = why.diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let diagnostics = diagnostics::ranked(why.diagnostics);
    let message = diagnostics.first().map_or_else(String::new, |first| {
        let place = match (&first.file, first.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            _ => String::new(),
        };
        let more = if errors > 1 { format!(" (and {} more)", errors - 1) } else { String::new() };
        format!("{place}{}{more}", first.message)
    });
    let seconds = start.elapsed().as_secs_f64();
    Failed { class, message, diagnostics, raw_tail: why.raw_tail, seconds }
}
