//! The write-ahead journal of an apply: the whole plan with the original state, synced before
//! anything changes, then one record for each step begun and done.
//!
//! Each line is a checksum and a JSON record. A torn last line is ignored; damage elsewhere is an
//! error. Whether a step is in place is always read from the host: the journal states the intent,
//! not the state.

use crate::error::{Error, Result};
use crate::facts::Scope;
use crate::host::{Clock, Files, Host, MAX_FILE_SIZE, Node, Stat, View, parent};
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
        /// The steps and the original state.
        plan: Box<Plan>,
        /// Directories created for the journal.
        created: Vec<String>,
        /// Start, seconds since 1970.
        time: u64,
    },
    /// This step is about to be performed.
    Doing(usize),
    /// This step is performed.
    Done(usize),
    /// Everything is performed and verified.
    Applied,
    /// The assignment of this loaded controller begins.
    Assigning(String),
    /// The unassignment of this loaded controller begins.
    Unassigning(String),
    /// Roll back unless confirmed in time.
    Trial(Trial),
    /// Confirmed: the remaining steps are being performed.
    Confirmed,
    /// The rollback begins.
    Reverting,
    /// This step is rolled back.
    Undone(usize),
}

/// Deadline of a trial, by a clock that cannot be set. A restart ends the trial, too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Boot ID of the boot in which it began.
    pub boot: String,
    /// Deadline in milliseconds since boot.
    pub until: u64,
}

impl Trial {
    /// A trial that ends after `within`.
    pub fn starting_now(clock: &dyn Clock, within: Duration) -> Trial {
        let until = clock.since_boot().saturating_add(within).as_nanos().div_ceil(1_000_000);
        Trial { boot: clock.boot(), until: u64::try_from(until).unwrap_or(u64::MAX) }
    }

    /// Time left; `None` once expired.
    pub fn remaining(&self, clock: &dyn Clock) -> Option<Duration> {
        let left = Duration::from_millis(self.until).checked_sub(clock.since_boot())?;
        (self.boot == clock.boot() && !left.is_zero()).then_some(left)
    }
}

/// Progress of an apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Begun and not finished: `apply` completes it, `revert` rolls it back.
    Applying,
    /// Complete.
    Applied,
    /// Being rolled back: `revert` completes it.
    Reverting,
}

/// Content of a journal.
#[derive(Clone, PartialEq, Debug)]
pub struct Journal {
    /// The plan.
    pub plan: Plan,
    /// Its progress.
    pub phase: Phase,
    /// The loaded controller that is being assigned or unassigned, if not the whole plan.
    pub busy_with: Option<String>,
    /// The trial, while it is not confirmed.
    pub trial: Option<Trial>,
    /// Start, seconds since 1970.
    pub time: u64,
    /// Directories created for the journal.
    pub(crate) created: Vec<String>,
    /// Whether void steps were left out, so that the numbers of its steps are not those of the file.
    pub(crate) is_renumbered: bool,
}

