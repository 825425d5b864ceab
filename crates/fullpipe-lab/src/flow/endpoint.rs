//! The thread of one end: the applications of all connections that send or receive there.

use super::connection::{Connection, StartOptions};
use super::registry::Registry;
use super::source::Source;
use crate::LabError;
use crate::emulator::Clock;
use crate::inspect::Inspect;
use crate::priority;
use fullpipe_experiment::scenario::App;
use fullpipe_kernel::socket::{discard, unacked};
use fullpipe_units::{Span, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::time::TimeSpec;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest sleep: the stop of a run is noticed within it.
const HEARTBEAT: Span = Span::from_millis(20);
/// How often an application that waits for the acknowledgement of its last burst checks.
const IDLE_CHECK: Span = Span::from_micros(500);
/// Bytes of one write.
const CHUNK: usize = 256 << 10;
/// Bytes of one read, which the kernel discards (MSG_TRUNC).
const READ: usize = 4 * CHUNK;

/// The sending side of a connection.
struct Sending {
    connection: Connection,
    /// The prepared socket, until it is shared.
    socket: Option<TcpStream>,
    live: Option<Arc<TcpStream>>,
    connected: bool,
    source: Source,
    /// Whether the socket is full until epoll reports room.
    full: bool,
    closed: bool,
    /// When to act next without an event of the socket.
    at: Time,
}

/// The receiving side.
struct Receiving {
    connection: Connection,
    listener: Option<TcpListener>,
    live: Option<Arc<TcpStream>>,
    received: u64,
    /// Whether other connections wait for this one's progress.
    is_awaited: bool,
    /// Request/response: bytes of a request and of a response, pause between them.
    questions: Option<(u64, u64, Span)>,
    /// Stream length at the end of the current response.
    answered_at: u64,
    ask_at: Time,
    finished: bool,
}

/// All connections of one end.
pub(crate) struct Endpoint {
    senders: Vec<Sending>,
    receivers: Vec<Receiving>,
    epoll: Epoll,
    end: usize,
    registry: Registry,
    clock: Clock,
    start_options: StartOptions,
    /// The data that applications write.
    zeros: Vec<u8>,
}

/// The source of an epoll event.
const RECEIVER: u64 = 1 << 32;
const WAKEUP: u64 = 1 << 33;

impl Endpoint {
    /// Opens the sockets of end `end`. The calling thread must be in that end and stay in it.
    pub(crate) fn open(
        end: usize,
        connections: &[Connection],
        registry: Registry,
        start_options: StartOptions,
        inspect: Option<&dyn Inspect>,
    ) -> Result<Self, LabError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| LabError::failed("epoll", e))?;
        let mut endpoint = Endpoint {
            senders: Vec::new(),
            receivers: Vec::new(),
            epoll,
            end,
            registry,
            clock: Clock::start(),
            start_options,
            zeros: vec![0; CHUNK],
        };
        endpoint.watch(endpoint.registry.wakeup(end), EpollFlags::EPOLLIN, WAKEUP)?;
        for connection in connections.iter().cloned() {
            if connection.sending_end() == end {
                let socket = connection.prepare(start_options)?;
                if let Some(Err(e)) = inspect.and_then(|i| connection.watch(&socket, i)) {
                    let problem = format!("cannot read its controller's state: {e}");
                    endpoint.registry.entry(connection.number).problem = Some(problem);
                }
                let size = connection.spec.size.map(|b| b.0);
                endpoint.senders.push(Sending {
                    source: Source::new(connection.spec.app.clone(), size),
                    socket: Some(socket),
                    live: None,
                    connected: false,
                    full: true,
                    closed: false,
                    at: connection.start().unwrap_or(connection.stop()),
                    connection,
                });
            } else {
                let listener = connection.listen(start_options)?;
                let questions = match connection.spec.app {
                    App::RequestResponse { request, response, think } => Some((request.0, response.0, think)),
                    _ => None,
                };
                let index = endpoint.receivers.len() as u64;
                endpoint.watch(&listener, EpollFlags::EPOLLIN, RECEIVER | index)?;
                endpoint.receivers.push(Receiving {
                    is_awaited: endpoint.registry.is_awaited(connection.number),
                    connection,
                    listener: Some(listener),
                    live: None,
                    received: 0,
                    questions,
                    answered_at: 0,
                    ask_at: Time::NEVER,
                    finished: false,
                });
            }
        }
        Ok(endpoint)
    }

    fn watch(&self, socket: impl std::os::fd::AsFd, flags: EpollFlags, key: u64) -> Result<(), LabError> {
        self.epoll.add(socket, EpollEvent::new(flags, key)).map_err(|e| LabError::failed("epoll", e))
    }

    /// Runs the applications on the run's `clock` until `stop`.
    pub(crate) fn run(mut self, clock: Clock, stop: &AtomicBool) -> Result<(), LabError> {
        self.clock = clock;
        priority::endpoint();
        let mut events = vec![EpollEvent::empty(); 64];
        while !stop.load(Ordering::Relaxed) {
            self.on_time()?;
            self.wait();
            let count = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(e) => return Err(LabError::failed("epoll", e)),
            };
            for event in &events[..count] {
                let key = event.data();
                let index = (key & (RECEIVER - 1)) as usize;
                if key == WAKEUP {
                    self.may_start();
                } else if key & RECEIVER != 0 {
                    self.receiver_ready(index)?;
                } else {
                    self.sender_ready(index, event.events());
                }
            }
        }
        Ok(())
    }

    /// Sleeps until a socket or a timer is ready.
    fn wait(&self) {
        let senders = self.senders.iter().map(|s| s.at).min().unwrap_or(Time::NEVER);
        let receivers = self.receivers.iter().map(|r| r.ask_at).min().unwrap_or(Time::NEVER);
        let left = senders.min(receivers).since(self.clock.now()).min(HEARTBEAT);
        let timeout = TimeSpec::from_duration(Duration::from(left));
        let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(&self.epoll.0), PollFlags::POLLIN)];
        // An interrupted wait is treated as a timeout.
        let _ = ppoll(&mut fds, Some(timeout), None);
    }

    /// Starts connections whose start condition is now true.
    fn may_start(&mut self) {
        // It does not matter if there is nothing to read.
        let _ = self.registry.wakeup(self.end).read();
        for sending in self.senders.iter_mut().filter(|s| s.socket.is_some()) {
            let start = self.registry.entry(sending.connection.number).start;
            sending.at = start.unwrap_or(Time::NEVER).min(sending.connection.stop());
        }
    }

    fn on_time(&mut self) -> Result<(), LabError> {
        let now = self.clock.now();
        for index in 0..self.senders.len() {
            if self.senders[index].at <= now {
                self.sender_due(index, now)?;
            }
        }
        for receiver in &mut self.receivers {
            if receiver.ask_at <= now {
                receiver.ask_at = Time::NEVER;
                receiver.ask(now, &self.registry);
            }
        }
        Ok(())
    }

    fn sender_due(&mut self, index: usize, now: Time) -> Result<(), LabError> {
        let sending = &mut self.senders[index];
        let number = sending.connection.number;
        if now >= sending.connection.stop() {
            sending.stop(now, &self.registry);
            return Ok(());
        }
        if let Some(socket) = sending.socket.take() {
            let socket = Arc::new(socket);
            if let Err(e) = sending.connection.connect(&socket, self.start_options) {
                sending.fail(&self.registry, &e);
                return Ok(());
            }
            sending.live = Some(Arc::clone(&socket));
            sending.at = sending.connection.stop();
            {
                let mut entry = self.registry.entry(number);
                entry.began = Some(now);
                entry.sender = Some(Arc::clone(&socket));
            }
            let edge = EpollFlags::EPOLLOUT | EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
            return self.watch(&*socket, edge, index as u64);
        }
        if sending.tries_again() {
            sending.full = false;
        }
        sending.produce(now, &self.registry, &self.zeros);
        Ok(())
    }

    fn sender_ready(&mut self, index: usize, flags: EpollFlags) {
        let now = self.clock.now();
        let sending = &mut self.senders[index];
        let Some(socket) = sending.live.clone() else { return };
        if !sending.connected {
            match socket.take_error() {
                Ok(None) if flags.contains(EpollFlags::EPOLLOUT) => {}
                Ok(None) => return,
                Ok(Some(e)) | Err(e) => return sending.fail(&self.registry, &e),
            }
            sending.connected = true;
            sending.source.start(now);
        }
        if flags.contains(EpollFlags::EPOLLIN) {
            sending.hear(&socket);
        }
        if flags.contains(EpollFlags::EPOLLOUT) {
            sending.full = false;
        }
        sending.produce(now, &self.registry, &self.zeros);
    }

    fn receiver_ready(&mut self, index: usize) -> Result<(), LabError> {
        let now = self.clock.now();
        let receiving = &mut self.receivers[index];
        if receiving.live.is_none() {
            let Some(listener) = &receiving.listener else { return Ok(()) };
            let socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => {
                    self.registry.entry(receiving.connection.number).problem = Some(format!("accept: {e}"));
                    return Ok(());
                }
            };
            socket.set_nonblocking(true).map_err(|e| LabError::failed("accept", e))?;
            let _ = socket.set_nodelay(true);
            let socket = Arc::new(socket);
            receiving.live = Some(Arc::clone(&socket));
            receiving.listener = None;
            if receiving.questions.is_some() {
                receiving.ask_at = now;
            }
            return self.watch(&*socket, EpollFlags::EPOLLIN, RECEIVER | index as u64);
        }
        if receiving.read(&self.clock, &self.registry)
            && let Some(socket) = &receiving.live
        {
            let _ = self.epoll.delete(socket);
        }
        Ok(())
    }
}

