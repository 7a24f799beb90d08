//! Figures as people read them: three or four digits, the unit that fits, the interval beside.

use warpwright_record::interval::Interval;

/// The unit that fits a time of `ms` milliseconds, and how many of it make a millisecond.
pub(crate) fn unit(ms: f64) -> (&'static str, f64) {
    match ms {
        ms if ms < 1.0 => ("µs", 1e3),
        ms if ms < 1e3 => ("ms", 1.0),
        _ => ("s", 1e-3),
    }
}

/// A number with about three digits that say something.
pub(crate) fn digits(x: f64) -> String {
    if !x.is_finite() {
        return "∞".to_owned();
    }
    match x.abs() {
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// Milliseconds as `68.9 µs`, `1.25 ms`, `2.10 s`.
pub(crate) fn time(ms: f64) -> String {
    let (unit, factor) = unit(ms);
    format!("{} {unit}", digits(ms * factor))
}

/// The interval of a time, in the unit of its value: `68.2–69.6`.
pub(crate) fn time_range(interval: &Interval) -> String {
    let (_, factor) = unit(interval.value);
    format!("{}–{}", digits(interval.low * factor), digits(interval.high * factor))
}

/// The interval of a ratio: `3.28–3.42`.
pub(crate) fn range(interval: &Interval) -> String {
    format!("{}–{}", digits(interval.low), digits(interval.high))
}

/// `3.35x [3.28–3.42]`, for terminals.
pub(crate) fn speedup(interval: &Interval) -> String {
    format!("{}x [{}]", digits(interval.value), range(interval))
}

/// Wall seconds as `0.4 s`, `41 s`, `2 min 5 s`, `1 h 2 min`.
pub(crate) fn seconds(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// Seconds as `0:41`, `1:02:03`.
pub(crate) fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (h, m, s) = (whole / 3600, whole / 60 % 60, whole % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

/// Bytes as `201 MB`, in powers of ten, as bandwidths are given.
pub(crate) fn bytes(n: u64) -> String {
    let mut x = n as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if x < 999.5 {
            return if unit == "B" { format!("{n} B") } else { format!("{} {unit}", digits(x)) };
        }
        x /= 1e3;
    }
    format!("{} TB", digits(x))
}

/// A count as `16 777 216`, with narrow spaces that do not break.
pub(crate) fn count(n: u64) -> String {
    let plain = n.to_string();
    let mut out = String::new();
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// An error or tolerance: `2.4e-7`, `0`.
pub(crate) fn error(x: f64) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else if x.is_finite() {
        format!("{x:.1e}")
    } else {
        "not finite".to_owned()
    }
}

/// A reward: `3`, `2.29`, `-1`.
pub(crate) fn reward(x: f64) -> String {
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_unit_that_fits() {
        let times: Vec<_> = [0.0049, 0.0689, 1.25, 99.96, 250.0, 2100.0].map(time).into();
        assert_eq!(times, ["4.90 µs", "68.9 µs", "1.25 ms", "100 ms", "250 ms", "2.10 s"]);
        assert_eq!(time_range(&Interval { value: 0.9, low: 0.88, high: 1.01 }), "880–1010");
        let spans: Vec<_> = [0.42, 41.5, 125.0, 600.0, 3720.0].map(seconds).into();
        assert_eq!(spans, ["0.4 s", "42 s", "2 min 5 s", "10 min", "1 h 2 min"]);
        assert_eq!((clock(41.0), clock(3723.0)), ("0:41".into(), "1:02:03".into()));
        assert_eq!((bytes(512), bytes(201_343_000)), ("512 B".into(), "201 MB".into()));
        assert_eq!((count(0), count(16_777_216)), ("0".into(), "16\u{202f}777\u{202f}216".into()));
        assert_eq!((error(2.4e-7), error(0.0)), ("2.4e-7".into(), "0".into()));
        assert_eq!(
            (reward(3.0), reward(2.29), reward(-1.0)),
            ("3".into(), "2.29".into(), "-1".into())
        );
    }
}
