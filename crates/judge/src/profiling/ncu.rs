//! `ncu` (Nsight Compute): selects its counters and parses its CSV.

use warpwright_record::findings::{KernelCounters, MAX_KERNELS, OccupancyLimit, Stall};

use super::clean::{MAX_NAME, clean, number, triple};

/// Most fields of a row; the raw page has some 450 on an H200.
const MAX_FIELDS: usize = 4096;
const WARP: f64 = 32.0;
/// Sectors of one request of a warp whose threads load 16 neighbouring bytes each: the most that a
/// coalesced access needs.
const COALESCED_SECTORS: f64 = 16.0;

const TIME: &str = "gpu__time_duration.sum";
const DRAM_READ: &str = "dram__bytes_read.sum";
const DRAM_WRITE: &str = "dram__bytes_write.sum";
const DRAM_PERCENT: &str = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
const SM_PERCENT: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
const WARPS_ACTIVE: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
const MOST_WARPS: &str = "sm__maximum_warps_per_active_cycle_pct";
const L2_HITS: &str = "lts__t_sector_hit_rate.pct";
const LOAD_SECTORS: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum";
const LOAD_REQUESTS: &str = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum";
const STORE_SECTORS: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum";
const STORE_REQUESTS: &str = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum";
const CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum";
const REGISTERS: &str = "launch__registers_per_thread";
const LIMITS: [(&str, OccupancyLimit); 4] = [
    ("launch__occupancy_limit_warps", OccupancyLimit::Threads),
    ("launch__occupancy_limit_blocks", OccupancyLimit::Blocks),
    ("launch__occupancy_limit_registers", OccupancyLimit::Registers),
    ("launch__occupancy_limit_shared_mem", OccupancyLimit::SharedMemory),
];
/// Reasons for which warps wait, and what they mean.
const STALLS: [(&str, &str); 7] = [
    ("long_scoreboard", "data from global or local memory"),
    ("short_scoreboard", "data from shared memory or special functions"),
    ("barrier", "other warps at __syncthreads()"),
    ("mio_throttle", "the queue of shared memory instructions"),
    ("lg_throttle", "the queue of global and local memory instructions"),
    ("math_pipe_throttle", "a busy arithmetic unit"),
    ("wait", "fixed latencies of their own instructions"),
];

fn stall_metric(reason: &str) -> String {
    format!("smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio")
}

/// The counters to ask for, by the profiler's names.
pub(crate) fn metrics() -> Vec<String> {
    let plain = [
        TIME,
        DRAM_READ,
        DRAM_WRITE,
        DRAM_PERCENT,
        SM_PERCENT,
        WARPS_ACTIVE,
        MOST_WARPS,
        L2_HITS,
        LOAD_SECTORS,
        LOAD_REQUESTS,
        STORE_SECTORS,
        STORE_REQUESTS,
        CONFLICTS,
        REGISTERS,
    ];
    let plain = plain.into_iter().chain(LIMITS.map(|(name, _)| name)).map(str::to_owned);
    plain.chain(STALLS.map(|(reason, _)| stall_metric(reason))).collect()
}

/// The counter that `ncu` says it does not know: one such makes it give none at all.
pub(crate) fn unknown_metric(log: &str, asked: &[String]) -> Option<usize> {
    let line = log.lines().find(|line| line.contains("Failed to find metric"))?;
    // The name comes back inside a regular expression, without what follows its dot.
    asked.iter().position(|name| name.split('.').next().is_some_and(|stem| line.contains(stem)))
}

/// `ncu`'s error message.
pub(crate) fn complaint(log: &str) -> Option<String> {
    let mut errors = log.lines().filter_map(|line| line.trim().strip_prefix("==ERROR== "));
    errors.find(|text| !text.trim().is_empty()).map(|text| clean(text, MAX_NAME))
}

/// Launches in the raw page's CSV, in order, and how many were left out.
pub(crate) fn parse(csv: &str, processors: u32) -> (Vec<KernelCounters>, u32) {
    let mut lines = csv.lines().skip_while(|line| !line.starts_with("\"ID\""));
    let header: Vec<String> = lines.next().map(fields).unwrap_or_default();
    let column = |name: &str| header.iter().position(|known| known == name);
    let (Some(kernel), Some(block), Some(grid)) =
        (column("Kernel Name"), column("Block Size"), column("Grid Size"))
    else {
        return (Vec::new(), 0);
    };
    let mut found = Vec::new();
    let mut left_out = 0;
    for line in lines.filter(|line| line.starts_with('"')) {
        let row = fields(line);
        let text = |at: usize| row.get(at).map_or("", String::as_str);
        // The row of units has neither.
        let (Some(block), Some(grid)) = (triple(text(block)), triple(text(grid))) else { continue };
        if found.len() == MAX_KERNELS {
            left_out += 1;
            continue;
        }
        let value = |name: &str| number(text(column(name)?));
        found.push(counters(clean(text(kernel), MAX_NAME), grid, block, &value, processors));
    }
    (found, left_out)
}

