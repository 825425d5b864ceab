//! `split start`: owns a split until it ends.

use super::kernel::{Program, table};
use super::{failure, usage};
use crate::failure::Failure;
use fullpipe_ebpf::split::{
    self, ConnectionFilter, MAX_PORTS, Setup, SplitConfig, SplitInfo, SplitOwner, SplitProgram, Table,
};
use fullpipe_ebpf::{Controller, kernel, loader};
use fullpipe_files::Location;
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Host, Machine, Process};
use fullpipe_host::journal::Store;
use fullpipe_kernel::facts;
use fullpipe_split::session::{Event, LEASE, MAX_FILE_BYTES, Session, SessionError};
use fullpipe_split::{Arms, AssignBy, Assigner, Guard, Plan, Writer};
use fullpipe_units::{Bytes, Span};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub struct Args {
    /// Arms and their shares: `bbr=50% cubic=50%`. `a:cubic=5%` names the arm `a`, and
    /// `default=10%` is an arm whose connections keep the host's controller. If the shares add up
    /// to less than 100%, the other connections are not part of the split
    #[arg(required = true, value_name = "ARM=SHARE", value_delimiter = ',')]
    arms: Vec<String>,
    /// Unit of assignment to an arm: `connection`; `client-prefix/24,/56`, all connections of an
    /// IPv4 /24 or IPv6 /56; or `time=10m`, all connections of the host, with an arm drawn every 10
    /// minutes
    #[arg(long, value_name = "UNIT", default_value = "client-prefix/24,/56")]
    by: AssignBy,
    /// Directory of the control group whose connections are divided [default: the whole machine]
    #[arg(long, value_name = "PATH", conflicts_with = "unit")]
    cgroup: Option<PathBuf>,
    /// systemd unit whose connections are divided
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Local port whose connections are divided; may be repeated [default: all]
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<u16>,
    /// Connections that are divided, in the syntax of `fullpipe watch`, such as 'sport = :443 and
    /// not dst 10.0.0.0/8'; only addresses and ports are supported, since nothing else is known
    /// when a connection opens
    #[cfg(feature = "live")]
    #[arg(long = "where", value_name = "FILTER")]
    condition: Option<String>,
    /// Seed of the assignment to arms: the same seed gives the same assignment, and clients that
    /// know it can choose their arm [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Duration of the split [default: until stopped]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Arm that the others are compared with [default: the arm `default`; without it, the arm with
    /// the host's controller, otherwise the last arm]
    #[arg(long, value_name = "ARM")]
    control: Option<String>,
    /// Limits on the difference from the control arm, such as p95-rtt=+20% or retransmitted=+1pt
    /// (percentage points), or `off`. If an arm exceeds one with statistical significance, all new
    /// connections go to the control arm
    #[arg(long, value_name = "BOUNDS", default_value_t = Guard::default())]
    guard: Guard,
    /// Minimum size of a connection whose goodput is counted
    #[arg(long, value_name = "BYTES", default_value = "100kB")]
    least: Bytes,
    /// New file to write, one line of JSON per connection; an existing file is refused. It takes up
    /// to half of the disk space that is free at the start, and at most 100 GB; further connections
    /// are counted, not recorded
    #[arg(long, value_name = "FILE", default_value = "split.jsonl", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let arms = Arms::parse(&self.arms).map_err(usage)?;
        if self.ports.len() > MAX_PORTS {
            return Err(Failure::usage(format_args!("--port may be given at most {MAX_PORTS} times")));
        }
        let cgroup = match (&self.cgroup, &self.unit) {
            (Some(path), _) => path.clone(),
            (None, Some(unit)) => split::unit_group(unit).map_err(failure)?,
            (None, None) => split::root_group().map_err(failure)?,
        };
        let (filter, condition) = self.condition()?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let plan = self.plan(arms, &cgroup, filter, began)?;
        plan.check().map_err(usage)?;

        // Before threads are started, since they inherit the blocked signals.
        let stop = crate::termination::flag()?;
        let _loaded = load_missing(&plan.arms)?;
        let (writer, max_bytes) = self.writer(&plan)?;

        // The journal first, so that a killed process leaves no split without an entry.
        let arms: Vec<String> =
            plan.arms.all().iter().map(|arm| format!("{} {}", arm.label, arm.share)).collect();
        let arms = arms.join(", ");
        let entry = JournalEntry::begin(&plan, &arms, &self.out)?;

        let mut session = Session::new(plan.clone(), writer, max_bytes);
        let table = table(&session.shares(plan.began_unix_s));
        let program = Program(self.start(&plan, entry.own, &cgroup, condition, began, table)?);
        entry.ensure(&plan, &arms, &|| stop.load(Relaxed)).inspect_err(|_| {
            let _ = std::fs::remove_file(&self.out);
        })?;
        eprintln!(
            "split of {} by {}: {arms}; control {}, seed {}, guard {}; writing {}",
            plan.cgroup,
            plan.by,
            plan.control,
            plan.seed,
            plan.guard,
            self.out.display()
        );
        let limit = self.length.map(Duration::from);
        let violation = session
            .run(&program, limit, &|| stop.load(Relaxed), &|event| report(event, &self.out))
            .map_err(|e| match e {
                SessionError::Kernel(e) => failure(e),
                SessionError::File(e) => self.cannot_write(e),
            })?;
        eprintln!("`fullpipe split report {}` shows the results", self.out.display());
        match violation {
            Some(why) => Err(Failure::Check(why)),
            None => Ok(()),
        }
    }

    fn plan(&self, arms: Arms, cgroup: &Path, filter: String, began: Duration) -> Result<Plan, Failure> {
        Ok(Plan {
            control: self.control.clone().unwrap_or_else(|| default_control(&arms)),
            seed: self.seed.map_or_else(random_seed, Ok)?,
            arms,
            by: self.by,
            min_transfer: self.least,
            ports: self.ports.clone(),
            condition: filter,
            cgroup: cgroup.display().to_string(),
            guard: self.guard.clone(),
            began_unix_s: began.as_secs_f64(),
        })
    }

    /// Creates the file and writes the plan. Also returns the file's maximum size.
    fn writer(&self, plan: &Plan) -> Result<(Writer<BufWriter<File>>, u64), Failure> {
        // It says who communicated with whom.
        let file = Location::resolve(&self.out).and_then(|out| out.create_new(0o600)).map_err(|e| {
            Failure::usage(format_args!(
                "--out {}: {e}; choose a file name that does not exist",
                self.out.display()
            ))
        })?;
        let max_bytes = max_bytes(&file).map_err(|e| self.cannot_write(e))?;
        let mut writer = Writer::new(BufWriter::new(file), plan).map_err(|e| self.cannot_write(e))?;
        writer.flush().map_err(|e| self.cannot_write(e))?;
        Ok((writer, max_bytes))
    }

    fn cannot_write(&self, e: std::io::Error) -> Failure {
        Failure::usage(format_args!("{}: {e}", self.out.display()))
    }

    /// Starts to assign connections.
    fn start(
        &self,
        plan: &Plan,
        own: Process,
        cgroup: &Path,
        condition: ConnectionFilter,
        began: Duration,
        table: Table,
    ) -> Result<SplitProgram, Failure> {
        let labels: Vec<&str> = plan.arms.all().iter().map(|arm| arm.label.as_str()).collect();
        let out = std::path::absolute(&self.out).unwrap_or_else(|_| self.out.clone());
        let assigner = Assigner::new(plan.seed, plan.by);
        let began_unix_ns = began.as_nanos() as u64;
        SplitProgram::start(&SplitConfig {
            cgroup,
            only: condition,
            setup: Setup::new(assigner.key(), assigner.masks(), number(plan.by), &plan.ports),
            about: SplitInfo::new(owner(own), &labels, plan.seed, began_unix_ns, &out.to_string_lossy()),
            table,
            lease: LEASE,
        })
        .map_err(|e| {
            // The file of a split that failed to start would block the next attempt.
            let _ = std::fs::remove_file(&self.out);
            failure(e)
        })
    }
}

