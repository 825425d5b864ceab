//! A host on which the n-th change fails, or is the last thing that happens.

use super::Fake;
use super::clock::TestClock;
use fullpipe_host::host::{
    Attributes, Clock, Files, Host, Identity, Network, Process, Program, ProgramOutput, Stat, View,
};
use fullpipe_host::net::{
    CongestionRoute, DeviceFeatures, KeyedRoute, QdiscNode, QdiscOperation, RouteController, RouteKey,
    RoutesLeft, TcpSocket,
};
use std::cell::Cell;
use std::io;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// The process dies before the change.
    CrashBefore,
    /// The process dies half-way through a write (before any other change).
    CrashWithin,
    /// The process dies after the change.
    CrashAfter,
    /// The change fails, once.
    Once(io::ErrorKind),
    /// The change and every later one fail.
    Always(io::ErrorKind),
}

/// What a host's programs say and do.
pub type Programs = fn(&Fake, &Program) -> io::Result<ProgramOutput>;

pub struct Faulty<'a> {
    host: &'a Fake,
    programs: Option<Programs>,
    at: usize,
    fault: Option<Fault>,
    changes: Cell<usize>,
    dead: Cell<bool>,
    refuses_routes: bool,
    /// Whether routes cannot be read.
    hides_routes: bool,
    /// The time that the clock advances with each route that is cleared.
    slow_routes: Option<(&'a TestClock, Duration)>,
    /// Whether nothing can be written to files.
    is_full: bool,
    on_pause: Option<&'a dyn Fn()>,
    /// Called before this change.
    on_change: Option<(usize, &'a dyn Fn())>,
}

impl<'a> Faulty<'a> {
    pub fn new(host: &'a Fake, at: usize, fault: Fault) -> Self {
        Faulty { at, fault: Some(fault), ..Faulty::counting(host) }
    }

    /// One whose routes cannot be changed.
    pub fn refusing_routes(host: &'a Fake) -> Self {
        Faulty { refuses_routes: true, ..Faulty::counting(host) }
    }

    /// One whose routes cannot be read.
    pub fn hiding_routes(host: &'a Fake) -> Self {
        Faulty { hides_routes: true, ..Faulty::counting(host) }
    }

    /// One that takes this time to clear a route of a network namespace of others.
    pub fn slow_routes(host: &'a Fake, clock: &'a TestClock, time: Duration) -> Self {
        Faulty { slow_routes: Some((clock, time)), ..Faulty::counting(host) }
    }

    /// One whose disk is full.
    pub fn full(host: &'a Fake) -> Self {
        Faulty { is_full: true, ..Faulty::counting(host) }
    }

    fn space(&self) -> io::Result<()> {
        if self.is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// One that calls this while a command waits.
    pub fn waiting(host: &'a Fake, on_pause: &'a dyn Fn()) -> Self {
        Faulty { on_pause: Some(on_pause), ..Faulty::counting(host) }
    }

    /// One that calls this right before a change, unless that is a rename: a file is compared
    /// immediately before it is replaced.
    pub fn meanwhile(host: &'a Fake, at: usize, on_change: &'a dyn Fn()) -> Self {
        Faulty { on_change: Some((at, on_change)), ..Faulty::counting(host) }
    }

    /// Without a fault, to count the changes.
    pub fn counting(host: &'a Fake) -> Self {
        Faulty {
            host,
            programs: None,
            at: usize::MAX,
            fault: None,
            changes: Cell::new(0),
            dead: Cell::new(false),
            refuses_routes: false,
            hides_routes: false,
            slow_routes: None,
            is_full: false,
            on_pause: None,
            on_change: None,
        }
    }

    /// The same with these programs instead of the model's.
    pub fn with(self, programs: Programs) -> Self {
        Faulty { programs: Some(programs), ..self }
    }

    pub fn changes(&self) -> usize {
        self.changes.get()
    }

    pub fn dead(&self) -> bool {
        self.dead.get()
    }

    fn change<T>(&self, perform: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.change_or_half(perform, || {})
    }

    fn change_or_half<T>(
        &self,
        perform: impl FnOnce() -> io::Result<T>,
        half: impl FnOnce(),
    ) -> io::Result<T> {
        if let Some((at, on_change)) = self.on_change
            && at == self.changes.get()
        {
            on_change();
        }
        self.change_alone(perform, half)
    }

    fn change_alone<T>(&self, perform: impl FnOnce() -> io::Result<T>, half: impl FnOnce()) -> io::Result<T> {
        let number = self.changes.replace(self.changes.get() + 1);
        let died = || io::Error::other("the process was killed");
        if self.dead.get() {
            return Err(died());
        }
        match self.fault {
            Some(Fault::Always(kind)) if number >= self.at => Err(kind.into()),
            Some(fault) if number == self.at => match fault {
                Fault::Once(kind) | Fault::Always(kind) => Err(kind.into()),
                Fault::CrashBefore => {
                    self.dead.set(true);
                    Err(died())
                }
                Fault::CrashWithin => {
                    half();
                    self.dead.set(true);
                    Err(died())
                }
                Fault::CrashAfter => {
                    let _ = perform();
                    self.dead.set(true);
                    Err(died())
                }
            },
            _ => perform(),
        }
    }
}

impl View for Faulty<'_> {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        self.host.stat(path)
    }
    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        self.host.stat_literal(path)
    }
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.host.read(path)
    }
    fn attributes(&self, path: &str) -> io::Result<Attributes> {
        self.host.attributes(path)
    }
    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.host.list(directory)
    }
}

