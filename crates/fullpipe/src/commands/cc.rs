//! `fullpipe cc`: congestion controllers in the running kernel.

use crate::failure::Failure;
use clap::{Args as ClapArgs, Subcommand};
use fullpipe_ebpf::oracle::{self, Reader, Recorder, Writer};
use fullpipe_ebpf::{Controller, Error, kernel, life};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Command as Process, ExitStatus};
use std::time::Duration;

/// Congestion controllers in the running kernel, without rebuilding it.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The controllers that can be loaded, and those the kernel offers now.
    List,
    /// Load a controller; it stays until it is unloaded or the machine restarts.
    Load {
        /// bbr1, …: see `fullpipe cc list`.
        controller: Controller,
    },
    /// Take a controller out again.
    Unload {
        /// The controller.
        controller: Controller,
        /// How long to wait for sockets that still use it, in seconds.
        #[arg(long, default_value_t = 10)]
        wait: u64,
    },
    /// Record the kernel's own BBR, callback by callback, while a command runs.
    Record {
        /// The file to write.
        file: PathBuf,
        /// Disturb BBR's state before one callback in 64, to record branches that paths rarely take.
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
            What::List => list(),
            What::Load { controller } => load(controller),
            What::Unload { controller, wait } => {
                life::unload(controller.name(), Duration::from_secs(wait)).map_err(failure)?;
                println!("{controller} is unloaded");
                Ok(())
            }
            What::Record { file, perturb, command } => record(file, perturb, &command),
            What::Replay { files, json } => replay(&files, json),
        }
    }
}

/// A machine that cannot is not a user who erred.
fn failure(error: Error) -> Failure {
    match error {
        Error::Impossible { .. } | Error::Io { .. } => Failure::Impossible(error.to_string()),
        Error::Unknown { .. } | Error::Malformed(_) => Failure::Usage(error.to_string()),
    }
}

fn list() -> Result<(), Failure> {
    let available = kernel::available().map_err(failure)?;
    println!("{:<10} {:<10} what it is", "name", "state");
    for controller in Controller::ALL {
        let state = if available.iter().any(|name| name == controller.name()) { "loaded" } else { "-" };
        println!("{:<10} {:<10} {}", controller.name(), state, controller.about());
    }
    for name in available.iter().filter(|name| !Controller::ALL.iter().any(|ours| ours.name() == *name)) {
        println!("{name:<10} {:<10} the kernel's", "there");
    }
    Ok(())
}

fn load(controller: Controller) -> Result<(), Failure> {
    let outcome = life::load(controller).map_err(failure)?;
    match outcome {
        life::Outcome::Loaded => println!("{controller} is loaded: sockets can choose it now"),
        life::Outcome::AlreadyThere => println!("{controller} was loaded already"),
        life::Outcome::Replaced => println!("{controller} is replaced by this build"),
    }
    Ok(())
}

fn record(file: PathBuf, perturb: bool, command: &[String]) -> Result<(), Failure> {
    let kernel = kernel::Kernel::ask().map_err(failure)?;
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
