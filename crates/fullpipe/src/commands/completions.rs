//! `fullpipe completions`: completion scripts for shells.

use crate::failure::Failure;
use crate::print::print;
use clap::Command;
use clap::builder::PossibleValuesParser;
use fullpipe_cc::registry::LINUX;
use fullpipe_conformance::LISTS;
use fullpipe_figures::FIGURES;
use fullpipe_kernel::tcp_info::EBPF_CONTROLLERS;
use fullpipe_run::quic_controllers;

/// Print a shell completion script
///
/// The script also completes the names of controllers, figures and test cases.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe completions bash > /etc/bash_completion.d/fullpipe")]
pub struct Args {
    /// Shell to generate the script for
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut with_values(crate::command()), "fullpipe", &mut script);
        print(script)
    }
}

/// The command line with likely values of free-form arguments, which shells complete; other values
/// stay valid.
fn with_values(command: Command) -> Command {
    let simulated = || fullpipe_cc::CONTROLLERS.iter().map(|about| about.name);
    let ours = || EBPF_CONTROLLERS.iter().map(|(name, _)| *name);
    let kernel: Vec<&str> = ["bbr", "cubic", "reno", "hybla"].into_iter().chain(ours()).collect();
    let all: Vec<&str> = simulated().chain(ours()).collect();
    let over_quic: Vec<String> = quic_controllers()
        .filter(|name| {
            cfg!(feature = "quic") && !name.split_once('@').is_some_and(|(cc, _)| LINUX.contains(&cc))
        })
        .collect();
    let contestants: Vec<&str> = all.iter().copied().chain(over_quic.iter().map(String::as_str)).collect();
    let short: Vec<&str> = ours().map(|name| name.trim_start_matches("fp_")).collect();
    let figures: Vec<&str> = FIGURES.iter().map(|figure| figure.id).chain(["all"]).collect();
    let lists = LISTS.iter().flat_map(|(list, cases)| cases.iter().map(|case| case.name).chain([*list]));
    let cases: Vec<&str> = lists.collect();
    let values: [(&[&str], &str, &[&str]); 18] = [
        (&["race"], "cc", &contestants),
        (&["figure"], "ids", &figures),
        (&["conformance"], "cases", &cases),
        (&["conformance"], "cc", &contestants),
        (&["doctor"], "controller", &kernel),
        (&["plan"], "controller", &kernel),
        (&["apply"], "controller", &kernel),
        (&["test"], "congestion", &kernel),
        (&["test"], "compare", &kernel),
        (&["test"], "baseline", &kernel),
        (&["diagnose"], "congestion", &kernel),
        (&["serve"], "congestion", &kernel),
        (&["cc", "load"], "controller", &short),
        (&["cc", "unload"], "controller", &short),
        (&["cc", "update"], "controller", &short),
        (&["cc", "settings"], "controller", &short),
        (&["split", "calibrate"], "arm", &all),
        (&["split", "calibrate"], "control", &all),
    ];
    values.into_iter().fold(command, |command, (path, argument, words)| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        set_values(command, path, argument, &words)
    })
}

/// Sets the values of an argument of the command at `path`, if this build has that command.
fn set_values(command: Command, path: &[&str], argument: &str, words: &[String]) -> Command {
    match path.split_first() {
        Some((name, rest)) if command.find_subcommand(name).is_some() => {
            command.mut_subcommand(*name, |inner| set_values(inner, rest, argument, words))
        }
        None if command.get_arguments().any(|arg| arg.get_id() == argument) => {
            command.mut_arg(argument, |arg| arg.value_parser(PossibleValuesParser::new(words.to_vec())))
        }
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_completed_at_their_argument() {
        let command = with_values(crate::command());
        for (path, argument, word) in [
            (&["race"][..], "cc", "bbr3"),
            (&["figure"], "ids", "fig8"),
            (&["conformance"], "cases", "exiting-drain-based-on-time"),
            (&["plan"], "controller", "fp_bbr3"),
        ] {
            let at = path.iter().fold(&command, |at, name| at.find_subcommand(name).unwrap());
            let arg = at.get_arguments().find(|arg| arg.get_id() == argument).unwrap();
            let values = arg.get_possible_values();
            assert!(values.iter().any(|value| value.get_name() == word), "{path:?} {argument}");
        }
    }
}
