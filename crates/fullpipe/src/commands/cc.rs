//! `fullpipe cc`: eBPF congestion controllers in the running kernel.

mod list;
mod settings;
mod uses;

pub use uses::COUNT_DURATION;

use crate::failure::Failure;
use crate::print::print_json;
use crate::runs::{command_line, print_hanging};
use clap::{Args as ClapArgs, Subcommand};
use fullpipe_ebpf::oracle::{self, Reader, Recorder, Writer};
use fullpipe_ebpf::sockets::Socket;
use fullpipe_ebpf::{Controller, Error, kernel, lifecycle, loader};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Command as Process, ExitStatus};
use std::time::Duration;
use uses::Uses;

/// Load eBPF controllers into the running kernel and manage them
///
/// BBR v3, BBR v1 and Hybla as eBPF programs, without rebuilding the kernel.
#[derive(ClapArgs)]
#[command(after_help = "Example: sudo fullpipe cc load bbr3 --default")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the controllers that this kernel has and can load
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Load a controller; it stays until it is unloaded or the next reboot
    Load {
        /// Controller: bbr3, bbr1 or hybla
        controller: Controller,
        /// Name to register it under, at most 15 characters; under different names, several
        /// variants can be loaded at once [default: fp_bbr3, fp_bbr1 or fp_hybla]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Run a test transfer with it, and verify that the kernel invokes every callback
        #[arg(long)]
        verify: bool,
        /// Make it the default of this network namespace, after a test transfer
        #[arg(long)]
        default: bool,
        /// Directory of a control group whose new connections use it
        #[arg(long, value_name = "PATH")]
        cgroup: Option<PathBuf>,
        /// Route whose new connections use it: `default`, `10.0.0.0/8`
        #[arg(long, value_name = "PREFIX")]
        route: Option<String>,
        /// Also load it at every boot with its current settings, by a systemd unit; with --default,
        /// the unit also makes it the default
        #[arg(long)]
        persist: bool,
        /// Setting to change, see `fullpipe cc settings`; may be repeated. If the controller is
        /// already loaded, its open sockets use the new value
        #[arg(long = "set", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = settings::pair)]
        set: Vec<(String, String)>,
    },
    /// Show the settings of a controller for `cc load --set` and `cc tune`
    Settings {
        /// Controller: bbr3, bbr1 or hybla
        controller: Controller,
    },
    /// Change settings of a loaded controller, and show them all
    ///
    /// Its sockets use the new values from their next ACK on.
    Tune {
        /// Name that the controller is registered under, such as fp_bbr3
        name: String,
        /// Settings to change [default: only show them]
        #[arg(value_name = "KEY=VALUE", value_delimiter = ',', value_parser = settings::pair)]
        set: Vec<(String, String)>,
    },
    /// Replace a loaded controller with the version in this program
    ///
    /// Open sockets switch to the new version. They keep their model of the path if both versions
    /// store it in the same format; otherwise they measure it anew.
    Update {
        /// Controller: bbr3, bbr1 or hybla
        controller: Controller,
        /// Name that it is registered under [default: fp_bbr3, fp_bbr1 or fp_hybla]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Unload a controller; remove its default, cgroup and route assignments
    Unload {
        /// Controller: bbr3, bbr1 or hybla
        controller: Controller,
        /// Name that it is registered under [default: fp_bbr3, fp_bbr1 or fp_hybla]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Seconds to wait for sockets that still use it; fails if some remain
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        wait: u64,
        /// Keep the systemd unit of `cc load --persist`, which loads it at the next boot
        #[arg(long)]
        until_boot: bool,
    },
    /// Show the loaded controllers, where each is used, and its sockets
    Status {
        /// Print the status as JSON
        #[arg(long)]
        json: bool,
    },
    /// Record the callbacks of the kernel's BBR v1 while a command runs
    ///
    /// Loads the controller `fp_oracle`: the kernel's own BBR with a recorder of every callback's
    /// inputs and outputs. Only sockets that use `fp_oracle` are recorded. Refuses a kernel whose
    /// `bbr` is v3.
    Record {
        /// File to write
        file: PathBuf,
        /// Perturb BBR's state before some callbacks, to reach rare branches
        #[arg(long)]
        perturb: bool,
        /// Command to run, whose sockets must use the controller fp_oracle, such as iperf3 -C
        /// fp_oracle
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Replay a recording through fullpipe's BBR v1 and compare all state
    Replay {
        /// Recordings of `fullpipe cc record`
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print the comparison as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List { json } => list::run(json),
            Command::Settings { controller } => {
                settings::show(controller);
                Ok(())
            }
            Command::Load { .. }
            | Command::Update { .. }
            | Command::Tune { .. }
            | Command::Unload { .. }
            | Command::Status { .. }
            | Command::Record { .. }
                if let Some(missing) = loader::missing_capabilities() =>
            {
                Err(not_permitted(&missing))
            }
            Command::Tune { name, set } => settings::tune(&name, &set),
            Command::Load { controller, name, verify, default, cgroup, route, persist, set } => {
                let wanted = Uses { verify, default, cgroup, route, persist, set };
                uses::load(controller, name.as_deref(), &wanted)
            }
            Command::Update { controller, name } => {
                let outcome = lifecycle::update(controller, name.as_deref()).map_err(failure)?;
                print_outcome(name.as_deref().unwrap_or(controller.name()), outcome);
                Ok(())
            }
            Command::Unload { controller, name, wait, until_boot } => {
                let name = name.as_deref().unwrap_or(controller.name());
                uses::unload(name, Duration::from_secs(wait), until_boot)
            }
            Command::Status { json } => status(json),
            Command::Record { file, perturb, command } => record(file, perturb, &command),
            Command::Replay { files, json } => replay(&files, json),
        }
    }
}

