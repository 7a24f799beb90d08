//! Which device a task is at home at.
//!
//! A device keeps few tasks open, and opening one takes it as long as several verdicts. So the jobs of a task go
//! where those before them went, unless that station has so much more to do than another that opening it there as
//! well is sooner done. It is at home there then.

use std::collections::HashMap;

/// Somewhere that jobs are judged: what was opened for one is there for the next of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Station(pub usize);

impl Station {
    /// All workers of other hosts together.
    pub const ELSEWHERE: Self = Self(usize::MAX);
}

/// Verdicts' time that opening a task takes: on an H100 11.6 s, in which it gave verdicts every 0.9 s
/// (`docs/measurements/2026-11-26-h100-x2-serve-2`), and the first verdict there waits its turn besides.
const OPENING: usize = 16;
/// Tasks that are remembered, at most.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Homes {
    /// By a task's hash, its home and when it was last taken.
    tasks: HashMap<String, (Station, u64)>,
    stations: HashMap<Station, Busy>,
    taken: u64,
}

/// What a station has to do.
#[derive(Debug, Default)]
struct Busy {
    /// Threads that judge there.
    hands: usize,
    running: usize,
}

impl Homes {
    pub(super) fn enter(&mut self, station: Station) {
        self.stations.entry(station).or_default().hands += 1;
    }

    /// One hand less. Nothing is at home where there is none.
    pub(super) fn leave(&mut self, station: Station) {
        let busy = self.stations.entry(station).or_default();
        busy.hands = busy.hands.saturating_sub(1);
        if busy.hands == 0 {
            self.tasks.retain(|_, (home, _)| *home != station);
        }
    }

    /// The first of the jobs that wait, told by their tasks' hashes, that is for this station.
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

    /// Whether a station with so many jobs waiting has more to do than another with none waiting, and by more
    /// than it takes to open a task. Hand for hand.
    fn is_behind(&self, station: Station, waiting: usize, other: Station) -> bool {
        let of =
            |station| self.stations.get(&station).map_or((0, 0), |busy| (busy.hands, busy.running));
        let ((hands, running), (idle_hands, idle_running)) = (of(station), of(other));
        (running + waiting) * idle_hands.max(1) > (idle_running + OPENING) * hands
    }

    /// A job of this task is begun there.
    pub(super) fn begin(&mut self, station: Station, task: &str) {
        self.stations.entry(station).or_default().running += 1;
        self.settle(station, task);
    }

    /// A job that was begun there has ended.
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

    fn two(hands: usize) -> Homes {
        let mut homes = Homes::default();
        for station in [Station(0), Station(1)] {
            (0..hands).for_each(|_| homes.enter(station));
        }
        homes
    }

    fn choose(homes: &Homes, station: usize, waiting: &[&str]) -> Option<usize> {
        homes.choose(Station(station), waiting.iter().copied().enumerate())
    }

    #[test]
    fn a_task_stays_where_it_was_until_the_other_place_is_far_ahead() {
        let mut homes = two(2);
        assert_eq!(choose(&homes, 0, &["a", "b"]), Some(0));
        homes.begin(Station(0), "a");
        homes.begin(Station(1), "b");
        assert_eq!(choose(&homes, 0, &["b", "a", "c"]), Some(1));
        assert_eq!(choose(&homes, 1, &["a", "c"]), Some(1), "who has no home is anybody's");
        // One runs at each, so so many may wait.
        let many = vec!["a"; OPENING];
        assert_eq!(choose(&homes, 1, &many), None);
        assert_eq!(choose(&homes, 1, &[&many[..], &["a"]].concat()), Some(0));
        homes.begin(Station(1), "a");
        assert_eq!(choose(&homes, 0, &["a"]), None, "it has moved");
        homes.end(Station(1));
    }

    #[test]
    fn where_nobody_is_nothing_is_at_home() {
        let mut homes = two(1);
        homes.begin(Station(0), "a");
        assert_eq!(choose(&homes, 1, &["a"]), None);
        homes.leave(Station(0));
        assert_eq!(choose(&homes, 1, &["a"]), Some(0));
        // Jobs may be settled where nobody came yet.
        homes.settle(Station(7), "a");
        assert_eq!(choose(&homes, 1, &["a"]), Some(0));
    }

    #[test]
    fn a_place_with_more_hands_may_have_more_to_do() {
        let mut homes = two(2);
        (0..6).for_each(|_| homes.enter(Station(1)));
        (0..16).for_each(|_| homes.begin(Station(1), "a"));
        // Four times the hands may have four times the jobs.
        let most = 4 * OPENING - 16;
        assert_eq!(choose(&homes, 0, &vec!["a"; most]), None);
        assert_eq!(choose(&homes, 0, &vec!["a"; most + 1]), Some(0));
    }

    #[test]
    fn old_tasks_are_forgotten() {
        let mut homes = two(1);
        for number in 0..3 * MOST {
            homes.settle(Station(0), &number.to_string());
        }
        assert!(homes.tasks.len() <= MOST, "{}", homes.tasks.len());
        assert!(homes.tasks.contains_key(&(3 * MOST - 1).to_string()));
    }

    /// Plays two devices that keep eight tasks open, with sixteen tasks' jobs coming in turn: how often one is
    /// opened, and how long all jobs take, in verdicts' time.
    fn play(settles: bool, jobs: usize) -> (usize, usize) {
        const HANDS: usize = 8;
        const OPEN: usize = 8;
        const TASKS: usize = 16;
        let mut random = StdRng::seed_from_u64(1);
        let names: Vec<String> = (0..TASKS).map(|task| task.to_string()).collect();
        let mut homes = two(HANDS);
        let (mut next, mut waiting) = (0, VecDeque::new());
        let mut open = [const { VecDeque::new() }; 2];
        let (mut openings, mut at) = (0, [0, 0]);
        while next < jobs || !waiting.is_empty() {
            while next < jobs && waiting.len() < 2 * HANDS {
                waiting.push_back(next % TASKS);
                next += 1;
            }
            // Whoever is done first takes the next one, now and then the other.
            let first = usize::from(at[1] < at[0]);
            let station = if random.random_bool(0.1) { 1 - first } else { first };
            let told = waiting.iter().enumerate().map(|(index, task)| (index, &*names[*task]));
            let chosen = if settles { homes.choose(Station(station), told) } else { Some(0) };
            let Some(task) = chosen.and_then(|index| waiting.remove(index)) else {
                at[station] += 1;
                continue;
            };
            homes.begin(Station(station), &names[task]);
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
            homes.end(Station(station));
        }
        (openings, at[0].max(at[1]))
    }

    #[test]
    fn tasks_are_opened_once_and_not_for_every_job() {
        let (openings, time) = play(true, 400);
        let (anywhere, longer) = play(false, 400);
        assert!(openings <= 32, "{openings} openings");
        assert!(anywhere > 5 * openings, "{anywhere} openings without homes");
        assert!(time * 2 < longer, "{time}, {longer} without homes");
    }
}
