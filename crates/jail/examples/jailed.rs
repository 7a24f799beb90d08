//! Runs one command in a jail and says what was enforced: `jailed [--backend NAME] [--python PATH] COMMAND...`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line example")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use warpwright_jail::{Backend, Gpu, Jail, JailError, Limits, Requirement, Spec};

fn main() -> ExitCode {
    warpwright_jail::init_if_requested();
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}\n{}", error.hint().unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, JailError> {
    let mut arguments = std::env::args().skip(1).peekable();
    let (mut backend, mut python, mut gpu) = (None, None, Gpu::None);
    while let Some(option) = arguments.next_if(|argument| argument.starts_with("--")) {
        match option.as_str() {
            "--backend" => {
                let name = arguments.next().unwrap_or_default();
                backend = Backend::ALL.into_iter().find(|backend| backend.name() == name);
            }
            "--python" => python = arguments.next().map(PathBuf::from),
            "--gpu" => gpu = Gpu::All,
            _ => eprintln!("unknown option {option}"),
        }
    }
    let jail = match backend {
        Some(backend) => Jail::with_backend(backend)?,
        None => Jail::detect(Requirement::Any)?,
    };
    eprintln!("{:#?}", jail.isolation());
    let limits =
        Limits { wall: Duration::from_mins(5), memory_bytes: Some(8 << 30), ..Limits::default() };
    let spec = Spec::new(arguments.next().unwrap_or_else(|| "id".into()));
    let mut spec = spec.args(arguments).with_system().limits(limits).gpu(gpu);
    if let Some(python) = python {
        spec = spec.with_python(&python);
    }
    let finished = jail.run(spec)?;
    print!("{}", finished.stdout.text());
    eprint!("{}", finished.stderr.text());
    eprintln!(
        "{:?} after {:.3?}, peak {:?} bytes",
        finished.outcome, finished.elapsed, finished.peak_memory_bytes
    );
    Ok(if finished.outcome.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