/// Only root may load and unload controllers, and see what is pinned and used by sockets.
fn not_permitted(missing: &str) -> Failure {
    let available = kernel::available().unwrap_or_default().join(", ");
    Failure::Impossible(format!(
        "root is required to load controllers and to see which are loaded ({missing}); available in this \
         kernel: {available}\n  \
         help: sudo {}",
        command_line()
    ))
}

/// The failure for an error: something that this machine lacks, or bad input.
fn failure(error: Error) -> Failure {
    match error {
        Error::Impossible { .. } | Error::MissingFeature { .. } | Error::Io { .. } => {
            Failure::Impossible(error.to_string())
        }
        Error::Unknown { .. } | Error::Malformed(_) => Failure::Usage(error.to_string()),
    }
}

fn print_outcome(name: &str, outcome: lifecycle::Outcome) {
    match outcome {
        lifecycle::Outcome::Loaded => println!("{name} is loaded: sockets can use it now"),
        lifecycle::Outcome::AlreadyLoaded => println!("{name} was already loaded"),
        lifecycle::Outcome::Replaced(carried) => {
            println!("{name} is replaced with the version in this program");
            if !carried.sockets {
                println!("new sockets use it; open sockets keep the previous build until they close");
            } else if !carried.state {
                println!(
                    "open sockets use it and start a new model of their path, since the layout of the \
                     state differs"
                );
            }
            if !carried.settings {
                println!("settings are not carried over, since the previous build had other settings");
            }
        }
    }
}

fn status(json: bool) -> Result<(), Failure> {
    let all = lifecycle::status().map_err(failure)?;
    if json {
        return print_json(&serde_json::json!({ "schema": "fullpipe/cc-status/1", "controllers": all }));
    }
    if all.is_empty() {
        println!("no eBPF controller is loaded");
        let others: Vec<String> = kernel::available().map_err(failure)?;
        let others: Vec<&str> = others.iter().filter(|c| c.starts_with("fp_")).map(String::as_str).collect();
        if !others.is_empty() {
            let names = others.join(", ");
            let why = "loaded temporarily by a running command, or in another mount namespace";
            print_hanging("", 0, &format!("but the kernel has {names}: {why}"));
        }
    }
    for one in all {
        let registered = if one.registered { "loaded" } else { "pinned, but not registered" };
        let build = match (&one.build, one.is_this_build) {
            (_, true) => "this build".to_owned(),
            (Some(build), false) => format!("another build, {build} (`fullpipe cc update` replaces it)"),
            (None, false) => "an unknown build".to_owned(),
        };
        print_hanging("", 0, &format!("{}: {registered}, {build}, {} sockets", one.name, one.sockets.len()));
        if let Some(set) = settings::changed(&one.settings) {
            println!("  set: {set}");
        }
        for inode in &one.uses.default_of {
            println!("  default of network namespace {inode}");
        }
        for route in &one.uses.routes {
            println!("  route {route}");
        }
        if one.uses.routes_are_part {
            println!(
                "  perhaps other routes: a network namespace has too many, or changes them all the time"
            );
        }
        for inode in &one.uses.cgroups {
            println!("  control group {inode}");
        }
        for socket in &one.sockets {
            print_hanging("  ", 0, &describe(socket));
        }
    }
    Ok(())
}

