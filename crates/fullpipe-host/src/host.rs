//! What the rest of the crate sees of a host: files to read ([`View`]), files to change ([`Files`]),
//! and the kernel's switches ([`Host`]). Everything that can fail, be lost or be faked goes through here;
//! no other module may open a file or a socket.
//!
//! Paths are absolute *on that host* (`/etc/sysctl.conf`), whatever directory stands for its root.

mod clock;
mod directory;
mod machine;
mod model;
mod overlay;
mod rooted;

pub use clock::{BootClock, Clock};
pub use directory::Directory;
pub use machine::Machine;
pub(crate) use machine::free;
pub use model::{Model, ModelKernel, ModelProgram};
pub use overlay::Overlay;

use crate::net::{
    CongestionRoute, DeviceFeatures, KeyedRoute, QdiscNode, QdiscOperation, RouteController, RouteKey,
    TcpSocket,
};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io;

/// What a path is, without following a final symbolic link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and what it says.
    Link(String),
    /// A device, socket or pipe.
    Other,
}

/// A path's kind, permissions and owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// What it is.
    pub node: Node,
    /// Permission bits, including set-id and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Reading a host's files.
pub trait View {
    /// What the path is, without following a final symbolic link; links on the way are followed.
    fn stat(&self, path: &str) -> io::Result<Stat>;

    /// The content of the file that `path` leads to.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// The names in a directory, sorted by their bytes.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

    /// How many bytes the file that `path` leads to has.
    fn size(&self, path: &str) -> io::Result<u64> {
        self.read(path).map(|content| content.len() as u64)
    }

    /// The content as text without white space at its ends, or nothing if it cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|b| String::from_utf8_lossy(&b).trim().to_owned())
    }

    /// The content as text, untouched so that its lines can be counted; nothing if it cannot be read.
    fn content(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
    }

    /// Whether anything is at `path` (a dangling link is not).
    fn exists(&self, path: &str) -> bool {
        self.resolve(path).is_ok_and(|p| self.stat(&p).is_ok())
    }

    /// The current value of a sysctl, `net.ipv4.tcp_rmem` or `net/ipv4/tcp_rmem`.
    fn sysctl(&self, name: &str) -> Option<String> {
        self.text(&sysctl_path(name))
    }

    /// Who looks, as the kernel numbers users: what is theirs or root's may be trusted.
    fn user(&self) -> u32 {
        0
    }

    /// `path` with every symbolic link replaced by what it leads to *inside this host*; the last component
    /// need not exist.
    ///
    /// # Errors
    /// More than 40 links (a loop), or a component before the last that is not there.
    fn resolve(&self, path: &str) -> io::Result<String> {
        resolve_by(path, &|p| self.stat_literal(p))
    }

    /// [`View::stat`] of a path whose directories are already free of links. Views whose [`View::stat`]
    /// itself resolves override this one.
    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        self.stat(path)
    }
}

/// `/proc/sys/net/ipv4/tcp_rmem` for `net.ipv4.tcp_rmem`.
pub fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", crate::boot::normalise(name))
}

