//! Inspections: runs one call of a candidate under a profiler or a sanitizer. May use every room but `session`
//! and `timing`.
//!
//! ```text
//! oracle ── inputs, weights ──► file ──► inspector.py (in the jail, alone or under a tool)
//!                                             │ report, trace, tool's log: the candidate's word
//!            Findings ◄── parsed, capped ◄────┘
//! ```
//!
//! The process differs from a runner: no arena and no conversation, every tensor an allocation of
//! its own, the binary built with [`Instrument`] where a tool needs that. No finding enters a verdict or a
//! reward; `docs/decisions/0007-inspections-separate-from-verdicts.md` explains why.

mod asan;
mod carry;
mod clean;
mod kernels;
mod ncu;
mod occupancy;
mod process;
mod sanitizer;
mod tools;

use warpwright_build::{Artifact, Instrument, Outcome};
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{
    Answer, FINDINGS_VERSION, Findings, Inspection, MAX_KERNELS, SanitizerCheck, SanitizerOutcome,
    SanitizerReport,
};
use warpwright_task::Task;

use self::carry::{Folder, Load};
use self::clean::{MAX_LINE, clean};
use self::kernels::Ceilings;
use self::process::{Order, Ran, run};
use crate::device::backend::Profilers;
use crate::device::device_arbiter::Purpose;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::judge::processes::Processes;
use crate::process::failure::failure;
use crate::process::oracle::{Oracle, candidate_mode, profile_name};

/// Counters of which `ncu` may say that it does not know them before it is given up.
const MAX_UNKNOWN_METRICS: usize = 4;
/// Bytes after every allocation that belong to none: large ones lie side by side, and a write past
/// the end of one would land in the next.
const PADDING: u64 = 4096;
/// Findings that the sanitizer prints; it counts all.
const PRINT_LIMIT: usize = 200;

/// Subject of an inspection.
pub(crate) struct Subject<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) processes: &'a Processes,
    pub(crate) task: &'a Task,
    pub(crate) oracle: &'a mut Oracle,
    /// Seed of the inputs.
    pub(crate) seed: u64,
    pub(crate) unavoidable_bytes: u64,
}

/// An answer, its caveats, and the seconds for which the device was taken.
#[derive(Default)]
struct Told {
    answer: Option<Answer>,
    caveats: Vec<String>,
    seconds: f64,
}

impl Told {
    fn answer(answer: Answer) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }
}

