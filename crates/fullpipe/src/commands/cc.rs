//! `fullpipe cc`: congestion controllers in the running kernel.

mod list;
mod settings;
mod uses;

pub use uses::CALLS_FOR;

use crate::failure::Failure;
use crate::print::print_json;
use crate::runs::{command_line, hanging};
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

/// Congestion controllers in the running kernel, without rebuilding it.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The controllers that can be loaded into this kernel, and those it offers now.
    List {
        /// For machines.
        #[arg(long)]
        json: bool,
    },
    /// Load a controller; it stays until it is unloaded or the machine restarts.
    Load {
        /// bbr3, bbr1 or hybla.
        controller: Controller,
        /// Register it under another name (at most 15 characters).
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Send a test transfer through it, and count whether the kernel makes every call to a controller.
        #[arg(long)]
        verify: bool,
        /// Make it the default of this network namespace, after a test transfer.
        #[arg(long)]
        default: bool,
        /// Have new connections of this control group's processes use it.
        #[arg(long, value_name = "PATH")]
        cgroup: Option<PathBuf>,
        /// Have new connections over this route use it (`default`, `10.0.0.0/8`).
        #[arg(long, value_name = "PREFIX")]
        route: Option<String>,
        /// Load it at every boot (a systemd unit), with what is set in it now; with --default as the default.
        #[arg(long)]
        persist: bool,
        /// Vary something in it; may be repeated. `fullpipe cc settings` lists what. Where it is loaded already, its
        /// sockets follow. With --name, several variants can be there at once.
        #[arg(long = "set", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = settings::pair)]
        set: Vec<(String, String)>,
    },
    /// What can be varied in a controller, by `cc load --set` and `cc tune`.
    Settings {
        /// bbr3, bbr1 or hybla.
        controller: Controller,
    },
    /// Change settings of a loaded controller, and show them all; its sockets follow with their next ACK.
    Tune {
        /// The name it was registered under.
        name: String,
        /// What to change; nothing: only show them.
        #[arg(value_name = "KEY=VALUE", value_delimiter = ',', value_parser = settings::pair)]
        set: Vec<(String, String)>,
    },
    /// Put this build in the place of a loaded one; sockets go on, with what it knows of their paths where it can.
    Update {
        /// The controller.
        controller: Controller,
        /// The name it was registered under.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Take a controller out again, wherever it is in use.
    Unload {
        /// The controller.
        controller: Controller,
        /// The name it was registered under.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// How long to wait for sockets that still use it, in seconds.
        #[arg(long, default_value_t = 10)]
        wait: u64,
        /// Leave the systemd unit of --persist, which loads it again at the next boot.
        #[arg(long)]
        until_boot: bool,
    },
    /// What is loaded, where it is used, and what its sockets believe of their paths.
    Status {
        /// For machines.
        #[arg(long)]
        json: bool,
    },
    /// Record the kernel's own BBR, callback by callback, while a command runs.
    Record {
        /// The file to write.
        file: PathBuf,
        /// Disturb BBR's state before some callbacks, to record branches that paths rarely take.
        #[arg(long)]
        perturb: bool,
        /// The command; its sockets choose the controller fp_oracle (iperf3 -C fp_oracle, for instance).
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run our BBR v1 over a recording of the kernel's and compare everything it leaves.
    Replay {
        /// Files of `fullpipe cc record`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// For machines.
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.what {
            What::List { json } => list::run(json),
            What::Settings { controller } => {
                settings::show(controller);
                Ok(())
            }
            What::Load { .. }
            | What::Update { .. }
            | What::Tune { .. }
            | What::Unload { .. }
            | What::Status { .. }
            | What::Record { .. }
                if let Some(lacking) = loader::missing_capabilities() =>
            {
                Err(not_permitted(&lacking))
            }
            What::Tune { name, set } => settings::tune(&name, &set),
            What::Load { controller, name, verify, default, cgroup, route, persist, set } => {
                let wanted = Uses { verify, default, cgroup, route, persist, set };
                uses::load(controller, name.as_deref(), &wanted)
            }
            What::Update { controller, name } => {
                let outcome = lifecycle::update(controller, name.as_deref()).map_err(failure)?;
                say(name.as_deref().unwrap_or(controller.name()), outcome);
                Ok(())
            }
            What::Unload { controller, name, wait, until_boot } => {
                let name = name.as_deref().unwrap_or(controller.name());
                uses::unload(name, Duration::from_secs(wait), until_boot)
            }
            What::Status { json } => status(json),
            What::Record { file, perturb, command } => record(file, perturb, &command),
            What::Replay { files, json } => replay(&files, json),
        }
    }
}

/// Only root may load, take out, or even see what is loaded: what is pinned and what sockets use is hidden from others.
fn not_permitted(lacking: &str) -> Failure {
    let offers = kernel::available().unwrap_or_default().join(", ");
    Failure::Impossible(format!(
        "this needs root, also to see what is loaded and used ({lacking}); this kernel offers: {offers}\n  \
         help: sudo {}",
        command_line()
    ))
}

/// A machine that cannot is not a user who erred.
fn failure(error: Error) -> Failure {
    match error {
        Error::Impossible { .. } | Error::MissingFeature { .. } | Error::Io { .. } => {
            Failure::Impossible(error.to_string())
        }
        Error::Unknown { .. } | Error::Malformed(_) => Failure::Usage(error.to_string()),
    }
}

fn say(name: &str, outcome: lifecycle::Outcome) {
    match outcome {
        lifecycle::Outcome::Loaded => println!("{name} is loaded: sockets can choose it now"),
        lifecycle::Outcome::AlreadyLoaded => println!("{name} was loaded already"),
        lifecycle::Outcome::Replaced(carried) => {
            println!("{name} is replaced by this build");
            if !carried.sockets {
                println!(
                    "new sockets take it; live ones go on with the build that was there until they close"
                );
            } else if !carried.state {
                println!(
                    "its live sockets go on, and learn their paths anew: their state had another layout"
                );
            }
            if !carried.settings {
                println!("what had been set is not carried over: that build had other settings");
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
        println!("no controller of ours is loaded");
        let elsewhere: Vec<String> = kernel::available().map_err(failure)?;
        let elsewhere: Vec<&str> =
            elsewhere.iter().filter(|c| c.starts_with("fp_")).map(String::as_str).collect();
        if !elsewhere.is_empty() {
            let offers = elsewhere.join(", ");
            let why = "lent to a command that runs, or loaded in another mount namespace";
            hanging("", 0, &format!("but the kernel offers {offers}: {why}"));
        }
    }
    for one in all {
        let registered = if one.registered { "loaded" } else { "pinned, but not registered" };
        let build = match (&one.build, one.is_this_build) {
            (_, true) => "this build".to_owned(),
            (Some(build), false) => format!("another build, {build}: `fullpipe cc update` replaces it"),
            (None, false) => "an unknown build".to_owned(),
        };
        hanging("", 0, &format!("{}: {registered}, {build}, {} sockets", one.name, one.sockets.len()));
        if let Some(set) = settings::changed(&one.settings) {
            println!("  set: {set}");
        }
        for inode in &one.uses.default_of {
            println!("  default of network namespace {inode}");
        }
        for route in &one.uses.routes {
            println!("  route {route}");
        }
        for inode in &one.uses.cgroups {
            println!("  control group {inode}");
        }
        for socket in &one.sockets {
            hanging("  ", 0, &describe(socket));
        }
    }
    Ok(())
}

fn describe(socket: &Socket) -> String {
    if socket.listens {
        return "listens".to_owned();
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

fn record(file: PathBuf, perturb: bool, command: &[String]) -> Result<(), Failure> {
    let kernel = kernel::Kernel::detect().map_err(failure)?;
    let recorder = Recorder::start(oracle::NAME, perturb, &kernel).map_err(failure)?;
    let to = File::create(&file)
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
    eprintln!("{} callbacks recorded in {}, {} lost", summary.records, file.display(), summary.lost);
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
            let from = File::open(file)
                .map_err(|error| Failure::usage(format!("cannot open {}: {error}", file.display())))?;
            let reader = Reader::new(from).map_err(failure)?;
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