impl Journal {
    /// Records of a new file with the same content.
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

/// FNV-1a, 64 bits: detects torn writes, not tampering.
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
/// Damage before the last line or in the first (which is complete before the rename), an unknown
/// version, records out of order.
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
            // Only the last line can be torn: nothing was written after it.
            None if lines[i..].iter().skip(1).all(|l| l.is_empty()) => break,
            None => return Err(format!("line {} is damaged", i + 1)),
        }
    }
    let mut records = records.into_iter();
    let Some(first) = records.next() else { return Err("line 1 is cut off".into()) };
    let Record::Begin { version, plan, created, time } = first else {
        return Err("the first record is not a plan".into());
    };
    if version != VERSION {
        return Err(format!("unsupported format {version}, expected {VERSION}"));
    }
    let (phase, busy_with) = (Phase::Applying, None);
    let mut journal =
        Journal { plan: *plan, phase, busy_with, trial: None, time, created, is_renumbered: false };
    for record in records {
        let (phase, busy_with) = match record {
            Record::Begin { .. } => return Err("a second plan follows the first".into()),
            Record::Doing(number) | Record::Done(number) => {
                if let Some(step) = journal.plan.steps.get_mut(number) {
                    step.is_pending = false;
                }
                continue;
            }
            Record::Undone(_) => continue,
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

/// The journal in its directory.
const JOURNAL: &str = "/host.journal";
/// Its new version, before the rename: the first name that is free.
const NEW_JOURNALS: [&str; 4] =
    ["/host.journal.new", "/host.journal.new1", "/host.journal.new2", "/host.journal.new3"];

/// Whether an interrupted append has left a part of a line at the end.
fn is_torn(bytes: &[u8]) -> bool {
    bytes.last() != Some(&b'\n')
}

/// Whether `bytes` are the beginning of a journal, as an interrupted write leaves.
fn is_begun(bytes: &[u8]) -> bool {
    const BEGIN: &[u8] = b" {\"begin\":";
    let (sum, rest) = bytes.split_at(bytes.len().min(16));
    let length = rest.len().min(BEGIN.len());
    let is_written = sum.iter().all(u8::is_ascii_hexdigit) && rest[..length] == BEGIN[..length];
    // After a loss of power the bytes may be zero.
    is_written || bytes.iter().all(|byte| *byte == 0)
}

/// Removes new versions that a process left when it was killed. Other files of these names stay.
fn remove_begun(directory: &dyn Files) -> io::Result<()> {
    for name in NEW_JOURNALS {
        if directory.stat(name).is_err() {
            continue;
        }
        let object = directory.object(name)?;
        if object.stat.node == Node::File && object.stat.mode == 0o600 && is_begun(&object.content) {
            directory.remove(name)?;
        }
    }
    Ok(())
}

/// Refuses a file or directory that another user could have written.
fn trust(view: &dyn View, path: &str, stat: &Stat) -> Result<()> {
    let is_own = view.trusts_owner(stat.uid) && stat.mode & 0o022 == 0;
    let is_single = match stat.node {
        Node::File => stat.links == 1,
        Node::Directory => true,
        Node::Link(_) | Node::Other => false,
    };
    if is_own && is_single {
        return Ok(());
    }
    Err(Error::check(format_args!(
        "{path} is not trusted (owner {}, mode {:04o}): a journal must be a regular file with one name that \
         belongs to root (on an image: to you) and is not writable by others; if the content is yours, \
         `chown` it and `chmod go-w` it",
        stat.uid, stat.mode
    )))
}

/// Location of a host's journal.
#[derive(Clone, Debug)]
pub struct Store {
    directory: String,
}

impl Store {
    /// The location for this host, or for this network namespace: a namespace does not survive a
    /// restart, nor does `/run`.
    pub fn for_scope(scope: &Scope) -> Store {
        if scope.boots {
            Store::at("/var/lib/fullpipe")
        } else {
            Store::at(&format!("/run/fullpipe-net-{}", scope.namespace))
        }
    }

    /// A given directory.
    pub fn at(directory: &str) -> Store {
        Store { directory: directory.trim_end_matches('/').to_owned() }
    }

    /// The journal's path.
    pub fn path(&self) -> String {
        format!("{}{JOURNAL}", self.directory)
    }

    /// Path of another of fullpipe's files in the directory.
    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.directory)
    }

    /// Reads the journal, if there is one. Assignments that a restart or the end of a process made
    /// void are left out.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub fn load(&self, host: &dyn Host) -> Result<Option<Journal>> {
        let mut journal = self.read(host)?;
        if let Some(journal) = &mut journal {
            let boot = host.clock().boot();
            let all = journal.plan.steps.len();
            journal.plan.steps.retain(|step| !step.is_over(&boot) && !step.is_abandoned(host));
            journal.is_renumbered = journal.plan.steps.len() < all;
            if let Some(controller) = &journal.busy_with
                && !journal.plan.steps.iter().any(|step| step.uses(controller))
            {
                (journal.phase, journal.busy_with) = (Phase::Applied, None);
            }
        }
        Ok(journal)
    }

    /// As [`Store::load`], with every step of the file.
    pub(crate) fn read(&self, files: &dyn Files) -> Result<Option<Journal>> {
        let Some(bytes) = self.read_state(files, JOURNAL)? else { return Ok(None) };
        decode(&bytes).map(Some).map_err(|e| {
            Error::check(format_args!(
                "{}: {e}; nothing was changed. The first line of this file has the original states: keep \
                 it to restore them manually",
                self.path()
            ))
        })
    }

    /// Opens the directory, if it exists, and refuses one that another user could change. Everything
    /// in it is read and written through the result, so that a directory that is renamed over this
    /// one later has no effect.
    pub(crate) fn open<'a>(&self, files: &'a dyn Files) -> Result<Option<Box<dyn Files + 'a>>> {
        let path = &self.directory;
        let cannot_read = |e: &io::Error| Error::io(format_args!("cannot read {path}"), e);
        let opened = match files.within(path) {
            Ok(opened) => opened,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::check(format_args!("{path} is not trusted: it is not a directory")));
            }
            Err(e) => return Err(cannot_read(&e)),
        };
        let stat = opened.stat("/").map_err(|e| cannot_read(&e))?;
        trust(&*opened, path, &stat)?;
        Ok(Some(opened))
    }

    /// Content of one of fullpipe's own files in the directory, if it exists.
    ///
    /// # Errors
    /// It cannot be read, or another user could have written it: a revert writes what the journal
    /// states, to any path and with any owner.
    pub(crate) fn read_state(&self, files: &dyn Files, name: &str) -> Result<Option<Vec<u8>>> {
        self.open(files)?.map_or(Ok(None), |directory| self.read_within(&*directory, name))
    }

    /// As [`Store::read_state`], in the opened directory.
    fn read_within(&self, directory: &dyn Files, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path_of(name);
        match directory.object(name) {
            Ok(object) => trust(directory, &path, &object.stat).map(|()| Some(object.content)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(format_args!("cannot read {path}"), &e)),
        }
    }

    /// The directory, which exists while there is a journal.
    pub(crate) fn directory<'a>(&self, files: &'a dyn Files) -> io::Result<Box<dyn Files + 'a>> {
        let opened = self.open(files).map_err(|e| io::Error::other(e.to_string()))?;
        opened.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Writes the journal again if the numbers of its steps are not those of the file. Call it before
    /// records of steps are appended.
    pub(crate) fn renumber(&self, files: &dyn Files, journal: &mut Journal) -> Result<()> {
        if std::mem::take(&mut journal.is_renumbered) {
            self.replace(files, journal)
                .map_err(|e| Error::io(format_args!("cannot write {}", self.path()), &e))?;
        }
        Ok(())
    }

    /// Writes a plan durably, of an apply or (with `busy_with`) of an assignment. Nothing may be
    /// changed before this returns.
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
        let (plan, busy_with) = (plan.clone(), busy_with.map(str::to_owned));
        let phase = Phase::Applying;
        let is_renumbered = false;
        self.replace(files, &Journal { plan, phase, busy_with, trial: None, time, created, is_renumbered })
    }

    /// Replaces the journal atomically and durably.
    pub(crate) fn replace(&self, files: &dyn Files, journal: &Journal) -> io::Result<()> {
        // Room for the records that follow.
        const SPARE: u64 = 1 << 20;
        let lines = journal.records().iter().map(encode).collect::<io::Result<String>>()?;
        if lines.len() as u64 + SPARE > MAX_FILE_SIZE {
            let text = format!(
                "the journal would be larger than {} MiB, since it holds the changed files: shorten these \
                 first",
                (MAX_FILE_SIZE - SPARE) >> 20
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        self.write(&*self.directory(files)?, lines.as_bytes())
    }

    /// Appends a record durably.
    pub(crate) fn append(&self, files: &dyn Files, record: &Record) -> io::Result<()> {
        let directory = self.directory(files)?;
        let old = self.read_within(&*directory, JOURNAL).map_err(|e| io::Error::other(e.to_string()))?;
        let old = old.ok_or(io::ErrorKind::NotFound)?;
        let line = encode(record)?;
        if !is_torn(&old) {
            directory.append(JOURNAL, line.as_bytes())?;
            return directory.sync(JOURNAL);
        }
        // A torn last line would damage this record: rewrite the complete lines.
        let whole = old.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        self.write(&*directory, &[&old[..whole], line.as_bytes()].concat())
    }

    /// Replaces the journal's file in its directory atomically.
    fn write(&self, directory: &dyn Files, content: &[u8]) -> io::Result<()> {
        remove_begun(directory)?;
        let new = NEW_JOURNALS.into_iter().find(|name| directory.stat(name).is_err()).ok_or_else(|| {
            let text = format!("{}.new… are files of other programs: move them away", self.path());
            io::Error::new(io::ErrorKind::AlreadyExists, text)
        })?;
        // The directory belongs to root or to the caller.
        let owner = directory.stat("/")?;
        directory.create(new, content, 0o600, owner.uid, owner.gid)?;
        directory.sync(new)?;
        directory.rename(new, JOURNAL)?;
        directory.sync("/")
    }

    /// Removes what a crash left before a plan was durable.
    pub(crate) fn tidy(&self, files: &dyn Files) -> io::Result<()> {
        let Some(directory) = self.open(files).map_err(|e| io::Error::other(e.to_string()))? else {
            return Ok(());
        };
        remove_begun(&*directory)?;
        if directory.list("/").is_ok_and(|names| names.is_empty()) {
            files.remove_directory(&self.directory)?;
        }
        Ok(())
    }

    /// Removes the journal of a plan that is rolled back.
    pub(crate) fn end(&self, files: &dyn Files, journal: &Journal) -> io::Result<()> {
        let opened = self.directory(files)?;
        remove_begun(&*opened)?;
        opened.remove(JOURNAL)?;
        opened.sync("/")?;
        for directory in &journal.created {
            // A directory with other files stays.
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
    fn torn_last_line_is_ignored_at_any_length() {
        let whole = bytes(&[begin(), Record::Doing(0)]);
        let all = bytes(&[begin(), Record::Doing(0), Record::Applied]);
        for end in whole.len()..all.len() - 1 {
            assert_eq!(decode(&all[..end]).unwrap().phase, Phase::Applying, "torn at {end}");
        }
        assert_eq!(decode(&all[..all.len() - 1]).unwrap().phase, Phase::Applied);
    }

    #[test]
    fn truncated_plan_is_an_error() {
        let all = bytes(&[begin(), Record::Doing(0)]);
        let first = bytes(&[begin()]).len() - 1;
        for end in 0..first {
            let error = decode(&all[..end]).unwrap_err();
            assert!(error.contains("line 1"), "cut at {end}: {error}");
        }
        assert!(decode(&all[..first]).is_ok());
    }

    #[test]
    fn rewritten_journal_has_the_same_content() {
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
    fn trial_ends_at_its_deadline_and_with_a_restart() {
        let trial = Trial::starting_now(&At("a", 1_500), Duration::from_secs(2));
        assert_eq!(trial.remaining(&At("a", 1_500)), Some(Duration::from_secs(2)));
        assert_eq!(
            trial.remaining(&At("a", 3_499)),
            Some(Duration::from_millis(1)),
            "not before the deadline"
        );
        assert_eq!(trial.remaining(&At("a", 3_500)), None);
        assert_eq!(trial.remaining(&At("b", 10)), None, "another boot");
    }

    #[test]
    fn damage_before_the_last_line_is_reported() {
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
