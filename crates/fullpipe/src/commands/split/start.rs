//! `split start`: owns a split until it ends.

use super::session::{LEASE, Session};
use super::{failure, usage};
use crate::failure::Failure;
use fullpipe_ebpf::split::{
    self, ConnectionFilter, MAX_PORTS, Setup, SplitConfig, SplitInfo, SplitProgram, Table,
};
use fullpipe_ebpf::{Controller, kernel, loader};
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Host, Machine, Process};
use fullpipe_host::journal::Store;
use fullpipe_kernel::{facts, signals};
use fullpipe_split::{Arms, Assigner, By, Guard, Plan, Writer};
use fullpipe_units::{Bytes, Span};
use std::fs::{File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub struct Args {
    /// Arms and their shares: bbr=50% cubic=50%; a:cubic=5% gives an arm a label of its own, default=10% leaves its
    /// connections what they have. What no arm has a share of is not in the experiment
    #[arg(required = true, value_name = "ARM=SHARE", value_delimiter = ',')]
    arms: Vec<String>,
    /// What is assigned: connection, client-prefix/24,/56, or time=10m (the whole host in turns)
    #[arg(long, value_name = "WHAT", default_value = "client-prefix/24,/56")]
    by: By,
    /// Only connections of this control group's processes (a directory) [default: the whole machine]
    #[arg(long, value_name = "PATH", conflicts_with = "unit")]
    cgroup: Option<PathBuf>,
    /// Only connections of this systemd unit
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Only connections of this local port; may be repeated
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<u16>,
    /// Only connections of these ends: 'sport = :443 and not dst 10.0.0.0/8', in the language of `fullpipe watch`. What can be
    /// asked for is what is known when a connection opens: addresses and ports of both ends
    #[cfg(feature = "live")]
    #[arg(long = "where", value_name = "FILTER")]
    only: Option<String>,
    /// Of the assignment: the same seed gives the same arms [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// The arm that the others are held against [default: `default`, or the one with the host's default controller, else the
    /// last]
    #[arg(long, value_name = "ARM")]
    control: Option<String>,
    /// How far an arm may be worse before new connections go to the control: off, or bounds such as p95-rtt=+20%
    #[arg(long, value_name = "BOUNDS", default_value_t = Guard::default())]
    guard: Guard,
    /// What makes a connection a transfer, whose goodput counts
    #[arg(long, value_name = "BYTES", default_value = "100kB")]
    least: Bytes,
    /// The file to write: a line of JSON a connection
    #[arg(long, value_name = "FILE", default_value = "split.jsonl", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let arms = Arms::parse(&self.arms).map_err(usage)?;
        if self.ports.len() > MAX_PORTS {
            return Err(Failure::usage(format_args!("--port: at most {MAX_PORTS}")));
        }
        let cgroup = match (&self.cgroup, &self.unit) {
            (Some(path), _) => path.clone(),
            (None, Some(unit)) => split::unit_group(unit).map_err(failure)?,
            (None, None) => split::root_group().map_err(failure)?,
        };
        let (filter, only) = self.only()?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let plan = self.plan(arms, &cgroup, filter, began);
        plan.check().map_err(usage)?;

        // Before anything else is started: threads inherit that the signals are blocked.
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        signals::on_termination(move || flag.store(true, Relaxed))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        let _held = hold(&plan.arms)?;
        let writer = self.writer(&plan)?;

        // The journal first: whatever becomes of this process, it says no more than what is.
        let arms: Vec<String> =
            plan.arms.all().iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
        let arms = arms.join(", ");
        let _journaled = Journaled::begin(&plan, &arms, &self.out)?;

        let mut session = Session::new(plan.clone(), writer);
        let table = session.table(plan.began_unix_s);
        let running = self.start(&plan, &cgroup, only, began, table)?;
        eprintln!(
            "split of {} by {}: {arms}; control {}, seed {}, guard {}; writing {}",
            plan.cgroup,
            plan.by,
            plan.control,
            plan.seed,
            plan.guard,
            self.out.display()
        );
        let most = self.length.map(Duration::from);
        let crossed = session.run(&running, most, &|| stop.load(Relaxed)).map_err(|e| match e {
            super::session::Trouble::Kernel(e) => failure(e),
            super::session::Trouble::File(e) => self.cannot_write(e),
        })?;
        eprintln!("`fullpipe split report {}` says what it found", self.out.display());
        match crossed {
            Some(why) => Err(Failure::Check(why)),
            None => Ok(()),
        }
    }

    fn plan(&self, arms: Arms, cgroup: &Path, only: String, began: Duration) -> Plan {
        Plan {
            control: self.control.clone().unwrap_or_else(|| control(&arms)),
            seed: self.seed.unwrap_or(began.as_nanos() as u64),
            arms,
            by: self.by,
            least: self.least,
            ports: self.ports.clone(),
            only,
            cgroup: cgroup.display().to_string(),
            guard: self.guard.clone(),
            began_unix_s: began.as_secs_f64(),
        }
    }

    /// The file, with its plan in it.
    fn writer(&self, plan: &Plan) -> Result<Writer<BufWriter<File>>, Failure> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&self.out).map_err(|e| {
            Failure::usage(format_args!(
                "--out {}: {e}; another name keeps what is there",
                self.out.display()
            ))
        })?;
        let mut writer = Writer::new(BufWriter::new(file), plan).map_err(|e| self.cannot_write(e))?;
        writer.flush().map_err(|e| self.cannot_write(e))?;
        Ok(writer)
    }

    fn cannot_write(&self, e: std::io::Error) -> Failure {
        Failure::usage(format_args!("{}: {e}", self.out.display()))
    }

    /// Assigns connections from now on.
    fn start(
        &self,
        plan: &Plan,
        cgroup: &Path,
        only: ConnectionFilter,
        began: Duration,
        table: Table,
    ) -> Result<SplitProgram, Failure> {
        let labels: Vec<&str> = plan.arms.all().iter().map(|arm| arm.label.as_str()).collect();
        let out = std::path::absolute(&self.out).unwrap_or_else(|_| self.out.clone());
        let assigner = Assigner::new(plan.seed, plan.by);
        SplitProgram::start(&SplitConfig {
            cgroup,
            only,
            setup: Setup::new(assigner.key(), assigner.masks(), number(plan.by), &plan.ports),
            about: SplitInfo::new(&labels, plan.seed, began.as_nanos() as u64, &out.to_string_lossy()),
            table,
            lease: LEASE,
        })
        .map_err(|e| {
            // A file of a split that never was would only be in the way of the next try.
            let _ = std::fs::remove_file(&self.out);
            failure(e)
        })
    }
}

