//! A split in the journal: a process that divides new connections between controllers while it
//! runs. `status` reports it, `revert` ends it, and the entry of a killed process is ignored.

use crate::apply::{LOCK_TIMEOUT, interrupted, lock, lock_within, now, refuse_unfinished};
use crate::error::{Error, Result};
use crate::host::{Host, Presence, Process};
use crate::journal::{Journal, Phase, Record, Store};
use crate::plan::{Change, Plan, Step, Use};
use std::time::Duration;

/// Time between a split's journal entry and its program in the kernel, on a busy machine.
const MAX_START_TIME: Duration = Duration::from_secs(2);

/// Time to wait for the lock before a split's connections are observed: well within its lease.
const MAX_RECORD_TIME: Duration = Duration::from_secs(5);

/// Stands in for the controller's name in a split's steps; no kernel controller has this name.
pub(crate) const USE: &str = "split";

/// Records in the journal that a process divides the connections of a control group. Call it before
/// that begins.
///
/// # Errors
/// [`Error::Impossible`] without root or a directory for the journal; [`Error::Check`] after an
/// interrupted command.
pub fn begin(host: &dyn Host, store: &Store, owner: Process, group: &str, arms: &str) -> Result<()> {
    let _lock = lock_within(host, "split start", LOCK_TIMEOUT)?;
    record(host, store, owner, group, arms)
}

fn record(host: &dyn Host, store: &Store, owner: Process, group: &str, arms: &str) -> Result<()> {
    let change = Change::Split { owner, group: group.to_owned(), arms: arms.to_owned() };
    let part_of = Some(Use { controller: USE.to_owned(), boot: host.clock().boot() });
    let step = Step { part_of, ..Step::new(change, "new connections get the controllers of the arms") };
    let cannot_write = |e: std::io::Error| {
        Error::io(format_args!("cannot write {}; no split was started", store.path()), &e)
    };
    match store.load(host)? {
        None => {
            let plan =
                Plan { controller: USE.to_owned(), steps: vec![step], notes: Vec::new(), canary: None };
            store.begin(host, &plan, Some(USE), now()).map_err(cannot_write)?;
            store.append(host, &Record::Applied).map_err(cannot_write)
        }
        Some(mut journal) => {
            refuse_unfinished(host, &journal)?;
            if journal.phase == Phase::Applying && !journal.plan.is_empty() {
                return Err(interrupted(host, &journal));
            }
            if journal.plan.is_empty() {
                USE.clone_into(&mut journal.plan.controller);
            }
            journal.plan.steps.push(step);
            journal.phase = Phase::Applied;
            store.replace(host, &journal).map_err(cannot_write)
        }
    }
}

/// As [`begin`] if the journal has no entry of this process. Call it when the program is in the
/// kernel: a process of another PID namespace forgets an entry whose program was not loaded in time.
/// Does nothing once `is_stopping`.
///
/// # Errors
/// As [`begin`].
pub fn ensure(
    host: &dyn Host,
    store: &Store,
    owner: Process,
    group: &str,
    arms: &str,
    is_stopping: &dyn Fn() -> bool,
) -> Result<()> {
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    // A process that holds the lock may have listed the programs before this one was loaded. It may
    // also be a revert that waits for this process to end.
    let mut waited = Duration::ZERO;
    let lock = loop {
        if is_stopping() {
            return Ok(());
        }
        match lock(host, "split start") {
            Err(_) if waited < MAX_RECORD_TIME => {
                host.pause(POLL_INTERVAL);
                waited += POLL_INTERVAL;
            }
            taken => break taken,
        }
    };
    let is_recorded =
        |journal: &Journal| journal.plan.steps.iter().any(|step| split_owner(step) == Some(owner));
    if store.load(host)?.as_ref().is_some_and(is_recorded) {
        return Ok(());
    }
    let _lock = lock?;
    record(host, store, owner, group, arms)
}

