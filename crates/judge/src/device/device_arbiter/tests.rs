//! Threads that take, change and release access to the device.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

impl DeviceArbiter {
    /// Number of those who wait for access. Whoever is counted was not admitted.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.lock();
        state.queue.len() + state.starts.len()
    }

    /// What excludes other processes.
    pub(crate) fn device_lock(&self) -> &DeviceLock {
        self.lock.as_ref().unwrap()
    }
}

/// Many threads come and go: alone means alone, sharing happens side by side, all finish.
#[test]
fn exclusive_access_excludes_all_others() {
    let arbiter = DeviceArbiter::default();
    let inside = AtomicI64::new(0);
    let most_shared = AtomicUsize::new(0);
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _held = arbiter.share(Purpose::Reference);
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most_shared.fetch_max(now as usize, Ordering::SeqCst);
                both.wait();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (arbiter, inside, most_shared) = (&arbiter, &inside, &most_shared);
            scope.spawn(move || {
                for round in 0..50 {
                    if (thread + round) % 4 == 0 {
                        let held = arbiter.alone(Purpose::Measurement);
                        assert_eq!(inside.swap(-1000, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        assert_eq!(inside.swap(0, Ordering::SeqCst), -1000);
                        drop(held);
                    } else {
                        let held = arbiter.share(Purpose::Reference);
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now > 0);
                        most_shared.fetch_max(now as usize, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_micros(200));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(held);
                    }
                }
            });
        }
    });
    assert!(most_shared.into_inner() > 1, "nobody shared");
}

/// Waits for something that other threads bring about.
fn until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_mins(2), "waited for {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Who waits to share enters with the first who does; those who want to be alone keep their order.
#[test]
fn sharers_enter_together_and_exclusive_waiters_in_order() {
    let arbiter = DeviceArbiter::default();
    let entered = Mutex::new(Vec::new());
    let queue = [
        ("alone 0", AccessMode::Alone),
        ("share 1", AccessMode::Shared),
        ("alone 2", AccessMode::Alone),
        ("share 3", AccessMode::Shared),
        ("alone 4", AccessMode::Alone),
        ("share 5", AccessMode::Shared),
    ];
    let first = arbiter.alone(Purpose::Measurement);
    std::thread::scope(|scope| {
        for (waiting, (name, access)) in queue.into_iter().enumerate() {
            let (arbiter, entered) = (&arbiter, &entered);
            scope.spawn(move || {
                let mut held = None;
                arbiter.change(&mut held, access, Purpose::Start);
                entered.lock().unwrap().push(name);
                if access == AccessMode::Shared {
                    // Leaves only when the others are in: all hold the device.
                    until("those who share", || entered.lock().unwrap().len() >= 4);
                }
            });
            until("a place in the queue", || arbiter.lock().queue.len() == waiting + 1);
        }
        assert!(entered.lock().unwrap().is_empty(), "somebody entered beside one alone");
        drop(first);
    });
    let mut entered = entered.into_inner().unwrap();
    entered[1..4].sort_unstable();
    let expected = ["alone 0", "share 1", "share 3", "share 5", "alone 2", "alone 4"];
    assert_eq!(entered, expected);
}

/// Short turns go before long ones that came a little earlier, and not before those that came long
/// ago.
#[test]
fn short_turns_overtake_recent_long_ones() {
    let arbiter = DeviceArbiter::default();
    let entered = Mutex::new(Vec::new());
    let now = Instant::now();
    let long_ago = now.checked_sub(Duration::from_secs(5)).unwrap();
    let queue = [
        ("measure", Purpose::Measurement, now),
        ("verify", Purpose::Verification, now),
        ("measured long ago", Purpose::Measurement, long_ago),
        ("tune", Purpose::Baselines, now),
        ("tune again", Purpose::Baselines, now),
    ];
    let first = arbiter.alone(Purpose::Measurement);
    std::thread::scope(|scope| {
        for (waiting, (name, purpose, came)) in queue.into_iter().enumerate() {
            let (arbiter, entered) = (&arbiter, &entered);
            scope.spawn(move || {
                let _held = arbiter.enter(purpose, Manner::Alone, came, purpose.patience());
                entered.lock().unwrap().push(name);
            });
            until("a place in the queue", || arbiter.lock().queue.len() == waiting + 1);
        }
        drop(first);
    });
    let expected = ["measured long ago", "tune", "tune again", "verify", "measure"];
    assert_eq!(entered.into_inner().unwrap(), expected);
}

