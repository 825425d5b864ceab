//! One module per command: its arguments, and the call into the crate that does the work.

#[cfg(feature = "net")]
mod advise;
mod apply;
#[cfg(all(feature = "ebpf", feature = "live"))]
mod beliefs;
#[cfg(feature = "ebpf")]
mod cc;
mod compare;
mod completions;
mod confirm;
mod conformance;
#[cfg(feature = "net")]
mod diagnose;
mod doctor;
#[cfg(feature = "live")]
mod export;
mod figure;
#[cfg(feature = "net")]
mod get;
mod guard;
mod host;
mod kernel;
pub mod lab;
mod man;
mod plan;
mod playground;
#[cfg(feature = "mesh")]
mod probe;
mod race;
#[cfg(all(feature = "ebpf", feature = "live"))]
mod records;
mod report;
mod revert;
#[cfg(feature = "net")]
mod rpm;
mod run;
mod schema;
mod self_test;
#[cfg(feature = "net")]
mod serve;
#[cfg(feature = "ebpf")]
mod split;
mod status;
#[cfg(feature = "net")]
mod test;
#[cfg(feature = "trace")]
mod trace;
#[cfg(feature = "live")]
mod traffic;
mod verify;
#[cfg(feature = "live")]
mod watch;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Race(race::Args),
    Run(run::Args),
    Figure(figure::Args),
    Conformance(conformance::Args),
    #[cfg(feature = "ebpf")]
    Cc(cc::Args),
    #[cfg(feature = "net")]
    Advise(advise::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
    Apply(apply::Args),
    Confirm(confirm::Args),
    Revert(revert::Args),
    Status(status::Args),
    Verify(verify::Args),
    Kernel(kernel::Args),
    #[command(hide = true)]
    Guard(guard::Args),
    Lab(lab::Args),
    #[cfg(feature = "net")]
    Diagnose(diagnose::Args),
    #[cfg(feature = "net")]
    Get(get::Args),
    #[cfg(feature = "net")]
    Rpm(rpm::Args),
    #[cfg(feature = "net")]
    Serve(serve::Args),
    #[cfg(feature = "mesh")]
    Probe(probe::Args),
    #[cfg(feature = "ebpf")]
    Split(split::Args),
    #[cfg(feature = "net")]
    Test(test::Args),
    #[cfg(feature = "trace")]
    Trace(trace::Args),
    #[cfg(feature = "live")]
    Watch(watch::Args),
    #[cfg(feature = "live")]
    Export(export::Args),
    #[cfg(all(feature = "ebpf", feature = "live"))]
    Records(records::Args),
    Report(report::Args),
    Playground(playground::Args),
    Schema(schema::Args),
    SelfTest(self_test::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Command::Race(args) => args.run(),
            Command::Run(args) => args.run(),
            Command::Figure(args) => args.run(),
            Command::Conformance(args) => args.run(),
            #[cfg(feature = "ebpf")]
            Command::Cc(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Advise(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Apply(args) => args.run(),
            Command::Confirm(args) => args.run(),
            Command::Revert(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::Kernel(args) => args.run(),
            Command::Guard(args) => args.run(),
            Command::Lab(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Diagnose(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Get(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Rpm(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Serve(args) => args.run(),
            #[cfg(feature = "mesh")]
            Command::Probe(args) => args.run(),
            #[cfg(feature = "ebpf")]
            Command::Split(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Test(args) => args.run(),
            #[cfg(feature = "trace")]
            Command::Trace(args) => args.run(),
            #[cfg(feature = "live")]
            Command::Watch(args) => args.run(),
            #[cfg(feature = "live")]
            Command::Export(args) => args.run(),
            #[cfg(all(feature = "ebpf", feature = "live"))]
            Command::Records(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Playground(args) => args.run(),
            Command::Schema(args) => args.run(),
            Command::SelfTest(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
        }
    }
}
