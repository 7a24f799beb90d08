//! Mutations of a plan.

use rand::RngExt;
use rand::rngs::StdRng;

use super::build::{build, elements, known_sizes};
use super::grammar::{Grammar, choose, rooted};
use super::plan::{Plan, Source};
use super::sizes;

/// One mutation of a random kind; `None` if the sampled one does not fit.
pub(super) fn mutate(grammar: &Grammar, plan: &Plan, random: &mut StdRng) -> Option<Plan> {
    let at = random.random_range(0..plan.steps.len().max(1));
    match random.random_range(0..4) {
        0 => replace(grammar, plan, at, random),
        1 => insert(grammar, plan, at, random),
        2 => remove(plan, at),
        _ => resize(grammar, plan, random),
    }
}

/// Replaces an operator; the new one takes the same values.
fn replace(grammar: &Grammar, plan: &Plan, at: usize, random: &mut StdRng) -> Option<Plan> {
    let values: Vec<usize> = plan.steps.get(at)?.sources.iter().filter_map(value).collect();
    let before = Plan { root: plan.root.clone(), steps: plan.steps[..at].to_vec() };
    let (name, number) = grammar.operator(random)?;
    let mut changed = plan.clone();
    changed.steps[at] = grammar.place(&before, &name, number, &values, random)?;
    Some(changed)
}

/// Inserts an operator on the result of step `at`; users of that result use the new one.
fn insert(grammar: &Grammar, plan: &Plan, at: usize, random: &mut StdRng) -> Option<Plan> {
    let before = Plan { root: plan.root.clone(), steps: plan.steps.get(..=at)?.to_vec() };
    let (name, number) = grammar.operator(random)?;
    let step = grammar.place(&before, &name, number, &[at + 1], random)?;
    let mut changed = before;
    changed.steps.push(step);
    for later in &plan.steps[at + 1..] {
        let mut later = later.clone();
        renumber(&mut later.sources, |value| if value > at { value + 1 } else { value });
        changed.steps.push(later);
    }
    Some(changed)
}

/// Removes step `at`; users of its result use its first value.
fn remove(plan: &Plan, at: usize) -> Option<Plan> {
    let instead = plan.steps.get(at)?.sources.iter().find_map(value)?;
    let mut changed = plan.clone();
    changed.steps.remove(at);
    for later in &mut changed.steps[at..] {
        renumber(&mut later.sources, |value| match value.cmp(&(at + 1)) {
            std::cmp::Ordering::Less => value,
            std::cmp::Ordering::Equal => instead,
            std::cmp::Ordering::Greater => value - 1,
        });
    }
    Some(changed)
}

/// The same operators with other sizes.
fn resize(grammar: &Grammar, plan: &Plan, random: &mut StdRng) -> Option<Plan> {
    let first = plan.steps.first()?;
    let form = grammar.library().form(&first.operator, first.form)?;
    let place = first.sources.iter().position(|source| *source == Source::Value(0))?;
    let before = elements(&plan.root);
    let drawn = sizes::shape(plan.root.len(), before / 4, before.saturating_mul(4), random);
    let root = rooted(form, &form.inputs[place], &drawn)?;
    let mut changed = Plan { root, steps: Vec::new() };
    for step in &plan.steps {
        let built = build(grammar.library(), &changed).ok()?;
        let form = grammar.library().form(&step.operator, step.form)?;
        let known = known_sizes(&built, form, &step.sources).ok()?;
        let mut chosen = choose(form, &known, random)?;
        chosen.retain(|symbol, _| !known.contains_key(symbol));
        let mut step = step.clone();
        step.chosen = chosen;
        changed.steps.push(step);
    }
    Some(changed)
}

fn value(source: &Source) -> Option<usize> {
    match source {
        Source::Value(value) => Some(*value),
        Source::Input | Source::Parameter => None,
    }
}

fn renumber(sources: &mut [Source], number: impl Fn(usize) -> usize) {
    for source in sources {
        if let Source::Value(value) = source {
            *value = number(*value);
        }
    }
}
