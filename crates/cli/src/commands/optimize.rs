//! `warpwright optimize TASK...`: a policy writes kernels, the judge says what they are worth.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use warpwright_agent::episode::{self, EpisodeError, Parts, Start};
use warpwright_agent::policy::Briefing;
use warpwright_agent::skill;
use warpwright_agent::tools::shell::{Provision, Shell};
use warpwright_agent::workspace::{Contents, Workspace};
use warpwright_judge::JudgeError;
use warpwright_record::event::{
    Budget, EpisodeId, EpisodeSetup, Event, NoteLevel, Outcome, RunOutcome,
};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};
use warpwright_report::live::LiveView;
use warpwright_task::Task;

use crate::args::Optimize;
use crate::commands::judge::command;
use crate::failure::{Failure, chain};
use crate::interrupt;
use crate::judging::{Bench, SessionJudge, Wanted};
use crate::policies::PolicyName;
use crate::printer::Printer;
use crate::results;
use crate::settings::Settings;
use crate::tasks;

pub(crate) fn run(args: &Optimize, printer: Printer) -> Result<u8, Failure> {
    match &args.resume {
        Some(dir) => resume(args, dir, printer),
        None => begin(args, printer),
    }
}

fn begin(args: &Optimize, printer: Printer) -> Result<u8, Failure> {
    let tasks = tasks::read_all(&args.tasks, printer)?;
    let policy = PolicyName::parse(&args.policy)?;
    for task in &tasks {
        // A trajectory that is not there is found before the judge is opened.
        policy.make(&task.name)?;
    }
    let dir = args.out.clone().unwrap_or_else(|| default_folder(&tasks));
    let wanted = Wanted::new(&args.common, args.profile.into());
    let stop = interrupt::watch(printer)?;
    let bench = Bench::open(&args.common, args.common.device, wanted, printer)?;
    let settings = Settings::new(args, &tasks, policy.absolute(), bench.device());
    let config = serde_json::to_value(&settings).map_err(|error| {
        Failure::infrastructure(format!("failed to encode the settings: {error}"), None)
    })?;
    let record = RunWriter::create(&dir, RunInfo { command: command(), config })?;
    printer.say(&format!("run: {}", dir.display()));
    let run = Run { settings, bench, record, dir, stop: &stop, printer };
    run.work(&History::default())
}

fn resume(args: &Optimize, dir: &Path, printer: Printer) -> Result<u8, Failure> {
    let reader = RunReader::open(dir)?;
    let settings = Settings::from_config(&reader.header().config)?;
    let history = History::read(&reader)?;
    let insist = if args.force { ResumePolicy::Forced } else { ResumePolicy::SameProgram };
    if is_done(&history, &settings) {
        if history.outcome != Some(RunOutcome::Completed) {
            // Killed between the last episode's end and the run's.
            let record = RunWriter::resume(dir, insist)?;
            record.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
            record.close()?;
        }
        printer.say("the run is complete; there is nothing left to do");
        return results::present(dir, &settings, &[], printer);
    }
    let record = RunWriter::resume(dir, insist)?;
    // What was appended meanwhile, and the order of the lock: read again under it.
    let history = History::read(&reader)?;
    let wanted = Wanted {
        profile: settings.profile,
        seed: settings.seed,
        all_baselines: settings.all_baselines,
        require_full_isolation: settings.require_full_isolation,
    };
    let stop = interrupt::watch(printer)?;
    let device = settings.device()?;
    let bench = Bench::open(&args.common, device, wanted, printer)?;
    let dir = dir.to_owned();
    Run { settings, bench, record, dir, stop: &stop, printer }.work(&history)
}

/// Whether every task was worked on to an end that needs nothing more.
fn is_done(history: &History, settings: &Settings) -> bool {
    let over = |e: &Episode| e.end.is_some() && e.resume_point().is_none();
    history.episodes.values().filter(|episode| over(episode)).count() == settings.tasks.len()
}

/// One process's part of a run.
struct Run<'a> {
    settings: Settings,
    bench: Bench,
    record: RunWriter,
    dir: PathBuf,
    stop: &'a AtomicBool,
    printer: Printer,
}

