//! How the effort of timing is divided among the workloads of a task.
//!
//! Verification is not divided: each workload passes every check of a task with one set of inputs, because a kernel
//! can be wrong at one shape and on one kind of inputs. What is divided tells something of all workloads together:
//!
//! - **Rounds.** The speed-up that counts is the mean's. Its interval is made of the rounds of all workloads
//!   (`timing/series.rs`), so each has fewer.
//! - **Compared timed calls.** A candidate that skips a share `f_i` of its calls on workload `i` gains a factor of
//!   `prod(1 - f_i)^(-1/n)` in the geometric mean of `n` workloads, and passes `k` comparisons on each with
//!   probability `prod(1 - f_i)^k`. So it passes with probability `g^(-k n)` where it gains `g`, however it divides
//!   its skips: as many comparisons in all as for one workload find it as often.

/// Fewest rounds of a workload: what its windows vary by is known from as many.
const LEAST_ROUNDS: usize = 3;
/// Fewest compared timed calls of a workload: results that are wrong in a tenth of the calls at one shape are found
/// in 96 of 100 verdicts.
const LEAST_LOOKS: usize = 30;
/// Workloads up to which windows have their usual length.
const WHOLE: usize = 3;
/// Length of the windows of more, as a part of the usual one. What of a window's constant part does not cancel
/// (`device/gpu.rs`, `UNEQUAL`) is a larger part of it, and what windows vary by a smaller part of the mean's interval:
/// that of five workloads is as wide as that of one, by the figures of `docs/results/judge.md`.
const SHORTER: f64 = 0.8;

/// Rounds of each of `of` workloads, where a single one has `usual`.
pub(crate) fn rounds(usual: usize, of: usize) -> usize {
    usual.div_ceil(of.max(1)).max(LEAST_ROUNDS)
}

/// Compared timed calls of each of `of` workloads, where a single one has `usual`.
pub(crate) fn looks(usual: usize, of: usize) -> usize {
    usual.div_ceil(of.max(1)).max(LEAST_LOOKS)
}

/// The part of the usual window's length.
pub(crate) fn window(of: usize) -> f64 {
    if of <= WHOLE { 1.0 } else { SHORTER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::timed_calls::TIMED;

    #[test]
    fn skips_are_found_however_they_are_divided() {
        // A twentieth faster in the mean: by one call of twenty of each workload, or by more of one.
        let gain: f64 = 1.0 / 0.95;
        for of in [1, 2, 3, 5, 8, 64] {
            let looks = looks(TIMED, of) as i32;
            assert!(looks * of as i32 >= TIMED as i32);
            let evenly = 0.95_f64.powi(looks * of as i32);
            let of_one = 1.0 - gain.powi(of as i32).recip();
            let by_one = (1.0 - of_one).powi(looks);
            assert!(evenly < 0.01 && (by_one / evenly - 1.0).abs() < 1e-9, "{of}: {by_one}");
        }
    }

    #[test]
    fn five_workloads_have_about_twice_the_windows_of_one() {
        let windows = |of| of as f64 * rounds(7, of) as f64 * window(of);
        assert_eq!(rounds(7, 1), 7);
        assert!((windows(5) / 7.0 - 1.71).abs() < 0.01, "{}", windows(5));
        assert!(windows(2) < 1.2 * 7.0 && windows(3) < 1.3 * 7.0);
    }
}
