//! `warpwright watch`: shows the metrics of a training run and updates them every second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};
use warpwright_train::report;

use crate::args::watch::WatchArgs;
use crate::dashboard::Dashboard;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

const EVERY: Duration = Duration::from_secs(1);
/// Columns and lines of a frame outside a terminal.
const PAGE: (u16, u16) = (100, 36);

pub(crate) fn run(args: &WatchArgs, printer: Printer) -> Result<u8, Failure> {
    if !report::is_training(&args.run) {
        let message = format!("failed to watch {}: it is not a training run", args.run.display());
        return Err(Failure::usage(
            message,
            "name the `--out` folder of `warpwright train`".to_owned(),
        ));
    }
    let mut dashboard = Dashboard::read(&args.run)?;
    if args.once || !std::io::stdout().is_terminal() {
        printer.data(&picture(&dashboard));
        return Ok(exit::OK);
    }
    let mut terminal = ratatui::init();
    let watched = watch(&mut terminal, args, &mut dashboard);
    ratatui::restore();
    watched.map(|()| exit::OK)
}

/// Draws frames until the user quits.
fn watch(
    terminal: &mut DefaultTerminal,
    args: &WatchArgs,
    dashboard: &mut Dashboard,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io("draw on the terminal", &error);
    loop {
        terminal.draw(|frame| dashboard.draw(frame)).map_err(failed)?;
        let due = Instant::now() + EVERY;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if !event::poll(left).map_err(failed)? {
                break;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match key {
                    KeyEvent { code: KeyCode::Char('q') | KeyCode::Esc, .. } => return Ok(()),
                    KeyEvent { code: KeyCode::Char('c'), modifiers, .. }
                        if modifiers.contains(KeyModifiers::CONTROL) =>
                    {
                        return Ok(());
                    }
                    KeyEvent { code: KeyCode::Left, .. } => dashboard.choose(-1),
                    KeyEvent { code: KeyCode::Right, .. } => dashboard.choose(1),
                    _ => continue,
                },
                Event::Resize(..) => {}
                _ => continue,
            }
            terminal.draw(|frame| dashboard.draw(frame)).map_err(failed)?;
        }
        dashboard.read_again(&args.run)?;
    }
}

/// One frame as text.
fn picture(dashboard: &Dashboard) -> String {
    let (width, height) = PAGE;
    // In memory, where nothing can go wrong.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| dashboard.draw(frame));
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width)).map(|line| {
        let text: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    format!("{}\n", text.trim_end())
}
