//! Both ends of an s2n-quic connection as a [`Transport`] of the simulator.

use super::endpoint::{BATCH, Driven};
use super::frames::Progress;
use super::observed::Handle;
use bytes::Bytes;
use fullpipe_cc::{Span, Time};
use fullpipe_path::Ecn;
use fullpipe_sim::{Datagram, Telemetry, Transport, TransportEnd, TransportEvent};
use s2n_quic::client::{Connect, ConnectionAttempt};
use s2n_quic::stream::{ReceiveStream, SendStream};
use s2n_quic::{Client, Server};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Datagrams of data that the stack gets ahead of what it has sent: more than a batch, so that no
/// packet leaves without more data waiting, and few, because what the stack has is sent even if the
/// application stops.
const DATAGRAMS_AHEAD: u64 = 2 * BATCH as u64;

/// The time between two calls of a stack that has nothing to wait for.
const CLOCK_STEP: Span = Span::from_micros(1);

/// Data that the application writes.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Set when the stack wants its application or its endpoint to be polled.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One end.
struct Side {
    endpoint: Box<dyn Driven>,
    flag: Arc<Flag>,
    waker: Waker,
    outbox: VecDeque<Datagram>,
    timer: Time,
    /// Called since datagrams were last collected.
    called: bool,
}

impl Side {
    fn new(endpoint: Box<dyn Driven>) -> Self {
        let flag = Arc::<Flag>::default();
        let waker = Waker::from(flag.clone());
        Side { endpoint, flag, waker, outbox: VecDeque::new(), timer: Time::NEVER, called: false }
    }

    /// Reads the timer at `now`. One that is still due fires [`CLOCK_STEP`] later, as a real clock moves
    /// on; otherwise virtual time would stand still.
    fn update_timer(&mut self, now: Time) {
        let at = self.endpoint.timeout().unwrap_or(Time::NEVER);
        self.timer = if at <= now { now + CLOCK_STEP } else { at };
    }
}

/// The application at the sending end.
struct Sending {
    client: Client,
    server_address: std::net::SocketAddr,
    attempt: Option<ConnectionAttempt>,
    connection: Option<s2n_quic::Connection>,
    stream: Option<SendStream>,
    /// Bytes that the application wrote.
    written: u64,
    /// Bytes of these that the stack has not got.
    waiting: u64,
    finishing: bool,
    finished: bool,
}

