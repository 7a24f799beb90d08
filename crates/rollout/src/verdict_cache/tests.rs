//! The verdict cache: its choice, its caveat, and a truncated file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::libraries::Libraries;
use warpwright_record::verdict::{
    Isolation, PhaseSeconds, Profile, Reward, Speedup, Tier, Times, VERDICT_VERSION,
};

use super::*;

/// A verdict identified by a number.
fn verdict(number: u64) -> Verdict {
    Verdict {
        version: VERDICT_VERSION,
        tier: Tier::Host,
        plan: None,
        replayer: None,
        task: "task".to_owned(),
        candidate: String::new(),
        device: "cpu".to_owned(),
        profile: Profile::Strict,
        dtype: None,
        fit: None,
        backward: false,
        stage: Stage::Measured,
        verified: true,
        failure: None,
        integrity: vec![],
        checks: vec![],
        times_ms: Times::default(),
        speedup: Speedup::default(),
        workloads: Vec::new(),
        reward: Reward { paper: 1.0, speedup: 1.0, bounded: 1.0 },
        floor_ms: None,
        unavoidable_bytes: number,
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

/// Nothing is void.
#[expect(clippy::unnecessary_wraps, reason = "the cache asks judges that may fail")]
fn valid(_: &Verdict) -> Result<bool, JudgeUnavailable> {
    Ok(false)
}

fn number(verdict: &Verdict) -> u64 {
    verdict.unavoidable_bytes
}

fn file() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verdicts.jsonl");
    (folder, path)
}

fn counts(verdicts: &Verdicts) -> (u64, u64) {
    let Judged { judged, repeated, .. } = verdicts.count();
    (judged, repeated)
}

#[test]
fn enough_measurements_answer_from_the_cache() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 2).unwrap();
    for n in [1, 2] {
        let new = verdicts.take("a", 7, valid, || Ok(verdict(n))).unwrap();
        assert_eq!((number(&new), new.caveats.len()), (n, 0));
    }
    for (seed, wanted) in [(6, 1), (7, 2)] {
        let again = verdicts.take("a", seed, valid, || panic!("measured again")).unwrap();
        assert_eq!(number(&again), wanted, "the seed decides");
        assert!(again.caveats[0].contains("measured 2 times"), "{:?}", again.caveats);
        assert!(again.is_copy());
    }
    assert_eq!(verdicts.take("b", 6, valid, || Ok(verdict(3))).map(|v| number(&v)).unwrap(), 3);
    assert_eq!(counts(&verdicts), (3, 2));
}

#[test]
fn void_verdict_leaves_the_cache() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 1).unwrap();
    verdicts.take("a", 0, valid, || Ok(verdict(1))).unwrap();
    let first = |verdict: &Verdict| Ok(number(verdict) == 1);
    let new = verdicts.take("a", 0, first, || Ok(verdict(2))).unwrap();
    assert_eq!((number(&new), new.is_copy()), (2, false));
    assert_eq!(
        verdicts.take("a", 0, valid, || panic!("measured again")).map(|v| number(&v)).unwrap(),
        2
    );
    // The file still has it; who reads it forgets it again.
    let verdicts = Verdicts::open(&path, 2).unwrap();
    assert_eq!(verdicts.lock().kept["a"].len(), 2);
    verdicts.take("a", 0, first, || Ok(verdict(3))).unwrap();
    let kept: Vec<u64> = verdicts.lock().kept["a"].iter().map(number).collect();
    assert_eq!(kept, [2, 3]);
}

#[test]
fn zero_samples_measure_every_request() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 0).unwrap();
    for n in [1, 2, 3] {
        let new = verdicts.take("a", 0, valid, || Ok(verdict(n))).unwrap();
        assert_eq!(number(&new), n);
    }
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn truncated_cache_file_keeps_complete_lines() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 1).unwrap();
    for (key, n) in [("a", 1), ("b", 2)] {
        verdicts.take(key, 0, valid, || Ok(verdict(n))).unwrap();
    }
    drop(verdicts);
    let whole = fs::read(&path).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in [0, 1, first - 1, first, first + 1, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        let verdicts = Verdicts::open(&path, 1).unwrap();
        // Without its line end a verdict may be complete, but the next line would be joined with
        // it.
        let kept = usize::from(cut >= first);
        assert_eq!(fs::read(&path).unwrap().len(), kept * first, "cut at {cut}");
        verdicts.take("c", 0, valid, || Ok(verdict(3))).unwrap();
        drop(verdicts);
        let verdicts = Verdicts::open(&path, 1).unwrap();
        let again = verdicts.take("c", 0, valid, || panic!("what was kept is lost")).unwrap();
        assert_eq!(number(&again), 3);
        assert_eq!(verdicts.lock().kept.len(), kept + 1, "cut at {cut}");
    }
}

