//! The run as it happens, on a terminal as moving lines, elsewhere as plain ones.

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use warpwright_record::event::{Budget, EpisodeId, EpisodeSetup, Event, NoteLevel, Outcome};
use warpwright_record::history::{History, best};
use warpwright_record::interval::Interval;
use warpwright_record::message::{Message, ToolCall};
use warpwright_record::verdict::Verdict;

use crate::figures;
use crate::summary::{Standing, baseline_name};
use crate::text::one_line;

/// Shows events to a person. Give it every event that goes into the record, in the same order.
///
/// It never fails: a display that cannot be written to is no reason to stop a run.
pub struct LiveView {
    screen: Screen,
    episodes: BTreeMap<EpisodeId, Watch>,
}

enum Screen {
    Terminal(MultiProgress),
    Plain(Box<dyn Write + Send>),
}

/// What is known of one episode.
struct Watch {
    task: String,
    device: String,
    budget: Budget,
    turn: u32,
    waiting: VecDeque<(String, String)>,
    doing: String,
    best: Option<(f64, String)>,
    bar: Option<ProgressBar>,
}

impl LiveView {
    /// On standard error: moving lines if it is a terminal, else plain ones.
    pub fn stderr() -> Self {
        if std::io::stderr().is_terminal() {
            Self::terminal(ProgressDrawTarget::stderr())
        } else {
            Self::plain(Box::new(std::io::stderr()))
        }
    }

    /// Moving lines on `target`.
    pub fn terminal(target: ProgressDrawTarget) -> Self {
        let screen = Screen::Terminal(MultiProgress::with_draw_target(target));
        Self { screen, episodes: BTreeMap::new() }
    }

    /// Plain lines on `out`, one per relevant event.
    pub fn plain(out: Box<dyn Write + Send>) -> Self {
        Self { screen: Screen::Plain(out), episodes: BTreeMap::new() }
    }

    /// Loads the history of a run before it resumes: unfinished episodes get their line, with the elapsed
    /// time and the best speed-up so far.
    pub fn resume(&mut self, history: &History) {
        for (id, episode) in &history.episodes {
            let Some(point) = episode.resume_point() else { continue };
            let setup = &episode.setup;
            let mut watch = Watch::new(setup, self.bar(&setup.budget, point.elapsed_seconds));
            watch.turn = point.next_turn - 1;
            let verdicts = point.turns.iter().flat_map(|turn| &turn.verdicts);
            watch.best = best(verdicts.map(|given| &given.verdict))
                .and_then(headline)
                .map(|(speedup, over)| (speedup.value, over));
            self.episodes.insert(*id, watch);
        }
    }

