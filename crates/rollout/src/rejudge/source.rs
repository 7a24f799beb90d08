//! The older run: its candidates, tasks and settings.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use warpwright_judge::{BaselineSet, Degenerate};
use warpwright_record::candidate::Candidate;
use warpwright_record::error::ReadError;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::run::FORMAT_VERSION;
use warpwright_record::verdict::Profile;
use warpwright_task::Task;

use super::Rules;
use crate::error::{RolloutError, chain};
use crate::judge_host::{JudgeHost, JudgeOptions};
use crate::settings::{Purpose, Settings};

/// An older run, open for reading.
pub struct Source {
    pub(super) reader: RunReader,
    /// What it recorded.
    pub history: History,
    /// Its settings, if `optimize` or `eval` started it.
    settings: Option<Settings>,
    /// Why these cannot be read, if such a command started it.
    unread: Option<String>,
    tasks: Vec<Task>,
    profile: Profile,
}

/// The episodes of an older run whose final candidates are judged again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// `all`, `changed`, `failed`, or the name of a task.
    pub only: String,
    /// The episodes with a final candidate.
    pub episodes: BTreeSet<EpisodeId>,
    /// Episodes that ended without a candidate: they are recorded as they ended.
    pub without: BTreeSet<EpisodeId>,
    tasks: BTreeSet<String>,
}

impl Candidates {
    pub(super) fn has_task(&self, name: &str) -> bool {
        self.tasks.contains(name)
    }
}

impl Source {
    /// Opens the run in `dir`.
    pub fn open(dir: &Path) -> Result<Self, RolloutError> {
        let reader = RunReader::open(dir)?;
        let history = History::read(&reader).map_err(|error| unreadable(&reader, error))?;
        let profiles: BTreeSet<Profile> =
            history.episodes.values().map(|episode| episode.setup.profile).collect();
        let mut profiles = profiles.into_iter();
        let (Some(profile), None) = (profiles.next(), profiles.next()) else {
            let is_empty = history.episodes.is_empty();
            let why = if is_empty { "it has no episode" } else { "it has several profiles" };
            let message = format!("failed to judge {} again: {why}", dir.display());
            let hint = "name a run of `optimize`, `eval` or `judge --out`, or the folder `record` of a stage of \
                        `train`"
                .to_owned();
            return Err(RolloutError::usage(message, hint));
        };
        let (settings, unread) = match Settings::from_config(&reader.header().config) {
            Ok(settings) => (Some(settings), None),
            Err(error) => (None, is_of_episodes(&reader).then(|| chain(&error))),
        };
        let tasks = settings.as_ref().map(Settings::tasks).unwrap_or_default();
        Ok(Self { reader, history, settings, unread, tasks, profile })
    }

    /// The candidates that `only` selects. `changed`: the episodes whose verdict an earlier run changed.
    pub fn select(
        &self,
        only: &str,
        changed: &BTreeSet<EpisodeId>,
    ) -> Result<Candidates, RolloutError> {
        let mut chosen = Candidates { only: only.to_owned(), ..Candidates::default() };
        for (id, episode) in &self.history.episodes {
            let Some(end) = &episode.end else { continue };
            let verified = end.final_verdict.as_ref().is_some_and(|verdict| verdict.verified);
            let wanted = match only {
                "all" => true,
                "changed" => changed.contains(id),
                "failed" => !verified,
                name => episode.setup.task == name,
            };
            if !wanted {
                continue;
            }
            if end.candidate.is_some() {
                chosen.episodes.insert(*id);
            } else if !end.outcome.is_resumable() {
                chosen.without.insert(*id);
            }
            chosen.tasks.insert(episode.setup.task.clone());
        }
        if chosen.episodes.is_empty() {
            return Err(self.nothing(only));
        }
        Ok(chosen)
    }

    fn nothing(&self, only: &str) -> RolloutError {
        let run = self.reader.dir().display();
        let episodes = self.history.episodes.values();
        let (why, hint) = match only {
            "all" => (
                "no episode has a final candidate".to_owned(),
                "resume the run until an episode ends with a candidate".to_owned(),
            ),
            "changed" => (
                "no verdict changed when its candidates were judged again".to_owned(),
                format!("judge all of them with `warpwright rejudge {run}`"),
            ),
            "failed" => (
                "every final candidate is verified".to_owned(),
                format!("judge all of them with `warpwright rejudge {run}`"),
            ),
            name => {
                let tasks: BTreeSet<&str> = episodes.map(|e| e.setup.task.as_str()).collect();
                let some: Vec<&str> = tasks.iter().copied().take(8).collect();
                let more = if tasks.len() > some.len() { ", ..." } else { "" };
                (
                    format!("no episode on task `{name}` has a final candidate"),
                    format!("its tasks are {}{more}", some.join(", ")),
                )
            }
        };
        RolloutError::usage(format!("failed to judge {run} again: {why}"), hint)
    }

