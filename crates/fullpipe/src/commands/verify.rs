//! `fullpipe verify`: is what was applied in force?

use super::host::{Target, failure};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::screen::{self, Style};
use fullpipe_host::verify::{self, Check, Outcome, Question, Verified};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a peer may take to answer.
const CONNECT: Duration = Duration::from_secs(5);

/// Is what was applied in force: now, at the next boot, and for a new connection? For after an apply and after a restart. Changes
/// nothing
///
/// Exit code 0: all of it is in force. 1: something is not, or nothing was applied. 3: it could not be seen.
#[derive(clap::Args)]
pub struct Args {
    /// Also open a connection to a peer that listens there, over the routes that real traffic takes
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// The running kernel alone, as `apply --live-only`
    #[arg(long)]
    live_only: bool,
    /// For machines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// What machines are told.
#[derive(serde::Serialize)]
struct Told<'a> {
    passed: bool,
    #[serde(flatten)]
    verified: &'a Verified,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.to.is_some() && !self.target.is_this_machine() {
            return Err(Failure::usage(
                "--to opens a connection of this machine: leave out --root and --state",
            ));
        }
        let (host, store) = self.target.open()?;
        let question = Question { live_only: self.live_only };
        let mut verified = verify::verify(&*host, &store, question).map_err(failure)?;
        if let (Some(to), Some(controller)) = (&self.to, verified.controller.clone()) {
            verified.checks.push(connection_to(to, &controller));
        }
        let worst = verified.worst();
        if self.json {
            let told = Told { passed: worst >= Outcome::Skipped, verified: &verified };
            print_json(&Document { schema: "fullpipe/verify/1", value: &told })?;
        } else {
            print!("{}", screen::verified(Style::for_stdout(), &verified));
        }
        match worst {
            Outcome::Passed | Outcome::Skipped => Ok(()),
            Outcome::Unknown => Err(Failure::Passed(3)),
            Outcome::Failed => Err(Failure::Passed(1)),
        }
    }
}

/// Which controller a connection to `peer` gets.
fn connection_to(peer: &str, wanted: &str) -> Check {
    let seen = peer.to_socket_addrs().and_then(|mut found| {
        let address = found.next().ok_or(std::io::ErrorKind::NotFound)?;
        fullpipe_kernel::tcp_info::controller(&TcpStream::connect_timeout(&address, CONNECT)?)
    });
    match seen {
        Ok(seen) if seen == wanted => {
            Check::new("connection-to", Outcome::Passed, format!("a new connection to {peer} uses {seen}"))
        }
        Ok(seen) => Check::new(
            "connection-to",
            Outcome::Failed,
            format!("a new connection to {peer} uses {seen}, not {wanted}"),
        ),
        Err(e) => Check::new(
            "connection-to",
            Outcome::Unknown,
            format!("no connection to {peer} could be opened: {e}"),
        ),
    }
}
