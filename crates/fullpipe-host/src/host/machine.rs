//! The machine this program runs on.

use super::{
    DelegateFiles, Directory, Gateway, Host, Identity, Network, Process, Program, ProgramOutput, sysctl_path,
};
use crate::net::{
    self, CongestionRoute, DeviceFeatures, KeyedRoute, QdiscNode, QdiscOperation, RouteController, RouteKey,
    RouteLimits, RoutesLeft, Rtnetlink, TcpSocket,
};
use fullpipe_kernel::process::PidFd;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum routes of a network namespace of others whose controller is removed.
const MAX_CLEARED_ROUTES: usize = 10_000;

/// Time for a process to exit after a signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a next hop to answer: the kernel waits five seconds before it probes a known neighbour
/// again.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(10);

/// This machine, in the caller's network namespace.
#[derive(Debug)]
pub struct Machine {
    files: Directory,
    options: String,
}

impl Machine {
    /// This machine.
    pub fn new() -> Self {
        Machine { files: Directory::new("/"), options: String::new() }
    }

    /// Sets the options that printed commands get ([`Identity::options`]).
    #[must_use]
    pub fn with_options(self, options: String) -> Self {
        Machine { options, ..self }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Machine::new()
    }
}

impl DelegateFiles for Machine {
    type Files = Directory;

    fn files(&self) -> &Directory {
        &self.files
    }
}

fn modprobe(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("modprobe").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    // The lines after the first are usage.
    let message = String::from_utf8_lossy(&output.stderr);
    let reason = message.trim().lines().next().unwrap_or_default().to_owned();
    let busy = reason.contains("in use");
    Err(io::Error::new(if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other }, reason))
}

/// Makes the kernel resolve a next hop; hosts answer that even if they drop other traffic.
fn is_reachable(gateway: IpAddr, device: u32, netlink: &mut Rtnetlink) -> io::Result<bool> {
    const POLL_INTERVAL: Duration = Duration::from_millis(200);
    /// `discard`.
    const PORT: u16 = 9;
    let (from, to): (&str, SocketAddr) = match gateway {
        IpAddr::V4(v4) => ("0.0.0.0:0", (v4, PORT).into()),
        IpAddr::V6(v6) => ("[::]:0", SocketAddrV6::new(v6, PORT, 0, device).into()),
    };
    let socket = UdpSocket::bind(from)?;
    let mut waited = Duration::ZERO;
    while !netlink.is_reachable(gateway, device)? {
        if waited >= NEIGHBOUR_TIMEOUT {
            return Ok(false);
        }
        // A send to an unresolved neighbour may fail; it triggers the resolution all the same.
        let _ = socket.send_to(b"", to);
        std::thread::sleep(POLL_INTERVAL);
        waited += POLL_INTERVAL;
    }
    Ok(true)
}

