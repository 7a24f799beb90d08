//! Examination of a task without a candidate: whether candidates can be judged against it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use warpwright_record::fingerprint::Fingerprint;
use warpwright_task::similarity::OpGraph;

use crate::admission::objection::Objection;
use crate::check::tolerance::Tolerance;
use crate::process::wire::{Agreement, Examined, Place, Redrawn};
use crate::timing::baseline::Baseline;

/// How far a task must be from an objection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// No margin: objections on the sampled inputs only.
    Sound,
    /// A margin, so that other inputs give the same result. For tasks of a data set.
    Clear,
}

impl Bar {
    /// Minimum share of an output's elements that must change with every input and every parameter. Verdicts
    /// seldom detect a candidate that ignores an input with a smaller share.
    fn matters(self) -> f64 {
        self.pick(0.01, 0.03)
    }

    /// Maximum share of an output's elements that may have one value.
    fn common(self) -> f64 {
        self.pick(0.9, 0.7)
    }

    /// Minimum share of a wrong answer's elements that must be wrong; exclusive.
    fn wrong(self) -> f64 {
        self.pick(0.0, 1e-3)
    }

    /// Maximum error of an honest program, as a share of the tolerance.
    fn honest(self) -> f64 {
        self.pick(1.0, 0.5)
    }

    fn pick(self, sound: f64, clear: f64) -> f64 {
        match self {
            Self::Sound => sound,
            Self::Clear => clear,
        }
    }
}

/// The result of examining a task without a candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Examination {
    /// Tensors that `get_inputs` gives.
    pub inputs: Vec<TensorKind>,
    /// Tensors that `forward` gives.
    pub outputs: Vec<TensorKind>,
    /// Unavoidable memory traffic of one call in bytes: every input, parameter and output once.
    pub unavoidable_bytes: u64,
    /// Memory roofline in milliseconds: `unavoidable_bytes` at the device's measured bandwidth.
    pub floor_ms: Option<f64>,
    /// Eager time per call in milliseconds; approximate if there are objections.
    pub eager_ms: f64,
    /// Time per call in milliseconds of each compiled baseline, by name.
    pub compiled_ms: Vec<(String, f64)>,
    /// Operator graph, traced from shapes alone; `None` if it depends on values.
    pub graph: Option<OpGraph>,
    /// Objections; with any, no baseline was compiled.
    pub objections: Vec<Objection>,
    /// Caveats that a verdict on this task would have.
    pub caveats: Vec<String>,
    /// Machine and versions of the times.
    pub fingerprint: Fingerprint,
}

impl Examination {
    /// Time per call of the fastest baseline in milliseconds.
    pub fn best_ms(&self) -> f64 {
        self.compiled_ms.iter().map(|(_, ms)| *ms).fold(self.eager_ms, f64::min)
    }

    /// Time of the fastest baseline divided by the memory roofline; `None` without a roofline.
    pub fn head_room(&self) -> Option<f64> {
        self.floor_ms.filter(|floor| *floor > 0.0).map(|floor| self.best_ms() / floor)
    }
}

/// Shape and element type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorKind {
    /// Extent per dimension.
    pub shape: Vec<u64>,
    /// Torch's name without the prefix.
    pub dtype: String,
}

impl TensorKind {
    pub(crate) fn of(place: &Place) -> Self {
        Self { shape: place.shape.clone(), dtype: place.dtype.clone() }
    }
}

/// How many times shorter than what is wanted a warm call may be.
const ROUGH: f64 = 2.0;

/// Whether the duration of one warm call, in milliseconds, may lie in the wanted range, of which it may take
/// `slack` times the end.
pub(crate) fn near(wanted_ms: Option<&RangeInclusive<f64>>, ms: f64, slack: f64) -> bool {
    wanted_ms.is_none_or(|wanted| {
        let (low, high) = (wanted.start() / ROUGH, wanted.end() * slack);
        (low..=high).contains(&ms)
    })
}

