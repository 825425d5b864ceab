//! Access to a host: files to read ([`View`]), files to change ([`Files`]), and the kernel
//! ([`Host`]). No other module opens a file or a socket, so that tests can model and interrupt
//! every operation.
//!
//! Paths are absolute *on that host* (`/etc/sysctl.conf`), whatever directory stands for its root.

mod clock;
mod directory;
mod machine;
mod model;
mod overlay;
mod process;
mod rooted;

pub use clock::{BootClock, Clock};
pub use directory::Directory;
pub use fullpipe_files::attributes::Attributes;
pub(crate) use fullpipe_files::attributes::{ACCESS_LIST, CAPABILITY, is_computed, is_label};
pub use machine::Machine;
pub(crate) use machine::free;
pub use model::{Model, ModelKernel, ModelProgram};
pub use overlay::Overlay;
pub use process::{Presence, Process};
pub(crate) use rooted::MAX_FILE_SIZE;

use crate::net::{
    CongestionRoute, DeviceFeatures, KeyedRoute, QdiscNode, QdiscOperation, RouteController, RouteKey,
    RoutesLeft, TcpSocket,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::time::Duration;

/// Type of a path; a final symbolic link is not followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Link(String),
    /// A device, socket or pipe.
    Other,
}

/// Type, permissions and owner of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Type.
    pub node: Node,
    /// Permission bits, including set-id and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names (hard links); 1 where it is not known.
    pub links: u64,
}

/// The object that a path names, with all that fullpipe records of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Type, mode and owner.
    pub stat: Stat,
    /// Content; empty unless it is a regular file.
    pub content: Vec<u8>,
    /// Extended attributes; empty unless it is a regular file.
    pub attributes: Attributes,
}

/// Reading a host's files.
pub trait View {
    /// Type, mode and owner; a final symbolic link is not followed, earlier ones are.
    fn stat(&self, path: &str) -> io::Result<Stat>;

    /// The content of the file that `path` leads to.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// The names in a directory, sorted by their bytes.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

    /// Extended attributes of the file or directory that `path` leads to, without those that the
    /// kernel computes. Empty where the file system has none.
    fn attributes(&self, _path: &str) -> io::Result<Attributes> {
        Ok(Attributes::new())
    }

    /// The object that `path` names; a final symbolic link is not followed. On a real file system
    /// status, content and attributes come from one descriptor, so that they belong to one file
    /// even while another process replaces names.
    fn object(&self, path: &str) -> io::Result<Object> {
        let stat = self.stat(path)?;
        let (content, attributes) = match stat.node {
            Node::File => (self.read(path)?, self.attributes(path)?),
            _ => Default::default(),
        };
        Ok(Object { stat, content, attributes })
    }

    /// Size in bytes of the file that `path` leads to.
    fn size(&self, path: &str) -> io::Result<u64> {
        self.read(path).map(|content| content.len() as u64)
    }

    /// Trimmed text of a file; `None` if it cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|b| String::from_utf8_lossy(&b).trim().to_owned())
    }

    /// Text of a file, untrimmed so that lines can be counted; `None` if it cannot be read.
    fn content(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
    }

    /// Whether `path` exists; a dangling link does not.
    fn exists(&self, path: &str) -> bool {
        self.resolve(path).is_ok_and(|p| self.stat(&p).is_ok())
    }

    /// The current value of a sysctl, `net.ipv4.tcp_rmem` or `net/ipv4/tcp_rmem`.
    fn sysctl(&self, name: &str) -> Option<String> {
        self.text(&sysctl_path(name))
    }

    /// What could not be read so far because it is too large or its name is not UTF-8, one sentence
    /// each. Readers treat it as absent, so their results are unknown.
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }

    /// Adds to [`View::unread`] that a reader took only a part of `path`, and why ("sets …").
    fn refuse(&self, _path: &str, _why: &str) {}

    /// Whether fullpipe's own files may belong to this user: root on this machine, the caller on an
    /// image.
    fn trusts_owner(&self, uid: u32) -> bool {
        uid == 0
    }

    /// `path` with every symbolic link replaced by what it leads to *inside this host*; the last
    /// component need not exist.
    ///
    /// # Errors
    /// More than 40 links (a loop), or a missing component before the last.
    fn resolve(&self, path: &str) -> io::Result<String> {
        resolve_by(path, &|p| self.stat_literal(p))
    }

    /// [`View::stat`] of a path whose directories are already free of links. Views whose
    /// [`View::stat`] itself resolves override this one.
    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        self.stat(path)
    }
}

