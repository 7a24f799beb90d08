//! Task affinity: which device the jobs of a task go to.
//!
//! A device keeps few tasks open, and opening a task takes as long as several verdicts. The jobs of a task
//! therefore go to the station that judged the task last. If that station has much more to do than another, so
//! that opening the task there as well is faster, the task moves to the other one.

use std::collections::HashMap;

/// A place that judges jobs and keeps tasks open: one device of this host, or all remote workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Station(pub usize);

impl Station {
    /// All remote workers together.
    pub const ELSEWHERE: Self = Self(usize::MAX);
}

/// Cost of opening a task, in verdicts: on an H100, 11.6 s at one verdict per 0.9 s
/// (`docs/results/serving.md`), plus the queueing of the first verdict.
const OPENING: usize = 16;
/// Remembered tasks, at most.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Affinity {
    /// By a task's hash: its station, and the sequence number of its last job.
    tasks: HashMap<String, (Station, u64)>,
    stations: HashMap<Station, Busy>,
    taken: u64,
}

/// The load of a station.
#[derive(Debug, Default)]
struct Busy {
    /// Threads that judge on this station.
    judge_workers: usize,
    running: usize,
}

impl Affinity {
    pub(super) fn enter(&mut self, station: Station) {
        self.stations.entry(station).or_default().judge_workers += 1;
    }

    /// One worker less. A station without workers loses its tasks.
    pub(super) fn leave(&mut self, station: Station) {
        let busy = self.stations.entry(station).or_default();
        busy.judge_workers = busy.judge_workers.saturating_sub(1);
        if busy.judge_workers == 0 {
            self.tasks.retain(|_, (home, _)| *home != station);
        }
    }

    /// The first waiting job that this station takes. Jobs are given with their tasks' hashes.
    pub(super) fn choose<'t, T>(
        &self,
        station: Station,
        waiting: impl Iterator<Item = (T, &'t str)> + Clone,
    ) -> Option<T> {
        let home = |task: &str| self.tasks.get(task).map(|(home, _)| *home);
        let ours = |task| home(task).is_none_or(|home| home == station);
        if let Some((job, _)) = waiting.clone().find(|(_, task)| ours(task)) {
            return Some(job);
        }
        let mut queues: HashMap<Station, usize> = HashMap::new();
        for home in waiting.clone().filter_map(|(_, task)| home(task)) {
            *queues.entry(home).or_default() += 1;
        }
        let is_behind =
            |home: Station| self.is_behind(home, queues.get(&home).copied().unwrap_or(0), station);
        waiting.into_iter().find(|(_, task)| home(task).is_some_and(is_behind)).map(|(job, _)| job)
    }

    /// Whether a station with `waiting` jobs has more to do, per worker, than `other` with none waiting plus the
    /// cost of opening a task.
    fn is_behind(&self, station: Station, waiting: usize, other: Station) -> bool {
        let of = |station| {
            self.stations.get(&station).map_or((0, 0), |busy| (busy.judge_workers, busy.running))
        };
        let ((judge_workers, running), (idle_workers, idle_running)) = (of(station), of(other));
        (running + waiting) * idle_workers.max(1) > (idle_running + OPENING) * judge_workers
    }

    /// A job of this task is begun on the station.
    pub(super) fn begin(&mut self, station: Station, task: &str) {
        self.stations.entry(station).or_default().running += 1;
        self.settle(station, task);
    }

    /// A job that was begun on the station has ended.
    pub(super) fn end(&mut self, station: Station) {
        let busy = self.stations.entry(station).or_default();
        busy.running = busy.running.saturating_sub(1);
    }