/// Bytes available to unprivileged users on the file system of `path`.
pub(crate) fn free(path: &Path) -> nix::Result<u64> {
    let about = statvfs(path)?;
    Ok(about.blocks_available().saturating_mul(about.fragment_size()))
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

impl Host for Machine {
    fn identity(&self) -> Identity {
        let release = nix::sys::utsname::uname().map(|about| about.release().to_string_lossy().into_owned());
        Identity {
            release: release.unwrap_or_default(),
            privileged: nix::unistd::geteuid().is_root(),
            running: true,
            this_machine: true,
            options: self.options.clone(),
        }
    }

    fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        std::fs::OpenOptions::new()
            .write(true)
            .open(sysctl_path(name))?
            .write_all(format!("{value}\n").as_bytes())
    }

    fn load_module(&self, name: &str) -> io::Result<()> {
        modprobe(&["--quiet", "--", name]).or_else(|_| modprobe(&["--", name]))
    }

    fn unload_module(&self, name: &str) -> io::Result<()> {
        // busybox knows the short option alone.
        modprobe(&["-r", "--", name])
    }

    fn qdiscs(&self) -> io::Result<Vec<QdiscNode>> {
        Rtnetlink::open()?.qdiscs()
    }

    fn change_qdisc(&self, operation: &QdiscOperation) -> io::Result<()> {
        Rtnetlink::open()?.change_qdisc(operation)
    }

    fn features(&self) -> io::Result<Vec<DeviceFeatures>> {
        net::features()
    }

    fn congestion_routes(&self) -> io::Result<Vec<CongestionRoute>> {
        Rtnetlink::open()?.congestion_routes()
    }

    fn change_route(&self, route: &CongestionRoute, remove: bool) -> io::Result<()> {
        Rtnetlink::open()?.change_route(route, remove)
    }

    fn route_to(&self, prefix: &str) -> io::Result<CongestionRoute> {
        Rtnetlink::open()?.route_to(prefix)
    }

    fn controller_to(&self, prefix: &str) -> io::Result<Option<String>> {
        Rtnetlink::open()?.controller_to(prefix)
    }

    fn routes(&self) -> io::Result<Vec<KeyedRoute>> {
        Rtnetlink::open()?.routes()
    }

    fn ecn_routes(&self) -> io::Result<Vec<KeyedRoute>> {
        Rtnetlink::open()?.ecn_routes()
    }

    fn bbr_versions(&self) -> BTreeMap<String, u8> {
        fullpipe_kernel::tcp_info::bbr_versions()
    }

    fn set_route_controller(&self, route: &RouteKey, choice: Option<&RouteController>) -> io::Result<()> {
        Rtnetlink::open()?.set_route_controller(route, choice)
    }

    fn clear_routes_within(&self, controller: &str, time: Duration) -> RoutesLeft {
        let limits = RouteLimits { routes: MAX_CLEARED_ROUTES, deadline: Instant::now() + time };
        match Rtnetlink::open() {
            Ok(link) => link.clear_controller(controller, limits),
            Err(_) => RoutesLeft { found: 0, may_be_more: true },
        }
    }

    fn sockets(&self) -> io::Result<Vec<TcpSocket>> {
        net::sockets()
    }

    /// Sends a few bytes over loopback, then cross-checks the socket option with sock_diag.
    fn try_connection(&self) -> io::Result<String> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let mut client = TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(5))?;
        let (mut server, _) = listener.accept()?;
        client.set_read_timeout(Some(Duration::from_secs(5)))?;
        server.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut buffer = [0u8; 8];
        client.write_all(b"fullpipe")?;
        server.read_exact(&mut buffer)?;
        server.write_all(&buffer)?;
        client.read_exact(&mut buffer)?;
        let own = fullpipe_kernel::tcp_info::controller(&client)?;
        let local = client.local_addr()?;
        // Without tcp_diag only the socket option is available.
        match net::sockets().into_iter().flatten().find(|s| s.local == local) {
            Some(seen) if seen.controller != own => {
                Err(io::Error::other(format!("TCP_CONGESTION returns {own}, sock_diag {}", seen.controller)))
            }
            _ => Ok(own),
        }
    }

    fn other_namespaces(&self) -> io::Result<Vec<(String, String)>> {
        use std::os::unix::fs::MetadataExt;
        let own = std::fs::metadata("/proc/self/ns/net")?.ino();
        let mut files = std::collections::BTreeMap::new();
        for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            if let Ok(meta) = entry.metadata() {
                let name = format!("netns {}", entry.file_name().to_string_lossy());
                files.entry(meta.ino()).or_insert((name, entry.path()));
            }
        }
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let file = entry.path().join("ns/net");
            if let Ok(meta) = std::fs::metadata(&file) {
                let command = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                files.entry(meta.ino()).or_insert((format!("process {pid} ({})", command.trim()), file));
            }
        }
        files.remove(&own);
        // A separate thread enters each namespace, so that the caller stays in its own.
        let reader = std::thread::Builder::new().spawn(move || {
            files
                .into_values()
                .filter_map(|(name, file)| {
                    setns(std::fs::File::open(file).ok()?, CloneFlags::CLONE_NEWNET).ok()?;
                    let path = sysctl_path("net.ipv4.tcp_congestion_control");
                    let value = std::fs::read_to_string(path).ok()?;
                    Some((name, value.trim().to_owned()))
                })
                .collect()
        })?;
        reader.join().map_err(|_| io::Error::other("reading other namespaces failed"))
    }

    fn namespace_cookie(&self) -> Option<u64> {
        fullpipe_kernel::facts::network_namespace().ok()
    }

    /// SIGTERM first, then SIGKILL.
    fn end_process(&self, process: Process) -> io::Result<()> {
        const POLL_INTERVAL: Duration = Duration::from_millis(20);
        let Some(handle) = PidFd::open(process.id)? else { return Ok(()) };
        for (signal, patience) in [(Signal::SIGTERM, EXIT_TIMEOUT), (Signal::SIGKILL, EXIT_TIMEOUT)] {
            // The process ID may have been reused before the descriptor was opened.
            if !process.runs(self) {
                return Ok(());
            }
            if !handle.signal(signal)? {
                return Ok(());
            }
            let mut waited = Duration::ZERO;
            while process.runs(self) && waited < patience {
                self.pause(POLL_INTERVAL);
                waited += POLL_INTERVAL;
            }
        }
        if process.runs(self) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("process {} does not exit, even after SIGKILL", process.id),
            ));
        }
        Ok(())
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn run(&self, program: &Program) -> io::Result<ProgramOutput> {
        let (name, arguments) = program.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        command.args(arguments).envs(program.environment.iter().copied()).stdin(Stdio::null());
        if program.shows_output {
            let shown = std::io::stderr().as_fd().try_clone_to_owned()?;
            command.stdout(shown).stderr(Stdio::inherit());
        } else {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let missing = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(e.kind(), format!("program not found: {name}")),
            _ => e,
        };
        let done = command.spawn().map_err(missing)?.wait_with_output()?;
        let status = done.status.code().or_else(|| done.status.signal().map(|signal| 128 + signal));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(ProgramOutput { status: status.unwrap_or(-1), out: text(&done.stdout), error: text(&done.stderr) })
    }

    fn free(&self, directory: &str) -> io::Result<u64> {
        Ok(free(Path::new(directory))?)
    }

    fn network(&self) -> io::Result<Network> {
        let mut netlink = Rtnetlink::open()?;
        let mut network = Network::default();
        for own in netlink.addresses()? {
            if own.is_permanent {
                network.addresses.push(own.address);
            } else {
                network.leased.push(family(own.address));
            }
        }
        for route in netlink.default_routes()? {
            network.default_routes.push(if route.is_v6 { 6 } else { 4 });
            if let Some(address) = route.gateway {
                let answers = is_reachable(address, route.device, &mut netlink)?;
                network.gateways.push(Gateway { address, answers });
            }
        }
        network.addresses.sort_unstable();
        for families in [&mut network.leased, &mut network.default_routes] {
            families.sort_unstable();
            families.dedup();
        }
        Ok(network)
    }
}