/// Removes a split from the journal. Does nothing while another fullpipe process holds the lock:
/// that one may be waiting for this process to exit, and the entry is void after the exit anyway.
///
/// # Errors
/// [`Error::Impossible`] if the journal cannot be written.
pub fn end(host: &dyn Host, store: &Store, owner: Process) -> Result<()> {
    let Ok(_lock) = lock(host, "split stop") else { return Ok(()) };
    let Some(mut journal) = store.load(host)? else { return Ok(()) };
    journal.plan.steps.retain(|step| split_owner(step) != Some(owner));
    store_rest(host, store, journal)
}

/// The process whose split a step records.
fn split_owner(step: &Step) -> Option<Process> {
    match step.change {
        Change::Split { owner, .. } => Some(owner),
        _ => None,
    }
}

/// Removes the splits of other PID namespaces that have ended: `/proc` does not show whether their
/// processes run, but `loaded` lists the processes whose splits the kernel has, or returns `None` if
/// they cannot be listed.
///
/// # Errors
/// [`Error::Impossible`] without root, or if the journal cannot be written.
pub fn forget_ended(host: &dyn Host, store: &Store, loaded: &dyn Fn() -> Option<Vec<Process>>) -> Result<()> {
    let ended = |journal: &Journal| -> Vec<Process> {
        let owners = journal.plan.steps.iter().filter_map(split_owner);
        let unknown: Vec<Process> = owners.filter(|one| one.presence(host) == Presence::Unknown).collect();
        // Listing takes time on a host with many programs.
        let loaded = if unknown.is_empty() { None } else { loaded() };
        loaded.map_or_else(Vec::new, |all| unknown.into_iter().filter(|one| !all.contains(one)).collect())
    };
    let suspects = store.load(host)?.as_ref().map(ended).unwrap_or_default();
    if suspects.is_empty() {
        return Ok(());
    }
    let _lock = lock_within(host, "split", LOCK_TIMEOUT)?;
    let is_of =
        |owners: &[Process], step: &Step| split_owner(step).is_some_and(|owner| owners.contains(&owner));
    let has_suspects = |journal: &Journal| journal.plan.steps.iter().any(|step| is_of(&suspects, step));
    let Some(mut journal) = store.load(host)?.filter(has_suspects) else { return Ok(()) };
    // A split that is in the journal and not yet loaded may be starting. No other starts meanwhile.
    host.pause(MAX_START_TIME);
    let ended = ended(&journal);
    journal.plan.steps.retain(|step| !is_of(&ended, step));
    store_rest(host, store, journal)
}

/// Writes the journal without the steps removed from it.
fn store_rest(host: &dyn Host, store: &Store, mut journal: Journal) -> Result<()> {
    let cannot_write = |e: std::io::Error| Error::io(format_args!("cannot write {}", store.path()), &e);
    if journal.plan.is_empty() {
        return store.end(host, &journal).map_err(cannot_write);
    }
    name_after_what_is_left(&mut journal);
    store.replace(host, &journal).map_err(cannot_write)
}