/// Walks `path` component by component, asking `stat` whether each is a link.
pub(crate) fn resolve_by(path: &str, stat: &dyn Fn(&str) -> io::Result<Stat>) -> io::Result<String> {
    let mut pending: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut done = String::new();
    let mut links = 0;
    while let Some(component) = pending.pop() {
        match component.as_str() {
            "" | "." => continue,
            ".." => {
                done.truncate(done.rfind('/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let next = format!("{done}/{component}");
        match stat(&next) {
            Ok(Stat { node: Node::Link(target), .. }) => {
                links += 1;
                if links > 40 {
                    return Err(io::Error::other(format!("{path}: too many symbolic links")));
                }
                if target.starts_with('/') {
                    done.clear();
                }
                pending.extend(target.split('/').rev().map(str::to_owned));
            }
            Ok(_) => done = next,
            Err(e)
                if e.kind() == io::ErrorKind::NotFound
                    && pending.iter().all(|c| c.is_empty() || c == ".") =>
            {
                done = next;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(if done.is_empty() { "/".to_owned() } else { done })
}

/// The directory that holds `path`.
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(i) => &path[..i],
    }
}

/// Changing a host's files. Nothing here is durable until [`Files::sync`].
pub trait Files: View {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()>;

    /// Adds to the end of a file.
    fn append(&self, path: &str, content: &[u8]) -> io::Result<()>;

    /// Renames, replacing what is at `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file or a symbolic link.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Creates a symbolic link that must not exist yet.
    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()>;

    /// Creates one directory.
    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()>;

    /// Removes one empty directory.
    fn remove_directory(&self, path: &str) -> io::Result<()>;

    /// Makes a file's content, or a directory's list of names, durable.
    fn sync(&self, path: &str) -> io::Result<()>;

    /// Takes the host's lock, or gives `WouldBlock` with who holds it. It is released when dropped.
    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>>;

    /// Copies what belongs to a file besides bytes, mode and owner (security labels), where there is such a thing.
    fn copy_labels(&self, _from: &str, _to: &str) {}
}

/// A host whose files are those of something else: it has [`View`] and [`Files`] by that.
pub trait DelegateFiles {
    /// What keeps the files.
    type Files: Files;

    /// The files below.
    fn files(&self) -> &Self::Files;
}

impl<T: DelegateFiles> View for T {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        self.files().stat(path)
    }
    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        self.files().stat_literal(path)
    }
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.files().read(path)
    }
    fn size(&self, path: &str) -> io::Result<u64> {
        self.files().size(path)
    }
    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.files().list(directory)
    }
    fn resolve(&self, path: &str) -> io::Result<String> {
        self.files().resolve(path)
    }
    fn user(&self) -> u32 {
        self.files().user()
    }
}

impl<T: DelegateFiles> Files for T {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        self.files().create(path, content, mode, uid, gid)
    }
    fn append(&self, path: &str, content: &[u8]) -> io::Result<()> {
        self.files().append(path, content)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files().rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.files().remove(path)
    }
    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()> {
        self.files().link(path, target, uid, gid)
    }
    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        self.files().make_directory(path, mode)
    }
    fn remove_directory(&self, path: &str) -> io::Result<()> {
        self.files().remove_directory(path)
    }
    fn sync(&self, path: &str) -> io::Result<()> {
        self.files().sync(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>> {
        self.files().lock(path)
    }
    fn copy_labels(&self, from: &str, to: &str) {
        self.files().copy_labels(from, to);
    }
}

/// A process, told from a later one that is given the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// When it started, in clock ticks since the machine did (the 22nd field of `/proc/PID/stat`).
    pub started: u64,
}

impl Process {
    /// The process of this number, if it runs.
    pub fn find(view: &dyn View, id: u32) -> Option<Process> {
        let text = view.text(&format!("/proc/{id}/stat"))?;
        // The second field is the program's name, whatever is in it.
        let (_, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        // What has ended, and is only remembered for its parent, runs no more.
        let runs = !matches!(fields.next()?, "Z" | "X");
        let started = fields.nth(18)?.parse().ok()?;
        runs.then_some(Process { id, started })
    }

    /// Whether it runs.
    pub fn runs(self, view: &dyn View) -> bool {
        Process::find(view, self.id) == Some(self)
    }
}

/// A program of the host's own and its arguments: what installs packages, makes boot menus, restarts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its name, and its arguments.
    pub words: Vec<String>,
    /// What it finds in its environment besides what fullpipe has.
    pub environment: Vec<(&'static str, &'static str)>,
    /// Whether what it says is shown on stderr as it says it: it takes long.
    pub shows_output: bool,
}

impl Program {
    /// A program whose words, in English, are read.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Program {
        let words = words.into_iter().map(Into::into).collect();
        Program { words, environment: vec![("LC_ALL", "C.UTF-8")], shows_output: false }
    }

    /// The same, shown while it works.
    #[must_use]
    pub fn shown(self) -> Program {
        Program { shows_output: true, ..self }
    }

    /// The same with this in its environment.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Program {
        self.environment.push((name, value));
        self
    }

    /// As one would type it.
    pub fn line(&self) -> String {
        self.words.join(" ")
    }
}

/// How a program ended, and what it said; nothing of what was shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProgramOutput {
    /// Its exit code, or 128 and the signal that ended it.
    pub status: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub error: String,
}

impl ProgramOutput {
    /// What it said, if it ended well.
    ///
    /// # Errors
    /// It did not: how it ended, and its last words.
    pub fn checked_stdout(self, program: &Program) -> io::Result<String> {
        if self.status == 0 {
            return Ok(self.out);
        }
        let words = if self.error.trim().is_empty() { &self.out } else { &self.error };
        let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" / ");
        let last = if last.is_empty() { String::new() } else { format!(": {last}") };
        Err(io::Error::other(format!("`{}` ended with {}{last}", program.line(), self.status)))
    }
}

