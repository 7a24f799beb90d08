//! One candidate for all workloads of a task.
//!
//! The graph of each workload is planned and written by itself. Kernels that need not know the
//! number of their rows or elements take it as an argument, so one file serves all workloads whose
//! kernels differ in nothing else. `forward` chooses by the shapes and types of its inputs.
//!
//! For shapes that no workload has, there is a *general form*, if it can be shown to exist: the
//! rules of `sizes.rs` give the graph at sizes near a workload's, all of its kernels are that
//! workload's, and the numbers in `model_new.py` follow the rules too. Else `forward` raises.

mod write;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::draft::{Planned, Workload};
use crate::plan::Target;
use crate::sizes::{self, Dim, Samples};
use crate::trace::{self, Constant, Several};

pub(crate) use write::write;

/// Most workloads near which a general form is written.
const MOST: usize = 6;
/// Most workloads from which rules are read: each is compared with all of the others.
const MOST_COMPARED: usize = 16;
/// Fewest graphs from which rules are read.
const FEWEST: usize = 3;

/// The graphs at sizes near a workload's.
#[derive(Debug)]
pub(crate) struct General {
    /// Position of the workload.
    like: usize,
    dims: Vec<Dim>,
    /// The workload's sizes.
    own: Vec<i64>,
    /// Graphs at larger sizes, and at smaller ones: launch parameters change at some sizes.
    sides: Vec<Side>,
}

/// The graphs at some sizes.
#[derive(Debug)]
struct Side {
    samples: Samples,
    planned: Vec<Planned>,
}

impl General {
    /// The product of the workload's sizes.
    fn volume(&self) -> i64 {
        volume(&self.own)
    }
}

fn volume(sizes: &[i64]) -> i64 {
    sizes.iter().copied().fold(1, i64::saturating_mul)
}

/// Odd sizes next to these, then each changed alone, and all together. No divisor is common to all
/// values of a size: nothing that is written for them relies on one.
fn near(sizes: &[i64], step: i64) -> Vec<Vec<i64>> {
    let odd = |size: &i64| if step < 0 { (size - 1) | 1 } else { size | 1 };
    let base: Vec<i64> = sizes.iter().map(odd).collect();
    let moved = |by: &dyn Fn(usize) -> i64| -> Vec<i64> {
        base.iter().enumerate().map(|(i, size)| size.saturating_add(by(i))).collect()
    };
    let mut out = vec![base.clone()];
    out.extend((0..base.len()).map(|at| moved(&|i| if i == at { 2 * step } else { 0 })));
    out.push(moved(&|_| if base.len() == 1 { 4 * step } else { 2 * step }));
    out
}

/// General forms near some of the workloads, the smallest first.
pub(crate) fn generalise(several: &Several, target: &Target) -> Vec<General> {
    let Some((members, graphs)) = alike(several) else { return vec![] };
    let Some((dims, samples)) = sizes::of_graphs(&graphs) else { return vec![] };
    if dims.is_empty() {
        return vec![];
    }
    // The first graphs are those of the members.
    let mut by_volume: Vec<(usize, usize)> = members.iter().copied().enumerate().collect();
    by_volume.sort_by_key(|(sample, _)| volume(samples.of(*sample)));
    let few: BTreeSet<usize> = (0..by_volume.len().min(MOST))
        .map(|i| i * (by_volume.len() - 1) / (by_volume.len().min(MOST) - 1).max(1))
        .collect();
    let chosen = few.into_iter().filter_map(|at| by_volume.get(at));
    let side = |like: usize, sizes: &[i64], step: i64| -> Option<Side> {
        let own = several.workloads.get(like).and_then(|(_, graph)| trace::read(graph).ok())?;
        let sizes = near(sizes, step);
        if sizes.iter().flatten().any(|size| *size < 1) {
            return None;
        }
        let planned = |sizes: &Vec<i64>| {
            let graph = samples.graph_at(&graphs, sizes)?;
            Planned::new(trace::read(&graph).ok()?, target).ok()
        };
        let planned: Option<Vec<Planned>> = sizes.iter().map(planned).collect();
        let planned =
            planned.filter(|all| all.iter().all(|one| has_constants(&own.constants, one)))?;
        Some(Side { samples: Samples::new(sizes), planned })
    };
    let one = |(sample, like): &(usize, usize)| {
        let own = samples.of(*sample).to_vec();
        let sides = [1, -1].into_iter().filter_map(|step| side(*like, &own, step)).collect();
        General { like: *like, dims: dims.clone(), own, sides }
    };
    chosen.map(one).collect()
}

/// Whether a graph has these constants. The files hold those of workloads alone, which would be
/// wrong where the values depend on sizes.
fn has_constants(own: &[Constant], planned: &Planned) -> bool {
    let theirs = &planned.trace.constants;
    let same = |(mine, other): (&Constant, &Constant)| {
        // One value stands for any number of elements.
        let fits = mine.values.len() == 1 || mine.shape == other.shape;
        fits && mine.dtype == other.dtype && mine.values == other.values
    };
    own.len() == theirs.len() && own.iter().zip(theirs).all(same)
}

/// Workloads whose graphs follow the same rules, and their graphs, then those of probes.
fn alike(several: &Several) -> Option<(Vec<usize>, Vec<&Value>)> {
    let all: Vec<&Value> = several.workloads.iter().map(|(_, graph)| graph).collect();
    let probes: Vec<&Value> = several.probes.iter().collect();
    let follows = |graphs: &[&Value]| {
        sizes::of_graphs(graphs).is_some_and(|(_, samples)| {
            let own = samples.of(0);
            samples.graph_at(graphs, own).is_some()
        })
    };
    let is_rule = |members: &[usize], probes: &[&Value]| {
        let own = members.iter().filter_map(|at| all.get(*at)).copied();
        follows(&own.chain(probes.iter().copied()).collect::<Vec<_>>())
    };
    // Probes are like the first workload.
    let probes = if is_rule(&[0], &probes) { probes } else { vec![] };
    let mut members = vec![0];
    for at in 1..all.len().min(MOST_COMPARED) {
        members.push(at);
        if !is_rule(&members, &probes) {
            members.pop();
        }
    }
    let graphs = members.iter().filter_map(|at| all.get(*at)).copied();
    let graphs: Vec<&Value> = graphs.chain(probes).collect();
    (graphs.len() >= FEWEST).then_some((members, graphs))
}

/// A part of the names of a workload's files and methods.
fn suffixes(workloads: &[Workload]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut suffix = |(i, workload): (usize, &Workload)| {
        let name = workload.names.first().map_or("", String::as_str).to_ascii_lowercase();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = name.chars().map(plain).take(40).collect();
        let name = name.trim_matches('_');
        if !name.is_empty() && taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        let numbered = format!("{name}_{i}").trim_start_matches('_').to_owned();
        let numbered = format!("w{numbered}");
        taken.insert(numbered.clone());
        numbered
    };
    workloads.iter().enumerate().map(&mut suffix).collect()
}

#[cfg(test)]
mod tests;
