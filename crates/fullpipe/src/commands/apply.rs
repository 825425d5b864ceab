//! `fullpipe apply`: put a controller in force, verified, journaled and reversible.

use super::guard::{self, Signals};
use super::host::{Target, failure, settle};
use super::plan::{How, program};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::apply::{self, Applied, OnTrial, Options};
use fullpipe_host::destinations;
use fullpipe_host::screen::{self, Style};
use fullpipe_host::trial::{self, Decision, TrialEnd};
use fullpipe_units::Span;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::{SFlag, fstat};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

/// Put a controller in force: journaled, verified, and undone whole if anything fails
#[derive(clap::Args)]
pub struct Args {
    /// The controller: bbr, hybla, cubic, reno, or fp_… when it is loaded
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    #[command(flatten)]
    how: How,
    /// Undo everything unless it is confirmed within TIME (for people on ssh): by the word `yes` here, or `fullpipe confirm` elsewhere
    #[arg(long, value_name = "TIME", conflicts_with = "to")]
    confirm: Option<Span>,
    /// Set again what someone changed since an earlier apply
    #[arg(long, conflicts_with = "to")]
    force: bool,
    /// For machines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        settle(&*host, &store)?;
        if let Some(towards) = self.how.towards(&self.controller) {
            let applied = destinations::apply(&*host, &store, &towards).map_err(failure)?;
            return tell(self.json, &applied);
        }
        let within = self.confirm.map(Duration::from);
        if within.is_some_and(|w| w < Duration::from_secs(1)) {
            return Err(Failure::usage("--confirm: give at least 1s, for example 60s"));
        }
        // Ctrl-C and `kill` undo the change; what comes in the midst of making it is heeded afterwards.
        let signals = within.map(|_| Signals::take(&[Signal::SIGINT, Signal::SIGTERM])).transpose();
        let signals = signals.map_err(|e| Failure::Impossible(format!("cannot wait for signals: {e}")))?;
        let guard = || guard::start(&self.target);
        let trial = within.map(|within| OnTrial { within, guard: &guard });
        let options = Options { force: self.force, trial, program: program() };
        let request = self.how.request(self.controller);
        let applied = apply::apply(&*host, &store, &request, &options).map_err(failure)?;
        tell(self.json, &applied)?;
        let (Some(within), Some(signals), true) = (within, signals, applied.on_trial) else { return Ok(()) };
        let mut person = Person::listen(signals);
        eprintln!(
            "{} {} from a new connection within {} s to keep this; otherwise it is undone.",
            if person.is_terminal { "Type yes, or run" } else { "Run" },
            host.identity().command("confirm"),
            within.as_secs()
        );
        match trial::watch(&*host, &store, &mut |time| person.ask(time)).map_err(failure)? {
            TrialEnd::Kept => eprintln!("Kept."),
            TrialEnd::RevertedElsewhere => eprintln!("Someone reverted it meanwhile."),
            TrialEnd::Undone => {
                return Err(Failure::Check("not confirmed: everything was put back as it was".into()));
            }
            TrialEnd::Expired => {
                return Err(Failure::Check(
                    "not confirmed in time: everything was put back as it was".into(),
                ));
            }
        }
        Ok(())
    }
}

fn tell(json: bool, applied: &Applied) -> Result<(), Failure> {
    if json {
        return print_json(&Document { schema: "fullpipe/apply/1", value: applied });
    }
    print!("{}", screen::applied(Style::for_stdout(), applied));
    Ok(())
}

/// Who may say yes, and whose going away means no.
struct Person {
    signals: Signals,
    /// Only what is typed at a terminal is an answer.
    is_terminal: bool,
    /// Whether the input's end says that someone is gone: a terminal's or a pipe's, not that of /dev/null or a file.
    listens: bool,
    typed: Vec<u8>,
}

impl Person {
    fn listen(signals: Signals) -> Person {
        let is_terminal = std::io::stdin().is_terminal();
        let kind =
            fstat(std::io::stdin()).map(|about| SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT);
        let listens = is_terminal || matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK));
        Person { signals, is_terminal, listens, typed: Vec::new() }
    }

    fn ask(&mut self, time: Duration) -> Decision {
        let stdin = std::io::stdin();
        let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if self.listens {
            watched.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        if poll(&mut watched, guard::timeout(time)).is_err() {
            return Decision::Pending;
        }
        let spoke = watched.get(1).is_some_and(|input| input.any() == Some(true));
        if self.signals.arrived() {
            return Decision::Undo;
        }
        let mut bytes = [0; 256];
        match spoke.then(|| nix::unistd::read(&stdin, &mut bytes)) {
            None => Decision::Pending,
            Some(Ok(0) | Err(_)) => {
                self.listens = false;
                Decision::Undo
            }
            Some(Ok(n)) if self.is_terminal => self.hear(&bytes[..n]),
            Some(Ok(_)) => Decision::Pending,
        }
    }

    fn hear(&mut self, bytes: &[u8]) -> Decision {
        self.typed.extend_from_slice(bytes);
        let Some(end) = self.typed.iter().rposition(|&b| b == b'\n') else {
            // Nobody's word is that long.
            self.typed.truncate(256);
            return Decision::Pending;
        };
        let lines: Vec<u8> = self.typed.drain(..=end).collect();
        let is_yes = |line: &str| ["yes", "keep"].contains(&line.trim().to_lowercase().as_str());
        if String::from_utf8_lossy(&lines).lines().any(is_yes) {
            return Decision::Keep;
        }
        eprintln!("Type yes to keep it; Ctrl-C undoes it now.");
        Decision::Pending
    }
}