fn counters(
    name: String,
    grid: [u32; 3],
    block: [u32; 3],
    value: &dyn Fn(&str) -> Option<f64>,
    processors: u32,
) -> KernelCounters {
    let count = |name: &str| value(name).filter(|n| (0.0..1e18).contains(n)).map(|n| n as u64);
    let ratio = |above: &str, below: &str| {
        let (above, below) = (value(above)?, value(below)?);
        (below > 0.0).then(|| above / below)
    };
    let mut stalls: Vec<Stall> = STALLS
        .iter()
        .filter_map(|(reason, _)| {
            let cycles = value(&stall_metric(reason))?;
            (cycles >= 0.05).then(|| Stall { reason: (*reason).to_owned(), cycles })
        })
        .collect();
    stalls.sort_by(|a, b| b.cycles.total_cmp(&a.cycles));
    stalls.truncate(4);
    let limit = LIMITS.iter().filter_map(|(name, limit)| Some((value(name)?, *limit)));
    let limit = limit.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, limit)| limit);
    let dram = (count(DRAM_READ), count(DRAM_WRITE));
    let mut kernel = KernelCounters {
        name,
        grid,
        block,
        time_us: value(TIME).map(|ns| ns / 1e3),
        dram_bytes: dram.0.zip(dram.1).map(|(read, written)| read.saturating_add(written)),
        dram_percent: value(DRAM_PERCENT),
        sm_percent: value(SM_PERCENT),
        achieved_occupancy_percent: value(WARPS_ACTIVE),
        theoretical_occupancy_percent: value(MOST_WARPS),
        occupancy_limit: limit,
        registers: count(REGISTERS).map(|n| n.min(u64::from(u32::MAX)) as u32),
        // For launches too short to be sampled well, this one exceeds 100.
        l2_hit_percent: value(L2_HITS).filter(|p| *p <= 100.0),
        load_sectors_per_request: ratio(LOAD_SECTORS, LOAD_REQUESTS),
        store_sectors_per_request: ratio(STORE_SECTORS, STORE_REQUESTS),
        bank_conflicts: count(CONFLICTS),
        stalls,
        hints: Vec::new(),
    };
    kernel.hints = hints(&kernel, processors);
    kernel
}

/// Hints from the counters, one sentence each.
fn hints(kernel: &KernelCounters, processors: u32) -> Vec<String> {
    let mut hints = Vec::new();
    let blocks: f64 = kernel.grid.iter().map(|n| f64::from(*n)).product();
    let threads: f64 = kernel.block.iter().map(|n| f64::from(*n)).product();
    let (dram, sm) = (kernel.dram_percent.unwrap_or(0.0), kernel.sm_percent.unwrap_or(0.0));
    let small = blocks < f64::from(processors);
    if small {
        hints.push(format!(
            "a grid of {blocks} leaves some of the {processors} multiprocessors without work"
        ));
    }
    if dram >= 70.0 && dram >= sm {
        hints.push(format!(
            "bound by device memory, at {dram:.0} % of its peak: only moving fewer bytes helps"
        ));
    } else if sm >= 70.0 {
        hints.push(format!(
            "bound by the multiprocessors, at {sm:.0} % of their peak: fewer or cheaper \
             instructions help"
        ));
    } else if let (false, Some(stall)) = (small, kernel.stalls.first()) {
        let what = STALLS.iter().find(|(reason, _)| *reason == stall.reason);
        hints.push(format!(
            "bound by latency (memory {dram:.0} %, multiprocessors {sm:.0} % of their peaks): warps \
             wait mostly for {}",
            what.map_or(stall.reason.as_str(), |(_, meaning)| meaning)
        ));
    }
    for (what, sectors) in
        [("loads", kernel.load_sectors_per_request), ("stores", kernel.store_sectors_per_request)]
    {
        if let Some(sectors) = sectors.filter(|n| *n > COALESCED_SECTORS + 1.0) {
            hints.push(format!(
                "{what} are not coalesced: {sectors:.1} sectors of 32 bytes a request, 4 for \
                 neighbouring floats, 16 for neighbouring float4"
            ));
        }
    }
    let possible = kernel.theoretical_occupancy_percent;
    if let Some(possible) = possible.filter(|p| *p < 50.0) {
        let reason = match kernel.occupancy_limit {
            Some(OccupancyLimit::Registers) => {
                format!("{} registers a thread are", kernel.registers.unwrap_or(0))
            }
            Some(OccupancyLimit::SharedMemory) => "shared memory is".to_owned(),
            Some(OccupancyLimit::Blocks) => "the number of blocks is".to_owned(),
            Some(OccupancyLimit::Threads) => "the size of a block is".to_owned(),
            None => "something is".to_owned(),
        };
        hints.push(format!("at most {possible:.0} % of the warps fit: {reason} in the way"));
    }
    if let (Some(conflicts), true) = (kernel.bank_conflicts, blocks * threads > 0.0) {
        let per_warp = conflicts as f64 / (blocks * threads / WARP).ceil();
        if per_warp >= 1.0 {
            hints.push(format!("{per_warp:.1} bank conflicts of shared memory a warp"));
        }
    }
    hints
}