    /// Shows one event.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::RunStarted { .. }
            | Event::TurnFinished { .. }
            // A note says it.
            | Event::VerdictsVoided { .. } => {}
            Event::RunResumed { torn_bytes, .. } => {
                self.say("the run resumes");
                if *torn_bytes > 0 {
                    self.say(&format!(
                        "a partially written event of {torn_bytes} bytes was discarded"
                    ));
                }
            }
            Event::EpisodeStarted { episode, setup } => {
                let watch = Watch::new(setup, self.bar(&setup.budget, 0.0));
                let line = format!("{}: {} on {}", watch.task, watch.doing, watch.device);
                self.episodes.insert(*episode, watch);
                self.plain_line(&line);
            }
            Event::EpisodeResumed { episode, turn } => {
                self.update(*episode, |watch| {
                    watch.turn = turn.saturating_sub(1);
                    watch.waiting.clear();
                    "resumed".clone_into(&mut watch.doing);
                    Some(format!("resumes at turn {turn}"))
                });
            }
            Event::MessageSaid { episode, turn, message, .. } => {
                self.update(*episode, |watch| Some(watch.said(*turn, message)));
            }
            Event::ToolFinished { episode, result, .. } => {
                self.update(*episode, |watch| {
                    watch.waiting.retain(|(id, _)| *id != result.call);
                    watch.doing = watch.next_doing();
                    None
                });
            }
            Event::VerdictGiven { episode, turn, verdict, .. } => {
                self.judged(*episode, *turn, verdict);
            }
            Event::EpisodeFinished { episode, outcome, final_verdict, best_verdict, .. } => {
                let verdict = final_verdict.as_ref().or(best_verdict.as_ref());
                self.finished(*episode, outcome, verdict.map(|v| &**v));
            }
            Event::Progress { episode: Some(episode), text } => {
                self.update(*episode, |watch| {
                    watch.doing = one_line(text, 80);
                    Some(watch.doing.clone())
                });
            }
            Event::Progress { episode: None, text } => self.plain_line(&one_line(text, 160)),
            Event::Note { level, text, episode } => {
                let word = if *level == NoteLevel::Warning { "warning" } else { "note" };
                let task = episode.and_then(|id| self.episodes.get(&id)).map(|w| w.task.as_str());
                let place = task.map(|task| format!("{task}: ")).unwrap_or_default();
                let line = format!("{word}: {place}{}", one_line(text, 300));
                self.say(&line);
            }
            Event::TaskRefused { task, message, .. } => {
                self.say(&format!("error: {task}: {}", one_line(message, 300)));
            }
            Event::RunFinished { .. } => self.finish(),
        }
    }

    /// Ends the display; what it showed last stays on the screen.
    pub fn finish(&mut self) {
        for watch in self.episodes.values() {
            if let Some(bar) = &watch.bar
                && !bar.is_finished()
            {
                bar.abandon();
            }
        }
    }

    fn judged(&mut self, episode: EpisodeId, turn: Option<u32>, verdict: &Verdict) {
        let mut best_so_far = None;
        self.update(episode, |watch| {
            let line = verdict_words(verdict);
            if let Some((speedup, baseline)) = headline(verdict)
                && turn.is_some()
                && watch.best.as_ref().is_none_or(|(best, _)| speedup.value > *best)
            {
                watch.best = Some((speedup.value, baseline));
                best_so_far = Some(format!("{}: turn {}: {line}", watch.task, watch.turn));
            }
            // The final verdict is said when the episode ends, with the reason.
            turn.map(|turn| format!("turn {turn}: {line}"))
        });
        // On a terminal only improvements are worth a line of their own.
        if let (Some(line), Screen::Terminal(_)) = (best_so_far, &self.screen) {
            self.say(&line);
        }
    }

    fn finished(&mut self, episode: EpisodeId, outcome: &Outcome, verdict: Option<&Verdict>) {
        let why = match outcome {
            Outcome::Stopped => String::new(),
            Outcome::Infrastructure { message } => format!(" (error: {})", one_line(message, 160)),
            other => format!(" ({})", other.words()),
        };
        let words = verdict.map_or("no verdict".to_owned(), verdict_words);
        let good = verdict.is_some_and(|v| v.verified);
        self.update(episode, |watch| {
            if let Some(bar) = &watch.bar {
                let mark = if good { "✓" } else { "✗" };
                bar.set_style(style(&format!("{mark} {{msg}}"), ""));
                bar.finish_with_message(format!("{}: {words}{why}", watch.task));
            }
            Some(format!("done: {words}{why}"))
        });
    }

    /// Changes one episode and shows it; `change` returns what a plain display says about it.
    fn update(&mut self, episode: EpisodeId, change: impl FnOnce(&mut Watch) -> Option<String>) {
        let Some(watch) = self.episodes.get_mut(&episode) else { return };
        let line = change(watch).map(|line| format!("{}: {line}", watch.task));
        if let Some(bar) = watch.bar.as_ref().filter(|bar| !bar.is_finished()) {
            bar.set_message(watch.line());
        }
        if let Some(line) = line {
            self.plain_line(&line);
        }
    }

    fn bar(&self, budget: &Budget, elapsed_seconds: f64) -> Option<ProgressBar> {
        let Screen::Terminal(screen) = &self.screen else { return None };
        let elapsed = Duration::try_from_secs_f64(elapsed_seconds).unwrap_or_default();
        let bar = screen.add(ProgressBar::new_spinner().with_elapsed(elapsed));
        let limit = budget.seconds.map(|s| format!(" / {}", figures::clock(s)));
        bar.set_style(style("{spinner} {wide_msg} ", &limit.unwrap_or_default()));
        bar.enable_steady_tick(Duration::from_millis(120));
        Some(bar)
    }

    fn plain_line(&mut self, line: &str) {
        if let Screen::Plain(out) = &mut self.screen {
            let _ = writeln!(out, "{line}");
            let _ = out.flush();
        }
    }

    fn say(&mut self, line: &str) {
        match &mut self.screen {
            Screen::Terminal(screen) => {
                let _ = screen.println(line);
            }
            Screen::Plain(_) => self.plain_line(line),
        }
    }
}

