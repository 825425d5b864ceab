//! The owner of a socket: process, control group, systemd unit, container.

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

/// The owner of a socket, as far as visible. Names are escaped for terminals.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Owner {
    /// One of the processes with a descriptor of the socket.
    #[serde(serialize_with = "shared", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Process>")]
    pub process: Option<Arc<Process>>,
    /// Control group, as a path from the root of the hierarchy.
    #[serde(serialize_with = "shared", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cgroup: Option<Arc<str>>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Process {
    /// Process ID.
    pub pid: u32,
    /// Command name (`/proc/PID/comm`).
    pub name: String,
}

/// Serialises an `Arc` without serde's `rc` feature.
pub(crate) fn shared<T, S>(value: &Option<Arc<T>>, s: S) -> Result<S::Ok, S::Error>
where
    T: Serialize + ?Sized,
    S: Serializer,
{
    value.as_deref().serialize(s)
}

impl Owner {
    /// systemd unit: the innermost service or scope in the control group's path.
    pub fn unit(&self) -> Option<&str> {
        Some(self.unit_group()?.0)
    }

    /// Container, by the first twelve digits of its ID as runtimes print it: Docker, Podman,
    /// containerd and CRI-O name control groups by the ID.
    pub fn container(&self) -> Option<&str> {
        Some(self.container_group()?.0)
    }

    /// The unit, and its control group.
    pub(crate) fn unit_group(&self) -> Option<(&str, &str)> {
        self.innermost(|part| is_unit(part).then_some(part))
    }

    /// The unit that connections are grouped by, and its control group: the outermost service or
    /// scope, since inner ones may be named by the user that the group is delegated to. All units of
    /// a user are one, `user-1000.slice`.
    pub(crate) fn class_unit(&self) -> Option<(&str, &str)> {
        if let Some(user) = self.user_slice() {
            return Some(user);
        }
        self.outermost(|part| is_unit(part).then_some(part))
    }

    /// The container that connections are grouped by: the outermost one, since a container with a
    /// writable control group can name inner ones as it likes. For the same reason, containers in a
    /// unit are grouped by the unit, and those of a user by the user's slice.
    pub(crate) fn class_container(&self) -> Option<(&str, &str)> {
        // There is one somewhere.
        self.container_group()?;
        if let Some(user) = self.user_slice() {
            return Some(user);
        }
        self.outermost(|part| container_name(part).or_else(|| is_unit(part).then_some(part)))
    }

    /// The slice of the user below which the control group is (`/user.slice/user-1000.slice`), and
    /// its path.
    fn user_slice(&self) -> Option<(&str, &str)> {
        const USERS: &str = "/user.slice/";
        let path = self.cgroup.as_deref()?;
        let name = path.strip_prefix(USERS)?.split('/').next()?;
        let uid = name.strip_prefix("user-")?.strip_suffix(".slice")?;
        let is_uid = !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_digit());
        is_uid.then(|| (name, &path[..USERS.len() + name.len()]))
    }

    /// The container, and its control group.
    pub(crate) fn container_group(&self) -> Option<(&str, &str)> {
        self.innermost(container_name)
    }

    /// The first component of the control group's path for which `name_of` returns a name, and the
    /// path up to it.
    fn outermost<'a>(&'a self, name_of: impl Fn(&'a str) -> Option<&'a str>) -> Option<(&'a str, &'a str)> {
        let path = self.cgroup.as_deref()?;
        let mut end = 0;
        for part in path.split('/') {
            end += part.len();
            if let Some(name) = name_of(part) {
                return Some((name, &path[..end]));
            }
            end += 1;
        }
        None
    }

    /// The last component of the control group's path for which `name` returns a name, and the path
    /// up to it.
    fn innermost<'a>(&'a self, name_of: impl Fn(&'a str) -> Option<&'a str>) -> Option<(&'a str, &'a str)> {
        let mut path = self.cgroup.as_deref()?;
        loop {
            let (before, part) = path.rsplit_once('/')?;
            if let Some(name) = name_of(part) {
                return Some((name, path));
            }
            path = before;
        }
    }
}

fn is_unit(part: &str) -> bool {
    part.ends_with(".service") || part.ends_with(".scope")
}

/// The container that a component of a path is named by.
fn container_name(part: &str) -> Option<&str> {
    let id = part.strip_suffix(".scope").unwrap_or(part);
    let id = id.rsplit('-').next().unwrap_or(id);
    (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| &id[..12])
}

