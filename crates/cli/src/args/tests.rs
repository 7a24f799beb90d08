//! All commands, as clap knows them.

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;

/// The words of every command, hidden ones included: `warpwright task`, `warpwright task lint`.
fn all_commands() -> Vec<String> {
    fn add(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let name = format!("{name} {}", inner.get_name());
            add(inner, &name, found);
            found.push(name);
        }
    }
    let mut found = Vec::new();
    add(&Cli::command(), "warpwright", &mut found);
    found
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_help_with_examples() {
    let commands = all_commands();
    for known in ["warpwright man", "warpwright task lint", "warpwright trajectory export"] {
        assert!(commands.iter().any(|command| command == known), "{known}: {commands:?}");
    }
    for command in commands {
        let help = Cli::try_parse_from(command.split(' ').chain(["--help"])).unwrap_err();
        assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{command}");
        let text = help.to_string();
        assert!(text.contains(&format!("Examples:\n  {command}")), "{command}: {text}");
    }
}

#[test]
fn common_options_have_their_own_heading() {
    let command = Cli::command();
    let eval = command.find_subcommand("eval").unwrap();
    let heading = |id: &str| {
        let option = eval.get_arguments().find(|option| option.get_id().as_str() == id);
        option.unwrap().get_help_heading()
    };
    assert_eq!((heading("suite"), heading("max_turns")), (None, None));
    assert_eq!(heading("seed"), Some("Common options"));
    assert!(heading("base_url").unwrap().contains("models behind an endpoint"));
}
