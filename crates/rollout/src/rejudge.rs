//! Judges the final candidates of an older run again, by today's rules, into a new run.
//!
//! ```text
//! older run ─► Source::open ─► Source::select ─► begin or resume ─► new run, with the same episode numbers
//! ```
//!
//! The new run's episodes have no turns: a policy takes no part. Its configuration names the older run
//! ([`Origin`]). Profile, seed and baselines are those of the older run; the rules are this program's.

mod source;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use warpwright_record::event::{Event, NoteLevel, RunOutcome};
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::rejudged::{ORIGIN_KEY, Origin};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::Tier;
use warpwright_record::writer::{ResumePolicy, RunWriter};

pub use self::source::{Candidates, Source};
use self::work::Work;
use crate::campaign::Caller;
use crate::device_choice::DeviceChoice;
use crate::error::RolloutError;
use crate::judge_host::JudgeHost;

/// What the caller chooses of how the candidates are judged.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Devices to judge on.
    pub devices: Vec<DeviceChoice>,
    /// The tier in which candidates are judged.
    pub tier: Option<Tier>,
    /// Whether less than full isolation is refused.
    pub require_full_isolation: bool,
}

/// Whether the run in `out` is one in which these candidates were judged again, and whether it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no run.
    Nothing,
    /// Some candidates are left.
    Unfinished,
    /// All are judged.
    Complete,
}

/// Looks for an earlier run of the same command in `out`. Another run there is an error.
pub fn look(source: &Source, only: &str, out: &Path) -> Result<Found, RolloutError> {
    if !out.join("run.json").exists() {
        return Ok(Found::Nothing);
    }
    let reader = RunReader::open(out)?;
    let origin = Origin::of(reader.header());
    let is_ours =
        origin.is_some_and(|origin| origin.is(source.reader.header()) && origin.only == only);
    if !is_ours {
        let message = format!(
            "failed to judge {} again into {}: that folder has another run",
            source.reader.dir().display(),
            out.display()
        );
        return Err(RolloutError::usage(message, "name another folder with `--out`".to_owned()));
    }
    let complete = History::read(&reader)?.outcome == Some(RunOutcome::Completed);
    Ok(if complete { Found::Complete } else { Found::Unfinished })
}

/// Starts a new run in `out`, or resumes the one there, and judges what is left of `chosen`.
pub fn run(
    source: &Source,
    chosen: &Candidates,
    out: &Path,
    rules: &Rules,
    caller: &Caller<'_>,
) -> Result<(), RolloutError> {
    let options = source.options(rules);
    let (record, hosts) = if out.join("run.json").exists() {
        // The devices and the tier that it was started with: one run does not mix them.
        let header = RunReader::open(out)?.header().clone();
        let (devices, tier) = stored(&header.config)?;
        let names = header.config.get("devices").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        (caller.notice)(&format!(
            "resuming {} on {} and in tier {}, as it was started",
            out.display(),
            names.join(", "),
            tier.map_or("any", Tier::name)
        ));
        let options = crate::judge_host::JudgeOptions { tier: tier.into(), ..options };
        let hosts = JudgeHost::open_all(caller.files, &devices, options, &caller.notice)?;
        (RunWriter::resume(out, ResumePolicy::SameProgram)?, hosts)
    } else {
        let hosts = JudgeHost::open_all(caller.files, &rules.devices, options, &caller.notice)?;
        let config = config(source, chosen, rules, &hosts)?;
        let info = RunInfo { command: caller.command.clone(), config };
        let record = RunWriter::create(out, info)?;
        for text in source.caveats(&hosts) {
            record.append(&Event::Note { episode: None, level: NoteLevel::Warning, text })?;
        }
        (record, hosts)
    };
    (caller.notice)(&format!("run: {}", out.display()));
    let history = History::read(&RunReader::open(out)?)?;
    Work::new(source, chosen, hosts, record, caller).finish(&history)
}

/// Settings of the new run: those of the older one, with the devices and tasks of this one.
fn config(
    source: &Source,
    chosen: &Candidates,
    rules: &Rules,
    hosts: &[JudgeHost],
) -> Result<Value, RolloutError> {
    let header = source.reader.header();
    let mut config = match &header.config {
        Value::Object(config) => config.clone(),
        _ => Map::from_iter([("version".to_owned(), json!(1))]),
    };
    config.entry("purpose").or_insert_with(|| json!("judge"));
    let origin = Origin {
        version: warpwright_record::rejudged::REJUDGED_VERSION,
        run: full(source.reader.dir()),
        created: header.created,
        program: header.program.clone(),
        command: header.command.clone(),
        only: chosen.only.clone(),
    };
    let origin = serde_json::to_value(origin).map_err(|error| {
        let message = format!("failed to encode the settings of the run: {error}");
        RolloutError::infrastructure(message, None)
    })?;
    config.insert(ORIGIN_KEY.to_owned(), origin);
    let devices: Vec<String> = hosts.iter().map(JudgeHost::device).collect();
    config.insert("devices".to_owned(), json!(devices));
    match rules.tier {
        Some(tier) => config.insert("require_tier".to_owned(), json!(tier)),
        None => config.remove("require_tier"),
    };
    if chosen.only != "all"
        && let Some(Value::Array(tasks)) = config.get_mut("tasks")
    {
        tasks.retain(|task| {
            task.get("name").and_then(Value::as_str).is_some_and(|name| chosen.has_task(name))
        });
    }
    Ok(Value::Object(config))
}

/// An absolute path, as text.
pub fn full(path: &Path) -> String {
    fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The devices and the tier of a run that is resumed.
fn stored(config: &Value) -> Result<(Vec<DeviceChoice>, Option<Tier>), RolloutError> {
    let list = config.get("devices").and_then(Value::as_array);
    let names = list.into_iter().flatten().filter_map(Value::as_str);
    let devices = names.map(str::parse::<DeviceChoice>).collect::<Result<Vec<_>, _>>();
    let devices = devices.map_err(|reason| {
        let message = format!("failed to resume the run: its device is unknown: {reason}");
        RolloutError::usage(message, None)
    })?;
    let tier = config.get("require_tier").and_then(Value::as_str);
    Ok((devices, tier.and_then(|name| name.parse().ok())))
}

/// Whether the caller wants to stop.
fn stops(stop: &Arc<AtomicBool>) -> bool {
    stop.load(std::sync::atomic::Ordering::SeqCst)
}