/// A next hop of a default route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gateway {
    /// Its address.
    pub address: std::net::IpAddr,
    /// Whether it was seen to be there.
    pub answers: bool,
}

/// How a host is reached.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Network {
    /// Its addresses that stay as long as it runs.
    pub addresses: Vec<std::net::IpAddr>,
    /// The families of which it has others (of DHCP, of router advertisements), as 4 and 6.
    #[serde(default)]
    pub leased: Vec<u8>,
    /// The families of which it has a default route.
    pub default_routes: Vec<u8>,
    /// The next hops of these.
    pub gateways: Vec<Gateway>,
}

/// Who asks, and what kind of host this is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The kernel's release (`6.1.0-18-amd64`); empty for an image that does not run.
    pub release: String,
    /// Whether the caller may change this host's kernel settings and files.
    pub privileged: bool,
    /// Whether a kernel (real or modelled) is there; an image on disk has only its boot configuration.
    pub running: bool,
    /// Whether this is the machine the program runs on (so that processes and connections are real).
    pub this_machine: bool,
    /// What a command is given so that it acts on this host, as ` --root /srv/image`; empty for this machine.
    pub options: String,
}

impl Identity {
    /// The command to type for `words` (`plan bbr`), such that it acts on this host.
    pub fn command(&self, words: impl Display) -> String {
        format!("`fullpipe {words}{}`", self.options)
    }

    /// The same of what only root may do, for whoever asks.
    pub fn as_root(&self, words: impl Display) -> String {
        let sudo = if self.privileged { "" } else { "sudo " };
        format!("`{sudo}fullpipe {words}{}`", self.options)
    }
}

/// A host: its files and its kernel.
pub trait Host: Files {
    /// Who asks, and what kind of host this is.
    fn identity(&self) -> Identity;

    /// Writes a sysctl of the current network namespace.
    fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()>;

    /// Loads a kernel module by name.
    fn load_module(&self, name: &str) -> io::Result<()>;

    /// Unloads a kernel module; a busy one stays, which is an error.
    fn unload_module(&self, name: &str) -> io::Result<()>;

    /// Every queueing discipline of every device.
    fn qdiscs(&self) -> io::Result<Vec<QdiscNode>>;

    /// Changes one queueing discipline.
    fn change_qdisc(&self, operation: &QdiscOperation) -> io::Result<()>;

    /// The offloads of every device that tells them.
    fn features(&self) -> io::Result<Vec<DeviceFeatures>>;

    /// Routes that name a controller.
    fn congestion_routes(&self) -> io::Result<Vec<CongestionRoute>>;

    /// Adds (or with `remove`, deletes) a route that names a controller.
    fn change_route(&self, route: &CongestionRoute, remove: bool) -> io::Result<()>;

    /// The route now used towards `prefix`, as the start of a more specific one.
    fn route_to(&self, prefix: &str) -> io::Result<CongestionRoute>;

    /// The controller that connections to the first address of `prefix` get from the route that they take, if it names one.
    fn controller_to(&self, _prefix: &str) -> io::Result<Option<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Every route.
    fn routes(&self) -> io::Result<Vec<KeyedRoute>>;

    /// Has connections over a route that is there use a controller, or none of its own.
    fn set_route_controller(&self, route: &RouteKey, choice: Option<&RouteController>) -> io::Result<()>;

    /// Established TCP sockets of the current network namespace.
    fn sockets(&self) -> io::Result<Vec<TcpSocket>>;

    /// Opens a connection to itself over loopback and says which controller the kernel gave it.
    fn try_connection(&self) -> io::Result<String>;

    /// The default controller of every other network namespace that can be entered, by the namespace's name.
    fn other_namespaces(&self) -> io::Result<Vec<(String, String)>>;

    /// Asks a process to end, and ends it if it does not.
    fn end_process(&self, process: Process) -> io::Result<()>;

    /// Waits (modelled hosts need not).
    fn pause(&self, time: std::time::Duration);

    /// The kernel's number of the network namespace, which it never gives again while it runs (`SO_NETNS_COOKIE`, since
    /// 5.14); nothing if it has none.
    fn namespace_cookie(&self) -> Option<u64> {
        None
    }

    /// Runs a program of the host's own.
    fn run(&self, _program: &Program) -> io::Result<ProgramOutput> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bytes that are free on the file system of a directory.
    fn free(&self, _directory: &str) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How the host is reached; next hops are asked whether they are there.
    fn network(&self) -> io::Result<Network> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The clock that trials are counted by.
    fn clock(&self) -> &dyn Clock {
        &BootClock
    }
}