/// One that takes long comes first and waits for those that do not.
#[test]
fn short_candidates_overtake_long_ones() {
    let arbiter = DeviceArbiter::default();
    let entered = Mutex::new(Vec::new());
    // What their turns usually take, and for how long they may be passed, in milliseconds.
    let queue = [
        ("long", Some(60_000), 8_000),
        ("unknown", None, 4_000),
        ("short", Some(1_000), 2_000),
        ("shorter", Some(10), 20),
    ];
    let mut deadlines = Vec::new();
    let first = arbiter.alone(Purpose::Measurement);
    std::thread::scope(|scope| {
        for (waiting, (name, usual, patience)) in queue.into_iter().enumerate() {
            let (arbiter, entered) = (&arbiter, &entered);
            let before = Instant::now();
            scope.spawn(move || {
                let usual = usual.map(Duration::from_millis);
                let _held = arbiter.alone_for(Purpose::Measurement, usual, false);
                entered.lock().unwrap().push(name);
            });
            until("a place in the queue", || arbiter.lock().queue.len() == waiting + 1);
            // The holder has number 0.
            let number = waiting as u64 + 1;
            let state = arbiter.lock();
            let deadline = state.queue.iter().find(|ticket| ticket.1 == number).unwrap().0;
            let patience = Duration::from_millis(patience);
            assert!(deadline >= before + patience, "{name}");
            assert!(deadline <= Instant::now() + patience, "{name}");
            deadlines.push((deadline, name));
        }
        drop(first);
    });
    // On a usual machine: shorter, short, unknown, long.
    deadlines.sort_unstable();
    let expected: Vec<&str> = deadlines.into_iter().map(|(_, name)| name).collect();
    assert_eq!(entered.into_inner().unwrap(), expected);
}

/// A sharer comes in beside another, but not past one who waits to be alone.
#[test]
fn a_sharer_never_overtakes_an_exclusive_waiter() {
    let arbiter = DeviceArbiter::default();
    let held = [arbiter.share(Purpose::Reference), arbiter.share(Purpose::Reference)];
    let entered = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _held = arbiter.alone(Purpose::Measurement);
            entered.lock().unwrap().push("alone");
        });
        until("one who wants to be alone", || arbiter.lock().queue.len() == 1);
        scope.spawn(|| {
            let _held = arbiter.share(Purpose::Reference);
            entered.lock().unwrap().push("share");
        });
        until("one who wants to share", || arbiter.lock().queue.len() == 2);
        assert!(entered.lock().unwrap().is_empty());
        drop(held);
    });
    assert_eq!(entered.into_inner().unwrap(), ["alone", "share"]);
}

/// Processes start beside one that is alone and untimed; nobody else enters, and it is alone again
/// before it times anything.
#[test]
fn processes_start_during_untimed_exclusive_access() {
    let arbiter = DeviceArbiter::of_gpu(None);
    let waiting = || arbiter.waiting();
    let held = arbiter.alone(Purpose::Measurement);
    let entered = Mutex::new(Vec::new());
    let leave = Mutex::new(());
    std::thread::scope(|scope| {
        let enter = |purpose: Purpose| {
            let _held = arbiter.share(purpose);
            entered.lock().unwrap().push(purpose);
            drop(leave.lock());
        };
        let stay = leave.lock().unwrap();
        scope.spawn(move || enter(Purpose::Reference));
        scope.spawn(move || enter(Purpose::Start));
        until("two who wait", || waiting() == 2);
        assert!(entered.lock().unwrap().is_empty());
        held.untimed();
        until("one who starts", || entered.lock().unwrap().len() == 1);
        let timed = scope.spawn(move || {
            held.timed();
            held
        });
        until("one who will time", || arbiter.lock().ready == 1);
        assert!(!timed.is_finished(), "it is not alone yet");
        scope.spawn(move || enter(Purpose::Start));
        until("one who is too late", || waiting() == 2);
        drop(stay);
        let held = timed.join().unwrap();
        assert_eq!(*entered.lock().unwrap(), [Purpose::Start]);
        assert_eq!(arbiter.lock().sharing, 0);
        drop(held);
    });
    assert_eq!(entered.into_inner().unwrap().len(), 3);
}