impl Args {
    /// The condition on the ends, as it was typed and as the program has it.
    #[cfg(feature = "live")]
    fn only(&self) -> Result<(String, ConnectionFilter), Failure> {
        use fullpipe_live::filter::{Filter, Opening};
        let mut only = ConnectionFilter::default();
        let Some(typed) = &self.only else { return Ok((String::new(), only)) };
        let filter = Filter::parse(typed).map_err(Failure::usage)?;
        let steps = filter.at_opening().map_err(|why| Failure::usage(format_args!("--where: {why}")))?;
        for step in steps {
            let added = match step {
                Opening::Test { remote, net, ports } => only.test(remote, net, ports),
                Opening::And => only.and(),
                Opening::Or => only.or(),
                Opening::Not => only.not(),
            };
            added.map_err(|e| Failure::usage(format_args!("--where: {e}")))?;
        }
        Ok((typed.trim().to_owned(), only))
    }

    #[cfg(not(feature = "live"))]
    fn only(&self) -> Result<(String, ConnectionFilter), Failure> {
        Ok((String::new(), ConnectionFilter::default()))
    }
}

/// This machine as the network namespace has it, and the journal of that.
fn here() -> (Machine, Store) {
    let machine = Machine::new();
    let store = Store::for_scope(&Scope::detect(&machine, &machine.identity()));
    (machine, store)
}

/// What the journal says of a split: taken back when this goes, after what was declared later is gone.
struct Journaled {
    machine: Machine,
    store: Store,
    own: Process,
}

impl Journaled {
    /// Says that this process owns the split that writes to `out`.
    fn begin(plan: &Plan, arms: &str, out: &Path) -> Result<Self, Failure> {
        let (machine, store) = here();
        let own = Process::find(&machine, std::process::id())
            .ok_or_else(|| Failure::Impossible("/proc does not show this process".to_owned()))?;
        fullpipe_host::split::begin(&machine, &store, own, &plan.cgroup, arms).map_err(|e| {
            let _ = std::fs::remove_file(out);
            crate::commands::host::failure(e)
        })?;
        Ok(Journaled { machine, store, own })
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        if let Err(e) = fullpipe_host::split::end(&self.machine, &self.store, self.own) {
            eprintln!("the split is over, but its journal says so only once this process is gone: {e}");
        }
    }
}

/// How the program in the kernel calls what is assigned.
fn number(by: By) -> u32 {
    match by {
        By::Connection => 0,
        By::ClientPrefix { .. } => 1,
        By::Time { .. } => 2,
    }
}

/// The arm that is what the host does today.
fn control(arms: &Arms) -> String {
    let default = facts::default_controller().ok();
    let all = arms.all();
    let left = all.iter().find(|arm| arm.controller.is_none());
    let today = left.or_else(|| all.iter().find(|arm| arm.controller == default));
    today.or(all.last()).map(|arm| arm.label.clone()).unwrap_or_default()
}

/// Loads those of our controllers that arms need and that are not there, for as long as the result lives.
fn hold(arms: &Arms) -> Result<Vec<loader::TemporaryController>, Failure> {
    let mut available = kernel::available().map_err(failure)?;
    let mut held = Vec::new();
    for name in arms.all().iter().filter_map(|arm| arm.controller.as_deref()) {
        if available.iter().any(|there| there == name) {
            continue;
        }
        let ours = Controller::ALL.into_iter().find(|controller| controller.name() == name);
        let Some(controller) = ours else {
            return Err(Failure::Impossible(format!(
                "this kernel offers no controller {name}: {}\n  help: `modprobe tcp_{name}` where it is a module, or one of {}, \
                 which are loaded for the time of the split",
                available.join(", "),
                Controller::ALL.map(Controller::name).join(", ")
            )));
        };
        held.push(loader::load_temporarily(controller).map_err(failure)?);
        available.push(name.to_owned());
    }
    Ok(held)
}