    /// How its candidates are judged.
    pub(super) fn options(&self, rules: &Rules) -> JudgeOptions {
        let settings = self.settings.as_ref();
        let refuses = |s: &Settings| s.purpose == Purpose::Eval && !s.include_degenerate;
        JudgeOptions {
            profile: self.profile,
            seed: self.seed(),
            baselines: if settings.is_some_and(|settings| settings.all_baselines) {
                BaselineSet::All
            } else {
                BaselineSet::Usual
            },
            require_full_isolation: rules.require_full_isolation,
            degenerate: if settings.is_some_and(refuses) {
                Degenerate::Refused
            } else {
                Degenerate::Judged
            },
            tier: rules.tier.into(),
            libraries: settings.map(Settings::library_set).unwrap_or_default(),
            memory_limit: settings.and_then(|settings| settings.memory_limit),
            // What is published is timed side by side.
            share_baselines: false,
            window_ms: None,
        }
    }

    /// The seed of the references' weights. Runs of `judge` have it in their only episode.
    fn seed(&self) -> u64 {
        let alone = || {
            let config = &self.reader.header().config;
            let mut episodes = self.history.episodes.values();
            episodes.next().filter(|_| config.is_null()).map(|episode| episode.setup.seed)
        };
        self.settings.as_ref().map(|settings| settings.seed).or_else(alone).unwrap_or(0)
    }

    /// Whether its verdicts on the same files may be shared: training asks for the same candidate many times.
    pub(super) fn shares_verdicts(&self) -> bool {
        let purpose = self.reader.header().config.get("purpose").and_then(Value::as_str);
        self.settings.is_none() && purpose == Some("train")
    }

    /// What differs between the older run and this one beyond the rules, a sentence each.
    pub(super) fn caveats(&self, hosts: &[JudgeHost]) -> Vec<String> {
        let mut caveats = vec![format!(
            "the candidates are those of {}, judged again by version {}",
            super::full(self.reader.dir()),
            warpwright_record::run::PROGRAM_VERSION
        )];
        let kind = |device: &str| if device == "cpu" { "cpu" } else { "cuda" };
        let old: BTreeSet<&str> =
            self.history.episodes.values().map(|e| kind(&e.setup.device)).collect();
        let names: Vec<String> = hosts.iter().map(JudgeHost::device).collect();
        let new: BTreeSet<&str> = names.iter().map(|name| kind(name)).collect();
        if old != new {
            let list = |of: BTreeSet<&str>| of.into_iter().collect::<Vec<_>>().join(" and ");
            caveats.push(format!(
                "the older run was judged on {}, this one on {}: their times are not compared",
                list(old),
                list(new)
            ));
        }
        if let Some(why) = &self.unread {
            caveats.push(format!(
                "{why}: seed {}, the usual baselines, no memory limit and no header libraries are used",
                self.seed()
            ));
        } else if self.settings.is_none() && !self.reader.header().config.is_null() {
            let seed = self.seed();
            caveats.push(format!(
                "the record does not have the seed of the references' weights and the mode of the tasks: seed {seed} \
                 and mode eval are used"
            ));
        }
        caveats
    }

    /// The task of an episode, with its recorded source.
    pub(super) fn task(&self, episode: &Episode) -> Result<Task, String> {
        let name = &episode.setup.task;
        let bytes = self.reader.blob(episode.setup.source);
        let stored = self.tasks.iter().find(|task| task.name == *name);
        let source = match (bytes, stored) {
            (Ok(bytes), _) => String::from_utf8(bytes)
                .map_err(|_| format!("the source of task {name} is not UTF-8"))?,
            // The settings have it too.
            (Err(_), Some(task)) => return Ok(task.clone()),
            (Err(error), None) => return Err(chain(&error)),
        };
        if let Some(task) = stored.filter(|task| task.source == source) {
            return Ok(task.clone());
        }
        let mut task = Task::from_source(name, source);
        if let Some(stored) = stored {
            task.mode = stored.mode;
            task.level = stored.level;
        }
        Ok(task)
    }

    /// The final candidate of an episode.
    pub(super) fn candidate(&self, episode: &Episode) -> Result<Candidate, String> {
        let stored = episode.end.as_ref().and_then(|end| end.candidate.as_ref());
        let stored = stored.ok_or_else(|| "the episode has no final candidate".to_owned())?;
        let candidate = self.reader.candidate(&stored.files).map_err(|error| {
            format!(
                "{}; copy the run folder again from where it was written, with its folder `blobs`",
                chain(&error)
            )
        })?;
        if candidate.hash() == stored.hash {
            return Ok(candidate);
        }
        Err(format!("its files hash to {}, the record says {}", candidate.hash(), stored.hash))
    }
}

/// Whether `optimize` or `eval` started a run, as its configuration says.
fn is_of_episodes(reader: &RunReader) -> bool {
    let purpose = reader.header().config.get("purpose").and_then(Value::as_str);
    purpose.is_some_and(|purpose| ["optimize", "eval"].contains(&purpose))
}

/// The failure for a record that cannot be read.
fn unreadable(reader: &RunReader, error: ReadError) -> RolloutError {
    let header = reader.header();
    if header.format >= FORMAT_VERSION {
        return error.into();
    }
    let message = format!(
        "failed to judge {} again: its record has format {}, of which this program cannot read all: {}",
        reader.dir().display(),
        header.format,
        chain(&error)
    );
    let hint = format!(
        "judge each candidate with `warpwright judge TASK --candidate DIR`; `warpwright trajectory show` of version {} \
         shows the run",
        header.program
    );
    RolloutError::usage(message, hint)
}
