//! `fullpipe apply`: put a controller in force, verified, journaled and reversible.

use super::host::{Target, failure};
use super::plan::{How, program};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::apply::{self, Confirmation, Options};
use fullpipe_host::screen::{self, Style};
use fullpipe_units::Span;
use std::io::BufRead;
use std::sync::mpsc;
use std::time::Duration;

/// Put a controller in force: journaled, verified, and undone whole if anything fails
#[derive(clap::Args)]
pub struct Args {
    /// The controller: bbr, hybla, cubic, reno, or fp_… when it is loaded
    #[arg(value_name = "CC", required_unless_present = "keep")]
    controller: Option<String>,
    #[command(flatten)]
    how: How,
    /// Undo everything unless it is confirmed within TIME (for people on ssh): by Enter, or `apply --keep` elsewhere
    #[arg(long, value_name = "TIME")]
    confirm: Option<Span>,
    /// Confirm what another `apply --confirm` put in force
    #[arg(long, conflicts_with_all = ["controller", "confirm"])]
    keep: bool,
    /// Set again what someone changed since an earlier apply
    #[arg(long)]
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
        let Some(controller) = self.controller else {
            apply::confirm(&*host, &store).map_err(failure)?;
            println!("Kept.");
            return Ok(());
        };
        let within = self.confirm.map(|s| Duration::from_nanos(s.as_nanos()));
        if within.is_some_and(|w| w < Duration::from_secs(1)) {
            return Err(Failure::usage("--confirm: give at least 1s, for example 60s"));
        }
        if within.is_some() {
            // What is undone must not depend on a terminal that may go away with the network.
            apply::outlive_terminal();
        }
        let options = Options { force: self.force, confirm_within: within, program: program() };
        let request = self.how.request(controller);
        let applied = apply::apply(&*host, &store, &request, &options).map_err(failure)?;
        if self.json {
            print_json(&Document { schema: "fullpipe/apply/1", value: &applied })?;
        } else {
            print!("{}", screen::applied(Style::of_stdout(), &applied));
        }
        let Some(within) = within else { return Ok(()) };
        eprintln!(
            "Press Enter within {} s to keep this, or run `fullpipe apply --keep` from a new connection; otherwise it is undone.",
            within.as_secs()
        );
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // An end of input is not an Enter: the connection may be what broke.
            if std::io::stdin().lock().read_line(&mut line).is_ok_and(|n| n > 0) {
                let _ = sender.send(());
            }
        });
        match apply::await_confirmation(&*host, &store, || receiver.try_recv().is_ok()).map_err(failure)? {
            Confirmation::Kept => eprintln!("Kept."),
            Confirmation::Gone => eprintln!("Someone reverted it meanwhile."),
            Confirmation::Undone => {
                return Err(Failure::Check(
                    "not confirmed in time: everything was put back as it was".into(),
                ));
            }
        }
        Ok(())
    }
}
