use serde_json::json;
use warpwright_agent::judge::DeviceFacts;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::interval::Interval;
use warpwright_record::libraries::Libraries;
use warpwright_record::verdict::{
    Failure, FailureClass, Isolation, PhaseSeconds, Profile, Reward, Speedup, Stage as Reached,
    Tier, Times, VERDICT_VERSION, Verdict,
};

use super::*;

const TRACE: &str = include_str!("../../tests/fixtures/rmsnorm.json");

fn briefing(device: &str) -> Briefing {
    Briefing {
        task: "rmsnorm".to_owned(),
        reference: String::new(),
        skill: String::new(),
        device: DeviceFacts {
            device: device.to_owned(),
            hardware: String::new(),
            arch: None,
            processors: 2,
            bandwidth_bytes_per_second: None,
            cache_bytes: 1 << 20,
            shared_bytes_per_block: 48 << 10,
            libraries: warpwright_record::libraries::LibrarySet::default(),
        },
        profile: Profile::Strict,
        seed: 0,
        turns: None,
    }
}

pub(crate) fn verdict(stage: Reached, milliseconds: Option<f64>) -> Verdict {
    let around = |value: f64| Interval { value, low: value, high: value };
    Verdict {
        version: VERDICT_VERSION,
        tier: Tier::Host,
        plan: None,
        replayer: None,
        task: "rmsnorm".to_owned(),
        candidate: String::new(),
        device: "cpu".to_owned(),
        profile: Profile::Strict,
        dtype: None,
        fit: None,
        backward: false,
        stage,
        verified: stage != Reached::Built,
        failure: None,
        integrity: vec![],
        checks: vec![],
        times_ms: Times { candidate: milliseconds.map(around), ..Times::default() },
        speedup: Speedup::default(),
        workloads: Vec::new(),
        reward: Reward { paper: 1.0, speedup: 1.0, bounded: 1.0 },
        floor_ms: Some(1.0),
        unavoidable_bytes: 0,
        libraries: Libraries::default(),
        kernels: vec![],
        provenance: None,
        diagnostics: vec![],
        isolation: Isolation::default(),
        caveats: vec![],
        conditions: None,
        memory: None,
        seconds: PhaseSeconds::default(),
        fingerprint: Fingerprint::default(),
    }
}

fn broken(stage: Reached, class: FailureClass) -> Verdict {
    let failure = Failure {
        class,
        message: "no".to_owned(),
        diagnostics: vec![],
        mismatch: None,
        cuda_error: None,
        output_tail: String::new(),
    };
    Verdict { verified: false, failure: Some(failure), ..verdict(stage, None) }
}

/// Answers the last call of a message with `verdict`, the others with `text`.
fn answer(message: &Message, text: &str, mut verdict: Option<Verdict>) -> Vec<ToolResult> {
    let last = message.calls.len() - 1;
    let results = message.calls.iter().enumerate().map(|(i, call)| ToolResult {
        call: call.id.clone(),
        status: ToolStatus::Ok,
        text: text.to_owned(),
        verdicts: if i == last { verdict.take().into_iter().collect() } else { vec![] },
        findings: Vec::new(),
    });
    results.collect()
}

fn commands(message: &Message) -> Vec<String> {
    let bash = message.calls.iter().filter(|c| c.name == "Bash");
    bash.filter_map(|c| c.arguments["command"].as_str().map(str::to_owned)).collect()
}

fn written(message: &Message) -> Vec<String> {
    let write = message.calls.iter().filter(|c| c.name == "Write");
    write.filter_map(|c| c.arguments["file_path"].as_str().map(str::to_owned)).collect()
}

/// A teacher whose first version compiles, and the message in which it measures that.
fn compiled(briefing: &Briefing) -> (Teacher, Message) {
    let mut teacher = Teacher::new();
    let first = teacher.begin(briefing).unwrap();
    let build = teacher.next(&answer(&first, TRACE, None)).unwrap();
    let profile = teacher.next(&answer(&build, "", Some(verdict(Reached::Built, None)))).unwrap();
    (teacher, profile)
}