/// While somebody is to be measured one process starts a turn on a GPU, the first that came, and all that
/// wait when nobody is.
#[test]
fn one_process_starts_per_turn() {
    let arbiter = &DeviceArbiter::of_gpu(None);
    let entered = Mutex::new(Vec::new());
    let is_over = Mutex::new(());
    let starts = |count| until("those that start", || entered.lock().unwrap().len() == count);
    std::thread::scope(|scope| {
        let stay = is_over.lock().unwrap();
        let held = arbiter.alone_for(Purpose::Measurement, None, true);
        held.timed();
        for number in 0..4 {
            let (entered, is_over) = (&entered, &is_over);
            scope.spawn(move || {
                // Their deadlines are long past: they come before no candidate for that.
                let came = Instant::now().checked_sub(Duration::from_mins(1)).unwrap();
                let held = arbiter.enter(Purpose::Start, Manner::Sharing, came, Duration::ZERO);
                entered.lock().unwrap().push(number);
                drop(held);
                drop(is_over.lock());
            });
            until("a place", || arbiter.lock().starts.len() == number + 1);
        }
        held.untimed();
        starts(1);
        let next = scope.spawn(|| arbiter.alone_for(Purpose::Measurement, None, true));
        until("the next one", || arbiter.lock().ready == 1);
        drop(held);
        let held = next.join().unwrap();
        // It waits for all that have entered.
        held.timed();
        assert_eq!(entered.lock().unwrap().len(), 1, "beside one who ends while another waits");
        held.untimed();
        starts(2);
        let last = scope.spawn(|| arbiter.alone_for(Purpose::Measurement, None, true));
        until("the last one", || arbiter.lock().ready == 1);
        drop(held);
        drop(last.join().unwrap());
        starts(4);
        drop(stay);
    });
    assert_eq!(entered.lock().unwrap()[..2], [0, 1], "the first that came");
    let state = arbiter.lock();
    assert!(state.starts.is_empty() && state.queue.is_empty());
}

/// Processes that wait in the queue leave it when somebody comes to be measured.
#[test]
fn queued_starts_give_way_to_a_measurement() {
    let arbiter = &DeviceArbiter::of_gpu(None);
    std::thread::scope(|scope| {
        let tuning = arbiter.alone(Purpose::Baselines);
        let start = scope.spawn(|| drop(arbiter.share(Purpose::Start)));
        until("one who would start", || arbiter.lock().queue.len() == 1);
        let candidate = scope.spawn(|| arbiter.alone_for(Purpose::Measurement, None, true));
        until("one to be measured", || arbiter.lock().ready == 1);
        drop(tuning);
        let held = candidate.join().unwrap();
        start.join().unwrap();
        held.timed();
        assert_eq!(arbiter.lock().sharing, 0, "it was untimed until now");
    });
}

/// A candidate that times nothing at first enters beside processes that start, not beside others, and
/// waits for these before it times anything: so long it starves.
#[test]
fn an_untimed_candidate_enters_during_process_starts() {
    let arbiter = DeviceArbiter::of_gpu(None);
    let starting = arbiter.share(Purpose::Start);
    let reference = arbiter.share(Purpose::Reference);
    std::thread::scope(|scope| {
        let candidate = scope.spawn(|| arbiter.alone_for(Purpose::Measurement, None, true));
        until("one waiter is queued", || arbiter.lock().queue.len() == 1);
        drop(reference);
        let held = candidate.join().unwrap();
        assert_eq!(arbiter.lock().sharing, 1);
        let another = arbiter.share(Purpose::Start);
        let before = arbiter.used().starved;
        let timed = scope.spawn(move || {
            held.timed();
            held
        });
        until("one who will time", || arbiter.lock().ready == 1);
        let pause = Duration::from_millis(20);
        std::thread::sleep(pause);
        drop(starting);
        assert!(!timed.is_finished(), "another starts");
        drop(another);
        let held = timed.join().unwrap();
        assert!(arbiter.used().starved >= before + pause);
        assert!(arbiter.lock().measuring);
        let tight = scope.spawn(|| drop(arbiter.alone_for(Purpose::Measurement, None, false)));
        until("one who wants to be alone", || arbiter.lock().queue.len() == 1);
        drop(held);
        tight.join().unwrap();
    });
    let state = arbiter.lock();
    assert_eq!((state.starting, state.sharing, state.ready), (0, 0, 0));
}