impl Watch {
    fn new(setup: &EpisodeSetup, bar: Option<ProgressBar>) -> Self {
        let name = one_line(&setup.task, 40);
        let task = match setup.attempt {
            0 => name,
            n => format!("{name} #{}", n + 1),
        };
        Self {
            task,
            device: setup.device.clone(),
            budget: setup.budget,
            turn: 0,
            waiting: VecDeque::new(),
            doing: format!("policy {} starts", one_line(&setup.policy, 40)),
            best: None,
            bar,
        }
    }

    fn said(&mut self, turn: u32, message: &Message) -> String {
        self.turn = turn;
        self.waiting = message.calls.iter().map(|c| (c.id.clone(), call_words(c, 60))).collect();
        self.doing = if message.calls.is_empty() {
            "the policy is done; judging the final candidate".to_owned()
        } else {
            self.next_doing()
        };
        let calls: Vec<&str> = self.waiting.iter().map(|(_, words)| words.as_str()).collect();
        let calls = if calls.is_empty() { self.doing.clone() } else { calls.join("; ") };
        format!("{}: {calls}", self.turns())
    }

    fn next_doing(&self) -> String {
        self.waiting.front().map_or("thinking".to_owned(), |(_, words)| words.clone())
    }

    fn turns(&self) -> String {
        match self.budget.turns {
            Some(most) => format!("turn {}/{most}", self.turn),
            None => format!("turn {}", self.turn),
        }
    }

    fn line(&self) -> String {
        let mut line = format!("{}  {}", self.task, self.turns());
        if let Some((speedup, baseline)) = &self.best {
            let cpu = if self.device == "cpu" { " cpu" } else { "" };
            let best = figures::digits(*speedup);
            line = format!("{line}  best {best}x {baseline}{cpu}");
        }
        format!("{line}  {}", self.doing)
    }
}

/// A call in a few words: the command, or the tool and its file.
pub(crate) fn call_words(call: &ToolCall, width: usize) -> String {
    let text = |key: &str| call.arguments.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let name = one_line(&call.name, 20);
    match call.name.as_str() {
        "Bash" => one_line(text("command"), width),
        _ => one_line(&format!("{name} {}", text("file_path")), width),
    }
}

/// The speed-up that counts and over what: the fastest baseline that was measured.
fn headline(verdict: &Verdict) -> Option<(Interval, String)> {
    if !verdict.verified {
        return None;
    }
    let best = verdict.speedup.best?;
    let name =
        verdict.speedup.best_baseline.as_deref().map_or("best baseline".into(), baseline_name);
    Some((best, format!("over {}", one_line(&name, 30))))
}

/// A verdict in one line.
pub(crate) fn verdict_words(verdict: &Verdict) -> String {
    let standing = Standing::of(verdict).words();
    if let Some((speedup, over)) = headline(verdict) {
        let time = verdict.times_ms.candidate.map(|t| figures::time(t.value));
        let cpu = if verdict.device == "cpu" { " cpu" } else { "" };
        let time = time.map(|time| format!(", {time}{cpu}")).unwrap_or_default();
        return format!("{standing}, {} {over}{time}", figures::speedup(&speedup));
    }
    match (&verdict.failure, verdict.integrity.first()) {
        (_, Some(finding)) => format!("{standing}: {}", one_line(&finding.message, 160)),
        (Some(failure), None) => format!("{standing}: {}", one_line(&failure.message, 160)),
        (None, None) => standing.to_owned(),
    }
}

/// Never fails: a template that indicatif refuses is a display without adornment.
fn style(template: &str, limit: &str) -> ProgressStyle {
    let template = if template.contains("spinner") {
        format!("{template}{{elapsed_precise}}{limit}")
    } else {
        template.to_owned()
    };
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
