//! How busy a run kept a device, as text.

use std::fmt::Write as _;
use std::time::Duration;

use warpwright_judge::{Purpose, Used};

/// The purposes that held the device, longest first, with their shares of the time `of`.
pub fn describe(device: &str, used: &Used, of: Duration) -> String {
    let percent = |part: Duration| 100.0 * part.as_secs_f64() / of.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{device}: exclusive use {:.0} % of {:.0} s, shared use {:.0} %",
        percent(used.alone),
        of.as_secs_f64(),
        percent(used.shared),
    );
    if percent(used.starved) >= 0.5 {
        let _ = write!(
            text,
            "; starved {:.0} % (a candidate waited to be measured and none was)",
            percent(used.starved)
        );
    }
    let mut by: Vec<_> =
        Purpose::ALL.into_iter().zip(used.by).filter(|(_, part)| part.turns > 0).collect();
    by.sort_by_key(|(_, part)| std::cmp::Reverse(part.held));
    for (purpose, part) in by {
        let turns = f64::from(part.turns);
        let _ = write!(
            text,
            "; {}: {:.0} % in {turns} turns of {:.2} s, mean wait {:.1} s",
            purpose.name(),
            percent(part.held),
            part.held.as_secs_f64() / turns,
            part.waited.as_secs_f64() / turns,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpwright_judge::Use;

    #[test]
    fn device_use_lists_purposes_longest_first() {
        let mut used = Used {
            alone: Duration::from_mins(1),
            shared: Duration::from_secs(10),
            starved: Duration::from_secs(3),
            ..Used::default()
        };
        let of = |turns, held, waited| Use {
            turns,
            held: Duration::from_secs(held),
            waited: Duration::from_secs(waited),
        };
        used.by[Purpose::Start as usize] = of(5, 10, 5);
        used.by[Purpose::Measurement as usize] = of(30, 60, 45);
        assert_eq!(
            describe("cuda:0", &used, Duration::from_secs(100)),
            "cuda:0: exclusive use 60 % of 100 s, shared use 10 %; starved 3 % (a candidate waited to \
             be measured and none was); measuring: 60 % in 30 turns of 2.00 s, mean wait 1.5 s; \
             starting processes: 10 % in 5 turns of 2.00 s, mean wait 1.0 s"
        );
        used.starved = Duration::from_millis(400);
        let told = describe("cuda:0", &used, Duration::from_secs(100));
        assert!(!told.contains("candidate waited"), "nothing worth telling: {told}");
    }
}
