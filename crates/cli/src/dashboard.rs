//! A terminal dashboard of a training run: its stages, and the metrics of one stage as curves.

use std::path::Path;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, SparklineBar};
use warpwright_report::training::{Curve, Stage, Training};
use warpwright_train::report;

use crate::failure::Failure;

/// Metrics shown first; the others follow in the run's order.
const FIRST: [&str; 13] = [
    "critic/rewards/mean",
    "judge/pass_rate",
    "judge/faster_rate",
    "actor/entropy",
    "critic/vf_explained_var",
    "response_length/mean",
    "rollout/truncated_rate",
    "actor/pg_clipfrac",
    "actor/ppo_kl",
    "rollout_corr/mean_ratio",
    "rollout/episodes_per_minute",
    "judge/queue_depth",
    "alarms",
];
/// Columns and lines of a curve with its name.
const CELL: (u16, u16) = (32, 4);
/// Distinct heights of a curve in one line.
const LEVELS: f64 = 64.0;

/// The dashboard's state.
#[derive(Debug)]
pub(crate) struct Dashboard {
    training: Training,
    /// The selected stage; `None` is the last one with metrics.
    chosen: Option<usize>,
}

impl Dashboard {
    pub(crate) fn read(dir: &Path) -> Result<Self, Failure> {
        Ok(Self { training: report::outline(dir)?, chosen: None })
    }

    pub(crate) fn read_again(&mut self, dir: &Path) -> Result<(), Failure> {
        self.training = report::outline(dir)?;
        Ok(())
    }

    /// Moves the selection by this many stages.
    pub(crate) fn choose(&mut self, by: isize) {
        let last = self.training.stages.len().saturating_sub(1);
        self.chosen = Some(self.shown().saturating_add_signed(by).min(last));
    }

    fn shown(&self) -> usize {
        let stages = &self.training.stages;
        let latest = || stages.iter().rposition(|stage| !stage.curves.is_empty()).unwrap_or(0);
        self.chosen.unwrap_or_else(latest).min(stages.len().saturating_sub(1))
    }

    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(1); 2];
        let rows =
            [&rows[..], &[Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]];
        let [head, stages, _, body, keys] = Layout::vertical(rows.concat()).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        frame.render_widget(Paragraph::new(self.stages()), stages);
        let faint = Style::default().add_modifier(Modifier::DIM);
        let help = Line::styled("left, right: another stage   q: end", faint);
        frame.render_widget(Paragraph::new(help), keys);
        match self.training.stages.get(self.shown()) {
            Some(stage) if !stage.curves.is_empty() => curves(frame, body, stage),
            Some(Stage { told: Some(told), .. }) => {
                frame.render_widget(Paragraph::new(told.as_str()), body);
            }
            _ => frame.render_widget(Paragraph::new("no step is done yet"), body),
        }
    }

    fn head(&self) -> Line<'_> {
        let bold = Style::default().add_modifier(Modifier::BOLD);
        let mut spans = vec![Span::styled(self.training.title.as_str(), bold)];
        let facts = self.training.facts.iter().filter(|(name, _)| name != "folder");
        spans.extend(facts.map(|(name, value)| Span::raw(format!("   {name} {value}"))));
        Line::from(spans)
    }

    fn stages(&self) -> Line<'_> {
        let shown = self.shown();
        let each = self.training.stages.iter().enumerate().map(|(number, stage)| {
            let steps = stage.curves.iter().map(|curve| curve.values.len()).max();
            let state = match (stage.is_done, steps) {
                (true, _) => " done".to_owned(),
                (false, Some(steps)) => format!(" {steps}"),
                (false, None) => String::new(),
            };
            let text = format!(" {}{state} ", stage.name);
            if number == shown {
                Span::styled(text, Style::default().add_modifier(Modifier::REVERSED))
            } else {
                Span::raw(text)
            }
        });
        Line::from(each.collect::<Vec<_>>())
    }
}

/// As many curves as fit, in columns.
fn curves(frame: &mut Frame<'_>, area: Rect, stage: &Stage) {
    let (width, height) = CELL;
    let (across, down) = ((area.width / width).max(1), (area.height / height).max(1));
    let place = |curve: &Curve| FIRST.iter().position(|first| *first == curve.name);
    let mut all: Vec<&Curve> = stage.curves.iter().collect();
    all.sort_by_key(|curve| place(curve).unwrap_or(FIRST.len()));
    let cells = (0..down).flat_map(|row| (0..across).map(move |column| (row, column)));
    for (curve, (row, column)) in all.into_iter().zip(cells) {
        let cell = Rect {
            x: area.x + column * (area.width / across),
            y: area.y + row * height,
            width: (area.width / across).saturating_sub(2),
            height: height.min(area.height.saturating_sub(row * height)),
        };
        let [name, line] =
            Layout::vertical([Constraint::Length(1), Constraint::Max(2)]).areas(cell);
        frame.render_widget(Paragraph::new(title(curve)), name);
        let bars = bars(&curve.values, usize::from(line.width));
        let drawn = Sparkline::default()
            .data(bars)
            .max(LEVELS as u64)
            .style(Style::default().fg(Color::Cyan));
        frame.render_widget(drawn, line);
    }
}