impl Sending {
    /// Does what is possible. Returns an event, or why the connection failed.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        sent: u64,
        datagram: u64,
    ) -> Result<Option<TransportEvent>, String> {
        let mut event = None;
        if let Some(attempt) = &mut self.attempt
            && let Poll::Ready(result) = Pin::new(attempt).poll(context)
        {
            self.attempt = None;
            self.connection = Some(result.map_err(|error| error.to_string())?);
            event = Some(TransportEvent::Established);
        }
        if let (Some(connection), None) = (&mut self.connection, &self.stream)
            && let Poll::Ready(stream) = connection.poll_open_send_stream(context)
        {
            self.stream = Some(stream.map_err(|error| error.to_string())?);
        }
        self.write(context, sent, datagram)?;
        Ok(event)
    }

    /// Passes data to the stack as far as it sends it soon.
    fn write(&mut self, context: &mut Context<'_>, sent: u64, datagram: u64) -> Result<(), String> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.finished) else { return Ok(()) };
        let unsent = (self.written - self.waiting).saturating_sub(sent);
        let mut room = (DATAGRAMS_AHEAD * datagram).saturating_sub(unsent);
        while self.waiting > 0 && room > 0 {
            let Poll::Ready(free) = stream.poll_send_ready(context) else { break };
            let free = free.map_err(|error| error.to_string())? as u64;
            let len = room.min(self.waiting).min(free).min(ZEROES.len() as u64);
            stream
                .send_data(Bytes::from_static(&ZEROES[..len as usize]))
                .map_err(|error| error.to_string())?;
            self.waiting -= len;
            room -= len;
        }
        if self.finishing && self.waiting == 0 {
            self.finished = true;
            stream.finish().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The application at the receiving end.
struct Receiving {
    server: Server,
    connection: Option<s2n_quic::Connection>,
    stream: Option<ReceiveStream>,
    delivered: u64,
}

impl Receiving {
    /// Does what is possible. Returns an event, or why the connection failed.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Option<TransportEvent>, String> {
        let mut event = None;
        if self.connection.is_none()
            && let Poll::Ready(accepted) = self.server.poll_accept(context)
        {
            self.connection = Some(accepted.ok_or("the endpoint is closed")?);
            event = Some(TransportEvent::Accepted);
        }
        if let (Some(connection), None) = (&mut self.connection, &self.stream)
            && let Poll::Ready(stream) = connection.poll_accept_receive_stream(context)
        {
            self.stream = stream.map_err(|error| error.to_string())?;
        }
        if let Some(stream) = &mut self.stream {
            while let Poll::Ready(data) = stream.poll_receive(context) {
                let Some(data) = data.map_err(|error| error.to_string())? else { break };
                self.delivered += data.len() as u64;
            }
        }
        Ok(event)
    }
}

/// Both ends of a connection.
pub struct Connection {
    sender: Side,
    receiver: Side,
    sending: Sending,
    receiving: Receiving,
    controller: Handle,
    progress: Arc<Progress>,
    options: Options,
    events: VecDeque<TransportEvent>,
    failed: bool,
}

/// Options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether packets may be marked by the path.
    pub ecn: bool,
    /// Largest UDP payload in bytes.
    pub datagram: u64,
}

impl Connection {
    /// A connection from `client` to `server`, whose endpoints are given.
    pub fn new(
        (client, sender): (Client, Box<dyn Driven>),
        (server, receiver): (Server, Box<dyn Driven>),
        server_address: std::net::SocketAddr,
        controller: Handle,
        progress: Arc<Progress>,
        options: Options,
    ) -> Self {
        Connection {
            sender: Side::new(sender),
            receiver: Side::new(receiver),
            sending: Sending {
                client,
                server_address,
                attempt: None,
                connection: None,
                stream: None,
                written: 0,
                waiting: 0,
                finishing: false,
                finished: false,
            },
            receiving: Receiving { server, connection: None, stream: None, delivered: 0 },
            controller,
            progress,
            options,
            events: VecDeque::new(),
            failed: false,
        }
    }

    fn side(&mut self, end: TransportEnd) -> &mut Side {
        match end {
            TransportEnd::Sender => &mut self.sender,
            TransportEnd::Receiver => &mut self.receiver,
        }
    }

    /// Lets the application and the endpoint of `end` process what is new to them, once.
    fn poll_once(&mut self, now: Time, end: TransportEnd) {
        let side = self.side(end);
        side.flag.0.store(false, Ordering::Relaxed);
        let waker = side.waker.clone();
        let mut context = Context::from_waker(&waker);
        let result = match end {
            TransportEnd::Sender => {
                self.sending.poll(&mut context, self.progress.sent(), self.options.datagram)
            }
            TransportEnd::Receiver => self.receiving.poll(&mut context),
        };
        match result {
            Ok(event) => self.events.extend(event),
            Err(reason) => self.fail(end, &reason),
        }
        self.side(end).endpoint.wake(now, &mut context);
    }

    /// The same until there is nothing new.
    fn settle(&mut self, now: Time, end: TransportEnd) {
        loop {
            self.poll_once(now, end);
            if self.failed || !self.side(end).flag.0.load(Ordering::Relaxed) {
                break;
            }
        }
        self.collect_events(end);
        let side = self.side(end);
        side.called = true;
        side.update_timer(now);
    }