#[test]
fn concurrent_request_waits_for_the_measurement() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 1).unwrap();
    let (measured, came) = (AtomicU64::new(0), AtomicU64::new(0));
    let pause = Duration::from_millis(100);
    let measure = || {
        measured.fetch_add(1, Ordering::SeqCst);
        while came.load(Ordering::SeqCst) < 8 {
            std::thread::yield_now();
        }
        std::thread::sleep(pause);
        Ok(verdict(1))
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                came.fetch_add(1, Ordering::SeqCst);
                verdicts.take("a", 0, valid, measure).unwrap()
            });
        }
    });
    let whole = begun.elapsed();
    assert_eq!(measured.load(Ordering::SeqCst), 1);
    assert_eq!(counts(&verdicts), (1, 7));
    let seconds = verdicts.count().seconds;
    let once = pause.as_secs_f64()..=whole.as_secs_f64();
    assert!(once.contains(&seconds), "{seconds}: only the measurement counts, {once:?}");
}

#[test]
fn failed_measurement_is_not_cached() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 1).unwrap();
    let failing = || Err(JudgeUnavailable { message: "the GPU is lost".to_owned() });
    assert!(verdicts.take("a", 0, valid, failing).is_err());
    assert_eq!(number(&verdicts.take("a", 0, valid, || Ok(verdict(1))).unwrap()), 1);
    assert_eq!(counts(&verdicts), (1, 0));
}

/// Otherwise the same kernel would have different values in concurrent episodes.
#[test]
fn merged_cache_uses_at_most_configured_samples() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 3).unwrap();
    for n in 1..=3 {
        verdicts.take("a", 7, valid, || Ok(verdict(n))).unwrap();
    }
    let given = |most| {
        let verdicts = Verdicts::open(&path, most).unwrap();
        let each = (0..12).map(|seed| verdicts.take("a", seed, valid, || Ok(verdict(9))).unwrap());
        each.map(|one| number(&one)).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(given(3), [1, 2, 3].into());
    assert_eq!(given(1), [1].into());
}

#[test]
fn unknown_voids_give_no_cached_verdict() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 1).unwrap();
    verdicts.take("a", 0, valid, || Ok(verdict(1))).unwrap();
    let unread = |_: &Verdict| Err(JudgeUnavailable { message: "the disk is gone".to_owned() });
    assert!(verdicts.take("a", 0, unread, || panic!("measured again")).is_err());
    assert_eq!(number(&verdicts.take("a", 0, valid, || panic!("it is lost")).unwrap()), 1);
}

/// A judge that measures in a tier.
struct JudgeOf(Tier);

impl Judge for JudgeOf {
    fn judge(&self, _: &Candidate, _: Stage) -> Result<Verdict, JudgeUnavailable> {
        Ok(Verdict { tier: self.0, ..verdict(1) })
    }

    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable> {
        self.judge(candidate, Stage::Measured)
    }

    fn inspect(&self, _: &Candidate, _: &Inspection) -> Result<Findings, JudgeUnavailable> {
        Err(JudgeUnavailable { message: "it inspects nothing".to_owned() })
    }

    fn device(&self) -> DeviceFacts {
        DeviceFacts::assumed("cuda:0")
    }
}

#[test]
fn cached_verdicts_of_another_tier_are_not_used() {
    let (_folder, path) = file();
    let verdicts = Verdicts::open(&path, 1).unwrap();
    let task = Task::from_source("task", "class Model: pass\n");
    let candidate = Candidate::from_files(BTreeMap::default());
    let tier = |required, judge: &JudgeOf| {
        let judge = CachingJudge::new(judge, &verdicts, &task, (required, 0));
        judge.measure_afresh(&candidate).unwrap().tier
    };
    let (host, device) = (JudgeOf(Tier::Host), JudgeOf(Tier::Device));
    assert_eq!(tier(None, &host), Tier::Host);
    assert_eq!(tier(Some(Tier::Device), &device), Tier::Device, "measured again");
    assert_eq!(tier(None, &device), Tier::Host, "the cached one");
    assert_eq!(counts(&verdicts), (2, 1));
}
