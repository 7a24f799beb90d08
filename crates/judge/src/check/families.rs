//! Input families: which inputs a task allows in addition to its own, the known errors on each, and which of
//! them a verdict uses.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Profile;

use crate::check::dtype::Dtype;
use crate::check::tolerance::{Errors, separates};
use crate::process::wire::{Calibrated, ErrorNote, Expected, OutputNote, ScaleErrors};

/// Least calls on fresh inputs per verification, as in the paper.
pub(crate) const CHECKS: usize = 5;
/// Calls on `slices`: each replaces others, and a candidate that looks for some of them may meet those.
const SLICED: usize = 3;
/// How many times the error known of a family a call's may be. Beyond that its inputs happen to be
/// ill-conditioned, where honest programs differ: they are not counted.
const WILD: f64 = 16.0;
/// Of the timed calls, this share has inputs on which rare outputs vary, or that tell lower precision but
/// may take a kernel another time than the task's own.
const TIMED_SHARE: f64 = 0.25;
/// Families that take a kernel and a GPU as long as the task's own inputs do: as many different numbers,
/// with as many bits, and none of them special.
const TELLING: [InputFamily; 4] =
    [InputFamily::Normal, InputFamily::Offset, InputFamily::Large, InputFamily::Small];
/// Share of the compared timed calls that have other inputs than the usual ones, if such calls exist.
const LOOKED_SHARE: f64 = 2.0 / 3.0;

/// The inputs of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) family: InputFamily,
    pub(crate) seed: u64,
}

impl Draw {
    /// The inputs of `get_inputs()` for a seed.
    pub(crate) fn own(seed: u64) -> Self {
        Self { family: InputFamily::Own, seed }
    }

    /// Inputs of a family with a secret seed.
    pub(crate) fn fresh(family: InputFamily, random: &mut StdRng) -> Self {
        Self { family, seed: random.random_range(1..1 << 62) }
    }
}

/// One family that the task allows.
#[derive(Clone, Debug)]
struct Known {
    family: InputFamily,
    /// Per output, and behind them per input that the reference changes.
    errors: Vec<Errors>,
    /// The same by magnitude, of outputs whose elements are of very different sizes.
    scales: Vec<Vec<ScaleErrors>>,
    /// Per output, whether a result of lower precision would be refused on it.
    separates: Vec<bool>,
    /// Per output, whether it is compared on it.
    compared: Vec<bool>,
    /// Per output, whether it is no constant on it.
    varies: Vec<bool>,
}

impl Known {
    /// Whether a result of lower precision would be refused on it, by some output.
    fn separates(&self) -> bool {
        self.separates.contains(&true)
    }

    /// Whether this output would.
    fn tells(&self, output: usize) -> bool {
        self.separates.get(output) == Some(&true)
    }
}

/// Error estimates of a task, from calibration and from later calls.
#[derive(Clone, Debug)]
pub(crate) struct Families {
    profile: Profile,
    dtypes: Vec<Option<Dtype>>,
    known: Vec<Known>,
    /// Whether truth is known in float64.
    exact: bool,
    /// Whether calibration has said anything.
    calibrated: bool,
    /// Why there are no others, if there are none.
    why_alone: Option<String>,
    /// Those that there was no time to try.
    untried: Vec<InputFamily>,
}

impl Families {
    /// The task's own inputs only, of which nothing is known yet. `dtypes` are those of the outputs, and
    /// behind them of the inputs that the reference changes.
    pub(crate) fn own(profile: Profile, dtypes: Vec<Option<Dtype>>) -> Self {
        let all = vec![true; dtypes.len()];
        let own = Known {
            family: InputFamily::Own,
            errors: vec![Errors::default(); dtypes.len()],
            scales: vec![Vec::new(); dtypes.len()],
            separates: vec![false; dtypes.len()],
            compared: all.clone(),
            varies: all,
        };
        let (exact, calibrated) = (true, false);
        let (why_alone, untried) = (None, Vec::new());
        Self { profile, dtypes, known: vec![own], exact, calibrated, why_alone, untried }
    }

