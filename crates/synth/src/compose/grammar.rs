//! Random operator graphs, by shape inference.

use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::catalogue::{Class, Domain, Dtype, Form, Input, Sizes};
use crate::proposal::{Proposal, Provenance};

use super::Composer;
use super::build::{Built, build, build_step, known_sizes};
use super::error::ComposeError;
use super::level::Level;
use super::library::{Choice, Library};
use super::plan::{Plan, Source, Step};
use super::{mutate, render, sizes};

/// Maximum samples per proposal. Most first samples miss the budget or a shape; satisfiable
/// constraints accept ten in a thousand.
const MAX_DRAWS: usize = 3000;

/// Operators tried per position of a graph.
const MAX_TRIES: usize = 24;

/// Maximum arguments of `forward`, for readability.
const MAX_INPUTS: usize = 4;

/// Sampling weight of each kind of work. They differ from the frequencies in torch, where
/// elementwise operators dominate.
const WEIGHTS: &[(Class, u32)] = &[
    (Class::Elementwise, 30),
    (Class::Normalisation, 14),
    (Class::Reduction, 12),
    (Class::Product, 12),
    (Class::Convolution, 9),
    (Class::Pooling, 7),
    (Class::Layout, 6),
    (Class::Scan, 4),
    (Class::Resample, 3),
    (Class::Window, 3),
    (Class::Attention, 3),
    (Class::Pairwise, 3),
    (Class::Gather, 2),
    (Class::Sort, 1),
    (Class::Transform, 1),
    (Class::Recurrent, 1),
];

/// Size limits of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that eager execution reads and writes.
    pub traffic_bytes: RangeInclusive<u64>,
    /// Operations of products and convolutions that torch counts.
    pub max_flops: u64,
    /// Estimated microseconds of eager execution on a GPU.
    pub gpu_micros: RangeInclusive<u64>,
}

impl Budget {
    /// Eager times of about 0.05 to 10 ms on a GPU with about 4 TB/s and 50 TFLOP/s in float32.
    /// Estimates are limited to half of the maximum, because many operators take twice their
    /// estimate.
    pub fn fast() -> Self {
        Self {
            traffic_bytes: 64 << 20..=4 << 30,
            max_flops: 200_000_000_000,
            gpu_micros: 60..=5_000,
        }
    }

    /// Eager times of about 1 to 100 ms on such a GPU.
    pub fn paper() -> Self {
        Self {
            traffic_bytes: 2 << 30..=48 << 30,
            max_flops: 4_000_000_000_000,
            gpu_micros: 1_000..=50_000,
        }
    }

    /// A few milliseconds on two CPU cores.
    pub fn small() -> Self {
        Self {
            traffic_bytes: 64 << 10..=32 << 20,
            max_flops: 500_000_000,
            gpu_micros: 0..=u64::MAX,
        }
    }
}

/// Constraints on proposals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarConfig {
    /// Number of operators; each number is equally likely.
    pub operators: RangeInclusive<usize>,
    /// Required level; `None` for any.
    pub level: Option<Level>,
    /// Size limits.
    pub budget: Budget,
    /// Sizes of the first tensor; `None` to sample them.
    pub shape: Option<Vec<u64>>,
}

impl Default for GrammarConfig {
    fn default() -> Self {
        Self { operators: 1..=5, level: None, budget: Budget::fast(), shape: None }
    }
}

/// The composer without a language model.
#[derive(Clone, Debug)]
pub struct Grammar {
    library: Library,
    config: GrammarConfig,
}

impl Grammar {
    /// Refuses constraints that no task meets.
    pub fn new(library: Library, config: GrammarConfig) -> Result<Self, ComposeError> {
        if library.is_empty() {
            return Err(ComposeError::Wishes("the catalogue is empty"));
        }
        if config.operators.is_empty() || *config.operators.start() == 0 {
            return Err(ComposeError::Wishes(
                "the allowed range of operators is empty or contains 0",
            ));
        }
        if config.budget.traffic_bytes.is_empty() || config.budget.gpu_micros.is_empty() {
            return Err(ComposeError::Wishes(
                "the allowed range of memory traffic or GPU time is empty",
            ));
        }
        Ok(Self { library, config })
    }

    /// The library of operators.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The constraints.
    pub fn config(&self) -> &GrammarConfig {
        &self.config
    }

