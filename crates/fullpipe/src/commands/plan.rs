//! `fullpipe plan`: the changes that `apply` would make.

use super::host::{Target, failure};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::destinations::{self, Request as Destinations};
use fullpipe_host::plan::{self, QdiscChoice, Request};
use fullpipe_host::screen::{self, Style};
use fullpipe_units::{Rate, Span};

/// Show exactly what `apply` would change, and why
///
/// Changes nothing.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe plan bbr --rate 1gbit --rtt 80ms")]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// The controller and the options of `plan`.
#[derive(clap::Args)]
pub struct Wanted {
    /// Controller: bbr, hybla, cubic, reno, or a loaded eBPF controller such as fp_bbr3
    #[arg(default_value = "bbr", value_name = "CC")]
    pub controller: String,
    #[command(flatten)]
    pub options: Options,
}

/// The options that `plan` and `apply` share.
#[derive(clap::Args)]
pub struct Options {
    /// Queueing discipline for devices that still have the kernel's default; `keep` changes none
    /// [default: fq for BBR if the kernel has it, else keep]
    #[arg(long, value_name = "KIND", value_parser = ["fq", "fq_pie", "fq_codel", "cake", "keep"])]
    qdisc: Option<String>,
    /// Also replace a queueing discipline that was set by hand on network device DEV; may be
    /// repeated
    #[arg(long, value_name = "DEV", value_delimiter = ',')]
    replace: Vec<String>,
    /// Rate that one connection should reach; with --rtt, raises the buffer limits to what that
    /// path needs
    #[arg(long, requires = "rtt", value_name = "RATE")]
    rate: Option<Rate>,
    /// Round-trip time of that path
    #[arg(long, requires = "rate", value_name = "TIME")]
    rtt: Option<Span>,
    /// Change only the running kernel; a reboot undoes it
    #[arg(long)]
    live_only: bool,
    /// Try the controller on connections to one PREFIX first, by a route that lasts until the next
    /// reboot; an `apply` for all connections removes it
    #[arg(long, value_name = "PREFIX")]
    canary: Option<String>,
    /// Use the controller only for connections to PREFIX, by a route that lasts until the next
    /// reboot; may be repeated. The default controller and earlier changes stay as they are
    #[arg(
        long,
        value_name = "PREFIX",
        value_delimiter = ',',
        conflicts_with_all = ["canary", "qdisc", "replace", "rate", "live_only"]
    )]
    to: Vec<String>,
}

impl Options {
    /// The change for some destinations only, if --to is given.
    pub fn destinations(&self, controller: &str) -> Option<Destinations> {
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

/// The path of this program, for boot units that start it.
pub fn program() -> String {
    let path = std::env::current_exe().ok().and_then(|p| p.into_os_string().into_string().ok());
    path.unwrap_or_else(|| "/usr/local/bin/fullpipe".into())
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, _) = self.target.open()?;
        let controller = self.wanted.controller.clone();
        let plan = match self.wanted.options.destinations(&self.wanted.controller) {
            Some(destinations) => destinations::plan(&*host, &destinations),
            None => plan::make(&*host, &self.wanted.options.request(self.wanted.controller), &program()),
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
                "Nothing was changed. {apply} with the same options makes these changes, {revert} undoes \
                 them."
            );
            print!("\n{}", style.wrap("", 0, &text));
        }
        Ok(())
    }
}