    /// Takes over what the oracle found out.
    pub(crate) fn calibrate(&mut self, calibrated: Calibrated) {
        self.known.truncate(1);
        (self.exact, self.calibrated) = (calibrated.exact, true);
        self.untried = calibrated.untried;
        self.why_alone = calibrated.refused.first().map(|refused| refused.why.clone());
        let own = calibrated.admitted.iter().find(|each| each.family == InputFamily::Own);
        let between: Vec<Option<f64>> =
            own.map(|own| own.notes.iter().map(|note| note.between).collect()).unwrap_or_default();
        for admitted in calibrated.admitted {
            let notes = admitted.notes.iter().enumerate();
            let errors: Vec<Errors> = notes
                .map(|(i, note)| Errors {
                    noise: note.noise,
                    honest: note.honest.unwrap_or(0.0),
                    lower: note.lower,
                    largest: note.largest,
                    between: between.get(i).copied().flatten(),
                })
                .collect();
            let known = Known {
                family: admitted.family,
                scales: admitted.notes.iter().map(|note| classes(admitted.family, note)).collect(),
                separates: vec![false; errors.len()],
                compared: admitted.notes.iter().map(|note| note.compared).collect(),
                varies: admitted.notes.iter().map(|note| note.varies).collect(),
                errors,
            };
            if admitted.family == InputFamily::Own {
                self.known[0] = known;
            } else {
                self.known.push(known);
                self.why_alone = None;
            }
        }
        self.separate();
    }

    /// Whether the task allows a family.
    pub(crate) fn allows(&self, family: InputFamily) -> bool {
        self.find(family).is_some()
    }

    /// Says why no family but the task's own is used.
    pub(crate) fn alone(&mut self, why: String) {
        self.why_alone = Some(why);
    }

    fn separate(&mut self) {
        let truth = if self.exact { "float64" } else { "same precision" };
        for known in &mut self.known {
            let pairs = known.errors.iter().zip(&self.dtypes).zip(&known.compared);
            let told = pairs.map(|((errors, dtype), &compared)| {
                let told = |dtype| separates(self.profile, dtype, errors, (known.family, truth));
                compared && dtype.is_some_and(told)
            });
            known.separates = told.collect();
        }
    }

    /// Whether a result of lower precision would be refused on some of the inputs that are known.
    pub(crate) fn tell_lower_precision(&self) -> bool {
        self.known.iter().any(Known::separates)
    }

    /// Outputs that no family tells from a result of lower precision, though that has other values than
    /// the truth: where it has none, as a copy of whole numbers or a comparison, there is nothing to
    /// tell. `None` of an error says that nobody knows.
    fn untold(&self) -> Vec<usize> {
        let lowest = |dtype: Dtype| matches!(dtype, Dtype::F8E4m3 | Dtype::F8E5m2);
        let floats = self
            .dtypes
            .iter()
            .enumerate()
            .filter(|(_, dtype)| dtype.is_some_and(|dtype| dtype.is_real() && !lowest(dtype)));
        let told = |i: usize| {
            let known =
                || self.known.iter().filter(move |known| known.compared.get(i) == Some(&true));
            let exact = |known: &Known| known.errors.get(i).is_some_and(|e| e.lower == Some(0.0));
            known().any(|known| known.separates.get(i) == Some(&true)) || known().all(exact)
        };
        floats.map(|(i, _)| i).filter(|&i| !told(i)).collect()
    }

    /// Outputs that have one value on all inputs that are known.
    fn constant(&self) -> Vec<usize> {
        let varies =
            |i: usize| self.known.iter().any(|k| k.compared.get(i) == Some(&true) && k.varies[i]);
        (0..self.dtypes.len()).filter(|&i| self.calibrated && !varies(i)).collect()
    }

    /// Outputs that have one value on the task's own inputs, and others on some family.
    fn rare(&self) -> Vec<usize> {
        let constant = self.constant();
        let own = &self.known[0].varies;
        (0..own.len()).filter(|i| !own[*i] && !constant.contains(i)).collect()
    }

    /// Whether every draw has other values of an output: what is expected of one is of no use in
    /// another.
    pub(crate) fn fresh(&self, output: usize) -> bool {
        self.known[0].varies.get(output).copied().unwrap_or(false)
    }

    /// Whether an output is compared on a family.
    pub(crate) fn compares(&self, family: InputFamily, output: usize) -> bool {
        let known = self.find(family).and_then(|known| known.compared.get(output));
        known.copied().unwrap_or(true)
    }