    /// The plan of a seed.
    pub fn plan(&self, seed: u64) -> Result<Plan, ComposeError> {
        let mut random = StdRng::seed_from_u64(seed);
        // Before anything that can fail, so that numbers of operators are equally frequent.
        let count = random.random_range(self.config.operators.clone());
        for _ in 0..MAX_DRAWS {
            if let Some(plan) = self.draw(count, &mut random)
                && self.accepts(&plan)
            {
                return Ok(plan);
            }
        }
        Err(ComposeError::Exhausted { seed, draws: MAX_DRAWS })
    }

    /// A mutation of `plan`: an operator replaced, inserted or removed, or other sizes.
    pub fn mutation(&self, plan: &Plan, seed: u64) -> Result<Plan, ComposeError> {
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..MAX_DRAWS {
            if let Some(changed) = mutate::mutate(self, plan, &mut random)
                && changed != *plan
                && self.config.operators.contains(&changed.steps.len())
                && self.accepts(&changed)
            {
                return Ok(changed);
            }
        }
        Err(ComposeError::Exhausted { seed, draws: MAX_DRAWS })
    }

    /// A plan as a proposal. `parent` is the name of the mutated task.
    pub fn propose(
        &self,
        plan: &Plan,
        seed: u64,
        parent: Option<String>,
    ) -> Result<Proposal, ComposeError> {
        let built = build(&self.library, plan)?;
        let composer = if parent.is_some() { "mutation" } else { self.name() };
        Ok(Proposal {
            name: render::name(&built),
            source: render::source(&built)?,
            operators: plan.operators(),
            level: built.level.get(),
            provenance: Provenance {
                composer: composer.to_owned(),
                seed,
                catalogue: self.library.hash().to_owned(),
                parent,
            },
        })
    }