fn name_after_what_is_left(journal: &mut Journal) {
    let last = journal.plan.steps.last().and_then(|step| step.part_of.as_ref());
    if let Some(part) = last.filter(|_| !journal.plan.has_apply()) {
        journal.plan.controller.clone_from(&part.controller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Directory, Model};
    use crate::{revert, status};
    use std::cell::Cell;

    const STORE: &str = "/var/lib/fullpipe";

    fn host(root: &std::path::Path) -> Model<Directory> {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("kernel.json", r#"{"release": "6.1.0", "devices": {"eth0": 1}}"#);
        for list in ["available", "allowed"] {
            write(&format!("proc/sys/net/ipv4/tcp_{list}_congestion_control"), "reno cubic\n");
        }
        write("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
        for directory in ["run", "var/lib", "etc/sysctl.d"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        Model::new(Directory::new(root))
    }

    fn starts(root: &std::path::Path, id: u32, state: char, started: u64) {
        let directory = root.join(format!("proc/{id}"));
        std::fs::create_dir_all(&directory).unwrap();
        let fields = vec!["1"; 18].join(" ");
        std::fs::write(directory.join("stat"), format!("{id} (a (b) c) {state} {fields} {started} 4 5\n"))
            .unwrap();
    }

    /// The PID namespace of this process.
    fn is_in_pid_namespace(root: &std::path::Path, inode: u64) {
        let directory = root.join("proc/self/ns");
        std::fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(format!("pid:[{inode}]"), directory.join("pid")).unwrap();
    }

    /// Number of splits that `status` shows.
    fn entries(host: &dyn Host, store: &Store) -> usize {
        status::status(host, store).unwrap().uses.first().map_or(0, |one| one.changes.len())
    }

    fn kills(root: &std::path::Path, id: u32) {
        std::fs::remove_file(root.join(format!("proc/{id}/stat"))).unwrap();
    }

    #[test]
    fn journal_keeps_a_split_while_its_process_runs() {
        let root = tempfile::tempdir().unwrap();
        let (host, store) = (host(root.path()), Store::at(STORE));
        let current_status = || status::status(&host, &store).unwrap();
        let none = current_status();
        for id in [77, 78] {
            starts(root.path(), id, 'S', 5);
            begin(
                &host,
                &store,
                Process { id, started: 5, namespace: None },
                "/sys/fs/cgroup",
                "bbr 50%, cubic 50%",
            )
            .unwrap();
        }
        let both = current_status();
        assert!(
            both.consistent && both.summary.starts_with("a split of new connections is assigned"),
            "{both:?}"
        );
        assert_eq!(both.uses[0].changes[1], "split of process 78: bbr 50%, cubic 50% of /sys/fs/cgroup");
        end(&host, &store, Process { id: 77, started: 5, namespace: None }).unwrap();
        assert_eq!(current_status().uses[0].changes.len(), 1);
        // The entry of a killed process is ignored, and a revert removes it.
        kills(root.path(), 78);
        assert_eq!(current_status(), none);
        begin(
            &host,
            &store,
            Process { id: 77, started: 5, namespace: None },
            "/sys/fs/cgroup",
            "bbr 10%, cubic 90%",
        )
        .unwrap();
        assert_eq!(current_status().uses[0].changes.len(), 1);
        let reverted = revert::revert(&host, &store, &revert::Options::default()).unwrap().unwrap();
        assert_eq!(reverted.undone().collect::<Vec<_>>(), ["split of process 77"]);
        assert!(!root.path().join("proc/77/stat").exists() && !root.path().join("var/lib/fullpipe").exists());
        assert_eq!(current_status(), none);
        // Killed before its journal entry was removed.
        starts(root.path(), 79, 'S', 6);
        begin(&host, &store, Process { id: 79, started: 6, namespace: None }, "/sys/fs/cgroup", "bbr 50%")
            .unwrap();
        kills(root.path(), 79);
        end(&host, &store, Process { id: 79, started: 6, namespace: None }).unwrap();
        assert!(!root.path().join("var/lib/fullpipe").exists());
    }

    #[test]
    fn split_end_does_not_wait_for_the_lock_holder() {
        let root = tempfile::tempdir().unwrap();
        let (host, store) = (host(root.path()), Store::at(STORE));
        starts(root.path(), 77, 'S', 5);
        let owner = Process { id: 77, started: 5, namespace: None };
        begin(&host, &store, owner, "/", "bbr 50%").unwrap();
        let lock = lock(&host, "revert").unwrap();
        end(&host, &store, owner).unwrap();
        drop(lock);
        assert_eq!(status::status(&host, &store).unwrap().uses.len(), 1, "left to the lock holder");
    }

    #[test]
    fn a_split_of_another_pid_namespace_stays_in_the_journal_and_is_not_signalled() {
        let root = tempfile::tempdir().unwrap();
        let (host, store) = (host(root.path()), Store::at(STORE));
        is_in_pid_namespace(root.path(), 4_026_532_000);
        // Another process has its ID and even its start time in this namespace.
        starts(root.path(), 77, 'S', 5);
        let container = Process { id: 77, started: 5, namespace: Some(4_026_532_999) };
        let own = Process { id: 77, started: 5, namespace: Some(4_026_532_000) };
        begin(&host, &store, container, "/sys/fs/cgroup", "bbr 50%, cubic 50%").unwrap();
        let current = || status::status(&host, &store).unwrap();
        let before = current();
        assert_eq!(before.uses[0].changes.len(), 1);
        // Other commands rewrite the journal.
        begin(&host, &store, own, "/", "bbr 50%").unwrap();
        end(&host, &store, own).unwrap();
        kills(root.path(), 77);
        assert_eq!(current(), before);
        starts(root.path(), 77, 'S', 5);
        let error = revert::revert(&host, &store, &revert::Options::default()).unwrap_err();
        assert!(error.text().contains("another PID namespace"), "{error}");
        assert!(root.path().join("proc/77/stat").exists(), "it was ended");
        // Once its program is gone, so is its entry.
        forget_ended(&host, &store, &|| Some(vec![container])).unwrap();
        assert_eq!(current().uses[0].changes.len(), 1);
        forget_ended(&host, &store, &|| Some(Vec::new())).unwrap();
        assert!(!root.path().join("var/lib/fullpipe").exists() && root.path().join("proc/77/stat").exists());
    }

    #[test]
    fn split_that_was_forgotten_while_it_started_is_recorded_again() {
        let root = tempfile::tempdir().unwrap();
        let (host, store) = (host(root.path()), Store::at(STORE));
        starts(root.path(), 77, 'S', 5);
        let owner = Process { id: 77, started: 5, namespace: None };
        let entries = || entries(&host, &store);
        begin(&host, &store, owner, "/", "bbr 50%").unwrap();
        let ensure = |is_stopping| ensure(&host, &store, owner, "/", "bbr 50%", &|| is_stopping);
        ensure(false).unwrap();
        assert_eq!(entries(), 1);
        let held = lock(&host, "apply").unwrap();
        ensure(false).unwrap();
        end(&host, &store, owner).unwrap();
        assert_eq!(entries(), 1, "another process has the lock");
        drop(held);
        end(&host, &store, owner).unwrap();
        assert_eq!(entries(), 0);
        let held = lock(&host, "revert").unwrap();
        ensure(true).unwrap();
        assert!(ensure(false).is_err(), "it cannot be recorded");
        drop(held);
        ensure(false).unwrap();
        assert_eq!(entries(), 1);
    }

    #[test]
    fn programs_are_listed_once_for_all_splits_and_again_before_one_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let (host, store) = (host(root.path()), Store::at(STORE));
        is_in_pid_namespace(root.path(), 4_026_532_000);
        let owners = [77, 78].map(|id| Process { id, started: 5, namespace: Some(4_026_532_999) });
        owners.iter().for_each(|owner| begin(&host, &store, *owner, "/", "bbr 50%").unwrap());
        let entries = || entries(&host, &store);
        let listings = Cell::new(0);
        let forget_except = |loaded: Option<&[Process]>| {
            listings.set(0);
            let list = || {
                listings.set(listings.get() + 1);
                loaded.map(<[Process]>::to_vec)
            };
            forget_ended(&host, &store, &list).unwrap();
            (entries(), listings.get())
        };
        assert_eq!(forget_except(Some(&owners)), (2, 1));
        assert_eq!(forget_except(None), (2, 1), "the programs cannot be listed");
        assert_eq!(forget_except(Some(&owners[..1])), (1, 2));
        assert_eq!(forget_except(Some(&[])), (0, 2));
        assert_eq!(forget_except(Some(&[])), (0, 0), "there is nothing to list them for");
    }
}
