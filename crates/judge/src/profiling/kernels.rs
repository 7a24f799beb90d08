//! Lists the kernels of a call from the trace that its process left: CUPTI's activities as torch's profiler
//! exports them, or the launches that the cpu device's launcher recorded, in the same format.

use std::collections::BTreeMap;

use serde::Deserialize;
use warpwright_record::findings::{ActivityKind, CallProfile, KernelTime, MAX_KERNELS};

use super::clean::{MAX_NAME, clean};
use super::occupancy::occupancy;

/// Maximum number of activities that are read.
const MAX_ACTIVITIES: usize = 200_000;

/// A Chrome trace, as far as it matters here.
#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    /// Microseconds.
    #[serde(default)]
    ts: f64,
    /// Microseconds.
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Arguments,
}

/// Numbers are taken as they come and checked later: a trace is the candidate's word.
#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    grid: Vec<f64>,
    #[serde(default)]
    block: Vec<f64>,
    #[serde(default, rename = "registers per thread")]
    registers: Option<f64>,
    #[serde(default, rename = "shared memory")]
    shared: Option<f64>,
    #[serde(default)]
    bytes: Option<f64>,
}

/// Ceilings that the profile is compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ceilings {
    /// `sm_90a`; `None` on the cpu device.
    pub(crate) arch: Option<String>,
    /// Inputs, parameters and outputs of a call.
    pub(crate) unavoidable_bytes: u64,
    /// Measured copy bandwidth.
    pub(crate) bandwidth: Option<u64>,
}

/// Something that ran on the device.
struct Activity {
    kind: ActivityKind,
    name: String,
    start: f64,
    /// Kept apart: start and end are too large to give it back by subtraction.
    duration: f64,
    grid: [u32; 3],
    block: [u32; 3],
    registers: Option<u32>,
    shared: u32,
    bytes: Option<u64>,
}

/// The mean call of `calls` that took `seconds` together, from their trace. An error says what is
/// wrong with the trace.
pub(crate) fn profile(
    trace: &str,
    calls: u32,
    seconds: f64,
    ceilings: &Ceilings,
) -> Result<CallProfile, String> {
    let trace: Trace = serde_json::from_str(trace).map_err(|e| e.to_string())?;
    let mut activities: Vec<Activity> =
        trace.events.into_iter().filter_map(activity).take(MAX_ACTIVITIES).collect();
    activities.sort_by(|a, b| a.start.total_cmp(&b.start));
    let count = f64::from(calls.max(1));
    let (busy, gaps) = busy_and_gaps(&activities);
    let (kernels, left_out) = by_kernel(&activities, count, ceilings);
    let busy_us = busy / count;
    let rate = (busy_us > 0.0).then(|| ceilings.unavoidable_bytes as f64 / (busy_us * 1e-6));
    Ok(CallProfile {
        calls,
        wall_us: finite(seconds * 1e6 / count),
        busy_us,
        gap_us: gaps / count,
        launches: activities.len() as f64 / count,
        kernels,
        left_out,
        unavoidable_bytes: ceilings.unavoidable_bytes,
        bandwidth_bytes_per_second: rate,
        roof_share: rate.zip(ceilings.bandwidth).map(|(rate, roof)| rate / (roof.max(1)) as f64),
        ceiling_bytes_per_second: ceilings.bandwidth,
    })
}

fn activity(event: Event) -> Option<Activity> {
    let kind = match event.cat.as_str() {
        "kernel" => ActivityKind::Kernel,
        "gpu_memcpy" => ActivityKind::Copy,
        "gpu_memset" => ActivityKind::Fill,
        _ => return None,
    };
    let sane = |value: f64| (0.0..1e18).contains(&value);
    if !sane(event.ts) || !sane(event.dur) {
        return None;
    }
    let arguments = event.args;
    let extent = |given: &[f64]| {
        let mut extent = [0; 3];
        for (to, from) in extent.iter_mut().zip(given) {
            *to = whole(*from);
        }
        extent
    };
    Some(Activity {
        kind,
        name: clean(&event.name, MAX_NAME),
        start: event.ts,
        duration: event.dur,
        grid: extent(&arguments.grid),
        block: extent(&arguments.block),
        registers: arguments.registers.map(whole),
        shared: arguments.shared.map_or(0, whole),
        bytes: arguments.bytes.filter(|b| sane(*b)).map(|b| b as u64),
    })
}

