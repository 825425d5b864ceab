//! `fullpipe doctor`: is this host ready for a controller?

use super::host::Target;
use crate::failure::Failure;
use crate::print::print_json;
use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::screen::{self, Style};
use fullpipe_units::{Rate, Span};

/// Is this host ready for BBR (or another controller), and what would help? Changes nothing
#[derive(clap::Args)]
pub struct Args {
    /// The controller that you want
    #[arg(default_value = "bbr", value_name = "CC")]
    controller: String,
    /// The rate that a connection should reach, to judge the buffers
    #[arg(long, requires = "rtt", value_name = "RATE")]
    rate: Option<Rate>,
    /// The round-trip time of your path, to judge the buffers
    #[arg(long, requires = "rate", value_name = "TIME")]
    rtt: Option<Span>,
    /// Also what was read and why it matters for checks that are fine
    #[arg(long, short)]
    verbose: bool,
    /// For machines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, _) = self.target.open()?;
        let question = Question { controller: self.controller, path: self.rate.zip(self.rtt) };
        let report = checks::examine(&*host, &question);
        if self.json {
            print_json(&report)?;
        } else {
            print!("{}", screen::doctor(Style::of_stdout(), &report, self.verbose));
        }
        // What failed is on the screen already.
        if report.worst() == Verdict::Fail { Err(Failure::Passed(1)) } else { Ok(()) }
    }
}