impl Args {
    /// The condition of --where, as typed and as the BPF program's form.
    #[cfg(feature = "live")]
    fn condition(&self) -> Result<(String, ConnectionFilter), Failure> {
        use fullpipe_live::filter::{Filter, OpeningStep};
        let mut condition = ConnectionFilter::default();
        let Some(typed) = &self.condition else { return Ok((String::new(), condition)) };
        let filter = Filter::parse(typed).map_err(Failure::usage)?;
        let steps = filter.opening_steps().map_err(|why| Failure::usage(format_args!("--where: {why}")))?;
        for step in steps {
            let added = match step {
                OpeningStep::Test { remote, net, ports } => condition.test(remote, net, ports),
                OpeningStep::And => condition.and(),
                OpeningStep::Or => condition.or(),
                OpeningStep::Not => condition.not(),
            };
            added.map_err(|e| Failure::usage(format_args!("--where: {e}")))?;
        }
        Ok((typed.trim().to_owned(), condition))
    }

    #[cfg(not(feature = "live"))]
    fn condition(&self) -> Result<(String, ConnectionFilter), Failure> {
        Ok((String::new(), ConnectionFilter::default()))
    }
}

/// Reports an event of a split that writes to `out` on stderr.
fn report(event: &Event<'_>, out: &Path) {
    match event {
        Event::GroupReplaced(group) => {
            eprintln!("the control group {group} was created again: its new connections are divided, too");
        }
        Event::GroupGone(group) => {
            eprintln!("the control group {group} is gone: the split waits until it exists again");
        }
        Event::Detached(group) => {
            eprintln!("another process detached the split from {group}: it is attached again");
        }
        Event::FileFull(bytes) => {
            eprintln!(
                "{} reached its maximum size of {bytes} bytes: its records are kept, further connections are \
                 only counted; `fullpipe split stop` ends the split",
                out.display()
            );
        }
        Event::SharesIgnored => {
            eprintln!("ignoring the requested shares: the guard has stopped this split");
        }
        Event::SharesChanged { shares, reason } => {
            let texts: Vec<String> = shares.iter().map(|(label, share)| format!("{label} {share}")).collect();
            eprintln!("shares are now {}: {reason}", texts.join(", "));
        }
    }
}