impl Sending {
    fn fail(&mut self, registry: &Registry, error: &io::Error) {
        let mut entry = registry.entry(self.connection.number);
        entry.problem = Some(error.to_string());
        entry.over = true;
        self.source.stop();
        self.closed = true;
        self.at = Time::NEVER;
    }

    /// Stops its application; data in the socket is still sent.
    fn stop(&mut self, now: Time, registry: &Registry) {
        registry.has_come(self.connection.number, 0, true, now);
        self.source.stop();
        self.socket = None;
        self.close(registry);
        self.at = Time::NEVER;
    }

    fn close(&mut self, registry: &Registry) {
        if !self.closed {
            self.closed = true;
            if let Some(socket) = &self.live {
                let _ = socket.shutdown(Shutdown::Write);
            }
            registry.entry(self.connection.number).over = true;
        }
    }

    /// Reads requests of the peer.
    fn hear(&mut self, socket: &TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            self.source.on_question(n as u64);
        }
    }

    /// Whether to try to write before the kernel reports room. It reports room once a third of the
    /// buffer is free, but the buffer holds up to two windows of data that arrived beyond a
    /// hole, and little is written ahead (`TCP_NOTSENT_LOWAT`): TCP would run out of data until
    /// the hole is filled. An application whose buffer the scenario limits waits like any
    /// other.
    fn tries_again(&self) -> bool {
        self.full && self.source.pending() > 0 && self.connection.spec.send_buffer.is_none()
    }

    /// Writes as much of the application's data as the socket accepts.
    fn produce(&mut self, now: Time, registry: &Registry, zeros: &[u8]) {
        if !self.connected || self.closed {
            return;
        }
        let Some(socket) = self.live.clone() else { return };
        let mut idle = false;
        if self.source.at() <= now {
            idle = self.source.pending() == 0 && unacked(&socket) == 0;
            if let Some(transfer) = self.source.on_time(now, idle) {
                registry.entry(self.connection.number).transfer = Some(transfer);
            }
        }
        while self.source.pending() > 0 && !self.full {
            let length = self.source.pending().min(zeros.len() as u64) as usize;
            match (&*socket).write(&zeros[..length]) {
                Ok(n) => self.source.wrote(n as u64),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.full = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return self.fail(registry, &e),
            }
        }
        if self.source.is_done() {
            self.close(registry);
        }
        let next = match self.source.at() {
            at if at <= now && !idle => now + IDLE_CHECK,
            at => at,
        };
        let again = if self.tries_again() { now + HEARTBEAT } else { Time::NEVER };
        self.at = next.min(again).min(self.connection.stop());
    }
}