#[test]
fn an_episode_ends_at_the_floor() {
    let mut teacher = Teacher::new();
    let first = teacher.begin(&briefing("cpu")).unwrap();
    assert!(commands(&first).contains(&"python3 -m utils.trace".to_owned()));
    let build = teacher.next(&answer(&first, TRACE, None)).unwrap();
    assert_eq!(written(&build), ["kernels/rows_mul.cu", "model_new.py"]);
    assert_eq!(commands(&build), ["bash utils/compile.sh"]);
    let profile = teacher.next(&answer(&build, "", Some(verdict(Reached::Built, None)))).unwrap();
    assert_eq!(commands(&profile), ["python3 -m utils.profiling"]);
    // Within 5 % of the floor: no search. What was measured is there already, and was compared.
    let end =
        teacher.next(&answer(&profile, "", Some(verdict(Reached::Measured, Some(1.02))))).unwrap();
    assert!(end.calls.is_empty());
    assert!(end.text.contains("1.0200 ms"), "{}", end.text);
}

#[test]
fn search_keeps_the_fastest_within_its_budget() {
    let (mut teacher, mut message) = compiled(&briefing("cpu"));
    let times = [9.0, 7.0, 8.0, 6.95, 3.0, 2.0];
    let mut profiles = 0;
    while commands(&message).contains(&"python3 -m utils.profiling".to_owned()) {
        let measured = verdict(Reached::Measured, Some(times[profiles]));
        profiles += 1;
        message = teacher.next(&answer(&message, "", Some(measured))).unwrap();
    }
    assert!((2..=4).contains(&profiles), "{profiles}");
    let end = teacher.next(&answer(&message, "", Some(verdict(Reached::Verified, None)))).unwrap();
    // 6.95 is not faster than 7 by more than noise.
    assert!(end.text.contains("7.0000 ms") || profiles < 2, "{}", end.text);
}

/// Plays a search to its end with times that only the files decide. Gives the times in their order, and the
/// last message.
fn searched(mut teacher: Teacher, briefing: &Briefing) -> (Vec<f64>, Message) {
    let first = teacher.begin(briefing).unwrap();
    let mut message = teacher.next(&answer(&first, TRACE, None)).unwrap();
    let mut times = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let asked = commands(&message);
        let told = match asked.last().map(String::as_str) {
            Some("python3 -m utils.profiling") => {
                assert!(seen.insert(format!("{:?}", teacher.written)), "measured twice");
                let hash = teacher.written.values().flat_map(|text| text.bytes());
                let hash = hash.fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
                times.push(2.0 + f64::from(hash % 1000) / 1000.0);
                verdict(Reached::Measured, times.last().copied())
            }
            Some(_) => verdict(Reached::Verified, None),
            None => break,
        };
        message = teacher.next(&answer(&message, "", Some(told))).unwrap();
    }
    (times, message)
}

#[test]
fn exhaustive_search_measures_each_version_once() {
    for device in ["cpu", "cuda:0"] {
        let (few, _) = searched(Teacher::new(), &briefing(device));
        let (all, end) = searched(Teacher::exhaustive(), &briefing(device));
        assert!(all.len() > 2 * few.len() && all.len() >= 8, "{} of {}", all.len(), few.len());
        let best = all.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(end.text.contains(&format!("{best:.4} ms")), "{best}: {}", end.text);
        assert!(!end.text.contains("not reached"), "{}", end.text);
    }
    let bounded = Briefing { turns: Some(6), ..briefing("cuda:0") };
    let (some, end) = searched(Teacher::exhaustive(), &bounded);
    assert!(some.len() < 6 && end.text.contains("not reached"), "{}", end.text);
}