/// `/proc/sys/net/ipv4/tcp_rmem` for `net.ipv4.tcp_rmem`.
pub fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", crate::names::normalise(name))
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

/// Parent directory of `path`.
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(i) => &path[..i],
    }
}

/// Changes to a host's files. Nothing is durable until [`Files::sync`]. What creates a path leaves
/// nothing behind if it fails.
pub trait Files: View {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()>;

    /// Creates a file that must not exist yet, with these attributes ([`Files::set_attributes`]). On a
    /// real file system all of it goes to one descriptor.
    fn create_with(
        &self,
        path: &str,
        content: &[u8],
        (mode, uid, gid): (u32, u32, u32),
        attributes: &Attributes,
    ) -> io::Result<()> {
        self.create(path, content, mode, uid, gid)?;
        self.set_attributes(path, attributes).inspect_err(|_| {
            // Report the first error.
            let _ = self.remove(path);
        })
    }

    /// The files in one directory, which is `/` of the result. On a real file system the directory
    /// is opened once, and its name is not followed if it is a link.
    fn within<'a>(&'a self, directory: &str) -> io::Result<Box<dyn Files + 'a>> {
        let stat = self.stat(directory)?;
        if stat.node != Node::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Box::new(Within { files: self, directory: directory.to_owned() }))
    }

    /// Appends to a file.
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

    /// Takes the host's lock, or returns `WouldBlock` with the holder. It is released when dropped.
    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>>;

    /// Gives a new file these extended attributes, and removes what it inherited from its directory
    /// (an access list) unless it is among them. Of security labels only those are set that the
    /// system's policy permits.
    fn set_attributes(&self, path: &str, attributes: &Attributes) -> io::Result<()>;

    /// The path on this machine, for messages.
    fn real_path(&self, path: &str) -> String {
        path.to_owned()
    }
}

/// Files below a directory, by path.
struct Within<'a, F: ?Sized> {
    files: &'a F,
    directory: String,
}

impl<F: Files + ?Sized> Within<'_, F> {
    fn path(&self, path: &str) -> String {
        format!("{}{}", self.directory, path.trim_end_matches('/'))
    }
}

impl<F: Files + ?Sized> View for Within<'_, F> {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        self.files.stat(&self.path(path))
    }
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.files.read(&self.path(path))
    }
    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.files.list(&self.path(directory))
    }
    fn attributes(&self, path: &str) -> io::Result<Attributes> {
        self.files.attributes(&self.path(path))
    }
    fn object(&self, path: &str) -> io::Result<Object> {
        self.files.object(&self.path(path))
    }
    fn trusts_owner(&self, uid: u32) -> bool {
        self.files.trusts_owner(uid)
    }
}

impl<F: Files + ?Sized> Files for Within<'_, F> {
    fn within<'a>(&'a self, directory: &str) -> io::Result<Box<dyn Files + 'a>> {
        if self.stat(directory)?.node != Node::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Box::new(Within { files: self.files, directory: self.path(directory) }))
    }
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        self.files.create(&self.path(path), content, mode, uid, gid)
    }
    fn create_with(
        &self,
        path: &str,
        content: &[u8],
        metadata: (u32, u32, u32),
        attributes: &Attributes,
    ) -> io::Result<()> {
        self.files.create_with(&self.path(path), content, metadata, attributes)
    }
    fn append(&self, path: &str, content: &[u8]) -> io::Result<()> {
        self.files.append(&self.path(path), content)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(&self.path(from), &self.path(to))
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.remove(&self.path(path))
    }
    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()> {
        self.files.link(&self.path(path), target, uid, gid)
    }
    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        self.files.make_directory(&self.path(path), mode)
    }
    fn remove_directory(&self, path: &str) -> io::Result<()> {
        self.files.remove_directory(&self.path(path))
    }
    fn sync(&self, path: &str) -> io::Result<()> {
        self.files.sync(&self.path(path))
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>> {
        self.files.lock(&self.path(path))
    }
    fn set_attributes(&self, path: &str, attributes: &Attributes) -> io::Result<()> {
        self.files.set_attributes(&self.path(path), attributes)
    }
    fn real_path(&self, path: &str) -> String {
        self.files.real_path(&self.path(path))
    }
}

