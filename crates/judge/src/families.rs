//! Which inputs a task allows beside its own, what is known of errors on each, and which of them a
//! verdict plays.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Profile;

use crate::dtype::Dtype;
use crate::tolerance::{Errors, separates};
use crate::wire::{Calibrated, Expected, OutputNote};

/// Calls on fresh inputs per verification, as in the paper.
pub(crate) const CHECKS: usize = 5;
/// How many times the error known of a family a call's may be. Beyond that its inputs happen to be
/// ill-conditioned, where honest programs differ: they are not counted.
const WILD: f64 = 16.0;
/// Of the timed calls, this share has other inputs than the task's own, where lower precision shows
/// on those only.
const TIMED_SHARE: f64 = 0.25;
/// Of the timed calls that are looked at.
const LOOKED_SHARE: f64 = 2.0 / 3.0;

/// The inputs of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) family: InputFamily,
    pub(crate) seed: u64,
}

impl Draw {
    /// What `get_inputs()` gives for a seed.
    pub(crate) fn own(seed: u64) -> Self {
        Self { family: InputFamily::Own, seed }
    }

    /// Inputs of a family that nobody can know beforehand.
    pub(crate) fn fresh(family: InputFamily, random: &mut StdRng) -> Self {
        Self { family, seed: random.random_range(1..1 << 62) }
    }
}

/// One family that the task allows.
#[derive(Clone, Debug)]
struct Known {
    family: InputFamily,
    /// Per output.
    errors: Vec<Errors>,
    /// Whether a result of lower precision would be refused on it.
    separates: bool,
}

/// What calibration said of a task, and what calls have said since.
#[derive(Clone, Debug)]
pub(crate) struct Families {
    profile: Profile,
    dtypes: Vec<Option<Dtype>>,
    known: Vec<Known>,
    /// Why there are no others, if there are none.
    why_alone: Option<String>,
}

impl Families {
    /// The task's own inputs only, of which nothing is known yet.
    pub(crate) fn own(profile: Profile, dtypes: Vec<Option<Dtype>>) -> Self {
        let errors = vec![Errors::default(); dtypes.len()];
        let own = Known { family: InputFamily::Own, errors, separates: false };
        Self { profile, dtypes, known: vec![own], why_alone: None }
    }

    /// Takes over what the oracle found out.
    pub(crate) fn calibrate(&mut self, calibrated: Calibrated) {
        self.known.truncate(1);
        self.why_alone = calibrated.refused.first().map(|refused| refused.why.clone());
        for admitted in calibrated.admitted {
            let errors: Vec<Errors> = admitted
                .notes
                .iter()
                .map(|note| Errors {
                    noise: note.noise,
                    honest: note.honest.unwrap_or(0.0),
                    lower: note.lower,
                    largest: note.largest,
                })
                .collect();
            let known = Known { family: admitted.family, errors, separates: false };
            if admitted.family == InputFamily::Own {
                self.known[0] = known;
            } else {
                self.known.push(known);
                self.why_alone = None;
            }
        }
        self.separate();
    }

    /// Says why no family but the task's own is used.
    pub(crate) fn alone(&mut self, why: String) {
        self.why_alone = Some(why);
    }

    fn separate(&mut self) {
        for known in &mut self.known {
            let pairs = known.errors.iter().zip(&self.dtypes);
            known.separates = pairs.into_iter().any(|(errors, dtype)| {
                dtype.is_some_and(|dtype| separates(self.profile, dtype, errors, known.family))
            });
        }
    }

    /// Whether a result of lower precision would be refused on some of the inputs that are known.
    pub(crate) fn tell_lower_precision(&self) -> bool {
        self.known.iter().any(|known| known.separates)
    }

    fn find(&self, family: InputFamily) -> Option<&Known> {
        self.known.iter().find(|known| known.family == family)
    }

    /// What is known of an output's errors on a family.
    pub(crate) fn errors(&self, family: InputFamily, output: usize) -> Errors {
        let known = self.find(family).and_then(|known| known.errors.get(output));
        known.copied().unwrap_or_default()
    }

