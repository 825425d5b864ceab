//! The write-ahead journal of an apply: the whole plan with the state before it, made durable before anything
//! changes, then one record for each thing begun and done.
//!
//! Each line is a checksum and a JSON record. A last line that power loss tore off is ignored; damage anywhere else is an
//! error. Whether a step holds is always asked of the host itself: the journal says what was intended, not what is.

use crate::error::{Error, Result};
use crate::facts::Scope;
use crate::host::{Clock, Files, Host, Node, View, parent};
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// One line of the journal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// The plan, before anything is changed.
    Begin {
        /// The format of this file.
        version: u32,
        /// What is going to be done, and how things are before.
        plan: Box<Plan>,
        /// Directories that were made to hold the journal.
        created: Vec<String>,
        /// When it began, seconds since 1970.
        time: u64,
    },
    /// Step number is about to be made.
    Doing(usize),
    /// Step number is made.
    Done(usize),
    /// Everything is made and verified.
    Applied,
    /// From here on this loaded controller is being put to use.
    Assigning(String),
    /// From here on the uses of this loaded controller are being ended.
    Unassigning(String),
    /// To be undone unless it is confirmed in time.
    Trial(Trial),
    /// Kept for good: what is left of the plan is being made.
    Confirmed,
    /// From here on everything is being undone.
    Reverting,
    /// Step number is undone.
    Undone(usize),
}

/// Until when a change is on trial, by a clock that nobody can set. Another start of the machine ends it, too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The kernel's name for the run of the machine in which it began.
    pub boot: String,
    /// Milliseconds since the machine started.
    pub until: u64,
}

impl Trial {
    /// A trial that ends `within` from now.
    pub fn starting_now(clock: &dyn Clock, within: Duration) -> Trial {
        let until = clock.since_boot().saturating_add(within).as_nanos().div_ceil(1_000_000);
        Trial { boot: clock.boot(), until: u64::try_from(until).unwrap_or(u64::MAX) }
    }

    /// The time that is left; nothing when it is over.
    pub fn remaining(&self, clock: &dyn Clock) -> Option<Duration> {
        let left = Duration::from_millis(self.until).checked_sub(clock.since_boot())?;
        (self.boot == clock.boot() && !left.is_zero()).then_some(left)
    }
}

/// How far an apply has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Begun and not finished: `apply` completes it, `revert` undoes it.
    Applying,
    /// In force.
    Applied,
    /// Being undone and not finished: `revert` completes it.
    Reverting,
}

/// What a journal says.
#[derive(Clone, PartialEq, Debug)]
pub struct Journal {
    /// The plan.
    pub plan: Plan,
    /// How far it has come.
    pub phase: Phase,
    /// The loaded controller whose uses are being made or ended, if it is not the whole plan.
    pub busy_with: Option<String>,
    /// Until when it must be confirmed, if that is still awaited.
    pub trial: Option<Trial>,
    /// When it began, seconds since 1970.
    pub time: u64,
    /// Directories that were made to hold the journal.
    pub(crate) created: Vec<String>,
}

impl Journal {
    /// What says the same as this from the beginning.
    fn records(&self) -> Vec<Record> {
        let (plan, created, time) = (Box::new(self.plan.clone()), self.created.clone(), self.time);
        let mut records = vec![Record::Begin { version: VERSION, plan, created, time }];
        records.extend(match (self.phase, &self.busy_with) {
            (Phase::Applying, None) => None,
            (Phase::Applying, Some(controller)) => Some(Record::Assigning(controller.clone())),
            (Phase::Applied, _) => Some(Record::Applied),
            (Phase::Reverting, None) => Some(Record::Reverting),
            (Phase::Reverting, Some(controller)) => Some(Record::Unassigning(controller.clone())),
        });
        records.extend(self.trial.clone().map(Record::Trial));
        records
    }
}

const VERSION: u32 = 1;

