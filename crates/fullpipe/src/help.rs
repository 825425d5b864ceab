//! The command list of `fullpipe --help`, in groups.

use clap::Command;
use clap::builder::StyledStr;
use std::fmt::Write;

/// Headings of the command list and the commands below each, most used first.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Simulate and prove", &["race", "run", "report", "lab", "figure", "conformance"]),
    (
        "Deploy to a host",
        &["advise", "doctor", "plan", "apply", "confirm", "revert", "status", "verify", "cc", "kernel"],
    ),
    (
        "Measure and observe",
        &["test", "serve", "get", "diagnose", "watch", "trace", "export", "records", "split", "probe"],
    ),
    ("Utilities", &["self-test", "schema", "completions", "man"]),
];

const FOOT: &str = "\
Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 3 not possible here
`fullpipe COMMAND --help` describes one command and its options.

Example: fullpipe race bbr cubic --rate 50mbit --rtt 80ms --out report.html
";

/// `command` with its subcommands listed in groups. clap has headings for options only.
pub fn grouped(command: Command) -> Command {
    let style = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut template = StyledStr::new();
    // Writing to a string cannot fail.
    let _ = write!(template, "{{about}}\n\n{{usage-heading}} {{usage}}\n");
    let width = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or(0);
    for (heading, names) in GROUPS {
        let _ = write!(template, "\n{style}{heading}:{style:#}\n");
        // A build without some features lacks some of the commands.
        for one in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{:<width$}{literal:#}  {about}", one.get_name());
        }
    }
    let _ = write!(template, "\n{style}Options:{style:#}\n{{options}}\n\n{FOOT}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The verbs that descriptions of commands begin with.
    const IMPERATIVES: [&str; 38] = [
        "Advise",
        "Analyse",
        "Assemble",
        "Boot",
        "Build",
        "Change",
        "Check",
        "Collect",
        "Compare",
        "Divide",
        "Download",
        "Enable",
        "Estimate",
        "Export",
        "Find",
        "Generate",
        "Install",
        "Keep",
        "List",
        "Load",
        "Manage",
        "Measure",
        "Merge",
        "Print",
        "Probe",
        "Record",
        "Replace",
        "Replay",
        "Report",
        "Reproduce",
        "Restore",
        "Roll",
        "Run",
        "Serve",
        "Show",
        "Stop",
        "Unload",
        "Verify",
    ];
    const MORE_IMPERATIVES: [&str; 5] = ["Simulate", "Start", "Test", "Watch", "Write"];

    /// Calls `visit` with every command of the tree and its name as it is typed.
    fn walk(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &Command)) {
        visit(path, command);
        for one in command.get_subcommands() {
            walk(one, &format!("{path} {}", one.get_name()), visit);
        }
    }

    #[test]
    fn every_command_is_described_by_an_imperative_of_at_most_70_characters() {
        let mut wrong = Vec::new();
        walk(&crate::command(), "fullpipe", &mut |path, command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let verb = about.split([' ', ',']).next().unwrap_or_default();
            let is_imperative = IMPERATIVES.contains(&verb) || MORE_IMPERATIVES.contains(&verb);
            if about.chars().count() > 70 || about.ends_with('.') || !is_imperative {
                wrong.push(format!("{path}: {about:?}"));
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_option_has_help_without_a_full_stop() {
        let mut wrong = Vec::new();
        walk(&crate::command(), "fullpipe", &mut |path, command| {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                if help.trim().is_empty() || help.ends_with('.') {
                    wrong.push(format!("{path}: {}: {help:?}", arg.get_id()));
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let distinct: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), distinct.len());
        let command = crate::command();
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            assert!(distinct.contains(one.get_name()), "{} is in no group", one.get_name());
        }
    }

    #[test]
    fn the_command_list_fits_60_lines_of_80_columns() {
        let help = crate::command().render_long_help().to_string();
        assert!(help.lines().count() <= 60, "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
