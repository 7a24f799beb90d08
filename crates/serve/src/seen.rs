//! Recent verdicts for the dashboard, limited in number and bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use warpwright_record::candidate::Candidate;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{PhaseSeconds, Verdict};

/// Limit of kept verdicts.
const MOST: usize = 2000;
/// Limit of their bytes.
const MOST_BYTES: usize = 64 << 20;

/// Verdicts in order of time, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    bytes: usize,
    all: VecDeque<Arc<One>>,
}

/// A verdict.
#[derive(Debug)]
pub(crate) struct One {
    client: String,
    pub(crate) line: Line,
    /// The verdict with its candidate, as JSON.
    pub(crate) page: Bytes,
}

/// One verdict in the dashboard's table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// From 1, in the order of verdicts.
    pub(crate) number: u64,
    time: Timestamp,
    pub(crate) task: String,
    /// `judge` or `session`.
    by: &'static str,
    verified: bool,
    /// Class of the failure.
    failure: Option<String>,
    /// Whether the verdict has integrity findings.
    integrity: bool,
    over_eager: Option<Interval>,
    over_best: Option<Interval>,
    /// Seconds of judging.
    seconds: f64,
    device: String,
}

/// A verdict's page.
#[derive(Serialize)]
struct Page<'p> {
    #[serde(flatten)]
    line: &'p Line,
    reference: &'p str,
    files: BTreeMap<&'p str, String>,
    verdict: &'p Verdict,
}

/// Seconds of judging, without waiting for the device.
fn seconds(of: &PhaseSeconds) -> f64 {
    of.build + of.start + of.load + of.baselines + of.verify + of.measure
}

impl Seen {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Whole after every change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a verdict about a candidate of a client.
    pub(crate) fn add(
        &self,
        (client, by): (&str, &'static str),
        reference: &str,
        candidate: &Candidate,
        verdict: &Verdict,
    ) {
        let mut kept = self.kept();
        kept.next += 1;
        let line = Line {
            number: kept.next,
            time: Timestamp::now(),
            task: verdict.task.clone(),
            by,
            verified: verdict.verified,
            failure: verdict.failure.as_ref().and_then(|failure| {
                Some(serde_json::to_value(failure.class).ok()?.as_str()?.to_owned())
            }),
            integrity: !verdict.integrity.is_empty(),
            over_eager: verdict.speedup.eager,
            over_best: verdict.speedup.best,
            seconds: seconds(&verdict.seconds),
            device: verdict.device.clone(),
        };
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let files = candidate.files().iter().map(|(name, bytes)| (name.as_str(), text(bytes)));
        let page = Page { line: &line, reference, files: files.collect(), verdict };
        let page = Bytes::from(serde_json::to_vec(&page).unwrap_or_default());
        kept.bytes += page.len();
        kept.all.push_back(Arc::new(One { client: client.to_owned(), line, page }));
        while kept.all.len() > MOST || (kept.bytes > MOST_BYTES && kept.all.len() > 1) {
            if let Some(oldest) = kept.all.pop_front() {
                kept.bytes -= oldest.page.len();
            }
        }
    }

    /// The newest `most` verdicts of a client with a number above `after`.
    pub(crate) fn since(&self, client: &str, after: u64, most: usize) -> Vec<Line> {
        let kept = self.kept();
        let own = kept.all.iter().rev().take_while(|one| one.line.number > after);
        let mut lines: Vec<Line> =
            own.filter(|one| one.client == client).take(most).map(|one| one.line.clone()).collect();
        lines.reverse();
        lines
    }

    /// A client's verdict with this number.
    pub(crate) fn one(&self, client: &str, number: u64) -> Option<Arc<One>> {
        let kept = self.kept();
        kept.all.iter().find(|one| one.line.number == number && one.client == client).cloned()
    }
}