/// FNV-1a, 64 bits: against torn writes, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn encode(record: &Record) -> io::Result<String> {
    let json = serde_json::to_string(record)?;
    Ok(format!("{:016x} {json}\n", checksum(json.as_bytes())))
}

/// Reads a journal's bytes.
///
/// # Errors
/// Damage before the last line or in the first (which is whole before the file has its name), a version that this
/// program does not know, records out of order.
pub fn decode(bytes: &[u8]) -> std::result::Result<Journal, String> {
    let mut records = Vec::new();
    let lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
    for (i, line) in lines.iter().enumerate() {
        let whole = (|| {
            let text = std::str::from_utf8(line).ok()?;
            let (sum, json) = text.split_once(' ')?;
            (u64::from_str_radix(sum, 16).ok()? == checksum(json.as_bytes()))
                .then(|| serde_json::from_str::<Record>(json).map_err(|e| e.to_string()))
        })();
        match whole {
            Some(Ok(record)) => records.push(record),
            Some(Err(e)) => return Err(format!("line {}: {e}", i + 1)),
            // Only the end can be torn: nothing was ever written after it.
            None if lines[i..].iter().skip(1).all(|l| l.is_empty()) => break,
            None => return Err(format!("line {} is damaged", i + 1)),
        }
    }
    let mut records = records.into_iter();
    let Some(first) = records.next() else { return Err("line 1 is cut off".into()) };
    let Record::Begin { version, plan, created, time } = first else {
        return Err("it does not begin with a plan".into());
    };
    if version != VERSION {
        return Err(format!("it has format {version}, this program knows {VERSION}"));
    }
    let (phase, busy_with) = (Phase::Applying, None);
    let mut journal = Journal { plan: *plan, phase, busy_with, trial: None, time, created };
    for record in records {
        let (phase, busy_with) = match record {
            Record::Begin { .. } => return Err("it holds two plans".into()),
            Record::Doing(_) | Record::Done(_) | Record::Undone(_) => continue,
            Record::Trial(trial) => {
                journal.trial = Some(trial);
                continue;
            }
            Record::Confirmed => {
                journal.trial = None;
                (Phase::Applying, None)
            }
            Record::Applied => (Phase::Applied, None),
            Record::Assigning(controller) => (Phase::Applying, Some(controller)),
            Record::Unassigning(controller) => (Phase::Reverting, Some(controller)),
            Record::Reverting => (Phase::Reverting, None),
        };
        (journal.phase, journal.busy_with) = (phase, busy_with);
    }
    Ok(journal)
}

/// Where a host's journal is.
#[derive(Clone, Debug)]
pub struct Store {
    directory: String,
}

impl Store {
    /// The place for this host, or for this network namespace of it: a namespace ends with the machine's run, and
    /// so does `/run`.
    pub fn for_scope(scope: &Scope) -> Store {
        if scope.boots {
            Store::at("/var/lib/fullpipe")
        } else {
            Store::at(&format!("/run/fullpipe-net-{}", scope.namespace))
        }
    }

    /// A directory of one's own.
    pub fn at(directory: &str) -> Store {
        Store { directory: directory.trim_end_matches('/').to_owned() }
    }

    /// The directory that it is in.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// The journal's path.
    pub fn path(&self) -> String {
        format!("{}/host.journal", self.directory)
    }