fn title(curve: &Curve) -> Line<'_> {
    let known = || curve.values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = known().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let mut spans = Vec::new();
    // First, in case not all fit.
    if let Some(last) = known().next_back() {
        spans.push(Span::styled(format!("{} ", short(last)), bold));
    }
    spans.push(Span::raw(curve.name.as_str()));
    if low < high {
        let range = format!(" {}\u{2013}{}", short(low), short(high));
        spans.push(Span::styled(range, Style::default().add_modifier(Modifier::DIM)));
    }
    Line::from(spans)
}

/// With three or so significant digits.
fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (100.0..1e6).contains(&size) {
        format!("{value:.0}")
    } else if (0.01..100.0).contains(&size) {
        format!("{value:.2}")
    } else {
        format!("{value:.1e}")
    }
}

/// One bar per column: the mean of the steps that fall on it, scaled between minimum and maximum.
fn bars(values: &[f64], columns: usize) -> Vec<SparklineBar> {
    let columns = columns.min(values.len());
    let means = (0..columns).map(|column| {
        let from = column * values.len() / columns;
        let to = (column + 1) * values.len() / columns;
        let known: Vec<f64> = values[from..to].iter().copied().filter(|v| v.is_finite()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    });
    let means: Vec<Option<f64>> = means.collect();
    let known = || means.iter().flatten().copied();
    let (low, high) =
        (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
    let height = |mean: f64| {
        if high > low { 1.0 + (LEVELS - 1.0) * (mean - low) / (high - low) } else { LEVELS / 2.0 }
    };
    means.into_iter().map(|mean| mean.map(|mean| height(mean).round() as u64).into()).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn curve(name: &str, values: &[f64]) -> Curve {
        Curve { name: name.to_owned(), values: values.to_vec(), ..Curve::default() }
    }

    fn drawn(dashboard: &Dashboard, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| dashboard.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn dashboard() -> Dashboard {
        let rising: Vec<f64> = (0..40).map(|step| f64::from(step) / 40.0).collect();
        let sft = Stage {
            name: "sft".to_owned(),
            is_done: true,
            curves: vec![curve("loss", &[3.0, 2.0, 1.0])],
            ..Stage::default()
        };
        let ppo = Stage {
            name: "ppo".to_owned(),
            curves: vec![
                curve("actor/grad_norm", &[f64::NAN, 12.0]),
                curve("critic/rewards/mean", &rising),
                curve("critic/vf_loss", &[f64::NAN, f64::NAN]),
            ],
            ..Stage::default()
        };
        let facts =
            vec![("seed".to_owned(), "3".to_owned()), ("folder".to_owned(), "x".to_owned())];
        let training = Training {
            title: "rows".to_owned(),
            facts,
            stages: vec![Stage { name: "demos".to_owned(), ..Stage::default() }, sft, ppo],
            ..Training::default()
        };
        Dashboard { training, chosen: None }
    }

    #[test]
    fn last_stage_with_metrics_is_shown_reward_first() {
        let text = drawn(&dashboard(), 80, 12);
        assert!(text.contains("rows   seed 3"), "{text}");
        assert!(text.contains(" demos  sft done  ppo 40 "), "{text}");
        let line = text.lines().find(|line| line.contains("critic/rewards/mean")).unwrap();
        assert!(line.contains("0.97 critic/rewards/mean 0\u{2013}0.97"), "{text}");
        assert!(line.find("reward") < line.find("12.00 actor/grad_norm"), "{text}");
        assert!(text.contains('█') && text.contains('▁'), "a curve that rises: {text}");
    }

    #[test]
    fn stage_selection_stops_at_the_ends() {
        let mut dashboard = dashboard();
        dashboard.choose(-1);
        assert!(drawn(&dashboard, 80, 12).contains("1.00 loss"));
        dashboard.choose(-5);
        assert!(drawn(&dashboard, 80, 12).contains("no step is done yet"));
        dashboard.choose(9);
        assert!(drawn(&dashboard, 80, 12).contains("reward"));
    }

    #[test]
    fn dashboard_fits_any_terminal_size() {
        for (width, height) in [(1, 1), (10, 3), (33, 7), (200, 60)] {
            drawn(&dashboard(), width, height);
        }
    }

    #[test]
    fn curve_fills_the_width_and_keeps_gaps() {
        let heights = |values: &[f64], columns| -> Vec<SparklineBar> { bars(values, columns) };
        let bar = |height: Option<u64>| SparklineBar::from(height);
        assert_eq!(heights(&[0.0, 1.0, f64::NAN], 9), [bar(Some(1)), bar(Some(64)), bar(None)]);
        assert_eq!(heights(&[0.0, 0.0, 4.0, 4.0], 2), [bar(Some(1)), bar(Some(64))]);
        assert_eq!(heights(&[5.0, 5.0], 2), [bar(Some(32)), bar(Some(32))]);
        assert_eq!(heights(&[], 5), []);
    }
}