    /// Why no more than 1 can be earned, if that is so.
    pub(crate) fn capped(&self) -> Option<String> {
        if self.profile == Profile::Paper {
            return None;
        }
        let numbers = |outputs: &[usize]| {
            let names: Vec<String> = outputs.iter().map(ToString::to_string).collect();
            names.join(", ")
        };
        let (untold, constant) = (self.untold(), self.constant());
        if !untold.is_empty() {
            return Some(format!(
                "on this task a result of the next lower precision cannot be told from an honest \
                 one (output {}): no reward above 1",
                numbers(&untold)
            ));
        }
        (!constant.is_empty()).then(|| {
            format!(
                "output {} has one value on all inputs that were tried: no reward above 1",
                numbers(&constant)
            )
        })
    }

    fn find(&self, family: InputFamily) -> Option<&Known> {
        self.known.iter().find(|known| known.family == family)
    }

    /// Known errors of an output on a family.
    pub(crate) fn errors(&self, family: InputFamily, output: usize) -> Errors {
        let known = self.find(family).and_then(|known| known.errors.get(output));
        known.copied().unwrap_or_default()
    }

    /// Known errors of its classes of magnitude.
    pub(crate) fn scales(&self, family: InputFamily, output: usize) -> &[ScaleErrors] {
        self.find(family).and_then(|known| known.scales.get(output)).map_or(&[], Vec::as_slice)
    }

    /// Whether a call's inputs are such that honest programs agree on them. Those of the task's own
    /// always count.
    pub(crate) fn sound(&self, family: InputFamily, expected: &Expected) -> bool {
        if family == InputFamily::Own {
            return true;
        }
        let calm = |(i, note): (usize, &OutputNote)| {
            if !self.compares(family, i) || note.view_of.is_some() {
                return true;
            }
            let known = self.errors(family, i);
            let floor = self.dtypes.get(i).copied().flatten().and_then(Dtype::epsilon);
            let usual = known.noise.max(known.honest).max(floor.unwrap_or(0.0));
            note.agrees && note.apart == 0 && note.beyond <= WILD * usual * note.rms
        };
        expected.void.is_empty() && expected.notes.iter().enumerate().all(calm)
    }

    /// Remembers how far from the truth the reference was in one more call.
    pub(crate) fn learn(&mut self, family: InputFamily, notes: &[OutputNote]) {
        let Some(known) = self.known.iter_mut().find(|known| known.family == family) else {
            return;
        };
        for (errors, note) in known.errors.iter_mut().zip(notes) {
            if note.rms > 0.0 {
                errors.noise = errors.noise.max(note.beyond / note.rms);
            }
        }
        for (classes, note) in known.scales.iter_mut().zip(notes) {
            for scale in note.scales.iter().filter(|scale| scale.rms > 0.0) {
                let same =
                    |class: &&mut ScaleErrors| class.below.to_bits() == scale.below.to_bits();
                if let Some(class) = classes.iter_mut().find(same) {
                    class.noise = class.noise.max(scale.beyond / scale.rms);
                }
            }
        }
        self.separate();
    }

    /// The families of a verification's calls, in the order in which they are played: each that the task
    /// allows, as what one does not show is verified whenever that one has no turn, `slices` several times,
    /// and at least twice the task's own.
    pub(crate) fn plan(&self, random: &mut StdRng) -> Vec<InputFamily> {
        let mut chosen: Vec<InputFamily> =
            self.known.iter().skip(1).map(|known| known.family).collect();
        let own = CHECKS.saturating_sub(chosen.len()).max(2);
        if chosen.contains(&InputFamily::Slices) {
            chosen.extend([InputFamily::Slices; SLICED - 1]);
        }
        chosen.extend(std::iter::repeat_n(InputFamily::Own, own));
        chosen.shuffle(random);
        chosen
    }

    /// Families of which each rare output varies on one.
    fn rare_families(&self, random: &mut StdRng) -> Vec<InputFamily> {
        let mut chosen: Vec<&Known> = Vec::new();
        let varies = |known: &Known, i: usize| known.compared[i] && known.varies[i];
        for output in self.rare() {
            if chosen.iter().any(|known| varies(known, output)) {
                continue;
            }
            let able: Vec<&Known> =
                self.known[1..].iter().filter(|known| varies(known, output)).collect();
            if !able.is_empty() {
                chosen.push(able[random.random_range(0..able.len())]);
            }
        }
        chosen.into_iter().map(|known| known.family).collect()
    }