/// A host that delegates [`View`] and [`Files`] to another type.
pub trait DelegateFiles {
    /// Type of the files.
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
    fn attributes(&self, path: &str) -> io::Result<Attributes> {
        self.files().attributes(path)
    }
    fn object(&self, path: &str) -> io::Result<Object> {
        self.files().object(path)
    }
    fn resolve(&self, path: &str) -> io::Result<String> {
        self.files().resolve(path)
    }
    fn trusts_owner(&self, uid: u32) -> bool {
        self.files().trusts_owner(uid)
    }
    fn unread(&self) -> Vec<String> {
        self.files().unread()
    }
    fn refuse(&self, path: &str, why: &str) {
        self.files().refuse(path, why);
    }
}

impl<T: DelegateFiles> Files for T {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        self.files().create(path, content, mode, uid, gid)
    }
    fn create_with(
        &self,
        path: &str,
        content: &[u8],
        metadata: (u32, u32, u32),
        attributes: &Attributes,
    ) -> io::Result<()> {
        self.files().create_with(path, content, metadata, attributes)
    }
    fn within<'a>(&'a self, directory: &str) -> io::Result<Box<dyn Files + 'a>> {
        self.files().within(directory)
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
    fn set_attributes(&self, path: &str, attributes: &Attributes) -> io::Result<()> {
        self.files().set_attributes(path, attributes)
    }
    fn real_path(&self, path: &str) -> String {
        self.files().real_path(path)
    }
}

/// A program of the host and its arguments: package managers, boot loader tools, `systemctl`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Name and arguments.
    pub words: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(&'static str, &'static str)>,
    /// Whether its output is shown on stderr while it runs.
    pub shows_output: bool,
}

impl Program {
    /// A program whose output is captured, in English.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Program {
        let words = words.into_iter().map(Into::into).collect();
        Program { words, environment: vec![("LC_ALL", "C.UTF-8")], shows_output: false }
    }

    /// Shows the output while the program runs.
    #[must_use]
    pub fn shown(self) -> Program {
        Program { shows_output: true, ..self }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Program {
        self.environment.push((name, value));
        self
    }

    /// The command line.
    pub fn line(&self) -> String {
        self.words.join(" ")
    }
}

/// Exit status and captured output of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProgramOutput {
    /// Exit code, or 128 plus the signal number.
    pub status: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub error: String,
}

impl ProgramOutput {
    /// Its standard output, if it exited with 0.
    ///
    /// # Errors
    /// Another exit code; the error has the last lines of output.
    pub fn checked_stdout(self, program: &Program) -> io::Result<String> {
        if self.status == 0 {
            return Ok(self.out);
        }
        let words = if self.error.trim().is_empty() { &self.out } else { &self.error };
        let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" / ");
        let last = if last.is_empty() { String::new() } else { format!(": {last}") };
        Err(io::Error::other(format!("`{}` exited with {}{last}", program.line(), self.status)))
    }
}

/// A next hop of a default route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gateway {
    /// Its address.
    pub address: std::net::IpAddr,
    /// Whether it answered neighbour discovery.
    pub answers: bool,
}

/// Addresses and default routes of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Network {
    /// Permanent addresses.
    pub addresses: Vec<std::net::IpAddr>,
    /// Address families (4, 6) with leased addresses, from DHCP or router advertisements.
    #[serde(default)]
    pub leased: Vec<u8>,
    /// Address families with a default route.
    pub default_routes: Vec<u8>,
    /// Next hops of the default routes.
    pub gateways: Vec<Gateway>,
}

