//! Who holds a socket: process, control group, and what systemd and container runtimes made of that.

use fullpipe_kernel::printable;
use fullpipe_kernel::sock_diag;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who holds a socket, as far as it may be known. Names are as a terminal may show them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Owner {
    /// One of the processes that hold it.
    #[serde(serialize_with = "shared", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Process>")]
    pub process: Option<Arc<Process>>,
    /// Its control group, by its path from the hierarchy's root.
    #[serde(serialize_with = "shared", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cgroup: Option<Arc<str>>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it calls itself (`/proc/PID/comm`).
    pub name: String,
}

/// As serde writes it, whose feature for it the rest of the workspace has no use for.
pub(crate) fn shared<T, S>(value: &Option<Arc<T>>, s: S) -> Result<S::Ok, S::Error>
where
    T: Serialize + ?Sized,
    S: Serializer,
{
    value.as_deref().serialize(s)
}

impl Owner {
    /// systemd's unit: the innermost service or scope of the control group's path.
    pub fn unit(&self) -> Option<&str> {
        Some(self.unit_group()?.0)
    }

    /// The container by the first twelve digits of its id, as runtimes print it: Docker, Podman, containerd and CRI-O
    /// name a control group by it.
    pub fn container(&self) -> Option<&str> {
        Some(self.container_group()?.0)
    }

    /// The unit, and the control group that is its.
    pub(crate) fn unit_group(&self) -> Option<(&str, &str)> {
        self.innermost(|part| (part.ends_with(".service") || part.ends_with(".scope")).then_some(part))
    }

    /// The container, and the control group that is its.
    pub(crate) fn container_group(&self) -> Option<(&str, &str)> {
        self.innermost(|part| {
            let id = part.strip_suffix(".scope").unwrap_or(part);
            let id = id.rsplit('-').next().unwrap_or(id);
            (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| &id[..12])
        })
    }

    /// The last part of the control group's path that has such a name, and the path as far as that.
    fn innermost<'a>(&'a self, named: impl Fn(&'a str) -> Option<&'a str>) -> Option<(&'a str, &'a str)> {
        let mut path = self.cgroup.as_deref()?;
        loop {
            let (before, part) = path.rsplit_once('/')?;
            if let Some(name) = named(part) {
                return Some((name, path));
            }
            path = before;
        }
    }
}

/// What was found out lately.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    by_inode: HashMap<u32, Arc<Process>>,
    cgroups: HashMap<u64, Arc<str>>,
    /// Of processes, where the kernel names no control group of the socket.
    cgroup_of: HashMap<u32, Option<Arc<str>>>,
    /// When, and how long it took.
    looked: Option<(Instant, Duration)>,
    hidden: usize,
}

/// Looking at every process's descriptors takes a while on a busy host: not more often than this, nor for more than a
/// twentieth of the time.
const PATIENCE: Duration = Duration::from_secs(2);

impl Owners {
    /// How many processes did not show their descriptors.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// Makes sure that what is known is not old where `inodes` has one that is not known.
    pub(crate) fn refresh(&mut self, inodes: impl Iterator<Item = u32>) {
        let lately = self.looked.is_some_and(|(at, took)| at.elapsed() < PATIENCE.max(took * 20));
        let mut unknown = inodes.filter(|inode| *inode != 0 && !self.by_inode.contains_key(inode));
        if !lately && unknown.next().is_some() {
            let began = Instant::now();
            self.look(Path::new("/proc"));
            self.cgroups = hierarchy().map(|root| groups(&root)).unwrap_or_default();
            self.looked = Some((Instant::now(), began.elapsed()));
        }
    }

    fn look(&mut self, proc: &Path) {
        self.by_inode.clear();
        self.cgroup_of.clear();
        self.hidden = 0;
        let Ok(entries) = fs::read_dir(proc) else { return };
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let inodes = match sock_diag::socket_inodes(pid) {
                Ok(inodes) => inodes,
                Err(e) => {
                    // Others have ended meanwhile.
                    self.hidden += usize::from(e.kind() == ErrorKind::PermissionDenied);
                    continue;
                }
            };
            if inodes.is_empty() {
                continue;
            }
            let name = fs::read(entry.path().join("comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name);
            let name = printable::line(name.trim_end_matches('\n')).into_owned();
            let process = Arc::new(Process { pid, name });
            for inode in inodes {
                self.by_inode.entry(inode).or_insert_with(|| Arc::clone(&process));
            }
        }
    }

    /// Who holds the socket with this inode, which the kernel counts to the control group of this id.
    pub(crate) fn of(&mut self, inode: u32, cgroup: Option<u64>) -> Owner {
        let process = self.by_inode.get(&inode).cloned();
        let cgroup = cgroup.and_then(|id| self.cgroups.get(&id).cloned()).or_else(|| {
            let pid = process.as_ref()?.pid;
            self.cgroup_of.entry(pid).or_insert_with(|| group_of(pid).map(Arc::from)).clone()
        });
        Owner { process, cgroup }
    }
}

/// Control groups by inode, for sockets of which nothing but that is left.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    known: HashMap<u64, Arc<str>>,
    looked: Option<(Instant, Duration)>,
    /// Of processes, and since when.
    of_processes: HashMap<u32, Option<Arc<str>>>,
    since: Option<Instant>,
}