    /// Whether a call's inputs are such that honest programs agree on them. Those of the task's own
    /// always count.
    pub(crate) fn sound(&self, family: InputFamily, expected: &Expected) -> bool {
        if family == InputFamily::Own {
            return true;
        }
        let calm = |(i, note): (usize, &OutputNote)| {
            let known = self.errors(family, i);
            let floor = self.dtypes.get(i).copied().flatten().and_then(Dtype::epsilon);
            let usual = known.noise.max(known.honest).max(floor.unwrap_or(0.0));
            note.agrees && note.error <= WILD * usual * note.rms
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
                errors.noise = errors.noise.max(note.error / note.rms);
            }
        }
        self.separate();
    }

    /// The families of a verification's calls, in the order in which they are played. At least two
    /// have the task's own, one normal numbers if the task allows them, and one, where there is any,
    /// tells lower precision from honest noise.
    pub(crate) fn plan(&self, random: &mut StdRng) -> Vec<InputFamily> {
        let mut others: Vec<&Known> =
            self.known.iter().filter(|known| known.family != InputFamily::Own).collect();
        others.shuffle(random);
        // Inputs of both signs always have a turn: tasks draw too many positive numbers only.
        let mut first = |wanted: &dyn Fn(&Known) -> bool| {
            if let Some(at) = others.iter().position(|known| wanted(known)) {
                others[..=at].rotate_right(1);
            }
        };
        first(&|known| known.family == InputFamily::Normal);
        let told = |known: &Known| known.family == InputFamily::Normal && known.separates;
        if !self.known[0].separates && !self.known.iter().any(told) {
            first(&|known| known.separates);
        }
        let mut plan: Vec<InputFamily> =
            others.iter().take(CHECKS - 2).map(|known| known.family).collect();
        plan.resize(CHECKS, InputFamily::Own);
        plan.shuffle(random);
        plan
    }

    /// The family that timed calls have beside the task's own inputs. Only normal numbers: they
    /// take a kernel and a GPU as long as the task's own do.
    pub(crate) fn timed(&self) -> Option<InputFamily> {
        let normal = InputFamily::Normal;
        let tells = self.find(normal).is_some_and(|known| known.separates);
        (tells && !self.known[0].separates).then_some(normal)
    }

    /// The inputs of a timed window's calls, some of which may be looked at later.
    pub(crate) fn timed_draws(&self, calls: usize, look: bool, random: &mut StdRng) -> Vec<Draw> {
        let other = self.timed();
        let mut families = vec![InputFamily::Own; calls];
        if let Some(other) = other {
            for family in &mut families {
                if random.random_bool(TIMED_SHARE) {
                    *family = other;
                }
            }
            if look && calls > 0 {
                let at = random.random_range(0..calls);
                let wanted = random.random_bool(LOOKED_SHARE);
                families[at] = if wanted { other } else { InputFamily::Own };
            }
        }
        families.into_iter().map(|family| Draw::fresh(family, random)).collect()
    }

    /// Which of the calls of a timed window are looked at: so many, none twice. Where lower precision
    /// shows on other inputs only, two thirds of them have those, as far as there are any.
    pub(crate) fn looked_at(
        &self,
        draws: &[Draw],
        count: usize,
        random: &mut StdRng,
    ) -> Vec<usize> {
        let mut calls: Vec<usize> = (0..draws.len()).collect();
        calls.shuffle(random);
        if let Some(other) = self.timed() {
            let (mut those, mut rest): (Vec<usize>, Vec<usize>) =
                calls.into_iter().partition(|&call| draws[call].family == other);
            let mut mixed = Vec::with_capacity(draws.len());
            while let Some(call) = match random.random_bool(LOOKED_SHARE) {
                true => those.pop().or_else(|| rest.pop()),
                false => rest.pop().or_else(|| those.pop()),
            } {
                mixed.push(call);
            }
            calls = mixed;
        }
        calls.truncate(count);
        calls
    }

    /// What is weaker than the rules ask, each in a sentence.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.profile == Profile::Paper {
            return caveats;
        }
        let floating = self.dtypes.iter().flatten().any(|dtype| dtype.epsilon().is_some());
        if floating && !self.known.iter().any(|known| known.separates) {
            caveats.push(
                "on this task a result of the next lower precision cannot be told from an honest \
                 one"
                .to_owned(),
            );
        }
        if let Some(why) = &self.why_alone {
            caveats.push(format!("no inputs but the task's own were used: {why}"));
        }
        caveats
    }
}

#[cfg(test)]
mod tests;