/// Cached owners of sockets.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    by_inode: HashMap<u32, Arc<Process>>,
    cgroups: HashMap<u64, Arc<str>>,
    /// Control groups by process, where the kernel reports none for the socket.
    cgroup_by_pid: HashMap<u32, Option<Arc<str>>>,
    /// Time and duration of the last scan.
    last_scan: Option<(Instant, Duration)>,
    hidden: usize,
}

/// Minimum interval between scans of all processes' descriptors, which are slow on a busy host:
/// they take at most a twentieth of the time.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(2);

impl Owners {
    /// Number of processes whose descriptors are not readable.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// Rescans if `inodes` contains an unknown one and the last scan is old enough.
    pub(crate) fn refresh(&mut self, inodes: impl Iterator<Item = u32>) {
        let is_recent =
            self.last_scan.is_some_and(|(at, took)| at.elapsed() < MIN_SCAN_INTERVAL.max(took * 20));
        let mut unknown = inodes.filter(|inode| *inode != 0 && !self.by_inode.contains_key(inode));
        if !is_recent && unknown.next().is_some() {
            let began = Instant::now();
            self.scan(Path::new("/proc"));
            self.cgroups = cgroup_root().map(|root| scan_cgroups(&root)).unwrap_or_default();
            self.last_scan = Some((Instant::now(), began.elapsed()));
        }
    }