impl Groups {
    /// The path of a control group; none of one that was not there when it was looked for.
    pub(crate) fn path(&mut self, inode: u64) -> Option<Arc<str>> {
        let lately = self.looked.is_some_and(|(at, took)| at.elapsed() < PATIENCE.max(took * 20));
        if !lately && !self.known.contains_key(&inode) {
            let began = Instant::now();
            // Those that are gone stay known: their last connections may be told of later.
            let found = hierarchy().map(|root| groups(&root)).unwrap_or_default();
            if self.known.len() + found.len() > MOST {
                self.known.clear();
            }
            self.known.extend(found);
            self.looked = Some((Instant::now(), began.elapsed()));
        }
        self.known.get(&inode).cloned()
    }

    /// The control group of a process, if it is still there: where the socket's tells nothing, as on hosts with the first
    /// version of control groups.
    pub(crate) fn of_process(&mut self, pid: u32) -> Option<Arc<str>> {
        if self.since.is_none_or(|since| since.elapsed() > PATIENCE) {
            self.of_processes.clear();
            self.since = Some(Instant::now());
        }
        self.of_processes.entry(pid).or_insert_with(|| group_of(pid).map(Arc::from)).clone()
    }
}

/// Where the second version of control groups is mounted.
pub(crate) fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// No host has as many control groups; a fault must not walk for ever.
const MOST: usize = 200_000;

/// The control groups below `root`: an id is the inode of its directory.
fn groups(root: &Path) -> HashMap<u64, Arc<str>> {
    let mut known = HashMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(about) = fs::symlink_metadata(&directory) else { continue };
        let path = directory.strip_prefix(root).unwrap_or(&directory).to_string_lossy().into_owned();
        known.insert(about.ino(), printable::line(&format!("/{path}")).into());
        if known.len() >= MOST {
            break;
        }
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        pending
            .extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    known
}

/// The control group of a process: of the second version, or the one by which systemd keeps order in the first.
fn group_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = |wanted: &str| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            (controllers == wanted).then(|| printable::line(path).into_owned())
        })
    };
    path("").filter(|p| p != "/").or_else(|| path("name=systemd")).or_else(|| path(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn units_and_containers_are_read_from_the_path() {
        let id = "0123456789abcdef".repeat(4);
        let of = |path: &str| Owner { process: None, cgroup: Some(path.into()) };
        assert_eq!(of("/system.slice/nginx.service").unit(), Some("nginx.service"));
        let user = of("/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope");
        assert_eq!((user.unit(), user.container()), (Some("run-7.scope"), None));
        for path in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/docker/{id}"),
        ] {
            assert_eq!(of(&path).container(), Some("0123456789ab"), "{path}");
        }
        assert_eq!(of("/").unit(), None);
        let inner = of("/system.slice/nginx.service/workers");
        assert_eq!(inner.unit_group(), Some(("nginx.service", "/system.slice/nginx.service")));
    }

    #[test]
    fn our_own_sockets_are_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sockets = sock_diag::sockets_of_process(std::process::id()).unwrap();
        let socket = sockets.iter().find(|s| s.local == client.local_addr().unwrap()).unwrap();
        let mut owners = Owners::default();
        owners.refresh([socket.inode].into_iter());
        let owner = owners.of(socket.inode, socket.cgroup_id);
        assert_eq!(owner.process.map(|p| p.pid), Some(std::process::id()));
    }

    #[test]
    fn control_groups_are_known_by_their_inode() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("system.slice/a\u{1b}[2J.service");
        fs::create_dir_all(&inner).unwrap();
        let known = groups(root.path());
        let id = fs::metadata(&inner).unwrap().ino();
        assert_eq!(&*known[&id], "/system.slice/a\\u{1b}[2J.service");
        assert_eq!(known.len(), 3);
    }
}