/// Objections by the oracle's examination.
pub(crate) fn object(found: &Examined, doubt: &str, bar: Bar) -> Vec<Objection> {
    let mut objections = Vec::new();
    if !doubt.is_empty() {
        objections.push(Objection::NoTruth { reason: doubt.to_owned() });
    }
    for (output, (finite, common)) in found.finite.iter().zip(&found.common).enumerate() {
        if *finite < 1.0 {
            objections.push(Objection::NotFinite { output });
        }
        if *common > bar.common() {
            objections.push(Objection::OneValue { output, share: *common });
        }
    }
    let little = |of: &std::collections::BTreeMap<String, f64>| {
        let little = of.iter().filter(|(_, share)| **share < bar.matters());
        little.map(|(name, share)| (name.clone(), *share)).collect::<Vec<_>>()
    };
    let ignored = little(&found.inputs);
    objections
        .extend(ignored.into_iter().map(|(input, share)| Objection::InputIgnored { input, share }));
    let ignored = little(&found.parameters);
    let ignored = ignored.into_iter();
    objections.extend(ignored.map(|(name, share)| Objection::ParameterIgnored { name, share }));
    let passing = found.counterfeits.iter().filter(|(_, wrong)| **wrong <= bar.wrong());
    objections.extend(passing.map(|(answer, _)| Objection::Counterfeit { answer: answer.clone() }));
    objections
}

/// What further draws of inputs say, given what is allowed of each output and its largest magnitude.
pub(crate) fn object_to_draws(found: &Redrawn, allowed: &[(Tolerance, f64)]) -> Vec<Objection> {
    let finite = found.finite.iter().enumerate().filter(|(_, share)| **share < 1.0);
    let mut objections: Vec<_> =
        finite.map(|(output, _)| Objection::NotFinite { output }).collect();
    for (output, (errors, (tolerance, largest))) in found.stretched.iter().zip(allowed).enumerate()
    {
        let allowed = tolerance.atol + tolerance.rtol * largest;
        if let Some(error) = jump(errors, allowed) {
            objections.push(Objection::Brittle { output, error, allowed });
        }
    }
    objections
}

/// How many times the median of a program's errors on eight draws its largest is at most where results
/// move with the errors, unless by chance: of errors that are each one normal number, in 98 of 100
/// cases; of the largest of two or more, hardly ever (none of 40,000 that were drawn). A jump in every
/// draw is beyond it.
const SPREAD: f64 = 10.0;
/// Errors that tell nothing, as a share of what is allowed.
const SLIGHT: f64 = 1.0 / 16.0;

/// The largest of a program's errors on some draws, if results jump there: more than is allowed, or far
/// more than on other draws.
fn jump(errors: &[f64], allowed: f64) -> Option<f64> {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let largest = *sorted.last()?;
    let median = sorted[(sorted.len() - 1) / 2];
    let jumps = largest > allowed || largest > (SPREAD * median).max(SLIGHT * allowed);
    jumps.then_some(largest)
}

/// What the baselines' results say: each is an honest program, and must be right.
pub(crate) fn disagree(
    found: &Agreement,
    allowed: &[(Tolerance, f64)],
    bar: Bar,
) -> Vec<Objection> {
    let mut objections = Vec::new();
    for (baseline, apart) in &found.apart {
        let fails = |(error, (tolerance, largest)): (&Option<f64>, &(Tolerance, f64))| {
            let allowed = bar.honest() * (tolerance.atol + tolerance.rtol * largest);
            let right = error.is_some_and(|e| e <= allowed);
            (!right).then_some((*error, tolerance.atol))
        };
        if let Some((error, allowed)) = apart.iter().zip(allowed).find_map(fails) {
            objections.push(Objection::HonestFails { baseline: baseline.clone(), error, allowed });
        }
    }
    objections
}

