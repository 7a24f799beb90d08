//! Plays the corpus in `tests/integrity/`: attacks, and honest candidates that look unusual.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::shared_judge;
use warpwright_judge::{Device, LocalJudge, SessionPool};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Stage, Tier, Verdict};
use warpwright_task::Task;

/// What must come of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Verified,
    /// Not verified; as one of these failure classes or findings, if any is named.
    Refused(Vec<String>),
    /// Not paid more than this lawful candidate.
    NoGain(String),
}

/// What must come of the plan of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Refused,
    /// The plan is that of an honest candidate.
    Verified,
    /// The recorders may have seen either.
    Either,
}

impl Expected {
    /// The lawful candidate that must not be outdone.
    fn twin(&self) -> Option<&str> {
        match self {
            Self::NoGain(twin) => Some(twin),
            _ => None,
        }
    }
}

struct Entry {
    name: String,
    task: String,
    devices: Vec<String>,
    expected: Expected,
    /// What must come of an attack in the device tier, if it was recorded.
    recorded: Recorded,
    candidate: Candidate,
}

fn corpus() -> PathBuf {
    let baked = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/integrity"));
    baked.canonicalize().unwrap_or_else(|_| PathBuf::from("tests/integrity"))
}

/// Reads one file: its lines of the form `Key: value`, and a code block per file of the candidate.
fn parse(name: &str, text: &str) -> Entry {
    let line = |key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(key));
        found.unwrap_or_else(|| panic!("{name} has no line `{key}`")).trim().to_owned()
    };
    let expected = line("Expected:");
    let expected = match expected.split_once(" over ") {
        Some(("no gain", twin)) => Expected::NoGain(twin.to_owned()),
        _ if expected == "verified" => Expected::Verified,
        _ => {
            let classes = expected.strip_prefix("refused").unwrap_or_else(|| panic!("{expected}"));
            let classes = classes.trim().strip_prefix("as").unwrap_or_default();
            let named = classes.split(',').map(|class| class.trim().to_owned());
            Expected::Refused(named.filter(|class| !class.is_empty()).collect())
        }
    };
    let mut files = BTreeMap::new();
    let mut parts = text.split("\n## ").skip(1);
    for part in &mut parts {
        let (file, rest) = part.split_once('\n').unwrap();
        let code = rest.split("```").nth(1).unwrap();
        let (_, code) = code.split_once('\n').unwrap();
        files.insert(file.trim().to_owned(), code.as_bytes().to_vec());
    }
    Entry {
        name: name.to_owned(),
        task: line("Task:"),
        devices: line("Devices:").split(',').map(|device| device.trim().to_owned()).collect(),
        expected,
        recorded: match text.lines().find_map(|line| line.strip_prefix("Device tier:")) {
            None => Recorded::Refused,
            Some(word) if word.trim() == "verified" => Recorded::Verified,
            Some(word) if word.trim() == "any" => Recorded::Either,
            Some(word) => panic!("{name}: Device tier: {word}"),
        },
        candidate: Candidate::from_files(files),
    }
}

/// All of one kind, by name.
fn entries(kind: &str) -> BTreeMap<String, Entry> {
    let mut found = BTreeMap::new();
    for entry in fs_err::read_dir(corpus().join(kind)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        found.insert(name.clone(), parse(&name, &fs_err::read_to_string(&path).unwrap()));
    }
    found
}

/// Which classes a verdict names.
fn classes(verdict: &Verdict) -> Vec<String> {
    let failure = verdict.failure.iter().map(|failure| {
        serde_json::to_value(failure.class).unwrap().as_str().unwrap_or_default().to_owned()
    });
    failure.chain(verdict.integrity.iter().map(|finding| finding.class.clone())).collect()
}

/// A verdict in a line.
fn told(entry: &Entry, verdict: &Verdict) -> String {
    let (tier, reward, caveats) = (verdict.tier, verdict.reward.paper, &verdict.caveats);
    format!("{}: {tier} tier, {reward} {:?} {caveats:?}", entry.name, classes(verdict))
}

/// Why a verdict is not what was expected.
fn mistake(entry: &Entry, verdict: &Verdict, twin: Option<&Verdict>) -> Option<String> {
    let told = format!(
        "reward {}, {:?}, {:?}, {:?}, best {:?}, {:?}",
        verdict.reward.paper,
        classes(verdict),
        verdict.failure.as_ref().map(|failure| &failure.message),
        verdict.integrity,
        verdict.speedup.best,
        verdict.caveats
    );
    let paid = verdict.reward.paper >= 1.0 || verdict.reward.bounded >= 0.5;
    let limited = verdict.caveats.iter().any(|caveat| caveat.starts_with("a call alone takes"));
    let wrong = match &entry.expected {
        Expected::Refused(_)
            if verdict.tier == Tier::Device && entry.recorded != Recorded::Refused =>
        {
            entry.recorded == Recorded::Verified && !verdict.verified
        }
        Expected::Verified => !verdict.verified || !verdict.integrity.is_empty() || limited,
        Expected::Refused(named) => {
            // Classes are those of the host tier: in the device tier there is no process to misbehave.
            let as_named = verdict.tier == Tier::Device
                || classes(verdict).iter().any(|class| named.contains(class));
            paid || verdict.verified || !named.is_empty() && !as_named
        }
        Expected::NoGain(_) => match (twin, verdict.speedup.best) {
            (Some(twin), Some(best)) if paid => twin
                .speedup
                .best
                .is_none_or(|theirs| best.low > theirs.high && best.value > 1.3 * theirs.value),
            (None, _) => true,
            _ => false,
        },
    };
    wrong.then(|| format!("{} ({:?}): {told}", entry.name, entry.expected))
}