    /// The families of the calls by whose time a kernel is paid, each at random: the task's own inputs,
    /// unless lower precision shows on others only. Then it is those, or a kernel could be exact on
    /// inputs that it recognises and fast on the others.
    fn usual(&self) -> Vec<InputFamily> {
        let able =
            |known: &&Known| known.family == InputFamily::Own || TELLING.contains(&known.family);
        let able: Vec<&Known> = self.known.iter().filter(able).collect();
        let told = |i: &usize| able.iter().any(|known| known.tells(*i));
        let told: Vec<usize> = (0..self.dtypes.len()).filter(told).collect();
        let tells_all = |known: &&Known| told.iter().all(|&i| known.tells(i));
        if tells_all(&&self.known[0]) {
            return vec![InputFamily::Own];
        }
        let mut usual: Vec<&Known> = able.iter().copied().filter(tells_all).collect();
        if usual.is_empty() {
            usual = able.into_iter().filter(|known| known.separates()).collect();
        }
        usual.into_iter().map(|known| known.family).collect()
    }

    /// The families that a part of the timed calls have instead of the usual: those on which rare outputs
    /// vary, and one of those that tell what the usual do not.
    fn beside(&self, random: &mut StdRng) -> Vec<InputFamily> {
        let mut timed = self.rare_families(random);
        let usual = self.usual();
        let seen = |i: usize| {
            let mut usual = self.known.iter().filter(|known| usual.contains(&known.family));
            usual.any(|known| known.tells(i))
        };
        let unseen: Vec<usize> = (0..self.dtypes.len()).filter(|&i| !seen(i)).collect();
        let able = |known: &&Known| unseen.iter().any(|&i| known.tells(i));
        let able: Vec<&Known> = self.known.iter().filter(able).collect();
        if !able.is_empty() && !able.iter().any(|known| timed.contains(&known.family)) {
            timed.push(able[random.random_range(0..able.len())].family);
        }
        timed
    }

    /// The inputs of a timed window's calls, some of which may be looked at later.
    pub(crate) fn timed_draws(&self, calls: usize, look: bool, random: &mut StdRng) -> Vec<Draw> {
        let (usual, beside) = (self.usual(), self.beside(random));
        let one = |of: &[InputFamily], random: &mut StdRng| of[random.random_range(0..of.len())];
        let mut families: Vec<InputFamily> = (0..calls).map(|_| one(&usual, random)).collect();
        if !beside.is_empty() {
            for family in &mut families {
                if random.random_bool(TIMED_SHARE) {
                    *family = one(&beside, random);
                }
            }
            if look && calls > 0 {
                let wanted = random.random_bool(LOOKED_SHARE);
                let of = if wanted { &beside } else { &usual };
                families[random.random_range(0..calls)] = one(of, random);
            }
        }
        families.into_iter().map(|family| Draw::fresh(family, random)).collect()
    }

    /// Selects `count` different calls of a timed window for comparison. If some calls have other inputs than
    /// the usual ones, about [`LOOKED_SHARE`] of the selected calls have those.
    pub(crate) fn looked_at(
        &self,
        draws: &[Draw],
        count: usize,
        random: &mut StdRng,
    ) -> Vec<usize> {
        let mut calls: Vec<usize> = (0..draws.len()).collect();
        calls.shuffle(random);
        let families = self.usual();
        let (mut usual, mut other): (Vec<usize>, Vec<usize>) =
            calls.into_iter().partition(|&call| families.contains(&draws[call].family));
        let mut mixed = Vec::with_capacity(draws.len());
        while mixed.len() < draws.len() {
            let call = if random.random_bool(LOOKED_SHARE) {
                other.pop().or_else(|| usual.pop())
            } else {
                usual.pop().or_else(|| other.pop())
            };
            mixed.extend(call);
        }
        mixed.truncate(count);
        mixed
    }

    /// Caveats: weakened rules, one sentence each.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.profile == Profile::Paper {
            return caveats;
        }
        caveats.extend(self.capped());
        if let Some(why) = &self.why_alone {
            caveats.push(format!("only the task's own inputs were used: {why}"));
        }
        if !self.untried.is_empty() {
            let names: Vec<&str> = self.untried.iter().map(|family| family.name()).collect();
            let names = names.join(", ");
            caveats.push(format!("no time was left to try these input families: {names}"));
        }
        caveats
    }
}

/// The classes of magnitude that count on a family. Which elements of `slices` and `ends` are small is another thing
/// in each draw: those of a tiny slice, or what is left of large terms that cancel.
fn classes(family: InputFamily, note: &ErrorNote) -> Vec<ScaleErrors> {
    if matches!(family, InputFamily::Slices | InputFamily::Ends) {
        Vec::new()
    } else {
        note.scales.clone()
    }
}

#[cfg(test)]
mod tests;