    /// What the journal says, if there is one. What a restart ended of the uses of loaded controllers is left
    /// out, and what ended with a process.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub fn load(&self, host: &dyn Host) -> Result<Option<Journal>> {
        let mut journal = self.read(host)?;
        if let Some(journal) = &mut journal {
            let boot = host.clock().boot();
            journal.plan.steps.retain(|step| !step.is_over(&boot) && !step.is_abandoned(host));
            if let Some(controller) = &journal.busy_with
                && !journal.plan.steps.iter().any(|step| step.uses(controller))
            {
                (journal.phase, journal.busy_with) = (Phase::Applied, None);
            }
        }
        Ok(journal)
    }

    fn read(&self, view: &dyn View) -> Result<Option<Journal>> {
        let path = self.path();
        let cannot_read = |e: &io::Error| Error::io(format_args!("cannot read {path}"), e);
        match view.stat(&path) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cannot_read(&e)),
        }
        self.trust(view, &self.directory)?;
        self.trust(view, &path)?;
        let bytes = view.read(&path).map_err(|e| cannot_read(&e))?;
        decode(&bytes).map(Some).map_err(|e| {
            Error::check(format_args!(
                "{path}: {e}. Nothing was touched. What its first line still holds are the states from before: keep the file and restore by it"
            ))
        })
    }

    /// Refuses what someone else could have written: a revert writes what the journal says, wherever it says, with any
    /// owner and mode.
    pub(crate) fn trust(&self, view: &dyn View, path: &str) -> Result<()> {
        let about = view.stat(path).map_err(|e| Error::io(format_args!("cannot read {path}"), &e))?;
        let others = about.uid != 0 && about.uid != view.user();
        if others || about.mode & 0o022 != 0 || matches!(about.node, Node::Link(_) | Node::Other) {
            return Err(Error::check(format_args!(
                "{path} is not to be trusted (owner {}, mode {:04o}): a journal must be root's or your own, and no one else \
                 may write it. If it is what you think, `chown` and `chmod go-w` it",
                about.uid, about.mode
            )));
        }
        Ok(())
    }

    /// Makes the plan durable, of an apply or (with its name) of the use of a controller. Nothing may be changed before this
    /// returns.
    pub(crate) fn begin(
        &self,
        files: &dyn Files,
        plan: &Plan,
        busy_with: Option<&str>,
        time: u64,
    ) -> io::Result<()> {
        self.tidy(files)?;
        let mut created = Vec::new();
        let mut directory = self.directory.as_str();
        while !files.exists(directory) {
            created.push(directory.to_owned());
            directory = parent(directory);
        }
        for path in created.iter().rev() {
            files.make_directory(path, 0o755)?;
            files.sync(parent(path))?;
        }
        self.trust(files, &self.directory).map_err(|e| io::Error::other(e.to_string()))?;
        let (plan, busy_with) = (plan.clone(), busy_with.map(str::to_owned));
        self.replace(files, &Journal { plan, phase: Phase::Applying, busy_with, trial: None, time, created })
    }

    /// Has the journal say this from now on, at once and durably.
    pub(crate) fn replace(&self, files: &dyn Files, journal: &Journal) -> io::Result<()> {
        let lines = journal.records().iter().map(encode).collect::<io::Result<String>>()?;
        self.write(files, lines.as_bytes())
    }

    /// Adds a record, durably.
    pub(crate) fn append(&self, files: &dyn Files, record: &Record) -> io::Result<()> {
        let path = self.path();
        let old = files.read(&path)?;
        let line = encode(record)?;
        if old.last() == Some(&b'\n') {
            files.append(&path, line.as_bytes())?;
            return files.sync(&path);
        }
        // The end is torn and would damage this line: write the whole lines anew.
        let whole = old.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        self.write(files, &[&old[..whole], line.as_bytes()].concat())
    }

    /// Replaces the journal's file at once.
    fn write(&self, files: &dyn Files, content: &[u8]) -> io::Result<()> {
        let new = format!("{}.new", self.path());
        if files.stat(&new).is_ok() {
            files.remove(&new)?;
        }
        // The directory is root's or the caller's own.
        let owner = files.stat(&self.directory)?;
        files.create(&new, content, 0o600, owner.uid, owner.gid)?;
        files.sync(&new)?;
        files.rename(&new, &self.path())?;
        files.sync(&self.directory)
    }

    /// Removes what a crash left before any plan was durable.
    pub(crate) fn tidy(&self, files: &dyn Files) -> io::Result<()> {
        let left = format!("{}.new", self.path());
        if files.stat(&left).is_ok() {
            files.remove(&left)?;
        }
        if files.list(&self.directory).is_ok_and(|names| names.is_empty()) {
            files.remove_directory(&self.directory)?;
        }
        Ok(())
    }

    /// Forgets a plan that is undone, leaving no trace.
    pub(crate) fn end(&self, files: &dyn Files, journal: &Journal) -> io::Result<()> {
        // One who was replacing the journal was killed.
        let left = format!("{}.new", self.path());
        if files.stat(&left).is_ok() {
            files.remove(&left)?;
        }
        files.remove(&self.path())?;
        files.sync(&self.directory)?;
        for directory in &journal.created {
            // Someone may have put something else there: then it stays.
            if files.list(directory).is_ok_and(|names| names.is_empty()) {
                files.remove_directory(directory)?;
                files.sync(parent(directory))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(records: &[Record]) -> Vec<u8> {
        records.iter().flat_map(|r| encode(r).unwrap().into_bytes()).collect()
    }

    fn begin() -> Record {
        let plan = Plan { controller: "bbr".into(), steps: vec![], notes: vec![], canary: None };
        Record::Begin { version: VERSION, plan: Box::new(plan), created: vec![], time: 1 }
    }

    #[test]
    fn a_torn_end_is_ignored_wherever_it_tears() {
        let whole = bytes(&[begin(), Record::Doing(0)]);
        let all = bytes(&[begin(), Record::Doing(0), Record::Applied]);
        for end in whole.len()..all.len() - 1 {
            assert_eq!(decode(&all[..end]).unwrap().phase, Phase::Applying, "torn at {end}");
        }
        assert_eq!(decode(&all[..all.len() - 1]).unwrap().phase, Phase::Applied);
    }

    #[test]
    fn a_plan_that_is_cut_off_is_no_empty_one() {
        let all = bytes(&[begin(), Record::Doing(0)]);
        let first = bytes(&[begin()]).len() - 1;
        for end in 0..first {
            let error = decode(&all[..end]).unwrap_err();
            assert!(error.contains("line 1"), "cut at {end}: {error}");
        }
        assert!(decode(&all[..first]).is_ok());
    }

    #[test]
    fn a_journal_that_is_written_anew_says_the_same() {
        let trial = Trial { boot: "a".into(), until: 7 };
        let tails = [
            vec![],
            vec![Record::Applied],
            vec![Record::Applied, Record::Trial(trial)],
            vec![Record::Applied, Record::Assigning("fp_bbr3".into())],
            vec![Record::Applied, Record::Unassigning("fp_bbr3".into())],
            vec![Record::Assigning("a".into()), Record::Applied],
            vec![Record::Reverting],
        ];
        for tail in tails {
            let journal = decode(&bytes(&[vec![begin()], tail].concat())).unwrap();
            assert_eq!(decode(&bytes(&journal.records())).unwrap(), journal);
        }
    }

    #[derive(Debug)]
    struct At(&'static str, u64);

    impl Clock for At {
        fn boot(&self) -> String {
            self.0.into()
        }
        fn since_boot(&self) -> Duration {
            Duration::from_millis(self.1)
        }
    }

    #[test]
    fn a_trial_ends_when_its_time_is_up_and_with_the_run_of_the_machine() {
        let trial = Trial::starting_now(&At("a", 1_500), Duration::from_secs(2));
        assert_eq!(trial.remaining(&At("a", 1_500)), Some(Duration::from_secs(2)));
        assert_eq!(
            trial.remaining(&At("a", 3_499)),
            Some(Duration::from_millis(1)),
            "not a moment too early"
        );
        assert_eq!(trial.remaining(&At("a", 3_500)), None);
        assert_eq!(trial.remaining(&At("b", 10)), None, "another start");
    }

    #[test]
    fn damage_in_the_middle_is_told() {
        let mut all = bytes(&[begin(), Record::Doing(0), Record::Applied]);
        let second = bytes(&[begin()]).len() + 20;
        all[second] ^= 1;
        assert!(decode(&all).unwrap_err().contains("line 2"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