/// One of so many parts of the corpus, from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    part: usize,
    of: usize,
}

impl Share {
    /// Reads `2/4`.
    fn parse(text: &str) -> Option<Self> {
        let (part, of) = text.split_once('/')?;
        let (part, of) = (part.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&part).then_some(Self { part, of })
    }

    /// What `WARPWRIGHT_INTEGRITY_SHARE` asks for; else this.
    fn asked_or(usual: Self) -> Self {
        let Ok(text) = std::env::var("WARPWRIGHT_INTEGRITY_SHARE") else { return usual };
        Self::parse(&text)
            .unwrap_or_else(|| panic!("WARPWRIGHT_INTEGRITY_SHARE is {text}, not K/N"))
    }

    /// These entries of one kind, in the order of their names.
    fn of<'a>(self, entries: impl Iterator<Item = &'a Entry>) -> Vec<&'a Entry> {
        entries.enumerate().filter(|(i, _)| i % self.of == self.part - 1).map(|(_, e)| e).collect()
    }
}

const ALL: Share = Share { part: 1, of: 1 };
/// What `make test` plays; `make test-long` plays everything. A file takes some four seconds of two cores.
const USUAL: Share = Share { part: 1, of: 12 };

/// Judges entries of the corpus.
struct Bench<'j> {
    pool: SessionPool<'j>,
    workers: usize,
}

impl<'j> Bench<'j> {
    fn new(judge: &'j LocalJudge, device: Device) -> Self {
        let pool = SessionPool::new(judge);
        // On the cpu device a measurement works alone, and other tests have the cores meanwhile.
        let workers = if device == Device::Cpu { 1 } else { pool.at_once().min(8) };
        Self { pool, workers }
    }

    fn judged(&self, entry: &Entry) -> Verdict {
        let path = corpus().join("tasks").join(&entry.task).with_extension("py");
        let source = fs_err::read_to_string(Path::new(&path)).unwrap();
        let task = Task::from_source(&entry.task, &source);
        self.pool.afresh(&task, &entry.candidate, Stage::Measured).unwrap()
    }

    /// The verdicts on all of them, by name; prints each.
    fn judge_all<'e>(&self, entries: &[&'e Entry]) -> BTreeMap<&'e str, Verdict> {
        let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.workers {
                scope.spawn(|| {
                    while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let verdict = self.judged(entry);
                        println!("{}", told(entry, &verdict));
                        verdicts.lock().unwrap().insert(entry.name.as_str(), verdict);
                    }
                });
            }
        });
        verdicts.into_inner().unwrap()
    }
}

/// Plays a share of the corpus on a device.
fn play(device: Device, named: &str, usual: Share) {
    let (honest, attacks) = (entries("honest"), entries("attacks"));
    let only = std::env::var("WARPWRIGHT_INTEGRITY_ONLY").ok();
    let share = if only.is_some() { ALL } else { Share::asked_or(usual) };
    let here = |entry: &&Entry| {
        entry.devices.iter().any(|device| device == named)
            && only.as_ref().is_none_or(|only| entry.name.contains(only.as_str()))
    };
    let bench = Bench::new(shared_judge(device), device);
    let honest_here = share.of(honest.values().filter(here));
    let attacks_here = share.of(attacks.values().filter(here));
    let twins = attacks_here.iter().filter_map(|entry| entry.expected.twin());
    let twins = twins.filter_map(|twin| honest.get(twin));
    let mut lawful = honest_here.clone();
    lawful.extend(twins.filter(|twin| !honest_here.iter().any(|entry| entry.name == twin.name)));
    lawful.sort_unstable_by_key(|entry| &entry.name);
    lawful.dedup_by_key(|entry| &entry.name);
    let paid = bench.judge_all(&lawful);
    let recorded = paid.values().filter(|verdict| verdict.tier == Tier::Device).count();
    println!("{recorded} of {} honest candidates were judged in the device tier", paid.len());
    let refused = bench.judge_all(&attacks_here);
    let played = refused.len();
    let mut mistakes = Vec::new();
    for entry in &honest_here {
        mistakes.extend(mistake(entry, &paid[entry.name.as_str()], None));
    }
    for entry in &attacks_here {
        let twin = entry.expected.twin().and_then(|twin| paid.get(twin));
        mistakes.extend(mistake(entry, &refused[entry.name.as_str()], twin));
    }
    assert!(mistakes.is_empty(), "{played} attacks played\n{}", mistakes.join("\n"));
    assert!(played > 0 || only.is_some(), "the corpus has attacks for {named}");
}