impl Run<'_> {
    /// Works on every task that is not done, ends the run, and shows what it came to.
    fn work(self, history: &History) -> Result<u8, Failure> {
        let live = RefCell::new(LiveView::stderr());
        let mut refused: Vec<(String, Failure)> = Vec::new();
        let done = self.episodes(history, &live, &mut refused);
        live.borrow_mut().finish();
        let broken = self.broken()?;
        let outcome = match (&done, broken) {
            (Err(failure), _) => RunOutcome::Failed { message: failure.message.clone() },
            (Ok(()), _) if self.stop.load(Ordering::SeqCst) => RunOutcome::Interrupted,
            (Ok(()), Some(message)) => RunOutcome::Failed { message },
            (Ok(()), None) => RunOutcome::Completed,
        };
        let completed = outcome == RunOutcome::Completed;
        let ended = self.record.append(&Event::RunFinished { outcome }).map(|_| ());
        // What went wrong first is what the user needs to know.
        done?;
        ended?;
        let Self { settings, record, dir, printer, .. } = self;
        if completed {
            record.close()?;
        } else {
            drop(record);
        }
        results::present(&dir, &settings, &refused, printer)
    }

    /// What ended an episode by our own failure; such a run can be resumed.
    fn broken(&self) -> Result<Option<String>, Failure> {
        let history = History::read(&RunReader::open(&self.dir)?)?;
        Ok(history.episodes.values().find_map(|episode| match &episode.end.as_ref()?.outcome {
            Outcome::Infrastructure { message } => Some(message.clone()),
            _ => None,
        }))
    }

    fn episodes(
        &self,
        history: &History,
        live: &RefCell<LiveView>,
        refused: &mut Vec<(String, Failure)>,
    ) -> Result<(), Failure> {
        let tasks = self.settings.tasks();
        let policy = PolicyName::parse(&self.settings.policy)?;
        let facts = self.bench.facts()?;
        let (folders, path) = self.bench.compilers();
        let python = Some(self.bench.python.clone());
        let shell = Shell::new(
            self.bench.jail.clone(),
            Provision { python, folders, path, memory_bytes: None },
        );
        let skill = skill::render(skill::TEMPLATE, &facts, self.settings.profile)
            .map_err(|error| Failure::infrastructure(chain(&error), None))?;
        for (number, task) in (0..).zip(&tasks) {
            let id = EpisodeId(number);
            if self.stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            let Some(start) = self.start(history, id)? else { continue };
            let session = match self.bench.judge.task(task) {
                Ok(session) => session,
                Err(error @ JudgeError::Reference { .. }) => {
                    let failure = Failure::from(error);
                    self.note(live, &failure.message)?;
                    if tasks.len() == 1 {
                        return Err(failure);
                    }
                    refused.push((task.name.clone(), failure));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let judge = SessionJudge::new(session, facts.clone());
            let workspace = self.workspace(task, &skill)?;
            let briefing = Briefing {
                task: task.name.clone(),
                reference: task.source.clone(),
                skill: skill.clone(),
                device: facts.clone(),
                seed: self.settings.seed,
            };
            let parts = Parts {
                id,
                setup: self.setup(task, &skill)?,
                briefing,
                workspace: &workspace,
                shell: &shell,
                judge: &judge,
                record: &self.record,
                observer: &|event| live.borrow_mut().observe(event),
                stop: self.stop,
            };
            let mut policy = policy.make(&task.name)?;
            episode::run(&parts, policy.as_mut(), start)?;
        }
        Ok(())
    }

    /// Where an episode begins; `None` when it is over.
    fn start(&self, history: &History, id: EpisodeId) -> Result<Option<Start>, Failure> {
        let Some(recorded) = history.episodes.get(&id) else { return Ok(Some(Start::Fresh)) };
        Ok(episode::resume_from(&RunReader::open(&self.dir)?, recorded)?)
    }

    fn workspace(&self, task: &Task, skill: &str) -> Result<Workspace, Failure> {
        let contents = Contents {
            skill: skill.to_owned(),
            reference: task.source.clone(),
            binding: warpwright_build::template::BINDING_CPP.to_owned(),
            binding_registry: warpwright_build::template::BINDING_REGISTRY_H.to_owned(),
        };
        let path = results::workspace(&self.dir, &self.settings, &task.name);
        Workspace::create(&path, &contents)
            .map_err(|error| Failure::from(EpisodeError::from(error)))
    }

    fn setup(&self, task: &Task, skill: &str) -> Result<EpisodeSetup, Failure> {
        let settings = &self.settings;
        Ok(EpisodeSetup {
            task: task.name.clone(),
            source: self.record.put_blob(task.source.as_bytes())?,
            skill: Some(self.record.put_blob(skill.as_bytes())?),
            policy: settings.policy.clone(),
            device: settings.device.clone(),
            profile: settings.profile,
            seed: settings.seed,
            attempt: 0,
            level: None,
            budget: Budget {
                turns: Some(settings.max_turns),
                seconds: settings.max_seconds,
                ..Budget::default()
            },
        })
    }

    fn note(&self, live: &RefCell<LiveView>, text: &str) -> Result<(), Failure> {
        let (level, text) = (NoteLevel::Warning, text.to_owned());
        let event = Event::Note { episode: None, level, text };
        self.record.append(&event)?;
        live.borrow_mut().observe(&event);
        Ok(())
    }
}

/// A new folder for a run, named after its first task and the time.
fn default_folder(tasks: &[Task]) -> PathBuf {
    let name = tasks.first().map_or("run", |task| task.name.as_str());
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
    let base = Path::new("warpwright-runs").join(format!("{name}-{time}"));
    let numbered = (2..).map(|n| base.with_file_name(format!("{name}-{time}-{n}")));
    std::iter::once(base.clone()).chain(numbered).find(|path| !path.exists()).unwrap_or(base)
}

impl From<EpisodeError> for Failure {
    fn from(error: EpisodeError) -> Self {
        let message = chain(&error);
        match error {
            EpisodeError::Record(error) => error.into(),
            EpisodeError::Read(error) => error.into(),
            EpisodeError::Workspace(error) => {
                use warpwright_agent::beneath::FileError;
                use warpwright_agent::workspace::WorkspaceError;
                match &error {
                    WorkspaceError::Make { source, .. }
                    | WorkspaceError::File { source: FileError::System { source, .. }, .. } => {
                        Self { message, ..Self::io("use the workspace", source) }
                    }
                    WorkspaceError::File { .. } => Self::infrastructure(message, None),
                }
            }
            EpisodeError::Diverged { .. } => {
                let hint =
                    "resume with the version of the program that began the run, or begin anew";
                Self::infrastructure(message, hint.to_owned())
            }
        }
    }
}
