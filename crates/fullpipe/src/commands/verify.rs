//! `fullpipe verify`: whether the applied changes are in effect.

use super::host::{Target, failure};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::screen::{self, Style};
use fullpipe_host::verify::{self, Check, Outcome, Question, Verified};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a peer may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Verify that what was applied is in effect
///
/// Checks the running kernel, the next boot and a new connection; run it after `apply` and after a
/// reboot. Changes nothing. Needs root to read the journal of an apply. Exits with 0 if everything
/// is in effect, with 1 if a setting is not or nothing was applied, and with 3 if it cannot be
/// determined.
#[derive(clap::Args)]
#[command(after_help = "Example: sudo fullpipe verify --to example.org:443")]
pub struct Args {
    /// Host and TCP port of another test connection, over the route of real traffic [default: only
    /// a connection on this host]
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Check only the running kernel, as after `apply --live-only`
    #[arg(long)]
    live_only: bool,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// The JSON output.
#[derive(serde::Serialize)]
struct Output<'a> {
    passed: bool,
    #[serde(flatten)]
    verified: &'a Verified,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.to.is_some() && !self.target.is_this_machine() {
            return Err(Failure::usage(
                "--to opens a connection from this machine; remove --root and --state",
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
            let output = Output { passed: worst >= Outcome::Skipped, verified: &verified };
            print_json(&Document { schema: "fullpipe/verify/1", value: &output })?;
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

/// Checks which controller a connection to `peer` gets.
fn connection_to(peer: &str, wanted: &str) -> Check {
    let actual = peer.to_socket_addrs().and_then(|mut addresses| {
        let address = addresses.next().ok_or(std::io::ErrorKind::NotFound)?;
        fullpipe_kernel::tcp_info::controller(&TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?)
    });
    match actual {
        Ok(actual) if actual == wanted => {
            Check::new("connection-to", Outcome::Passed, format!("a new connection to {peer} uses {actual}"))
        }
        Ok(actual) => Check::new(
            "connection-to",
            Outcome::Failed,
            format!("a new connection to {peer} uses {actual}, not {wanted}"),
        ),
        Err(e) => Check::new("connection-to", Outcome::Unknown, format!("cannot connect to {peer}: {e}")),
    }
}