#[test]
fn last_turn_restores_the_fastest_version() {
    let bounded = Briefing { turns: Some(5), ..briefing("cuda:0") };
    let (mut teacher, profile) = compiled(&bounded);
    let measured = |time| Some(verdict(Reached::Measured, Some(time)));
    let variant = teacher.next(&answer(&profile, "", measured(7.0))).unwrap();
    assert!(variant.text.starts_with("Trying"), "{}", variant.text);
    let changed = written(&variant);
    let last = teacher.next(&answer(&variant, "", measured(9.0))).unwrap();
    assert!(last.text.starts_with("Keeping the fastest version"), "{}", last.text);
    assert_eq!(written(&last), changed, "what the variant changed is written back");
}

#[test]
fn a_mismatch_falls_back_to_plain_code_once() {
    let (mut teacher, profile) = compiled(&briefing("cuda:0"));
    let wrong = broken(Reached::Verified, FailureClass::Mismatch);
    let plain = teacher.next(&answer(&profile, "", Some(wrong.clone()))).unwrap();
    assert!(plain.text.contains("plain scalar code"), "{}", plain.text);
    assert_eq!(written(&plain), ["kernels/rows_mul.cu"]);
    let end = teacher.next(&answer(&plain, "", Some(wrong))).unwrap();
    assert!(end.calls.is_empty() && end.text.contains("giving up"), "{}", end.text);
}

/// A judge that cannot measure here still says whether it is right.
#[test]
fn unmeasured_version_is_verified_at_the_end() {
    let (mut teacher, profile) = compiled(&briefing("cuda:0"));
    let last = teacher.next(&answer(&profile, "", None)).unwrap();
    assert_eq!(commands(&last), ["python3 -m utils.verification"]);
    let end = teacher.next(&answer(&last, "", Some(verdict(Reached::Verified, None)))).unwrap();
    assert!(end.calls.is_empty() && end.text.contains("not measured"), "{}", end.text);
}

#[test]
fn operators_without_a_rule_are_named() {
    let mut trace: serde_json::Value = serde_json::from_str(TRACE).unwrap();
    trace["nodes"][0]["op"] = json!("aten.sort.default");
    let mut teacher = Teacher::new();
    let first = teacher.begin(&briefing("cpu")).unwrap();
    let end = teacher.next(&answer(&first, &trace.to_string(), None)).unwrap();
    assert!(end.calls.is_empty());
    assert!(end.text.contains("aten.sort.default"), "{}", end.text);
}

#[test]
fn failed_trace_is_reported_with_its_hint() {
    let mut teacher = Teacher::new();
    let first = teacher.begin(&briefing("cpu")).unwrap();
    let printed = r#"{"error": "ValueError: bad", "hint": "mend it"}"#;
    let end = teacher.next(&answer(&first, printed, None)).unwrap();
    assert!(end.calls.is_empty() && end.text.contains("bad") && end.text.contains("mend it"));
}

#[test]
fn a_long_trace_is_read_in_pages() {
    let mut teacher = Teacher::new();
    let mut message = teacher.begin(&briefing("cpu")).unwrap();
    let lines: Vec<&str> = TRACE.trim_end().lines().collect();
    let printed =
        format!(r#"{{"file": ".trace.json", "lines": {}, "characters": 9}}"#, lines.len());
    let mut results = answer(&message, &printed, None);
    while written(&{
        message = teacher.next(&results).unwrap();
        message.clone()
    })
    .is_empty()
    {
        assert!(message.calls.iter().all(|c| c.name == "Read"), "{message:?}");
        results = answer(&message, "", None);
        for (call, result) in message.calls.iter().zip(&mut results) {
            let at = call.arguments["offset"].as_u64().unwrap() as usize;
            let count = call.arguments["limit"].as_u64().unwrap() as usize;
            let shown = lines.iter().enumerate().skip(at - 1).take(count);
            let numbered: Vec<String> =
                shown.map(|(i, l)| format!("{:>6}\t{l}\n", i + 1)).collect();
            result.text = numbered.concat();
        }
    }
    assert!(written(&message).contains(&"model_new.py".to_owned()));
}