    /// Processes timers and collects all datagrams that `end` sends.
    fn run(&mut self, now: Time, end: TransportEnd) {
        loop {
            self.poll_once(now, end);
            let side = self.side(end);
            let sent = side.endpoint.transmit(now, &mut side.outbox);
            if sent == 0 && (self.failed || !self.side(end).flag.0.load(Ordering::Relaxed)) {
                break;
            }
        }
        self.collect_events(end);
        let ecn = self.options.ecn && end == TransportEnd::Sender;
        let side = self.side(end);
        // Only the data is marked; without it, the stack's validation of ECN fails and ends.
        if !ecn {
            side.outbox.iter_mut().for_each(|datagram| datagram.ecn = Ecn::NotEct);
        }
        side.called = false;
        side.update_timer(now);
    }

    fn collect_events(&mut self, end: TransportEnd) {
        if end == TransportEnd::Sender {
            let events = &mut self.events;
            self.controller.with(|view| events.extend(std::iter::from_fn(|| view.next_event())));
        }
    }

    fn fail(&mut self, end: TransportEnd, reason: &str) {
        if !self.failed {
            self.failed = true;
            let end = match end {
                TransportEnd::Sender => "sender",
                TransportEnd::Receiver => "receiver",
            };
            self.events.push_back(TransportEvent::Failed(format!("{end}: {reason}")));
        }
    }
}

impl Transport for Connection {
    fn open(&mut self, now: Time) {
        let Sending { client, server_address, attempt, .. } = &mut self.sending;
        let server = Connect::new(*server_address).with_server_name("localhost");
        *attempt = Some(client.connect(server));
        self.settle(now, TransportEnd::Sender);
    }

    fn on_datagram(&mut self, now: Time, end: TransportEnd, datagram: Datagram) {
        self.side(end).endpoint.receive(now, datagram);
        self.settle(now, end);
    }

    fn poll_transmit(&mut self, now: Time, end: TransportEnd) -> Option<Datagram> {
        if self.side(end).called {
            self.run(now, end);
        }
        self.side(end).outbox.pop_front()
    }

    fn next_timer(&self, end: TransportEnd) -> Time {
        match end {
            TransportEnd::Receiver => self.receiver.timer,
            TransportEnd::Sender => self.sender.timer,
        }
    }

    fn on_timer(&mut self, now: Time, end: TransportEnd) {
        if self.side(end).timer <= now {
            self.run(now, end);
        }
    }

    fn poll_event(&mut self) -> Option<TransportEvent> {
        self.events.pop_front()
    }

    fn write(&mut self, _: Time, bytes: u64) {
        self.sending.written = self.sending.written.saturating_add(bytes);
        self.sending.waiting = self.sending.waiting.saturating_add(bytes);
        self.sender.called = true;
    }

    fn finish(&mut self, _: Time, truncate: bool) {
        if truncate {
            self.discard_unsent();
        }
        self.sending.finishing = true;
        self.sender.called = true;
    }

    fn discard_unsent(&mut self) -> u64 {
        self.sending.written -= self.sending.waiting;
        self.sending.waiting = 0;
        self.sending.written
    }

    fn request(&mut self, _: Time, _: u64) {
        // Refused when the connection is opened.
        self.fail(TransportEnd::Receiver, "requests are not supported");
    }

    fn delivered(&self) -> u64 {
        self.receiving.delivered
    }

    fn is_idle(&self) -> bool {
        let inflight = self.controller.with(|view| view.telemetry().inflight);
        self.receiving.delivered == self.sending.written && inflight.unwrap_or(0) == 0
    }

    fn state(&self) -> &'static str {
        self.controller.with(|view| view.state()).unwrap_or("")
    }

    fn telemetry(&self) -> Telemetry {
        let telemetry = self.controller.with(|view| view.telemetry()).unwrap_or_default();
        Telemetry { retransmitted: self.progress.resent(), ..telemetry }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("written", &self.sending.written)
            .field("delivered", &self.receiving.delivered)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