    fn scan(&mut self, proc: &Path) {
        self.by_inode.clear();
        self.cgroup_by_pid.clear();
        self.hidden = 0;
        let Ok(entries) = fs::read_dir(proc) else { return };
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let inodes = match sock_diag::socket_inodes(pid) {
                Ok(inodes) => inodes,
                Err(e) => {
                    // Other errors: the process has exited meanwhile.
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

    /// The owner of the socket with this inode and control group ID.
    pub(crate) fn lookup(&mut self, inode: u32, cgroup: Option<u64>) -> Owner {
        let process = self.by_inode.get(&inode).cloned();
        let cgroup = cgroup.and_then(|id| self.cgroups.get(&id).cloned()).or_else(|| {
            let pid = process.as_ref()?.pid;
            self.cgroup_by_pid.entry(pid).or_insert_with(|| cgroup_of_process(pid).map(Arc::from)).clone()
        });
        Owner { process, cgroup }
    }
}

/// Cached control groups by inode, for closed sockets.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    known: HashMap<u64, Arc<str>>,
    last_scan: Option<(Instant, Duration)>,
    /// Control groups by process, cached since `since`.
    by_pid: HashMap<u32, Option<Arc<str>>>,
    since: Option<Instant>,
}

impl Cgroups {
    /// The path of a control group; `None` if no scan has found it.
    pub(crate) fn path(&mut self, inode: u64) -> Option<Arc<str>> {
        let is_recent =
            self.last_scan.is_some_and(|(at, took)| at.elapsed() < MIN_SCAN_INTERVAL.max(took * 20));
        if !is_recent && !self.known.contains_key(&inode) {
            let began = Instant::now();
            // Removed groups stay cached: records of their last connections may follow.
            let found = cgroup_root().map(|root| scan_cgroups(&root)).unwrap_or_default();
            if self.known.len() + found.len() > MAX_CGROUPS {
                self.known.clear();
            }
            self.known.extend(found);
            self.last_scan = Some((Instant::now(), began.elapsed()));
        }
        self.known.get(&inode).cloned()
    }

    /// The control group of a process, if it still runs: for sockets without one, as on hosts with
    /// cgroup v1.
    pub(crate) fn for_process(&mut self, pid: u32) -> Option<Arc<str>> {
        if self.since.is_none_or(|since| since.elapsed() > MIN_SCAN_INTERVAL) {
            self.by_pid.clear();
            self.since = Some(Instant::now());
        }
        self.by_pid.entry(pid).or_insert_with(|| cgroup_of_process(pid).map(Arc::from)).clone()
    }
}

/// Mount point of cgroup v2.
pub(crate) fn cgroup_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// Maximum control groups scanned; no host has as many.
const MAX_CGROUPS: usize = 200_000;

/// The control groups below `root` by ID, which is the inode of their directory.
fn scan_cgroups(root: &Path) -> HashMap<u64, Arc<str>> {
    let mut known = HashMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(metadata) = fs::symlink_metadata(&directory) else { continue };
        let path = directory.strip_prefix(root).unwrap_or(&directory).to_string_lossy().into_owned();
        known.insert(metadata.ino(), printable::line(&format!("/{path}")).into());
        if known.len() >= MAX_CGROUPS {
            break;
        }
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        pending
            .extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    known
}

/// The control group of a process: in cgroup v2, or in the named hierarchy of systemd in cgroup v1.
fn cgroup_of_process(pid: u32) -> Option<String> {
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
    fn units_and_containers_are_parsed_from_the_path() {
        let id = "0123456789abcdef".repeat(4);
        let owner = |path: &str| Owner { process: None, cgroup: Some(path.into()) };
        assert_eq!(owner("/system.slice/nginx.service").unit(), Some("nginx.service"));
        let user = owner("/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope");
        assert_eq!((user.unit(), user.container()), (Some("run-7.scope"), None));
        for path in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/docker/{id}"),
        ] {
            assert_eq!(owner(&path).container(), Some("0123456789ab"), "{path}");
        }
        assert_eq!(owner("/").unit(), None);
        let inner = owner("/system.slice/nginx.service/workers");
        assert_eq!(inner.unit_group(), Some(("nginx.service", "/system.slice/nginx.service")));
    }

    #[test]
    fn users_cannot_choose_the_class_of_their_connections() {
        let owner = |path: &str| Owner { process: None, cgroup: Some(path.into()) };
        let unit =
            |path: &str| owner(path).class_unit().map(|(name, group)| (name.to_owned(), group.to_owned()));
        let expect = |name: &str, group: &str| Some((name.to_owned(), group.to_owned()));
        let user = expect("user-1000.slice", "/user.slice/user-1000.slice");
        for path in [
            "/user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service",
            "/user.slice/user-1000.slice/session-7.scope",
            "/user.slice/user-1000.slice",
        ] {
            assert_eq!(unit(path), user, "{path}");
        }
        // A service that delegates its group is charged for what runs in it.
        let delegated = unit("/system.slice/build.service/nginx.service");
        assert_eq!(delegated, expect("build.service", "/system.slice/build.service"));
        let system = unit("/system.slice/nginx.service");
        assert_eq!(system, expect("nginx.service", "/system.slice/nginx.service"));
        assert_eq!(unit("/system.slice/user-1000.slice/x"), None);
        assert_eq!(unit("/"), None);
        let id = "0123456789abcdef".repeat(4);
        let forged = owner(&format!("/user.slice/user-1000.slice/user@1000.service/docker-{id}.scope"));
        assert_eq!(forged.class_container().map(|(name, _)| name), Some("user-1000.slice"));
        let real = owner(&format!("/system.slice/docker-{id}.scope"));
        assert_eq!(real.class_container().map(|(name, _)| name), Some("0123456789ab"));
    }

    #[test]
    fn containers_cannot_choose_the_class_of_their_connections() {
        let owner = |path: &str| Owner { process: None, cgroup: Some(path.into()) };
        let (id, forged) = ("0123456789abcdef".repeat(4), "fedcba9876543210".repeat(4));
        for outer in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/docker/{id}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
        ] {
            for inner in ["", &format!("/{forged}"), &format!("/init.scope/docker-{forged}.scope")] {
                let inside = owner(&format!("{outer}{inner}"));
                assert_eq!(inside.class_container(), Some(("0123456789ab", outer.as_str())), "{inner}");
            }
        }
        let delegated = owner(&format!("/system.slice/build.service/libpod-payload-{forged}"));
        assert_eq!(delegated.class_container(), Some(("build.service", "/system.slice/build.service")));
        for none in ["/", "/system.slice/nginx.service", "/user.slice/user-1000.slice/session-7.scope"] {
            assert_eq!(owner(none).class_container(), None, "{none}");
        }
    }

    #[test]
    fn own_sockets_belong_to_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sockets = sock_diag::sockets_of_process(std::process::id()).unwrap();
        let socket = sockets.iter().find(|s| s.local == client.local_addr().unwrap()).unwrap();
        let mut owners = Owners::default();
        owners.refresh([socket.inode].into_iter());
        let owner = owners.lookup(socket.inode, socket.cgroup_id);
        assert_eq!(owner.process.map(|p| p.pid), Some(std::process::id()));
    }

    #[test]
    fn control_groups_are_found_by_inode() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("system.slice/a\u{1b}[2J.service");
        fs::create_dir_all(&inner).unwrap();
        let known = scan_cgroups(root.path());
        let id = fs::metadata(&inner).unwrap().ino();
        assert_eq!(&*known[&id], "/system.slice/a\\u{1b}[2J.service");
        assert_eq!(known.len(), 3);
    }
}