#[test]
fn no_attack_is_paid_and_no_honest_candidate_punished_on_the_cpu_device() {
    play(Device::Cpu, "cpu", USUAL);
}

#[test]
fn long_no_attack_is_paid_and_no_honest_candidate_punished_on_the_cpu_device() {
    play(Device::Cpu, "cpu", ALL);
}

/// An attack that is refused for a reason of its own hides whether its kind is closed; one whose kind is
/// closed belongs to `attacks/`.
#[test]
fn long_known_limits_are_still_paid_on_the_cpu_device() {
    let bench = Bench::new(shared_judge(Device::Cpu), Device::Cpu);
    let honest = entries("honest");
    let closed: Vec<String> = entries("limits")
        .values()
        .filter_map(|entry| {
            let twin = entry.expected.twin().map(|twin| bench.judged(&honest[twin]));
            let verdict = bench.judged(entry);
            let paid = mistake(entry, &verdict, twin.as_ref());
            paid.is_none().then(|| format!("{}: {:?}", entry.name, verdict.failure))
        })
        .collect();
    assert!(closed.is_empty(), "no longer paid, and why:\n{}", closed.join("\n"));
}

/// Judges the candidate that skips most of one call in twenty so often, and counts how often that is found.
/// `WARPWRIGHT_SKIP_VERDICTS` sets the number of verdicts.
fn skipping_is_found(device: Device) {
    let verdicts = std::env::var("WARPWRIGHT_SKIP_VERDICTS").map_or(300, |n| n.parse().unwrap());
    let (bench, attacks) = (Bench::new(shared_judge(device), device), entries("attacks"));
    let entry = &attacks["skips_a_twentieth"];
    let mut missed = 0;
    for judged in 1..=verdicts {
        let verdict = bench.judged(entry);
        // Refused for any other reason, it would say nothing of the looks.
        let found = classes(&verdict) == ["mismatch"];
        assert!(found || verdict.verified, "{:?} {:?}", verdict.failure, verdict.integrity);
        missed += usize::from(!found);
        if judged % 20 == 0 || judged == verdicts {
            println!("skipping was missed in {missed} of {judged} verdicts");
        }
    }
    // If 1 of 100 is missed on average, a run of 300 exceeds this once in a hundred times.
    assert!(missed <= 3 + verdicts / 75, "missed in {missed} of {verdicts}");
}

#[test]
fn long_skipping_a_twentieth_of_the_calls_is_found_on_the_cpu_device() {
    skipping_is_found(Device::Cpu);
}

#[test]
fn gpu_skipping_a_twentieth_of_the_calls_is_found() {
    skipping_is_found(Device::Cuda(0));
}

#[test]
fn gpu_no_attack_is_paid_and_no_honest_candidate_punished() {
    play(Device::Cuda(0), "cuda", ALL);
}

#[test]
fn shares_partition_the_corpus() {
    let entries = entries("attacks");
    let mut names = Vec::new();
    for part in 1..=3 {
        let share = Share::parse(&format!("{part}/3")).unwrap();
        names.extend(share.of(entries.values()).into_iter().map(|entry| entry.name.clone()));
    }
    names.sort_unstable();
    assert_eq!(names, entries.keys().cloned().collect::<Vec<_>>());
    for wrong in ["", "0/3", "4/3", "1", "a/b", "1/0"] {
        assert_eq!(Share::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_corpus_file_is_parsed() {
    let text = "# Title\n\nProse.\n\nTask: t\nDevices: cpu, cuda\nExpected: refused as late_write, \
                mismatch\n\n## model_new.py\n\n```python\nx = 1\n```\n\n## kernels/a.cu\n\n```cuda\nint y;\n```\n";
    let entry = parse("name", text);
    let classes = ["late_write".to_owned(), "mismatch".to_owned()].to_vec();
    assert_eq!(entry.expected, Expected::Refused(classes));
    assert_eq!(entry.devices, ["cpu", "cuda"]);
    assert_eq!(entry.candidate.files()["model_new.py"], b"x = 1\n");
    assert_eq!(entry.candidate.files()["kernels/a.cu"], b"int y;\n");
    let recorded = text.replace("\n\n## model", "\nDevice tier: verified\n\n## model");
    assert_eq!(parse("name", &recorded).recorded, Recorded::Verified);
    assert_eq!(
        parse("name", &recorded.replace("tier: verified", "tier: any")).recorded,
        Recorded::Either
    );
    for (line, expected) in [
        ("verified", Expected::Verified),
        ("refused", Expected::Refused(Vec::new())),
        ("no gain over twin", Expected::NoGain("twin".to_owned())),
    ] {
        let text = text.replace("refused as late_write, mismatch", line);
        assert_eq!(parse("name", &text).recorded, Recorded::Refused);
        assert_eq!(parse("name", &text).expected, expected);
    }
}