#[test]
fn shared_device_time_is_counted_once() {
    let arbiter = DeviceArbiter::default();
    let step = Duration::from_millis(20);
    let started = Instant::now();
    let held = [arbiter.share(Purpose::Reference), arbiter.share(Purpose::Reference)];
    std::thread::sleep(step);
    drop(held);
    let shared = started.elapsed();
    std::thread::sleep(step);
    let started = Instant::now();
    let held = arbiter.alone(Purpose::Measurement);
    std::thread::sleep(step);
    let used = arbiter.used();
    let alone = started.elapsed();
    drop(held);
    // Nothing twice, and nothing of the time in which nobody held it.
    assert!((step..=shared).contains(&used.shared), "{used:?}");
    assert!((step..=alone).contains(&used.alone), "{used:?}");
    drop(arbiter.share(Purpose::Start));
    let since = arbiter.used() - used;
    let turns = |purpose: Purpose| since.by[purpose as usize].turns;
    assert_eq!((turns(Purpose::Reference), turns(Purpose::Start)), (0, 1), "what came since");
    let by = |purpose: Purpose| arbiter.used().by[purpose as usize];
    assert_eq!(by(Purpose::Reference).turns, 2);
    assert!(by(Purpose::Reference).held >= 2 * step, "both of two who shared it");
    assert!(by(Purpose::Measurement).held >= step);
    assert_eq!(by(Purpose::Start).turns, 1);
}

/// While one verifies, who would measure starves; while one measures, the next only waits.
#[test]
fn a_measurement_starves_only_while_nobody_measures() {
    let arbiter = DeviceArbiter::default();
    let step = Duration::from_millis(20);
    // For how long one who would measure starves, and the time between the two who hold the device.
    let waits_for = |held: Held<'_>| {
        let before = arbiter.used().starved;
        let between = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let held = arbiter.alone(Purpose::Measurement);
                let entered = Instant::now();
                drop(held);
                entered
            });
            until("one who would measure", || arbiter.lock().ready == 1);
            std::thread::sleep(step);
            let left = Instant::now();
            drop(held);
            waiting.join().unwrap() - left
        });
        (arbiter.used().starved.saturating_sub(before), between)
    };
    let (starved, between) = waits_for(arbiter.alone(Purpose::Measurement));
    assert!(starved <= between, "{starved:?} of {between:?}");
    let (starved, _) = waits_for(arbiter.alone(Purpose::Verification));
    assert!(starved >= step, "{starved:?}");
}

/// A neighbour computes while nobody is measured, and whoever would measure waits for its end.
#[test]
fn a_neighbour_never_computes_during_a_measurement() {
    let arbiter = Arc::new(DeviceArbiter::default());
    let neighbour = Neighbour(Arc::clone(&arbiter));
    let measuring = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                let held = arbiter.alone(Purpose::Measurement);
                measuring.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(100));
                measuring.store(false, Ordering::SeqCst);
                drop(held);
            }
        });
        for _ in 0..50 {
            let beside = neighbour.compute(ModelWork::Train, || {
                std::thread::sleep(Duration::from_micros(100));
                measuring.load(Ordering::SeqCst)
            });
            assert!(!beside, "it computes beside what is measured");
        }
    });
    let used = arbiter.used().by[Purpose::Training as usize];
    assert_eq!(used.turns, 50);
}