/// A count, whatever was given: `as` saturates, and takes what is no number for zero.
fn whole(value: f64) -> u32 {
    value as u32
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// Microseconds in which at least one activity ran, and in which none did between first and last.
/// Between two calls nothing runs either; that is part of what a caller waits for.
fn busy_and_gaps(sorted: &[Activity]) -> (f64, f64) {
    let (mut busy, mut gaps) = (0.0, 0.0);
    let mut until = None::<f64>;
    for activity in sorted {
        let from = until.map_or(activity.start, |until| until.max(activity.start));
        gaps += until.map_or(0.0, |until| (activity.start - until).max(0.0));
        let end = activity.start + activity.duration;
        busy += (end - from).max(0.0);
        until = Some(until.map_or(end, |until| until.max(end)));
    }
    (busy, gaps)
}

/// Launches of the same kernel with the same configuration together, the longest first.
fn by_kernel(activities: &[Activity], calls: f64, ceilings: &Ceilings) -> (Vec<KernelTime>, u32) {
    type Same<'a> = (&'a str, [u32; 3], [u32; 3], u32, Option<u32>);
    let mut groups: BTreeMap<Same<'_>, Vec<&Activity>> = BTreeMap::new();
    for activity in activities {
        let Activity { name, grid, block, shared, registers, .. } = activity;
        groups.entry((name, *grid, *block, *shared, *registers)).or_default().push(activity);
    }
    let all: f64 = activities.iter().map(|a| a.duration).sum();
    let mut kernels: Vec<KernelTime> = groups
        .into_values()
        .filter_map(|group| {
            let first = group.first()?;
            let total: f64 = group.iter().map(|a| a.duration).sum();
            let bytes: Option<u64> =
                group.iter().map(|a| a.bytes).try_fold(0u64, |sum, b| Some(sum.saturating_add(b?)));
            // A copy reads and writes.
            let passes = if first.kind == ActivityKind::Copy { 2.0 } else { 1.0 };
            let rate = bytes.filter(|_| total > 0.0).map(|b| passes * b as f64 / (total * 1e-6));
            let threads = first.block.iter().fold(1u32, |n, e| n.saturating_mul(*e));
            let fits = |arch: &String| occupancy(arch, threads, first.registers?, first.shared);
            Some(KernelTime {
                name: first.name.clone(),
                kind: first.kind,
                launches: group.len() as f64 / calls,
                total_us: total / calls,
                share: if all > 0.0 { total / all } else { 0.0 },
                grid: first.grid,
                block: first.block,
                registers: first.registers,
                shared_bytes: first.shared,
                occupancy: ceilings.arch.as_ref().and_then(fits),
                bytes: bytes.map(|b| (b as f64 / calls) as u64),
                bandwidth_bytes_per_second: rate,
            })
        })
        .collect();
    kernels.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    let left_out = kernels.len().saturating_sub(MAX_KERNELS);
    kernels.truncate(MAX_KERNELS);
    (kernels, left_out as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warpwright_record::findings::OccupancyLimit;

    /// From torch 2.11's profiler on an H200: three calls of two kernels.
    const H200: &str = include_str!("../../tests/fixtures/kineto.json");

    fn ceilings() -> Ceilings {
        Ceilings {
            arch: Some("sm_90".to_owned()),
            unavoidable_bytes: 2 << 26,
            bandwidth: Some(4_000_000_000_000),
        }
    }

    #[test]
    fn a_trace_of_an_h200_becomes_a_mean_call() {
        let profile = profile(H200, 3, 0.0027, &ceilings()).unwrap();
        let names: Vec<&str> = profile.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(names, ["strided", "coalesced"]);
        let [strided, coalesced] = profile.kernels.as_slice() else { panic!() };
        assert!((strided.total_us - (806.656 + 804.256 + 804.577) / 3.0).abs() < 1e-6);
        assert!((coalesced.launches - 1.0).abs() < 1e-12);
        assert!((strided.share + coalesced.share - 1.0).abs() < 1e-12);
        assert_eq!((strided.grid, strided.block), ([65536, 1, 1], [256, 1, 1]));
        assert_eq!(strided.registers, Some(18));
        let occupancy = strided.occupancy.unwrap();
        assert_eq!((occupancy.blocks, occupancy.limit), (8, OccupancyLimit::Threads));
        // 861 us busy, 1.2 us between kernels: this call is not bound by launches.
        assert!((profile.busy_us + profile.gap_us - 863.1).abs() < 1.0, "{profile:?}");
        assert!(profile.gap_us < 3.0, "{profile:?}");
        assert!((profile.wall_us - 900.0).abs() < 1e-6);
        assert!((profile.roof_share.unwrap() - 0.039).abs() < 0.001);
    }

    #[test]
    fn overlapping_kernels_are_busy_once_and_copies_have_a_bandwidth() {
        let trace = r#"{"traceEvents": [
            {"cat": "kernel", "name": "a", "ts": 0, "dur": 10, "args": {}},
            {"cat": "kernel", "name": "b", "ts": 5, "dur": 10, "args": {}},
            {"cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 20, "dur": 10, "args": {"bytes": 1000}},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 500}
        ]}"#;
        let profile = profile(trace, 1, 4e-5, &Ceilings::default()).unwrap();
        assert_eq!((profile.busy_us, profile.gap_us, profile.launches), (25.0, 5.0, 3.0));
        let copy = profile.kernels.iter().find(|k| k.kind == ActivityKind::Copy).unwrap();
        assert!((copy.bandwidth_bytes_per_second.unwrap() - 2e8).abs() < 1.0);
        assert!(profile.kernels.iter().all(|k| k.occupancy.is_none()));
    }

    #[test]
    fn a_malformed_trace_is_refused() {
        for text in ["", "[]", "{}", r#"{"traceEvents": 3}"#] {
            assert!(profile(text, 1, 1.0, &ceilings()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn hostile_traces_are_survived(
            events in prop::collection::vec(
                (any::<f64>(), any::<f64>(), any::<f64>(), any::<f64>(), "(kernel|gpu_memset|x)", ".{0,30}"),
                0..100,
            ),
            calls: u32,
            seconds: f64,
        ) {
            let events: Vec<_> = events
                .iter()
                .map(|(ts, dur, grid, bytes, cat, name)| serde_json::json!({
                    "cat": cat, "name": name, "ts": ts, "dur": dur,
                    "args": {"grid": [grid, grid], "block": [grid, bytes, ts], "bytes": bytes,
                             "registers per thread": grid, "shared memory": dur},
                }))
                .collect();
            let trace = serde_json::json!({ "traceEvents": events }).to_string();
            if let Ok(profile) = profile(&trace, calls, seconds, &ceilings()) {
                prop_assert!(profile.kernels.len() <= MAX_KERNELS);
                prop_assert!(profile.busy_us.is_finite() && profile.gap_us.is_finite());
            }
        }
    }
}