/// This machine as seen from the network namespace, and its journal.
fn this_machine() -> (Machine, Store) {
    let machine = Machine::new();
    let store = Store::for_scope(&Scope::detect(&machine, &machine.identity()));
    (machine, store)
}

/// A process in the form of the BPF program.
fn owner(process: Process) -> SplitOwner {
    SplitOwner {
        id: process.id,
        started: process.started,
        pid_namespace: process.namespace.unwrap_or_default(),
    }
}

/// The owner of a split as the journal has it. No process is in a PID namespace that is unknown.
pub fn process(owner: SplitOwner) -> Process {
    Process { id: owner.id, started: owner.started, namespace: Some(owner.pid_namespace) }
}

/// Removes journal entries of splits in other PID namespaces that ended without removing them, as
/// when a container is killed.
fn forget_ended(machine: &Machine, store: &Store) -> Result<(), Failure> {
    // If the programs cannot be listed, the entries stay.
    let loaded =
        || split::list_loaded().ok().map(|all| all.iter().map(|about| process(about.owner())).collect());
    fullpipe_host::split::forget_ended(machine, store, &loaded).map_err(crate::commands::host::failure)
}

/// As [`forget_ended`], for this machine.
pub fn forget_ended_here() -> Result<(), Failure> {
    let (machine, store) = this_machine();
    forget_ended(&machine, &store)
}

/// The journal entry of a split, removed when dropped. Declared before the split itself, so that it
/// is dropped after it.
struct JournalEntry {
    machine: Machine,
    store: Store,
    own: Process,
}

impl JournalEntry {
    /// Records that this process owns the split that writes to `out`.
    fn begin(plan: &Plan, arms: &str, out: &Path) -> Result<Self, Failure> {
        let (machine, store) = this_machine();
        let own = Process::current(&machine)
            .ok_or_else(|| Failure::Impossible("cannot find this process in /proc".to_owned()))?;
        let begun = forget_ended(&machine, &store).and_then(|()| {
            fullpipe_host::split::begin(&machine, &store, own, &plan.cgroup, arms)
                .map_err(crate::commands::host::failure)
        });
        if begun.is_err() {
            let _ = std::fs::remove_file(out);
        }
        begun?;
        Ok(JournalEntry { machine, store, own })
    }