/// Names and milliseconds of what was compiled.
pub(crate) fn times(
    ready: impl Iterator<Item = (Baseline, f64)>,
) -> (Option<f64>, Vec<(String, f64)>) {
    let (eager, compiled): (Vec<_>, Vec<_>) =
        ready.partition(|(which, _)| *which == Baseline::Eager);
    let ms = |seconds: f64| 1e3 * seconds;
    let compiled =
        compiled.into_iter().map(|(which, s)| (which.name().to_owned(), ms(s))).collect();
    (eager.first().map(|(_, s)| ms(*s)), compiled)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ALLOWED: [(Tolerance, f64); 1] = [(Tolerance { atol: 1e-5, rtol: 0.0 }, 10.0)];

    fn sound() -> Examined {
        let of = |pairs: &[(&str, f64)]| {
            pairs
                .iter()
                .map(|(name, share)| ((*name).to_owned(), *share))
                .collect::<BTreeMap<_, _>>()
        };
        Examined {
            finite: vec![1.0],
            common: vec![0.5],
            inputs: of(&[("0", 0.6)]),
            parameters: of(&[("weight", 0.02)]),
            counterfeits: of(&[("zeros", 0.5), ("the previous result", 1e-6)]),
        }
    }

    #[test]
    fn each_fault_has_its_objection() {
        assert_eq!(object(&sound(), "", Bar::Sound), []);
        let spoil = |change: fn(&mut Examined)| {
            let mut found = sound();
            change(&mut found);
            object(&found, "", Bar::Sound).iter().map(Objection::name).collect::<Vec<_>>()
        };
        assert_eq!(spoil(|f| f.finite[0] = 0.999), ["not_finite"]);
        assert_eq!(spoil(|f| f.common[0] = 0.95), ["one_value"]);
        assert_eq!(spoil(|f| f.inputs.extend([("1".into(), 0.0)])), ["input_ignored"]);
        assert_eq!(spoil(|f| f.parameters.extend([("b".into(), 0.009)])), ["parameter_ignored"]);
        assert_eq!(spoil(|f| f.counterfeits.extend([("x".into(), 0.0)])), ["counterfeit"]);
        assert_eq!(object(&sound(), "why", Bar::Sound)[0].name(), "no_truth");
    }

    #[test]
    fn the_clear_bar_demands_a_margin() {
        let mut found = sound();
        let names = |found: &Examined| {
            object(found, "", Bar::Clear).iter().map(Objection::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&found), ["parameter_ignored", "counterfeit"]);
        found.parameters.insert("weight".into(), 0.04);
        found.counterfeits.insert("the previous result".into(), 0.01);
        assert_eq!(names(&found), Vec::<&str>::new());
        found.common[0] = 0.8;
        assert_eq!(names(&found), ["one_value"]);
        let apart = BTreeMap::from([("compile".to_owned(), vec![Some(0.6e-5)])]);
        assert_eq!(disagree(&Agreement { apart }, &ALLOWED, Bar::Clear).len(), 1);
    }

    #[test]
    fn rare_samples_raise_not_finite_and_brittle() {
        let found = |finite, error| {
            let found = Redrawn { finite: vec![finite], stretched: vec![vec![error; 8]] };
            object_to_draws(&found, &ALLOWED).iter().map(Objection::name).collect::<Vec<_>>()
        };
        assert_eq!(found(1.0, 0.5e-5), Vec::<&str>::new());
        assert_eq!(found(0.999, 0.5e-5), ["not_finite"]);
        assert_eq!(found(1.0, 2e-5), ["brittle"]);
        let unknown = Redrawn { finite: vec![1.0], stretched: vec![vec![]] };
        assert_eq!(object_to_draws(&unknown, &ALLOWED), []);
    }

    #[test]
    fn jumps_are_distinguished_from_variation() {
        // Of eight draws the median is the fourth: what half of them do is usual.
        let quiet = [1e-7, 2e-7, 1e-7, 2e-7, 1e-7, 2e-7, 1e-7, 2e-7];
        assert_eq!(jump(&quiet, 1e-6), None);
        let with = |error| [&quiet[..7], &[error][..]].concat();
        assert_eq!(jump(&with(9e-7), 1e-6), None);
        assert_eq!(jump(&with(1.1e-6), 1e-5), Some(1.1e-6));
        // A jump of one in every draw, over 64 and over 4.
        let always = [1.0 / 64.0, 1.0 / 4.0].repeat(4);
        assert_eq!(jump(&always, 3.0), Some(0.25));
        // Exact results, of which one is off by less than anybody asks for.
        let exact = [&[0.0; 7][..], &[1e-8][..]].concat();
        assert_eq!(jump(&exact, 1e-6), None);
        assert_eq!(jump(&[2e-6; 8], 1e-6), Some(2e-6));
        assert_eq!(jump(&[], 1e-6), None);
    }

    #[test]
    fn a_baseline_beyond_the_tolerance_raises_an_objection() {
        let allowed = [(Tolerance { atol: 1e-5, rtol: 1e-6 }, 10.0)];
        let told = |apart| {
            let apart = BTreeMap::from([("compile".to_owned(), vec![apart])]);
            disagree(&Agreement { apart }, &allowed, Bar::Sound).len()
        };
        assert_eq!(told(Some(1.9e-5)), 0);
        assert_eq!(told(Some(2.1e-5)), 1);
        assert_eq!(told(None), 1, "not alike");
    }
}
