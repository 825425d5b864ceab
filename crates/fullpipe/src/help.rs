//! The command list of `fullpipe --help`, in groups.

use clap::Command;
use clap::builder::StyledStr;
use std::fmt::Write;

/// Headings of the command list and the commands below each, most used first.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Simulate and prove", &["race", "run", "report", "playground", "lab", "figure", "conformance"]),
    (
        "Deploy to a host",
        &["advise", "doctor", "plan", "apply", "confirm", "revert", "status", "verify", "cc", "kernel"],
    ),
    (
        "Measure and observe",
        &["test", "serve", "rpm", "get", "diagnose", "watch", "trace", "export", "records", "split", "probe"],
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
mod tests;
