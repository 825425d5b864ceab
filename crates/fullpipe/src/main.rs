//! `fullpipe`: the command line. It parses, calls the crates that do the work, and prints.

// As the standard library's, which panic when nobody reads the output to its end (`| head`).
macro_rules! print {
    ($($text:tt)*) => { $crate::print::text(&mut std::io::stdout(), format_args!($($text)*)) };
}
macro_rules! println {
    ($($text:tt)*) => { print!("{}\n", format_args!($($text)*)) };
}
macro_rules! eprint {
    ($($text:tt)*) => { $crate::print::told(format_args!($($text)*)) };
}
macro_rules! eprintln {
    ($($text:tt)*) => { eprint!("{}\n", format_args!($($text)*)) };
}

mod commands;
#[cfg(feature = "live")]
mod confined;
mod failure;
mod print;
mod runs;
#[cfg(any(feature = "live", feature = "net"))]
mod secret;

use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// musl's allocator lets one thread at a time have memory: two that simulate were hardly faster than one.
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How fast TCP really goes: race, prove, deploy and measure BBR and its peers.
#[derive(Parser)]
#[command(name = "fullpipe", version, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// The command line as a description: what help, manual pages and completions are made of.
fn command() -> clap::Command {
    Cli::command()
}

fn main() -> ExitCode {
    runs::reenter();
    let cli = Cli::try_parse().unwrap_or_else(|error| print::refuse(error));
    let ended = cli.command.run().and_then(|()| print::all_was_printed());
    runs::give_back();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
