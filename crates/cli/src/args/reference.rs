//! The reference of the command line, `docs/reference/cli.md`: generated from the arguments' types;
//! `UPDATE_REFERENCE=1` writes it.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use warpwright_test_support::generated;

use super::Cli;

const HEAD: &str = "\
# Command line

This page is generated from the program's types: `UPDATE_REFERENCE=1 cargo nextest run --release --workspace reference`. \
`warpwright COMMAND --help` prints the same with the details of each option.

[Exit codes and errors](exit-codes-and-errors.md) has the exit codes, the environment variables and `--json`.
";

/// A command, then its own commands.
fn section(text: &mut String, name: &str, command: &mut Command, shared: &[String]) {
    let level = "#".repeat(1 + name.split(' ').count().min(4));
    let _ = write!(text, "\n{level} `{name}`\n\n");
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        for paragraph in about.to_string().split("\n\n") {
            let _ = write!(text, "{}\n\n", words(paragraph));
        }
    }
    let usage = command.render_usage().to_string();
    let usage = usage.trim().trim_start_matches("Usage:").trim();
    let _ = write!(text, "```text\n{usage}\n```\n");
    let is_own = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        !arg.is_hide_set() && id != "help" && id != "version" && !shared.contains(&id.to_owned())
    };
    let args: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    if !args.is_empty() {
        text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
    }
    for arg in args {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> = arg
            .get_default_values()
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        let default = if arg.is_required_set() { "required".to_owned() } else { values.join(" ") };
        let _ = writeln!(text, "| {} | {default} | {} |", title(arg), meaning(arg, &help));
    }
    if let Some(examples) = command.get_after_help().or_else(|| command.get_after_long_help()) {
        let examples = examples.to_string();
        let lines = examples.lines().filter(|line| line.trim() != "Examples:");
        let lines: Vec<&str> = lines.map(str::trim).collect();
        let _ = write!(text, "\n```text\n{}\n```\n", lines.join("\n").trim());
    }
    let own: Vec<String> = command
        .get_subcommands()
        .filter(|of| !of.is_hide_set() && of.get_name() != "help")
        .map(|of| of.get_name().to_owned())
        .collect();
    for name_of in own {
        if let Some(of) = command.find_subcommand_mut(&name_of) {
            section(text, &format!("{name} {name_of}"), of, shared);
        }
    }
}

/// `--out <DIR>`, or `<FILE>...`.
fn title(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let values = if takes { values.join(" ") } else { String::new() };
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    format!("`{}`", format!("{flag} {values}").trim())
}

/// Help as one line of a table, with the values of a choice.
fn meaning(arg: &Arg, help: &str) -> String {
    let help = words(help).replace('|', "\\|");
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| takes && !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let help = help.trim_end_matches('.');
    if choices.is_empty() {
        help.to_owned()
    } else {
        format!("{help}. One of {}.", choices.join(", "))
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn markdown() -> String {
    let mut program = Cli::command();
    program.build();
    let shared: Vec<String> = program
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.get_id().as_str().to_owned())
        .collect();
    let mut text = HEAD.to_owned();
    let mut names: Vec<String> = program
        .get_subcommands()
        .filter(|of| !of.is_hide_set() && of.get_name() != "help")
        .map(|of| of.get_name().to_owned())
        .collect();
    names.dedup();
    for name in names {
        if let Some(of) = program.find_subcommand_mut(&name) {
            section(&mut text, &format!("warpwright {name}"), of, &shared);
        }
    }
    text
}

#[test]
fn the_command_line_reference_matches_the_types() {
    let content = markdown();
    generated::check("docs/reference/cli.md", &content);
    let cells = content.lines().filter(|line| line.starts_with('|')).flat_map(|l| l.split(" | "));
    for cell in cells {
        assert!(cell.len() <= 300, "a cell has {} characters: {cell}", cell.len());
    }
}