impl Receiving {
    /// Reads what has arrived; returns whether the stream has ended.
    fn read(&mut self, clock: &Clock, registry: &Registry) -> bool {
        let Some(socket) = self.live.clone() else { return false };
        loop {
            match discard(&socket, READ).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or_default())) {
                Ok(0) => {
                    self.finished = true;
                    return true;
                }
                Ok(n) => {
                    self.received += n as u64;
                    self.on_received(clock.now(), registry);
                    if n < READ {
                        return false;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return false,
                Err(e) => {
                    registry.entry(self.connection.number).problem = Some(e.to_string());
                    return true;
                }
            }
        }
    }

    fn on_received(&mut self, now: Time, registry: &Registry) {
        let size = self.connection.spec.size.map(|b| b.0);
        let whole = size.is_some_and(|s| self.received >= s);
        if self.is_awaited {
            registry.has_come(self.connection.number, self.received, whole, now);
        }
        if !whole && self.questions.is_none() && !matches!(self.connection.spec.app, App::Bursts { .. }) {
            return;
        }
        let mut entry = registry.entry(self.connection.number);
        if let Some(transfer) = entry.transfer
            && self.received >= transfer.end
        {
            entry.transfer = None;
            entry.transfers.push((now, now.since(transfer.began).as_secs_f64()));
            if let Some((_, _, think)) = self.questions {
                self.ask_at = now + think;
            }
        }
        if whole && entry.completed.is_none() {
            entry.completed = Some(now);
            self.ask_at = Time::NEVER;
        }
    }

    /// Sends the next request.
    fn ask(&mut self, now: Time, registry: &Registry) {
        let (Some((request, response, _)), Some(socket)) = (self.questions, &self.live) else { return };
        self.answered_at = self.received + response;
        let transfer = super::source::Transfer { began: now, end: self.answered_at };
        registry.entry(self.connection.number).transfer = Some(transfer);
        let question = vec![0; request as usize];
        if let Err(e) = (&**socket).write_all(&question) {
            registry.entry(self.connection.number).problem = Some(format!("request: {e}"));
        }
    }
}
