//! `fullpipe plan`: what would change, exactly.

use super::host::{Target, failure};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::destinations::{self, Request as Destinations};
use fullpipe_host::plan::{self, QdiscChoice, Request};
use fullpipe_host::screen::{self, Style};
use fullpipe_units::{Rate, Span};

/// Show exactly what putting a controller in force would change, and why. Changes nothing
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// For machines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// What a plan and an apply are asked.
#[derive(clap::Args)]
pub struct Wanted {
    /// The controller: bbr, hybla, cubic, reno, or fp_… when it is loaded
    #[arg(default_value = "bbr", value_name = "CC")]
    pub controller: String,
    #[command(flatten)]
    pub how: How,
}

#[derive(clap::Args)]
pub struct How {
    /// The queueing discipline of devices that still have the kernel's default [default: fq for bbr where the kernel has it, else keep]
    #[arg(long, value_name = "KIND", value_parser = ["fq", "fq_pie", "fq_codel", "cake", "keep"])]
    qdisc: Option<String>,
    /// Also replace the discipline that someone chose for DEV
    #[arg(long, value_name = "DEV", value_delimiter = ',')]
    replace: Vec<String>,
    /// The rate that a connection should reach; with --rtt: raise the buffer limits to what that path needs
    #[arg(long, requires = "rtt", value_name = "RATE")]
    rate: Option<Rate>,
    /// The round-trip time of that path
    #[arg(long, requires = "rate", value_name = "TIME")]
    rtt: Option<Span>,
    /// What --rate and --rtt ask for by themselves
    #[arg(long, value_name = "auto", value_parser = ["auto"], requires = "rate", hide = true)]
    buffers: Option<String>,
    /// Change only the running kernel: a restart takes it back
    #[arg(long)]
    live_only: bool,
    /// Try the controller on connections to PREFIX alone
    #[arg(long, value_name = "PREFIX")]
    canary: Option<String>,
    /// Use the controller for connections to PREFIX alone, by a route, whatever the default is; may be repeated. What is in
    /// force already stays
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', conflicts_with_all = ["canary", "qdisc", "replace", "rate", "live_only"])]
    to: Vec<String>,
}

impl How {
    /// What is asked for some destinations alone.
    pub fn towards(&self, controller: &str) -> Option<Destinations> {
        let (controller, prefixes) = (controller.to_owned(), self.to.clone());
        (!prefixes.is_empty()).then_some(Destinations { controller, prefixes })
    }

    pub fn request(self, controller: String) -> Request {
        Request {
            controller,
            qdisc: match self.qdisc {
                None => QdiscChoice::Recommended,
                Some(kind) if kind == "keep" => QdiscChoice::Keep,
                Some(kind) => QdiscChoice::Kind(kind),
            },
            replace_on: self.replace,
            buffers: self.rate.zip(self.rtt),
            live_only: self.live_only,
            canary: self.canary,
        }
    }
}

/// Where this program is, for a boot unit that starts it.
pub fn program() -> String {
    let path = std::env::current_exe().ok().and_then(|p| p.into_os_string().into_string().ok());
    path.unwrap_or_else(|| "/usr/local/bin/fullpipe".into())
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, _) = self.target.open()?;
        let controller = self.wanted.controller.clone();
        let plan = match self.wanted.how.towards(&self.wanted.controller) {
            Some(towards) => destinations::plan(&*host, &towards),
            None => plan::make(&*host, &self.wanted.how.request(self.wanted.controller), &program()),
        };
        let plan = plan.map_err(failure)?;
        if self.json {
            return print_json(&Document { schema: "fullpipe/plan/1", value: &plan });
        }
        print!("{}", screen::plan(Style::for_stdout(), &plan));
        if !plan.is_empty() {
            let identity = host.identity();
            let apply = identity.as_root(format_args!("apply {controller}"));
            let revert = identity.as_root("revert");
            let style = Style::for_stdout();
            let text = format!(
                "Nothing was changed. {apply} with the same options does this, {revert} takes it back."
            );
            print!("\n{}", style.wrap("", 0, &text));
        }
        Ok(())
    }
}
