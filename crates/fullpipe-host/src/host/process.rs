//! Processes of the host, and whether they still run.

use super::{Node, View};
use serde::{Deserialize, Serialize};
use std::io;

/// Inode of the initial PID namespace, in which every process is visible (`PROC_PID_INIT_INO`).
const INITIAL_NAMESPACE: u64 = 0xefff_fffc;

/// A process, identified by its ID, its start time and its PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Process ID in its PID namespace.
    pub id: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub started: u64,
    /// Inode of its PID namespace; `None` in journals of earlier versions, which did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
}

/// Whether a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It runs.
    Running,
    /// It has exited.
    Exited,
    /// It belongs to another PID namespace whose processes are not all visible here.
    Unknown,
}

impl Process {
    /// This process.
    pub fn current(view: &dyn View) -> Option<Process> {
        // Its ID does not name it in the `/proc` of another PID namespace.
        let started = start_time(view, "self")?;
        Some(Process { id: std::process::id(), started, namespace: namespace(view, "self").ok().flatten() })
    }

    /// Whether it is still running.
    pub fn presence(self, view: &dyn View) -> Presence {
        let own = namespace(view, "self").ok().flatten();
        let (Some(other), Some(own)) = (self.namespace, own) else { return self.presence_by_id(view) };
        // `/proc` may be mounted for an enclosing namespace, where processes have other IDs.
        if other == own && namespace_id(view, "self") == Some((std::process::id(), 1)) {
            return self.presence_by_id(view);
        }
        let Ok(names) = view.list("/proc") else { return Presence::Unknown };
        // The mount shows this process, and so all processes of its namespace and of those inside.
        let mut is_complete = other == own || own == INITIAL_NAMESPACE;
        for name in names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            match namespace(view, name) {
                Ok(found) if found == Some(other) => {
                    let id = namespace_id(view, name).map(|(id, _)| id);
                    if id == Some(self.id) && start_time(view, name) == Some(self.started) {
                        return Presence::Running;
                    }
                }
                Ok(_) => {}
                // It exited meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                // The link of one that has just exited cannot be read, which is not an answer.
                Err(_) => is_complete &= !view.exists(&format!("/proc/{name}")),
            }
        }
        if is_complete { Presence::Exited } else { Presence::Unknown }
    }

    /// Its presence by its ID in this PID namespace.
    fn presence_by_id(self, view: &dyn View) -> Presence {
        match start_time(view, &self.id.to_string()) == Some(self.started) {
            true => Presence::Running,
            false => Presence::Exited,
        }
    }

    /// Whether it is known to run.
    pub fn runs(self, view: &dyn View) -> bool {
        self.presence(view) == Presence::Running
    }

    /// Whether its ID is one of this PID namespace. In another one, that ID belongs to another process.
    pub fn is_in_own_namespace(self, view: &dyn View) -> bool {
        let own = namespace(view, "self").ok().flatten();
        self.namespace.zip(own).is_none_or(|(namespace, own)| namespace == own)
    }
}

/// Start time of a running process, by its name in `/proc`. Zombies do not run.
fn start_time(view: &dyn View, name: &str) -> Option<u64> {
    let text = view.text(&format!("/proc/{name}/stat"))?;
    // The second field, the program's name, may contain blanks and parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let runs = !matches!(fields.next()?, "Z" | "X");
    let started = fields.nth(18)?.parse().ok()?;
    runs.then_some(started)
}

/// Inode of the PID namespace of a process.
fn namespace(view: &dyn View, name: &str) -> io::Result<Option<u64>> {
    let Node::Link(target) = view.stat(&format!("/proc/{name}/ns/pid"))?.node else { return Ok(None) };
    let inode = target.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']'));
    Ok(inode.and_then(|inode| inode.parse().ok()))
}

/// ID of a process in its own PID namespace, and the number of namespaces from that of `/proc` down
/// to it.
fn namespace_id(view: &dyn View, name: &str) -> Option<(u32, usize)> {
    let text = view.text(&format!("/proc/{name}/status"))?;
    let ids: Vec<&str> =
        text.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().collect();
    Some((ids.last()?.parse().ok()?, ids.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Directory, Machine};
    use std::path::Path;

    const OTHER: u64 = 4_026_532_999;

    /// A process as `/proc` shows it.
    fn put(root: &Path, name: &str, state: char, started: u64, namespace: u64, ids: &str) {
        let directory = root.join("proc").join(name);
        std::fs::create_dir_all(directory.join("ns")).unwrap();
        let link = directory.join("ns/pid");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("pid:[{namespace}]"), link).unwrap();
        let fields = vec!["1"; 18].join(" ");
        std::fs::write(directory.join("stat"), format!("9 (a (b) c) {state} {fields} {started} 4 5\n"))
            .unwrap();
        std::fs::write(directory.join("status"), format!("Name:\ta\nNSpid:\t{ids}\n")).unwrap();
    }

    #[test]
    fn process_is_identified_by_its_start_time() {
        let root = tempfile::tempdir().unwrap();
        let view = Directory::new(root.path());
        let process = Process { id: 77, started: 1234, namespace: None };
        put(root.path(), "77", 'S', 1234, OTHER, "77");
        assert!(process.runs(&view));
        put(root.path(), "77", 'R', 1235, OTHER, "77");
        assert_eq!(process.presence(&view), Presence::Exited, "another process with that ID");
        put(root.path(), "77", 'Z', 1234, OTHER, "77");
        assert_eq!(process.presence(&view), Presence::Exited, "a zombie");
        assert_eq!(Process { id: 78, ..process }.presence(&view), Presence::Exited);
        let own = Process::current(&Machine::new()).unwrap();
        assert!(own.namespace.is_some() && own.runs(&Machine::new()));
        assert!(own.is_in_own_namespace(&Machine::new()));
        assert_eq!(Process { started: own.started + 1, ..own }.presence(&Machine::new()), Presence::Exited);
    }

    #[test]
    fn process_of_another_pid_namespace_is_not_that_with_its_id_here() {
        let root = tempfile::tempdir().unwrap();
        let view = Directory::new(root.path());
        let own_id = std::process::id().to_string();
        let process = Process { id: 77, started: 5, namespace: Some(OTHER) };
        let container = INITIAL_NAMESPACE + 500;
        put(root.path(), "self", 'R', 1, container, &own_id);
        put(root.path(), "77", 'S', 5, container, "77");
        assert!(!process.is_in_own_namespace(&view));
        assert_eq!(process.presence(&view), Presence::Unknown, "its namespace is invisible to a container");
        // The initial namespace sees all.
        put(root.path(), "self", 'R', 1, INITIAL_NAMESPACE, &own_id);
        put(root.path(), "77", 'S', 5, INITIAL_NAMESPACE, "77");
        assert_eq!(process.presence(&view), Presence::Exited);
        put(root.path(), "900", 'S', 5, OTHER, "900 77");
        assert_eq!(process.presence(&view), Presence::Running);
        put(root.path(), "900", 'S', 5, OTHER, "900 78");
        assert_eq!(process.presence(&view), Presence::Exited);
        // A process of this namespace is found although `/proc` is that of an enclosing one.
        put(root.path(), "self", 'R', 1, OTHER, &format!("800 {own_id}"));
        assert_eq!(
            process.presence(&view),
            Presence::Exited,
            "900 is 78 in this namespace, and 77 in another"
        );
        put(root.path(), "900", 'S', 5, OTHER, "900 77");
        assert_eq!(process.presence(&view), Presence::Running);
    }
}