/// Caller's privileges and kind of host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Kernel release (`6.1.0-18-amd64`); empty for an image.
    pub release: String,
    /// Whether the caller may change this host's kernel settings and files.
    pub privileged: bool,
    /// Whether a kernel (real or modelled) is running; an image has only boot files.
    pub running: bool,
    /// Whether this is the machine the program runs on (so that processes and connections are
    /// real).
    pub this_machine: bool,
    /// Options that make a command act on this host, such as ` --root /srv/image`; empty for this
    /// machine.
    pub options: String,
}

impl Identity {
    /// The quoted command for `words` (`plan bbr`), with the options for this host.
    pub fn command(&self, words: impl Display) -> String {
        format!("`fullpipe {words}{}`", self.options)
    }

    /// As [`Identity::command`], with `sudo` if the caller is not root.
    pub fn as_root(&self, words: impl Display) -> String {
        let sudo = if self.privileged { "" } else { "sudo " };
        format!("`{sudo}fullpipe {words}{}`", self.options)
    }
}

/// A host: its files and its kernel.
pub trait Host: Files {
    /// Caller's privileges and kind of host.
    fn identity(&self) -> Identity;

    /// Writes a sysctl of the current network namespace.
    fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()>;

    /// Loads a kernel module by name.
    fn load_module(&self, name: &str) -> io::Result<()>;

    /// Unloads a kernel module; a busy module is an error.
    fn unload_module(&self, name: &str) -> io::Result<()>;

    /// Every queueing discipline of every device.
    fn qdiscs(&self) -> io::Result<Vec<QdiscNode>>;

    /// Changes one queueing discipline.
    fn change_qdisc(&self, operation: &QdiscOperation) -> io::Result<()>;

    /// The offloads of every device that reports them.
    fn features(&self) -> io::Result<Vec<DeviceFeatures>>;

    /// Routes that name a controller.
    fn congestion_routes(&self) -> io::Result<Vec<CongestionRoute>>;

    /// Adds (or with `remove`, deletes) a route that names a controller.
    fn change_route(&self, route: &CongestionRoute, remove: bool) -> io::Result<()>;

    /// The route used for `prefix`, as a template for a more specific one.
    fn route_to(&self, prefix: &str) -> io::Result<CongestionRoute>;

    /// The controller set on the route to the first address of `prefix`, if any.
    fn controller_to(&self, _prefix: &str) -> io::Result<Option<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Every route.
    fn routes(&self) -> io::Result<Vec<KeyedRoute>>;

    /// Routes with the feature ECN.
    fn ecn_routes(&self) -> io::Result<Vec<KeyedRoute>> {
        self.routes().map(|routes| routes.into_iter().filter(|route| route.has_ecn).collect())
    }

    /// The version of each registered BBR of the kernel, by name; without those that report none.
    fn bbr_versions(&self) -> BTreeMap<String, u8> {
        BTreeMap::new()
    }

    /// Sets or clears the controller of an existing route.
    fn set_route_controller(&self, route: &RouteKey, choice: Option<&RouteController>) -> io::Result<()>;

    /// Removes a controller from the routes of a network namespace of others that name it, for at most
    /// this time.
    fn clear_routes_within(&self, controller: &str, time: Duration) -> RoutesLeft;

    /// Established TCP sockets of the current network namespace.
    fn sockets(&self) -> io::Result<Vec<TcpSocket>>;

    /// Opens a loopback connection and returns its controller.
    fn try_connection(&self) -> io::Result<String>;

    /// The default controller of every other accessible network namespace, by name.
    fn other_namespaces(&self) -> io::Result<Vec<(String, String)>>;

    /// Terminates a process, with SIGKILL if needed.
    fn end_process(&self, process: Process) -> io::Result<()>;

    /// Sleeps; modelled hosts return at once.
    fn pause(&self, time: std::time::Duration);

    /// The cookie of the network namespace, unique per boot (`SO_NETNS_COOKIE`, Linux 5.14).
    fn namespace_cookie(&self) -> Option<u64> {
        None
    }

    /// Runs a program of the host.
    fn run(&self, _program: &Program) -> io::Result<ProgramOutput> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Free bytes on the file system of a directory.
    fn free(&self, _directory: &str) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Addresses and default routes; next hops are probed.
    fn network(&self) -> io::Result<Network> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The clock of trials.
    fn clock(&self) -> &dyn Clock {
        &BootClock
    }
}