impl Subject<'_> {
    /// Inspects a candidate. What it does wrong is in the findings; an error is never its doing.
    pub(crate) fn inspect(
        mut self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeError> {
        let mut build_seconds = 0.0;
        let told = match self.impossible(inspection) {
            Some(answer) => Told::answer(answer),
            None => match self.build(candidate, inspection)? {
                Outcome::Built(artifact) => {
                    build_seconds = artifact.seconds;
                    self.look(candidate, &artifact, inspection)?
                }
                Outcome::Failed(failed) => {
                    build_seconds = failed.seconds;
                    let mut told = failure(failed.class, failed.message);
                    told.diagnostics = failed.diagnostics;
                    told.output_tail = failed.raw_tail;
                    Told::answer(Answer::Failed { failure: told })
                }
            },
        };
        let versions = &self.oracle.opened.versions;
        let nothing =
            || JudgeError::infrastructure("inspect a call", "the inspection gave no answer");
        Ok(Findings {
            version: FINDINGS_VERSION,
            task: self.task.name.clone(),
            candidate: candidate.hash().to_owned(),
            device: self.machine.config.device.to_string(),
            inspection: inspection.clone(),
            answer: told.answer.ok_or_else(nothing)?,
            caveats: told.caveats,
            build_seconds,
            run_seconds: told.seconds,
            fingerprint: self.machine.fingerprint(&versions.torch, &versions.python),
        })
    }

    fn has_nvidia_tools(&self) -> bool {
        self.machine.device.profilers() == Profilers::Nvidia
    }

    /// The answer if this inspection is impossible for any candidate; `None` otherwise.
    fn impossible(&self, inspection: &Inspection) -> Option<Answer> {
        if *inspection != Inspection::Counters {
            return None;
        }
        let (reason, hint) = if !self.has_nvidia_tools() {
            ("the cpu device has no hardware counters", "`--kernels` works here")
        } else if tools::ncu(self.processes.builder.toolchain()).is_none() {
            ("this host has no `ncu`", "Nsight Compute comes with the CUDA toolkit")
        } else {
            return None;
        };
        Some(Answer::Unavailable { reason: reason.to_owned(), hint: Some(hint.to_owned()) })
    }

    fn build(&self, candidate: &Candidate, inspection: &Inspection) -> Result<Outcome, JudgeError> {
        let instrument = match inspection {
            Inspection::Kernels | Inspection::Counters => Instrument::Profile,
            Inspection::Sanitize { .. } => Instrument::Sanitize,
        };
        self.processes.build(self.machine, self.task, candidate, instrument)
    }

    fn look(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        inspection: &Inspection,
    ) -> Result<Told, JudgeError> {
        let source = candidate.files().get("model_new.py");
        let source = String::from_utf8_lossy(source.map_or(&[][..], Vec::as_slice)).into_owned();
        let load = Load {
            source: &source,
            artifact: &artifact.dir,
            profile: profile_name(self.machine.config.profile),
            mode: candidate_mode(self.task),
            seed: self.seed,
        };
        if *inspection == Inspection::Kernels {
            // Before the device is held: measuring its ceilings takes it alone.
            self.processes.calibrate(self.machine, false)?;
        }
        let shared = self.machine.arbiter.share(Purpose::Reference);
        let folder = Folder::new(&self.machine.config.cache, self.oracle, &load)?;
        drop(shared);
        let Some(folder) = folder else {
            let most = carry::MAX_BYTES >> 30;
            let reason = format!("inputs and weights of more than {most} GiB are not inspected");
            let hint = Some("profile the candidate as a whole instead".to_owned());
            return Ok(Told::answer(Answer::Unavailable { reason, hint }));
        };
        // Times of kernels mean something only alone; on a GPU everything of a candidate is.
        let alone =
            self.machine.device.candidates_leave_work() || *inspection == Inspection::Kernels;
        let arbiter = &self.machine.arbiter;
        let _held = if alone {
            arbiter.alone(Purpose::Inspection)
        } else {
            arbiter.share(Purpose::Inspection)
        };
        let told = match inspection {
            Inspection::Kernels => self.kernels(&folder, artifact),
            Inspection::Counters => self.counters(&folder, artifact),
            Inspection::Sanitize { checks } => self.sanitize(&folder, artifact, checks),
        };
        self.machine.device.probe()?;
        told
    }

    fn kernels(&self, folder: &Folder, artifact: &Artifact) -> Result<Told, JudgeError> {
        let bandwidth = self.processes.calibrate(self.machine, false)?.bandwidth_bytes_per_second;
        let dir = &artifact.dir;
        let order = Order { what: "kernels", under: None, env: Vec::new(), artifact: dir };
        let ran = run(&self.processes.host, folder, &order)?;
        if let Some(failure) = ran.failure() {
            return Ok(Told { seconds: ran.seconds, ..Told::answer(Answer::Failed { failure }) });
        }
        let ceilings = Ceilings {
            arch: self.machine.device.facts().arch.clone(),
            unavoidable_bytes: self.unavoidable_bytes,
            bandwidth: Some(bandwidth),
        };
        let (calls, seconds) = ran.report.as_ref().map_or((1, 0.0), |r| (r.calls, r.seconds));
        let mut caveats =
            vec!["every call got the same inputs: what fits a cache was read from it".to_owned()];
        let answer = match kernels::profile(&ran.trace, calls, seconds, &ceilings) {
            Ok(profile) => match self.cupti_trouble(&ran, profile.kernels.is_empty()) {
                Some(reason) => Answer::Unavailable { reason, hint: None },
                None => Answer::Kernels { profile },
            },
            Err(wrong) => Answer::Unavailable {
                reason: format!("the process left no trace that can be read: {wrong}"),
                hint: None,
            },
        };
        if self.machine.device.uses_host_cores() {
            caveats.push("these times are from host cores, not from a GPU".to_owned());
        }
        Ok(Told { answer: Some(answer), caveats, seconds: ran.seconds })
    }

    /// Why no kernel was seen, where that is CUPTI's doing and not the candidate's.
    fn cupti_trouble(&self, ran: &Ran, saw_none: bool) -> Option<String> {
        if !saw_none || !self.has_nvidia_tools() {
            return None;
        }
        let said = ran.stderr();
        let line = said.lines().find(|line| line.contains("CUPTI"))?;
        Some(format!("CUPTI did not work in the jail: {}", clean(line, MAX_LINE)))
    }

    fn counters(&self, folder: &Folder, artifact: &Artifact) -> Result<Told, JudgeError> {
        let Some(ncu) = tools::ncu(self.processes.builder.toolchain()) else {
            return Ok(Told::default());
        };
        let mut asked = ncu::metrics();
        let mut seconds = 0.0;
        for _ in 0..=MAX_UNKNOWN_METRICS {
            let log = folder.log.to_string_lossy();
            let launches = (MAX_KERNELS + 1).to_string();
            let arguments = [
                "--profile-from-start",
                "off",
                "--target-processes",
                "application-only",
                "--clock-control",
                "none",
                "--csv",
                "--page",
                "raw",
                "--print-units",
                "base",
                "--launch-count",
                &launches,
                "--metrics",
                &asked.join(","),
                "--log-file",
                &log,
            ]
            .map(str::to_owned);
            let order = Order {
                what: "counters",
                under: Some((&ncu, arguments.into())),
                env: Vec::new(),
                artifact: &artifact.dir,
            };
            let ran = run(&self.processes.host, folder, &order)?;
            seconds += ran.seconds;
            if let Some(unknown) = ncu::unknown_metric(&ran.log, &asked) {
                asked.remove(unknown);
                continue;
            }
            return Ok(Told { seconds, ..self.counted(&ran) });
        }
        let reason = "this `ncu` does not know the counters that are asked for".to_owned();
        let answer = Some(Answer::Unavailable { reason, hint: None });
        Ok(Told { answer, seconds, ..Told::default() })
    }

    fn counted(&self, ran: &Ran) -> Told {
        let (kernels, left_out) = ncu::parse(&ran.log, self.machine.device.facts().processors);
        if kernels.is_empty() {
            if let (true, Some(failure)) = (ran.started(), ran.failure()) {
                return Told::answer(Answer::Failed { failure });
            }
            if let Some(complaint) = ncu::complaint(&ran.log) {
                let hint = complaint.contains("ERR_NVGPUCTRPERM").then(|| {
                    "the driver keeps counters for administrators: load it with \
                     NVreg_RestrictProfilingToAdminUsers=0"
                        .to_owned()
                });
                return Told::answer(Answer::Unavailable { reason: complaint, hint });
            }
            if !ran.started() {
                let said = clean(last_line(&ran.stderr()), MAX_LINE);
                let reason = format!("`ncu` did not work in the jail: {said}");
                return Told::answer(Answer::Unavailable { reason, hint: None });
            }
        }
        let caveats = vec![
            "each kernel was run again for every group of counters, alone, with cold caches"
                .to_owned(),
        ];
        Told { caveats, ..Told::answer(Answer::Counters { kernels, left_out }) }
    }

    fn sanitize(
        &self,
        folder: &Folder,
        artifact: &Artifact,
        checks: &[SanitizerCheck],
    ) -> Result<Told, JudgeError> {
        let mut told = Told::default();
        let mut reports = Vec::new();
        for &check in checks {
            let (report, ran) = if self.has_nvidia_tools() {
                self.compute_sanitizer(folder, artifact, check)?
            } else {
                self.address_sanitizer(folder, artifact, check)?
            };
            let Some(ran) = ran else {
                reports.push(report);
                continue;
            };
            told.seconds += ran.seconds;
            // It never got to a kernel: the same would happen next time.
            if let (true, true, Some(failure)) =
                (report.findings.is_empty(), ran.refused(), ran.failure())
            {
                told.answer = Some(Answer::Failed { failure });
                return Ok(told);
            }
            reports.push(report);
        }
        told.answer = Some(Answer::Sanitized { reports });
        Ok(told)
    }

    fn compute_sanitizer(
        &self,
        folder: &Folder,
        artifact: &Artifact,
        check: SanitizerCheck,
    ) -> Result<(SanitizerReport, Option<Ran>), JudgeError> {
        let name = "compute-sanitizer";
        let Some(tool) = tools::compute_sanitizer(self.processes.builder.toolchain()) else {
            let reason = "this host has no `compute-sanitizer`";
            return Ok((unavailable(check, name, reason.to_owned()), None));
        };
        let log = folder.log.to_string_lossy();
        let (limit, padding) = (PRINT_LIMIT.to_string(), PADDING.to_string());
        let mut arguments = vec![
            "--tool",
            check.name(),
            "--target-processes",
            "application-only",
            "--print-limit",
            &limit,
            "--log-file",
            &log,
        ];
        if check == SanitizerCheck::Memcheck {
            arguments.extend(["--padding", &padding]);
        }
        let order = Order {
            what: "sanitize",
            under: Some((&tool, arguments.into_iter().map(str::to_owned).collect())),
            // Every tensor an allocation of its own: the cache's are one to the sanitizer.
            env: vec![("PYTORCH_NO_CUDA_MEMORY_CACHING", "1".to_owned())],
            artifact: &artifact.dir,
        };
        let ran = run(&self.processes.host, folder, &order)?;
        let found = sanitizer::parse(&ran.log);
        let outcome = match ran.failure() {
            None if found.complete => SanitizerOutcome::Complete,
            Some(failure) if ran.started() || !found.findings.is_empty() => {
                SanitizerOutcome::Stopped { message: first_line(&failure.message) }
            }
            _ => {
                let trouble = found.trouble.unwrap_or_else(|| last_line(&ran.stderr()).to_owned());
                let reason = format!("`{name}` did not work in the jail: {trouble}");
                SanitizerOutcome::Unavailable { reason: clean(&reason, MAX_LINE) }
            }
        };
        let (findings, total, tool) = (found.findings, found.total, name.to_owned());
        Ok((SanitizerReport { check, tool, outcome, findings, total }, Some(ran)))
    }

    fn address_sanitizer(
        &self,
        folder: &Folder,
        artifact: &Artifact,
        check: SanitizerCheck,
    ) -> Result<(SanitizerReport, Option<Ran>), JudgeError> {
        let name = "AddressSanitizer";
        if check != SanitizerCheck::Memcheck {
            let reason = "on the cpu device only memcheck is; the threads of a block run one after \
                          the other there";
            return Ok((unavailable(check, name, reason.to_owned()), None));
        }
        let Some(library) = tools::address_sanitizer(self.processes.builder.toolchain()) else {
            let reason = "the host's compiler has no AddressSanitizer library (libasan)";
            return Ok((unavailable(check, name, reason.to_owned()), None));
        };
        let options = "detect_leaks=0:halt_on_error=0:detect_odr_violation=0:\
                       detect_stack_use_after_return=0:allocator_may_return_null=1:exitcode=0";
        let order = Order {
            what: "sanitize",
            under: None,
            env: vec![
                ("LD_PRELOAD", library.to_string_lossy().into_owned()),
                ("ASAN_OPTIONS", options.to_owned()),
            ],
            artifact: &artifact.dir,
        };
        let ran = run(&self.processes.host, folder, &order)?;
        let (findings, total) = asan::parse(&ran.stderr());
        let outcome = match ran.failure() {
            None => SanitizerOutcome::Complete,
            Some(failure) if ran.started() || !findings.is_empty() => {
                SanitizerOutcome::Stopped { message: first_line(&failure.message) }
            }
            Some(_) => {
                let said = last_line(&ran.stderr()).to_owned();
                let reason = format!("`{name}` did not work in the jail: {said}");
                SanitizerOutcome::Unavailable { reason: clean(&reason, MAX_LINE) }
            }
        };
        let tool = name.to_owned();
        Ok((SanitizerReport { check, tool, outcome, findings, total }, Some(ran)))
    }
}

fn unavailable(check: SanitizerCheck, tool: &str, reason: String) -> SanitizerReport {
    let outcome = SanitizerOutcome::Unavailable { reason };
    SanitizerReport { check, tool: tool.to_owned(), outcome, findings: Vec::new(), total: 0 }
}

fn first_line(text: &str) -> String {
    clean(text.lines().next().unwrap_or_default(), MAX_LINE)
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}