impl Files for Faulty<'_> {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        self.space()?;
        let half = &content[..content.len() / 2];
        self.change_or_half(
            || self.host.create(path, content, mode, uid, gid),
            || drop(self.host.create(path, half, mode, uid, gid)),
        )
    }
    fn append(&self, path: &str, content: &[u8]) -> io::Result<()> {
        self.space()?;
        let half = &content[..content.len() / 2];
        self.change_or_half(|| self.host.append(path, content), || drop(self.host.append(path, half)))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_alone(|| self.host.rename(from, to), || {})
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.change(|| self.host.remove(path))
    }
    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()> {
        self.change(|| self.host.link(path, target, uid, gid))
    }
    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        self.change(|| self.host.make_directory(path, mode))
    }
    fn remove_directory(&self, path: &str) -> io::Result<()> {
        self.change(|| self.host.remove_directory(path))
    }
    fn sync(&self, path: &str) -> io::Result<()> {
        self.change(|| self.host.sync(path))
    }
    fn set_attributes(&self, path: &str, attributes: &Attributes) -> io::Result<()> {
        self.change(|| self.host.set_attributes(path, attributes))
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>> {
        self.host.lock(path)
    }
}

impl Host for Faulty<'_> {
    fn identity(&self) -> Identity {
        self.host.identity()
    }
    fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        self.change(|| self.host.set_sysctl(name, value))
    }
    fn load_module(&self, name: &str) -> io::Result<()> {
        self.change(|| self.host.load_module(name))
    }
    fn unload_module(&self, name: &str) -> io::Result<()> {
        self.change(|| self.host.unload_module(name))
    }
    fn qdiscs(&self) -> io::Result<Vec<QdiscNode>> {
        self.host.qdiscs()
    }
    fn change_qdisc(&self, operation: &QdiscOperation) -> io::Result<()> {
        self.change(|| self.host.change_qdisc(operation))
    }
    fn features(&self) -> io::Result<Vec<DeviceFeatures>> {
        self.host.features()
    }
    fn congestion_routes(&self) -> io::Result<Vec<CongestionRoute>> {
        self.host.congestion_routes()
    }
    fn change_route(&self, route: &CongestionRoute, remove: bool) -> io::Result<()> {
        self.change(|| self.host.change_route(route, remove))
    }
    fn route_to(&self, prefix: &str) -> io::Result<CongestionRoute> {
        self.host.route_to(prefix)
    }
    fn routes(&self) -> io::Result<Vec<KeyedRoute>> {
        if self.hides_routes {
            return Err(io::Error::other("EBUSY"));
        }
        self.host.routes()
    }
    fn set_route_controller(&self, route: &RouteKey, choice: Option<&RouteController>) -> io::Result<()> {
        if self.refuses_routes {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.change(|| self.host.set_route_controller(route, choice))
    }
    fn clear_routes_within(&self, controller: &str, time: Duration) -> RoutesLeft {
        if self.refuses_routes {
            let named = self.host.congestion_routes().unwrap();
            let named = named.iter().filter(|route| route.controller == controller);
            return RoutesLeft { found: named.count(), may_be_more: false };
        }
        match self.slow_routes {
            Some((clock, time_per_route)) if !time.is_zero() => {
                // As Rtnetlink::clear_controller: the deadline is checked before each route.
                let deadline = clock.since_boot() + time;
                let mut named = self.host.routes().unwrap();
                named.retain(|route| route.choice.as_ref().is_some_and(|one| one.controller == controller));
                let mut left = named.len();
                for route in &named {
                    if clock.since_boot() >= deadline {
                        break;
                    }
                    self.host.set_route_controller(&route.key, None).unwrap();
                    clock.advance(time_per_route);
                    left -= 1;
                }
                RoutesLeft { found: left, may_be_more: false }
            }
            _ => self.host.clear_routes_within(controller, time),
        }
    }
    fn sockets(&self) -> io::Result<Vec<TcpSocket>> {
        self.host.sockets()
    }
    fn try_connection(&self) -> io::Result<String> {
        self.host.try_connection()
    }
    fn other_namespaces(&self) -> io::Result<Vec<(String, String)>> {
        self.host.other_namespaces()
    }
    fn namespace_cookie(&self) -> Option<u64> {
        self.host.namespace_cookie()
    }
    fn end_process(&self, process: Process) -> io::Result<()> {
        self.change(|| self.host.end_process(process))
    }
    fn pause(&self, time: std::time::Duration) {
        if let Some(on_pause) = self.on_pause {
            on_pause();
        }
        self.host.pause(time);
    }
    fn run(&self, program: &Program) -> io::Result<ProgramOutput> {
        self.change(|| self.programs.map_or_else(|| self.host.run(program), |run| run(self.host, program)))
    }
    fn free(&self, directory: &str) -> io::Result<u64> {
        self.host.free(directory)
    }
    fn network(&self) -> io::Result<Network> {
        self.host.network()
    }
    fn clock(&self) -> &dyn Clock {
        self.host.clock()
    }
}