fn describe(socket: &Socket) -> String {
    if socket.listens {
        return "listening".to_owned();
    }
    let mut text = format!(
        "{:<14} cwnd {}, pacing {:.3} Mbit/s, srtt {:.3} ms, {} bytes acked",
        socket.state.unwrap_or("-"),
        socket.cwnd,
        socket.pacing_rate as f64 * 8e-6,
        f64::from(socket.srtt_us) * 1e-3,
        socket.bytes_acked,
    );
    if let Some(bw) = socket.bw {
        text += &format!(", bw {:.3} Mbit/s", bw as f64 * 8e-6);
    }
    if let Some(min_rtt) = socket.min_rtt_us {
        text += &format!(", min_rtt {:.3} ms", min_rtt as f64 * 1e-3);
    }
    if let (Some(pacing), Some(cwnd)) = (socket.pacing_gain, socket.cwnd_gain) {
        text += &format!(", gains {pacing:.2}/{cwnd:.2}");
    }
    text
}

/// Refuses a kernel whose own `bbr` is not v1 by `version`: it has other callbacks (`bbr_tso_segs` for
/// `bbr_min_tso_segs`) and another state. `load` loads its module first: the version of one that is not
/// loaded is unknown.
fn require_v1(
    load: impl FnOnce(&str) -> bool,
    version: impl FnOnce(&str) -> Option<u8>,
) -> Result<(), Failure> {
    load("bbr");
    match version("bbr") {
        Some(version) if version > 1 => Err(Failure::Impossible(format!(
            "this kernel's bbr is BBR v{version}, and `cc record` records and replays BBR v1\n  help: run it \
             on a kernel whose bbr is v1, such as mainline Linux; `fullpipe cc list` prints the version"
        ))),
        _ => Ok(()),
    }
}

fn record(file: PathBuf, perturb: bool, command: &[String]) -> Result<(), Failure> {
    let load = |name: &str| fullpipe_run::kernel_offers(name, &fullpipe_run::NoLoader);
    require_v1(load, fullpipe_kernel::tcp_info::bbr_version)?;
    let kernel = kernel::Kernel::detect().map_err(failure)?;
    let recorder = Recorder::start(oracle::NAME, perturb, &kernel).map_err(failure)?;
    let to = fullpipe_files::create(&file)
        .map_err(|error| Failure::usage(format!("cannot create {}: {error}", file.display())))?;
    let mut writer = Writer::new(BufWriter::new(to))
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", file.display())))?;
    let mut child = Process::new(&command[0])
        .args(&command[1..])
        .spawn()
        .map_err(|error| Failure::usage(format!("cannot run {}: {error}", command[0])))?;
    let mut ended: Option<ExitStatus> = None;
    let summary = recorder
        .collect(
            |_| {
                ended = child.try_wait().ok().flatten();
                ended.is_some()
            },
            |record| writer.write(record),
        )
        .map_err(failure)?;
    writer
        .finish()
        .and_then(|mut to| std::io::Write::flush(&mut to))
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", file.display())))?;
    eprintln!("{} callbacks recorded in {}, {} dropped", summary.records, file.display(), summary.lost);
    match ended.and_then(|status| status.code()) {
        Some(0) => Ok(()),
        code => Err(Failure::Passed(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))),
    }
}

fn replay(files: &[PathBuf], json: bool) -> Result<(), Failure> {
    let cores: [(&str, oracle::Core<'_>); 2] = [("C", &mut oracle::c_core), ("Rust", &mut oracle::rust_core)];
    let mut mismatches = 0;
    for (name, core) in cores {
        for file in files {
            let input = File::open(file)
                .map_err(|error| Failure::usage(format!("cannot open {}: {error}", file.display())))?;
            let reader = Reader::new(input).map_err(failure)?;
            let report = oracle::replay(reader, core).map_err(failure)?;
            mismatches += report.mismatches;
            if json {
                println!("{}", report.to_json(name, &file.display().to_string()));
            } else {
                print!("{name} core, {}: {report}", file.display());
            }
        }
    }
    if mismatches == 0 {
        Ok(())
    } else {
        Err(Failure::Check(format!("{mismatches} callbacks differ from the kernel's BBR")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_kernel_with_another_bbr_than_v1_is_refused_with_its_version() {
        // The version is known once its module is loaded.
        let with = |version: Option<u8>| {
            let is_loaded = Cell::new(false);
            let load = |_: &str| is_loaded.replace(true);
            require_v1(load, |name| version.filter(|_| is_loaded.get() && name == "bbr"))
        };
        assert!(with(None).is_ok() && with(Some(1)).is_ok());
        let Err(Failure::Impossible(why)) = with(Some(3)) else { panic!("not refused") };
        assert!(why.starts_with("this kernel's bbr is BBR v3, and `cc record` records"), "{why}");
        assert!(why.contains("\n  help: "), "{why}");
    }
}