    pub(super) fn settle(&mut self, station: Station, task: &str) {
        self.taken += 1;
        self.tasks.insert(task.to_owned(), (station, self.taken));
        if self.tasks.len() > MOST {
            let oldest = self.taken - MOST as u64 / 2;
            self.tasks.retain(|_, (_, taken)| *taken > oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng};

    use super::*;

    fn two(judge_workers: usize) -> Affinity {
        let mut affinity = Affinity::default();
        for station in [Station(0), Station(1)] {
            (0..judge_workers).for_each(|_| affinity.enter(station));
        }
        affinity
    }

    fn choose(affinity: &Affinity, station: usize, waiting: &[&str]) -> Option<usize> {
        affinity.choose(Station(station), waiting.iter().copied().enumerate())
    }

    #[test]
    fn task_keeps_its_station_until_another_is_far_ahead() {
        let mut affinity = two(2);
        assert_eq!(choose(&affinity, 0, &["a", "b"]), Some(0));
        affinity.begin(Station(0), "a");
        affinity.begin(Station(1), "b");
        assert_eq!(choose(&affinity, 0, &["b", "a", "c"]), Some(1));
        assert_eq!(
            choose(&affinity, 1, &["a", "c"]),
            Some(1),
            "any station takes a task without affinity"
        );
        // One job runs on each station, so `OPENING` jobs may wait.
        let many = vec!["a"; OPENING];
        assert_eq!(choose(&affinity, 1, &many), None);
        assert_eq!(choose(&affinity, 1, &[&many[..], &["a"]].concat()), Some(0));
        affinity.begin(Station(1), "a");
        assert_eq!(choose(&affinity, 0, &["a"]), None, "it has moved");
        affinity.end(Station(1));
    }

    #[test]
    fn station_without_workers_loses_its_tasks() {
        let mut affinity = two(1);
        affinity.begin(Station(0), "a");
        assert_eq!(choose(&affinity, 1, &["a"]), None);
        affinity.leave(Station(0));
        assert_eq!(choose(&affinity, 1, &["a"]), Some(0));
        // Jobs may be settled where nobody came yet.
        affinity.settle(Station(7), "a");
        assert_eq!(choose(&affinity, 1, &["a"]), Some(0));
    }

    #[test]
    fn station_with_more_workers_may_have_more_jobs() {
        let mut affinity = two(2);
        (0..6).for_each(|_| affinity.enter(Station(1)));
        (0..16).for_each(|_| affinity.begin(Station(1), "a"));
        // Four times the workers may have four times the jobs.
        let most = 4 * OPENING - 16;
        assert_eq!(choose(&affinity, 0, &vec!["a"; most]), None);
        assert_eq!(choose(&affinity, 0, &vec!["a"; most + 1]), Some(0));
    }

    #[test]
    fn old_tasks_are_forgotten() {
        let mut affinity = two(1);
        for number in 0..3 * MOST {
            affinity.settle(Station(0), &number.to_string());
        }
        assert!(affinity.tasks.len() <= MOST, "{}", affinity.tasks.len());
        assert!(affinity.tasks.contains_key(&(3 * MOST - 1).to_string()));
    }

    /// Plays two devices that keep eight tasks open, with sixteen tasks' jobs coming in turn: how often one is
    /// opened, and how long all jobs take, in verdicts' time.
    fn play(settles: bool, jobs: usize) -> (usize, usize) {
        const WORKERS: usize = 8;
        const OPEN: usize = 8;
        const TASKS: usize = 16;
        let mut random = StdRng::seed_from_u64(1);
        let names: Vec<String> = (0..TASKS).map(|task| task.to_string()).collect();
        let mut affinity = two(WORKERS);
        let (mut next, mut waiting) = (0, VecDeque::new());
        let mut open = [const { VecDeque::new() }; 2];
        let (mut openings, mut at) = (0, [0, 0]);
        while next < jobs || !waiting.is_empty() {
            while next < jobs && waiting.len() < 2 * WORKERS {
                waiting.push_back(next % TASKS);
                next += 1;
            }
            // Whoever is done first takes the next one, now and then the other.
            let first = usize::from(at[1] < at[0]);
            let station = if random.random_bool(0.1) { 1 - first } else { first };
            let told = waiting.iter().enumerate().map(|(index, task)| (index, &*names[*task]));
            let chosen = if settles { affinity.choose(Station(station), told) } else { Some(0) };
            let Some(task) = chosen.and_then(|index| waiting.remove(index)) else {
                at[station] += 1;
                continue;
            };
            affinity.begin(Station(station), &names[task]);
            at[station] += 1;
            let open: &mut VecDeque<usize> = &mut open[station];
            let before = open.len();
            open.retain(|known| *known != task);
            if open.len() == before {
                openings += 1;
                at[station] += OPENING;
            }
            open.push_back(task);
            if open.len() > OPEN {
                open.pop_front();
            }
            affinity.end(Station(station));
        }
        (openings, at[0].max(at[1]))
    }

    #[test]
    fn tasks_are_opened_once_and_not_for_every_job() {
        let (openings, time) = play(true, 400);
        let (anywhere, longer) = play(false, 400);
        assert!(openings <= 32, "{openings} openings");
        assert!(anywhere > 5 * openings, "{anywhere} openings without affinity");
        assert!(time * 2 < longer, "{time}, {longer} without affinity");
    }
}
