//! `fullpipe`: the command line. It parses, calls the crates that do the work, and prints.

// In place of the standard library's macros, which panic once the reader has closed the pipe (`|
// head`).
macro_rules! print {
    ($($text:tt)*) => { $crate::print::text(&mut std::io::stdout(), format_args!($($text)*)) };
}
macro_rules! println {
    ($($text:tt)*) => { print!("{}\n", format_args!($($text)*)) };
}
macro_rules! eprint {
    ($($text:tt)*) => { $crate::print::message(format_args!($($text)*)) };
}
macro_rules! eprintln {
    ($($text:tt)*) => { eprint!("{}\n", format_args!($($text)*)) };
}

mod commands;
#[cfg(feature = "live")]
mod confined;
mod failure;
mod help;
mod print;
mod runs;
#[cfg(any(feature = "live", feature = "net"))]
mod secret;
#[cfg(any(feature = "ebpf", feature = "live", feature = "net", feature = "trace"))]
mod termination;

use clap::{CommandFactory, FromArgMatches, Parser};
use std::process::ExitCode;

/// musl's allocator serialises threads: two simulations at a time were hardly faster than one.
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulate, prove, deploy and measure TCP congestion control
#[derive(Parser)]
#[command(name = "fullpipe", version, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// The definition of the command line, from which help, manual pages and completions are generated.
fn command() -> clap::Command {
    help::grouped(Cli::command())
}

fn main() -> ExitCode {
    runs::reenter();
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = parsed.unwrap_or_else(|error| print::exit_with(error));
    let ended = cli.command.run().and_then(|()| print::check_output());
    runs::unload_all();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