    /// All shapes of a plan.
    pub fn build(&self, plan: &Plan) -> Result<Built<'_>, ComposeError> {
        build(&self.library, plan)
    }

    /// Whether a plan is complete and meets the constraints.
    fn accepts(&self, plan: &Plan) -> bool {
        let Ok(built) = build(&self.library, plan) else { return false };
        let budget = &self.config.budget;
        plan.unused().is_empty()
            && budget.traffic_bytes.contains(&built.traffic_bytes)
            && built.flops <= budget.max_flops
            && budget.gpu_micros.contains(&built.gpu_micros)
            && self.config.level.is_none_or(|level| level == built.level)
            && built.steps.iter().filter(|s| s.output.is_empty()).count()
                <= usize::from(built.output().is_empty())
            && inputs(&plan.steps) <= MAX_INPUTS
    }

    fn draw(&self, count: usize, random: &mut StdRng) -> Option<Plan> {
        let (name, number, first) = self.first(random)?;
        let form = self.library.form(&name, number)?;
        let budget = &self.config.budget.traffic_bytes;
        // What each step reads and writes is about two tensors of this size.
        let share = 8 * count as u64;
        let least = (budget.start() / share).max(1);
        let most = (budget.end() / share).max(1);
        let rank = form.inputs[first].dims.len();
        let wished = self.config.shape.clone();
        let root = wished.unwrap_or_else(|| sizes::shape(rank, least, most, random));
        let mut plan = Plan { root: rooted(form, &form.inputs[first], &root)?, steps: Vec::new() };
        let step = self.complete(&plan, &name, number, &[(first, 0)], random)?;
        plan.steps.push(step);
        while plan.steps.len() < count {
            let after = count - plan.steps.len() - 1;
            let step = self.next(&plan, after, random)?;
            plan.steps.push(step);
        }
        Some(plan)
    }

    /// A first operator, its form, and the index of the input that takes the first tensor: one with
    /// the rank of the requested sizes.
    fn first(&self, random: &mut StdRng) -> Option<(String, usize, usize)> {
        let wished = self.config.shape.as_ref().map(Vec::len);
        for _ in 0..MAX_TRIES {
            let (name, number) = self.operator(random)?;
            let form = self.library.form(&name, number)?;
            let first = main_input(form)?;
            if wished.is_none_or(|rank| rank == form.inputs[first].dims.len()) {
                return Some((name, number, first));
            }
        }
        None
    }

    /// The next step, chosen so that the `after` remaining steps can still use all values.
    fn next(&self, plan: &Plan, after: usize, random: &mut StdRng) -> Option<Step> {
        let newest = plan.steps.len();
        let mut open = plan.unused();
        open.push(newest);
        open.sort_unstable();
        open.dedup();
        let used: Vec<usize> = (0..newest).filter(|value| !open.contains(value)).collect();
        let must_join = open.len() > after + 1;
        let join = must_join || random.random_bool(0.3);
        let fork = !join && !used.is_empty() && open.len() <= after && random.random_bool(0.35);
        for _ in 0..MAX_TRIES {
            let values = if join && open.len() > 1 {
                let first = open[random.random_range(0..open.len())];
                let second = open[random.random_range(0..open.len())];
                vec![first, second]
            } else if join && !used.is_empty() {
                vec![open[0], used[random.random_range(0..used.len())]]
            } else if fork {
                vec![used[random.random_range(0..used.len())]]
            } else {
                vec![open[random.random_range(0..open.len())]]
            };
            if values.len() > 1 && values[0] == values[1] {
                continue;
            }
            let (name, number) = self.operator(random)?;
            if let Some(step) = self.place(plan, &name, number, &values, random)
                && self.continues(plan, &step, after)
            {
                return Some(step);
            }
        }
        None
    }

    /// Whether further steps can follow: none can follow a scalar.
    fn continues(&self, plan: &Plan, step: &Step, after: usize) -> bool {
        let repeats = plan.steps.last().is_some_and(|last| last.operator == step.operator);
        let mut extended = plan.clone();
        extended.steps.push(step.clone());
        let built = build(&self.library, &extended);
        !repeats && built.is_ok_and(|built| after == 0 || !built.output().is_empty())
    }

    /// An operator and a form of it, sampled by weight of its kind of work.
    pub(super) fn operator(&self, random: &mut StdRng) -> Option<(String, usize)> {
        let there =
            || WEIGHTS.iter().filter(|(class, _)| !self.library.of_class(*class).is_empty());
        let total: u32 = there().map(|(_, weight)| weight).sum();
        let mut left = random.random_range(0..total.max(1));
        for (class, weight) in there() {
            if left < *weight {
                let choice = drawn(self.library.of_class(*class), random)?;
                let form = choice.forms[random.random_range(0..choice.forms.len())];
                return Some((choice.name.clone(), form));
            }
            left -= weight;
        }
        None
    }

    /// A step that takes `values`, in any of the form's inputs that accept them.
    pub(super) fn place(
        &self,
        plan: &Plan,
        name: &str,
        number: usize,
        values: &[usize],
        random: &mut StdRng,
    ) -> Option<Step> {
        let form = self.library.form(name, number)?;
        let floats: Vec<usize> =
            (0..form.inputs.len()).filter(|i| form.inputs[*i].dtype == Dtype::Float32).collect();
        if floats.len() < values.len() {
            return None;
        }
        let turn = if values.len() > 1 || random.random_bool(0.2) {
            random.random_range(0..floats.len())
        } else {
            0
        };
        let places: Vec<(usize, usize)> = values
            .iter()
            .enumerate()
            .map(|(i, value)| (floats[(i + turn) % floats.len()], *value))
            .collect();
        self.complete(plan, name, number, &places, random)
    }

    /// A step with values in the given inputs; everything else is sampled.
    pub(super) fn complete(
        &self,
        plan: &Plan,
        name: &str,
        number: usize,
        places: &[(usize, usize)],
        random: &mut StdRng,
    ) -> Option<Step> {
        let built = build(&self.library, plan).ok()?;
        let entry = self.library.entry(name)?;
        let form = entry.forms.get(number)?;
        let rank = places.iter().map(|(i, _)| form.inputs[*i].dims.len()).max()?;
        let mut sources: Vec<Source> =
            form.inputs.iter().map(|input| other_source(form, input, rank, random)).collect();
        for (place, value) in places {
            sources[*place] = Source::Value(*value);
        }
        if form.steep && !places.iter().all(|(_, value)| built.range(*value).is_some()) {
            return None;
        }
        let known = known_sizes(&built, form, &sources).ok()?;
        // A tensor of the same shape as a value is now and then that value: self-attention, a gate.
        for (source, input) in sources.iter_mut().zip(&form.inputs) {
            let same = places.iter().find(|(place, _)| form.inputs[*place].dims == input.dims);
            if let (Source::Input, Some((_, value)), Class::Attention) = (*source, same, form.class)
                && input.dtype == Dtype::Float32
            {
                *source = Source::Value(*value);
            }
        }
        let chosen = choose(form, &known, random)?;
        let step = build_step(&built, entry, form, &sources, &chosen).ok()?;
        // A layer's weights are read once: they are as much of the budget as its inputs, and no more.
        if step.parameters.saturating_mul(8) > *self.config.budget.traffic_bytes.end() {
            return None;
        }
        let chosen = chosen.into_iter().filter(|(symbol, _)| !known.contains_key(symbol)).collect();
        Some(Step { operator: name.to_owned(), form: number, sources, chosen })
    }
}