/// The fields of one line of CSV: quoted, with doubled quotes inside.
fn fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut characters = line.chars().peekable();
    let (mut field, mut quoted) = (String::new(), false);
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => {
                fields.push(std::mem::take(&mut field));
                if fields.len() == MAX_FIELDS {
                    return fields;
                }
            }
            other => field.push(other),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From ncu 2025.3.1 on an H200, without the columns that are not asked for.
    const H200: &str = include_str!("../../tests/fixtures/ncu.csv");

    #[test]
    fn h200_counters_distinguish_strided_and_coalesced_loads() {
        let (kernels, left_out) = parse(H200, 132);
        let [coalesced, strided, race] = kernels.try_into().unwrap();
        assert_eq!(left_out, 0);
        assert_eq!((coalesced.grid, coalesced.block), ([65536, 1, 1], [256, 1, 1]));
        assert_eq!(coalesced.time_us, Some(50.784));
        assert_eq!(coalesced.dram_bytes, Some(67_117_824 + 47_945_984));
        assert_eq!(coalesced.load_sectors_per_request, Some(4.0));
        assert_eq!(strided.load_sectors_per_request, Some(32.0));
        assert_eq!(coalesced.occupancy_limit, Some(OccupancyLimit::Threads));
        assert_eq!(coalesced.stalls[0].reason, "long_scoreboard");
        assert!(!coalesced.hints.iter().any(|hint| hint.contains("not coalesced")));
        assert!(strided.hints.iter().any(|hint| hint.starts_with("loads are not coalesced")));
        insta::assert_debug_snapshot!(strided.hints, @r#"
        [
            "bound by latency (memory 56 %, multiprocessors 3 % of their peaks): warps wait mostly for data from global or local memory",
            "loads are not coalesced: 32.0 sectors of 32 bytes a request, 4 for neighbouring floats, 16 for neighbouring float4",
            "stores are not coalesced: 32.0 sectors of 32 bytes a request, 4 for neighbouring floats, 16 for neighbouring float4",
        ]
        "#);
        assert_eq!(race.name, "race(float *)");
        assert_eq!(race.l2_hit_percent, None, "241 % is no rate");
        assert_eq!(race.load_sectors_per_request, None, "it loads nothing");
        assert_eq!(race.hints, ["a grid of 1 leaves some of the 132 multiprocessors without work"]);
    }

    #[test]
    fn the_unknown_metric_is_found_in_ncus_error() {
        // From ncu 2025.3.1.
        let log = "==PROF== Connected to process 743 (/usr/bin/python3.12)\n\
             ==ERROR== Failed to find metric regex:^no__such_metric\\.(sum|min|max|avg|pct|ratio|max_rate)$\n\n\
             ==ERROR== Failed to profile \"k\" in process 743\n";
        let asked = ["dram__bytes_read.sum", "no__such_metric.sum"].map(str::to_owned);
        assert_eq!(unknown_metric(log, &asked), Some(1));
        assert_eq!(unknown_metric("", &asked), None);
        assert!(complaint(log).unwrap().starts_with("Failed to find metric"));
    }

    proptest! {
        #[test]
        fn hostile_csv_is_survived(text in r#"(["(),0-9a-zA-Z \n]|é){0,400}"#) {
            let (kernels, _) = parse(&text, 132);
            prop_assert!(kernels.len() <= MAX_KERNELS);
        }

        /// Changes at any place of the real thing.
        #[test]
        fn damaged_csv_is_survived(at in any::<prop::sample::Index>(), with: char, cut: bool) {
            let mut text: Vec<char> = H200.chars().collect();
            let at = at.index(text.len());
            text[at] = with;
            if cut {
                text.truncate(at + 1);
            }
            let text: String = text.into_iter().collect();
            for kernel in parse(&text, 132).0 {
                prop_assert!(kernel.name.len() <= MAX_NAME);
            }
        }

        #[test]
        fn rows_beyond_the_limit_are_counted(extra in 0usize..20) {
            let row = "\"0\",\"k\",\"(1, 1, 1)\",\"(1, 1, 1)\"\n".repeat(MAX_KERNELS + extra);
            let text = format!("\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\"\n{row}");
            let (kernels, left_out) = parse(&text, 1);
            prop_assert_eq!((kernels.len(), left_out as usize), (MAX_KERNELS, extra));
        }
    }
}
