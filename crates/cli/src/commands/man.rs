//! `warpwright man DIR`: one man page for the program and one for each command.

use std::path::Path;

use clap::CommandFactory;
use fs_err as fs;

use crate::args::{Cli, Man};
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(args: &Man, printer: Printer) -> Result<u8, Failure> {
    fs::create_dir_all(&args.folder).map_err(|e| Failure::io("create the folder", &e))?;
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    pages(&args.folder, &program, "warpwright")?;
    printer.say(&format!("man pages are in {}", args.folder.display()));
    Ok(exit::OK)
}

/// Writes a page for a command and for each of its subcommands.
fn pages(folder: &Path, command: &clap::Command, name: &str) -> Result<(), Failure> {
    page(folder, command, name)?;
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        pages(folder, inner, &format!("{name}-{}", inner.get_name()))?;
    }
    Ok(())
}

fn page(folder: &Path, command: &clap::Command, name: &str) -> Result<(), Failure> {
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    page.render(&mut text).map_err(|e| Failure::io("render a man page", &e))?;
    let path = folder.join(format!("{name}.1"));
    fs::write(path, text).map_err(|e| Failure::io("write a man page", &e))
}
