//! The axes of a plot over training steps: round ticks that enclose the values, and the places of
//! steps and values.

/// Edges of the drawing area of a plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

/// Training steps to the right and values upwards, both linear. The lowest tick is at the lower edge,
/// the highest at the upper edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    frame: Frame,
    /// Index of the step at the right edge.
    last_step: f64,
    /// The value from one tick to the next.
    tick: f64,
    /// The lowest tick, in multiples of `tick`.
    lowest: f64,
    /// The highest tick, in multiples of `tick`.
    highest: f64,
}

impl Axes {
    /// For `steps` training steps and values from `low` to `high`. The distance between two ticks is at
    /// least one of `parts` equal parts of that range.
    pub(crate) fn new(frame: Frame, steps: usize, (low, high): (f64, f64), parts: f64) -> Self {
        // What never changes is drawn on a scale of its own size, not of rounding.
        let size = high.abs().max(low.abs());
        let spread = if high - low > 1e-9 * size { high - low } else { size.max(1.0) };
        let tick = nice_step(spread / parts);
        let lowest = (low / tick).floor();
        let highest = (high / tick).ceil().max(lowest + 1.0);
        Self { frame, last_step: steps.saturating_sub(1).max(1) as f64, tick, lowest, highest }
    }

    /// The place of the step with this index, from 0.
    pub(crate) fn x(&self, index: usize) -> f64 {
        let part = index as f64 / self.last_step;
        self.frame.left + (self.frame.right - self.frame.left) * part
    }

    /// The place of a value.
    pub(crate) fn y(&self, value: f64) -> f64 {
        let part = (value / self.tick - self.lowest) / (self.highest - self.lowest);
        self.frame.bottom - (self.frame.bottom - self.frame.top) * part
    }

    /// The place and the label of each tick of the values, from the lowest on.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let count = (self.highest - self.lowest).round() as u32;
        (0..=count).map(move |number| {
            let value = (self.lowest + f64::from(number)) * self.tick;
            (self.y(value), tick_label(value, self.tick))
        })
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
pub(crate) fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * power).find(|s| *s >= least).unwrap_or(10.0 * power)
}

/// A tick with as many decimals as the step from one tick to the next has.
pub(crate) fn tick_label(tick: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{tick:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { left: 10.0, right: 110.0, top: 0.0, bottom: 100.0 };

    fn ticks(axes: &Axes) -> Vec<String> {
        axes.ticks().map(|(at, label)| format!("{label} at {at:.0}")).collect()
    }

    #[test]
    fn steps_are_round_and_labels_are_short() {
        let steps = [0.9, 1.0, 3.1, 46.0].map(nice_step);
        assert_eq!(steps.map(|s| tick_label(s, s)), ["1", "1", "5", "50"]);
        assert_eq!(tick_label(0.4, 0.2), "0.4");
    }

    #[test]
    fn ticks_enclose_the_values() {
        let axes = Axes::new(FRAME, 3, (-2.5, 1.3), 4.0);
        let expected = ["-3 at 100", "-2 at 80", "-1 at 60", "0 at 40", "1 at 20", "2 at 0"];
        assert_eq!(ticks(&axes), expected);
        let places = [0, 1, 2].map(|index| format!("{:.0}", axes.x(index)));
        assert_eq!(places, ["10", "60", "110"]);
    }

    #[test]
    fn equal_values_have_a_scale_of_their_size() {
        let axes = Axes::new(FRAME, 1, (2.0, 2.0), 4.0);
        assert_eq!(ticks(&axes), ["2.0 at 100", "2.5 at 0"]);
        assert!((axes.x(0) - 10.0).abs() < 1e-9);
        // Rounding errors are no spread.
        let axes = Axes::new(FRAME, 2, (2.0, 2.0 + 1e-12), 4.0);
        assert_eq!(ticks(&axes), ["2 at 100", "3 at 0"]);
    }
}
