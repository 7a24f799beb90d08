//! Writes the translation of a `.cu` file to standard output, for looking at it:
//! `cargo run --release -p warpwright-hostcuda --example translate -- file.cu [headers-dir]`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example program")]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: translate FILE.cu [HEADERS-DIR]");
        return ExitCode::from(2);
    };
    if let Some(dir) = args.next()
        && let Err(error) = warpwright_hostcuda::write_headers(Path::new(&dir))
    {
        eprintln!("failed to write the headers: {error}");
        return ExitCode::FAILURE;
    }
    let source = match fs_err::read_to_string(&file) {
        Ok(source) => source,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let beside = |name: &str, from: &str| {
        let path = Path::new(from).parent()?.join(name);
        let text = fs_err::read_to_string(&path).ok()?;
        Some((path.display().to_string(), text))
    };
    match warpwright_hostcuda::translate_with(&source, &file, &beside) {
        Ok(translated) => {
            println!("{}", translated.cpp);
            ExitCode::SUCCESS
        }
        Err(refused) => {
            for refusal in refused {
                eprintln!("{refusal}");
            }
            ExitCode::FAILURE
        }
    }
}
