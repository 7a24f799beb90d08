//! Load of the timed processor cores by others: the kernel's count of their busy time, minus the time of the
//! processes that take part.

use std::time::{Duration, Instant};

use fs_err as fs;

/// Ticks per second of the times in `/proc`: USER_HZ, fixed on every architecture in use here.
const TICKS: f64 = 100.0;
/// Shorter than this, ticks are too coarse to say anything.
const LEAST: Duration = Duration::from_millis(200);

/// Cores, and the processes that may use them.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// Numbers as the system counts them.
    pub(crate) numbers: Vec<usize>,
    /// Roots of the trees of processes that take part.
    pub(crate) roots: Vec<u32>,
    /// Whether this program itself takes part.
    pub(crate) judge: bool,
}

/// Processor time used until a moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: Instant,
    busy: f64,
    ours: f64,
}

/// Looks twice.
pub(crate) struct Load {
    cores: Cores,
    ours: Vec<u32>,
    start: Option<Used>,
}

impl Load {
    pub(crate) fn begin(cores: Cores) -> Self {
        let mut ours: Vec<u32> = cores.roots.iter().flat_map(|root| tree(*root)).collect();
        if cores.judge {
            ours.push(std::process::id());
        }
        let start = used(&cores.numbers, &ours);
        Self { cores, ours, start }
    }

    /// Share, from 0 to 1, of the cores that others used since the beginning; `None` where the system
    /// does not count it, or the time was too short to say.
    pub(crate) fn by_others(&self) -> Option<f64> {
        let (start, end) = (self.start?, used(&self.cores.numbers, &self.ours)?);
        let passed = end.at - start.at;
        (passed >= LEAST).then(|| share(&start, &end, passed, self.cores.numbers.len()))
    }
}

fn share(start: &Used, end: &Used, passed: Duration, cores: usize) -> f64 {
    let all = passed.as_secs_f64() * cores as f64;
    (((end.busy - start.busy) - (end.ours - start.ours)) / all).clamp(0.0, 1.0)
}

fn used(cores: &[usize], ours: &[u32]) -> Option<Used> {
    let at = Instant::now();
    let busy = busy_seconds(&fs::read_to_string("/proc/stat").ok()?, cores)?;
    Some(Used { at, busy, ours: ours.iter().filter_map(|pid| process_seconds(*pid)).sum() })
}

/// Seconds for which these cores were not idle, what a hypervisor took included. `None` where one of
/// them is not counted, as in a sandbox that shows zeros.
fn busy_seconds(text: &str, cores: &[usize]) -> Option<f64> {
    let mut ticks = 0;
    for core in cores {
        let name = format!("cpu{core}");
        let line = text.lines().find(|l| l.split(' ').next() == Some(name.as_str()))?;
        let fields: Vec<u64> = line.split(' ').skip(1).filter_map(|f| f.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guests are counted in user.
        let [user, nice, system, idle, _, irq, soft, steal, ..] = fields[..] else { return None };
        if user + system + idle == 0 {
            return None;
        }
        ticks += user + nice + system + irq + soft + steal;
    }
    (!cores.is_empty()).then_some(ticks as f64 / TICKS)
}

/// Processor time of one process, in seconds; its children are processes of their own.
pub(crate) fn process_seconds(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 2..)?.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS)
}

/// A process and everything below it, as its threads list their children.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use warpwright_test_support::{Need, missing};

    use super::*;

    const STAT: &str = "cpu  30 0 30 300 0 0 0 0 0 0\ncpu0 10 1 20 100 9 2 3 4 0 0\n\
        cpu1 20 0 10 200 0 0 0 0 0 0\nintr 5\n";

    #[test]
    fn busy_time_sums_the_non_idle_time_of_cores() {
        assert_eq!(busy_seconds(STAT, &[0]), Some(0.4));
        assert_eq!(busy_seconds(STAT, &[0, 1]), Some(0.7));
        assert_eq!(busy_seconds(STAT, &[2]), None, "no such core");
        assert_eq!(busy_seconds(STAT, &[]), None);
        assert_eq!(busy_seconds("cpu0 0 0 0 0 0 0 0 0 0 0\n", &[0]), None, "a sandbox");
    }

    #[test]
    fn the_judges_own_time_is_not_others_load() {
        let at = Instant::now();
        let start = Used { at, busy: 10.0, ours: 1.0 };
        let passed = Duration::from_secs(2);
        let of = |busy, ours| share(&start, &Used { at, busy, ours }, passed, 2);
        assert!((of(13.0, 3.0) - 0.25).abs() < 1e-12);
        assert!((of(12.0, 3.0) - 0.0).abs() < 1e-12);
        assert!(of(11.0, 3.0) <= 0.0, "ticks are coarse");
    }

    /// The same busy thread is others' work for one observer and its own for the other.
    #[test]
    fn a_busy_thread_is_load_only_for_other_processes() {
        let cores: Vec<usize> = crate::device::cores::allowed();
        let watch = |judge| Load::begin(Cores { numbers: cores.clone(), roots: Vec::new(), judge });
        let (stranger, owner) = (watch(false), watch(true));
        let own_seconds = || process_seconds(std::process::id()).unwrap_or(0.0);
        // So many seconds of a core, however long the machine needs for them.
        let (begun, before) = (Instant::now(), own_seconds());
        let is_enough = || own_seconds() - before >= 3.0 * LEAST.as_secs_f64();
        while begun.elapsed() < 3 * LEAST || (used(&cores, &[]).is_some() && !is_enough()) {
            std::hint::black_box(0);
        }
        let (used_here, passed) = (own_seconds() - before, begun.elapsed());
        let (Some(theirs), Some(mine)) = (stranger.by_others(), owner.by_others()) else {
            // A sandbox that counts nothing: told as such.
            assert!(used(&cores, &[]).is_none());
            missing(Need::ProcessorTimes);
            return;
        };
        let share = used_here / passed.as_secs_f64() / cores.len() as f64;
        assert!(theirs > mine + 0.5 * share, "{theirs} and {mine}, {share}");
    }

    #[test]
    fn this_process_is_in_its_own_tree() {
        assert!(tree(std::process::id()).contains(&std::process::id()));
        assert!(process_seconds(std::process::id()).is_some());
        assert_eq!(process_seconds(u32::MAX), None);
    }
}