impl Composer for Grammar {
    fn name(&self) -> &'static str {
        "grammar"
    }

    fn compose(&self, seed: u64) -> Result<Proposal, ComposeError> {
        self.propose(&self.plan(seed)?, seed, None)
    }
}

/// Samples a choice by weight.
fn drawn<'a>(choices: &'a [Choice], random: &mut StdRng) -> Option<&'a Choice> {
    let total: u32 = choices.iter().map(|choice| choice.weight).sum();
    let mut left = random.random_range(0..total.max(1));
    choices.iter().find(|choice| {
        let found = left < choice.weight;
        left = left.saturating_sub(choice.weight);
        found
    })
}

/// Number of arguments of `forward`.
fn inputs(steps: &[Step]) -> usize {
    1 + steps.iter().flat_map(|step| &step.sources).filter(|s| **s == Source::Input).count()
}

/// The main tensor of an operator: the first float of the highest rank.
fn main_input(form: &Form) -> Option<usize> {
    let floats = || form.inputs.iter().enumerate().filter(|(_, i)| i.dtype == Dtype::Float32);
    let rank = floats().map(|(_, input)| input.dims.len()).max()?;
    floats().find(|(_, input)| input.dims.len() == rank).map(|(i, _)| i)
}

/// `shape` adjusted to the form's requirements: equal sizes, multiples, numbers.
pub(super) fn rooted(form: &Form, input: &Input, shape: &[u64]) -> Option<Vec<u64>> {
    let mut sizes = Sizes::new();
    for (dim, size) in input.dims.iter().zip(shape) {
        if let Some(name) = dim.symbol() {
            let rule = form.symbols.get(name)?;
            let size = (*size).max(rule.min).next_multiple_of(rule.multiple);
            sizes.entry(name.to_owned()).or_insert(size);
        }
    }
    input.dims.iter().map(|dim| dim.value(&sizes).ok()).collect()
}

/// Sizes of symbols that no value determines.
pub(super) fn choose(form: &Form, known: &Sizes, random: &mut StdRng) -> Option<Sizes> {
    let mut sizes = known.clone();
    let like = known.values().copied().max().unwrap_or(64).min(1024);
    // Those that bound others first.
    let (bounds, rest): (Vec<_>, Vec<_>) =
        form.symbols.iter().partition(|(_, rule)| rule.at_most.is_none());
    for (name, rule) in bounds.into_iter().chain(rest) {
        if sizes.contains_key(name) {
            continue;
        }
        let slides = form.class == Class::Convolution && is_window(form, name);
        let limit = rule.at_most.as_ref().and_then(|other| sizes.get(other)).copied();
        let size = match limit {
            limit if slides => [3, 5, 7][random.random_range(0..3)].min(limit.unwrap_or(u64::MAX)),
            Some(limit) => limit / rule.multiple * rule.multiple,
            None => sizes::free(like, random).max(rule.min).next_multiple_of(rule.multiple),
        };
        sizes.insert(name.clone(), size);
    }
    form.check(&sizes).ok()?;
    Some(sizes)
}

/// Whether a symbol is the window of a convolution: a dimension after the channels of a weight
/// tensor.
pub(super) fn is_window(form: &Form, symbol: &str) -> bool {
    let mut found = false;
    for (i, input) in form.inputs.iter().enumerate() {
        for (dimension, dim) in input.dims.iter().enumerate() {
            if dim.symbol() == Some(symbol) {
                found = true;
                if i == 0 || dimension < 2 {
                    return false;
                }
            }
        }
    }
    found
}

/// Source of a tensor that is not a value: a parameter if models usually have one there, or another
/// input.
fn other_source(form: &Form, input: &Input, rank: usize, random: &mut StdRng) -> Source {
    if input.dtype != Dtype::Float32 || input.domain == Domain::Index {
        return Source::Input;
    }
    let named = ["weight", "bias", "running_mean", "running_var", "cos", "sin"];
    let likely = match form.class {
        Class::Convolution | Class::Normalisation | Class::Recurrent => 1.0,
        Class::Attention => 0.0,
        _ if named.contains(&input.name.as_str()) => 1.0,
        Class::Product if input.dims.len() == 2 => 0.6,
        _ if input.dims.len() < rank => 0.7,
        _ => 0.15,
    };
    if random.random_bool(likely) { Source::Parameter } else { Source::Input }
}