    /// Records the split again if another process took it for ended before it began.
    fn ensure(&self, plan: &Plan, arms: &str, is_stopping: &dyn Fn() -> bool) -> Result<(), Failure> {
        let Self { machine, store, own } = self;
        fullpipe_host::split::ensure(machine, store, *own, &plan.cgroup, arms, is_stopping)
            .map_err(crate::commands::host::failure)
    }
}

impl Drop for JournalEntry {
    fn drop(&mut self) {
        if let Err(e) = fullpipe_host::split::end(&self.machine, &self.store, self.own) {
            eprintln!(
                "warning: the split is over, but its journal entry stays until this process has exited: {e}"
            );
        }
    }
}

/// The maximum size of a file: half of the free space, which leaves the other half to the host's
/// other programs, and at most [`MAX_FILE_BYTES`].
fn max_bytes(file: &File) -> std::io::Result<u64> {
    // Not by its path, which may lead elsewhere by now.
    let free = Machine::new().free(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(MAX_FILE_BYTES.min(free / 2))
}

/// A random seed. Clients could guess the time, and the key of the assignment follows from the seed.
fn random_seed() -> Result<u64, Failure> {
    getrandom::u64().map_err(|e| Failure::Impossible(format!("cannot generate a random seed: {e}")))
}

/// The unit of assignment as a number for the BPF program.
fn number(by: AssignBy) -> u32 {
    match by {
        AssignBy::Connection => 0,
        AssignBy::ClientPrefix { .. } => 1,
        AssignBy::Time { .. } => 2,
    }
}

/// The arm that matches what the host does without a split.
fn default_control(arms: &Arms) -> String {
    let default = facts::default_controller().ok();
    let all = arms.all();
    let unchanged = all.iter().find(|arm| arm.controller.is_none());
    let current = unchanged.or_else(|| all.iter().find(|arm| arm.controller == default));
    current.or(all.last()).map(|arm| arm.label.clone()).unwrap_or_default()
}

/// Loads the eBPF controllers that arms need and the kernel lacks, for as long as the result lives.
fn load_missing(arms: &Arms) -> Result<Vec<loader::TemporaryController>, Failure> {
    let mut available = kernel::available().map_err(failure)?;
    let mut loaded = Vec::new();
    for name in arms.all().iter().filter_map(|arm| arm.controller.as_deref()) {
        if available.iter().any(|one| one == name) {
            continue;
        }
        let known = Controller::ALL.into_iter().find(|controller| controller.name() == name);
        let Some(controller) = known else {
            return Err(Failure::Impossible(format!(
                "controller {name} is not available in this kernel; available: {}\n  help: run `modprobe \
                 tcp_{name}` if it is a \
                 module, or use one of {}, which are loaded for the duration of the split",
                available.join(", "),
                Controller::ALL.map(Controller::name).join(", ")
            )));
        };
        loaded.push(loader::load_temporarily(controller).map_err(failure)?);
        available.push(name.to_owned());
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn plan(options: &[&str]) -> Plan {
        let words = ["start", "a:reno=50%", "b:reno=50%"].iter().chain(options);
        let args = Command::try_parse_from(words).unwrap().args;
        let arms = Arms::parse(&args.arms).unwrap();
        let began = Duration::from_secs(1_800_000_000);
        args.plan(arms, Path::new("/sys/fs/cgroup"), String::new(), began).unwrap()
    }

    /// Clients may know when a split started.
    #[test]
    fn the_time_of_start_does_not_determine_the_seed() {
        let seeds: Vec<u64> = (0..64).map(|_| plan(&[]).seed).collect();
        assert!((1..64).all(|n| !seeds[..n].contains(&seeds[n])), "{seeds:?}");
        // Each of the 64 bits varies: the probability that one does not is 64 × 2⁻⁶³.
        let (any, all) = seeds.iter().fold((0, u64::MAX), |(any, all), seed| (any | seed, all & seed));
        assert_eq!((any, all), (u64::MAX, 0));
        assert_eq!(plan(&["--seed", "18446744073709551615"]).seed, u64::MAX);
    }
}
