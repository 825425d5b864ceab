//! Periodic samples of the host's connections.

use crate::connection::{Connection, PathModel};
use crate::counters::{Counters, Previous};
use crate::filter::{Filter, Subject};
use crate::limits::{self, Times};
use crate::owner::{Owner, Owners};
use crate::totals::{Sent, Total, ratio, totals};
use fullpipe_kernel::netlink::DumpItem;
use fullpipe_kernel::sock_diag::{Extensions, Family, Query, SockDiag};
use fullpipe_kernel::tcp_info::PathSender;
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Schema name of [`Snapshot`] as JSON.
pub const SCHEMA: &str = "fullpipe/watch/1";

/// An error when sampling connections.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The kernel returned an error.
    #[error(
        "cannot list the kernel's sockets: {0}; this needs CONFIG_INET_DIAG (`modprobe tcp_diag`) and a \
         sandbox that permits netlink"
    )]
    Kernel(#[from] io::Error),
}

/// A source of path models for controllers that sock_diag does not expose, such as those loaded as
/// eBPF programs.
pub trait ModelSource: Debug {
    /// Whether it covers a controller of that name. It is queried only while such a controller is
    /// in use.
    fn covers(&self, controller: &str) -> bool;

    /// The models by socket cookie.
    ///
    /// # Errors
    /// A message that says why they are not available.
    fn models(&mut self) -> Result<HashMap<u64, PathModel>, String>;
}

/// One sample of the host's connections.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Time of the sample, Unix seconds.
    pub unix_s: f64,
    /// Time since the first sample, in seconds.
    pub t_s: f64,
    /// Whether the kernel's table was unchanged while it was read; otherwise connections may be
    /// missing.
    pub complete: bool,
    /// What is missing from the sample, with the reason.
    pub unseen: Vec<String>,
    /// Totals by controller.
    pub totals: Vec<Total>,
    /// Connections that match the filter.
    pub connections: Vec<Connection>,
}

/// Samples the connections of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Reader {
    kernel: SockDiag,
    filter: Filter,
    owners: Option<Owners>,
    model: Option<Box<dyn ModelSource>>,
    /// Connections of the previous sample, by cookie.
    previous: HashMap<u64, Previous>,
    began: Option<Instant>,
    /// Time of the previous sample, in nanoseconds after the first.
    last_ns: u64,
    /// Number of samples; wraps around.
    samples: u32,
}

impl Reader {
    /// Opens a reader for connections that match `filter`, with their owners.
    ///
    /// # Errors
    /// When the kernel lacks sock_diag.
    pub fn open(filter: Filter) -> Result<Reader, SampleError> {
        Ok(Reader {
            kernel: SockDiag::open()?,
            filter,
            owners: Some(Owners::default()),
            model: None,
            previous: HashMap::new(),
            began: None,
            last_ns: 0,
            samples: 0,
        })
    }

    /// Skips processes and control groups, unless the filter tests them.
    pub fn without_owners(mut self) -> Reader {
        if !self.filter.needs_owners() {
            self.owners = None;
        }
        self
    }

    /// Adds path models from `source`.
    pub fn with_models(mut self, source: Box<dyn ModelSource>) -> Reader {
        self.model = Some(source);
        self
    }

    /// The current filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Replaces the filter.
    pub fn set_filter(&mut self, filter: Filter) {
        if filter.needs_owners() && self.owners.is_none() {
            self.owners = Some(Owners::default());
        }
        self.filter = filter;
    }

    /// Takes a sample. Activity since the previous sample is known for connections that it
    /// contained.
    ///
    /// # Errors
    /// When the kernel returns an error.
    pub fn sample(&mut self) -> Result<Snapshot, SampleError> {
        let Table { mut connections, sockets, mut complete, at: now } = self.dump()?;
        let (mut unseen, mut models) = (Vec::new(), HashMap::new());
        let source = self.model.as_mut().filter(|source| {
            connections.iter().any(|c| c.controller.as_deref().is_some_and(|name| source.covers(name)))
        });
        if let Some(source) = source {
            match source.models() {
                Ok(found) => models = found,
                Err(why) => unseen.push(why),
            }
        }
        let began = *self.began.get_or_insert(now);
        let now_ns = nanos(now.duration_since(began));
        let elapsed = Span::from_nanos(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
        self.samples = self.samples.wrapping_add(1);
        let Reader { filter, owners, previous, samples, .. } = self;
        let mut sockets = sockets.into_iter();
        let mut sent = Vec::with_capacity(connections.len());
        connections.retain_mut(|connection| {
            let Some(socket) = sockets.next() else { return false };
            // The kernel resumes by position in a hash bucket that may have changed: a socket may appear
            // twice or not at all.
            let last = previous.get(&connection.cookie).copied();
            if last.is_some_and(|last| last.sample == *samples) {
                complete = false;
                return false;
            }
            if let Some(owners) = owners {
                connection.owner = owners.lookup(socket.inode, socket.cgroup);
            }
            if filter.needs_owners() && !filter.matches(&connection.subject()) {
                return false;
            }
            if let Some(model) = models.remove(&connection.cookie) {
                connection.model = Some(Box::new(model));
            }
            if let Some(last) = &last {
                connection.watched = Span::from_nanos(now_ns.saturating_sub(last.first_ns));
            }
            sent.push(last.and_then(|last| add_activity(connection, &last.counters, &socket, elapsed)));
            if connection.figures.is_some() {
                let first_ns = last.map_or(now_ns, |last| last.first_ns);
                let current = Previous { first_ns, counters: socket.counters, sample: *samples };
                previous.insert(connection.cookie, current);
            }
            true
        });
        previous.retain(|_, last| last.sample == *samples);
        // Release memory after a burst of connections.
        if previous.capacity() / 4 > previous.len().max(1024) {
            previous.shrink_to(2 * previous.len());
        }
        if let Some(hidden) = self.owners.as_ref().map(Owners::hidden).filter(|h| *h > 0) {
            unseen.push(format!(
                "owners of sockets of {hidden} processes of other users: run as root to see them"
            ));
        }
        Ok(Snapshot {
            schema: SCHEMA,
            unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64()),
            t_s: now.duration_since(began).as_secs_f64(),
            complete,
            unseen,
            totals: totals(connections.iter().zip(sent)),
            connections,
        })
    }

    /// Reads the kernel's socket table, skipping connections that cannot match.
    fn dump(&mut self) -> Result<Table, SampleError> {
        let unknown = Owner::default();
        let (mut connections, mut sockets, mut complete) = (Vec::new(), Vec::new(), true);
        // Many connections share few controller names.
        let mut names: Vec<Arc<str>> = Vec::new();
        let wanted = Extensions::INFO | Extensions::CONG | Extensions::VEGASINFO;
        let query = Query { extensions: wanted, ..Query::default() };
        let by_owner = self.filter.needs_owners();
        for family in Family::BOTH {
            let start = connections.len();
            let dump = self.kernel.dump(family, &query, |item| match item {
                DumpItem::Entry(view) => {
                    let (Some(local), Some(remote)) = (view.local(), view.remote()) else { return };
                    let (state, controller) = (view.state(), view.controller());
                    let subject = Subject { local, remote, state, controller, owner: &unknown };
                    if !by_owner && !self.filter.matches(&subject) {
                        return;
                    }
                    let controller = controller.map(|name| {
                        names.iter().find(|known| ***known == *name).cloned().unwrap_or_else(|| {
                            names.push(name.into());
                            Arc::clone(&names[names.len() - 1])
                        })
                    });
                    let info = view.info();
                    connections.push(Connection::from_socket(
                        &view,
                        (local, remote),
                        controller,
                        info.as_ref(),
                    ));
                    sockets.push(SocketDetails {
                        inode: view.inode(),
                        cgroup: view.cgroup_id(),
                        is_timed: info.as_ref().is_some_and(|info| Times::from_tcp_info(info).is_some()),
                        counters: info.as_ref().map(Counters::from_tcp_info).unwrap_or_default(),
                    });
                }
                DumpItem::Restart => {
                    connections.truncate(start);
                    sockets.truncate(start);
                }
            });
            let dump = match dump {
                Ok(dump) => dump,
                Err(e) => {
                    // The kernel may still be sending this dump and would refuse the next one.
                    self.kernel = SockDiag::open()?;
                    return Err(e.into());
                }
            };
            complete &= dump.consistent;
        }
        // Taken before the slow search for owners: the counters are as of now.
        let at = Instant::now();
        if let Some(owners) = &mut self.owners {
            owners.refresh(sockets.iter().map(|b| b.inode));
        }
        Ok(Table { connections, sockets, complete, at })
    }
}

/// The kernel's socket table.
struct Table {
    connections: Vec<Connection>,
    /// Details of the socket of each connection.
    sockets: Vec<SocketDetails>,
    /// Whether the table was unchanged while it was read, as far as detectable.
    complete: bool,
    at: Instant,
}

impl Snapshot {
    /// The JSON Schema of [`SCHEMA`].
    pub fn schema() -> Value {
        SchemaSettings::default()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<Snapshot>()
            .to_value()
    }
}

/// Details of a socket that are not part of its [`Connection`].
struct SocketDetails {
    inode: u32,
    cgroup: Option<u64>,
    /// Whether the kernel accounts for the connection's time.
    is_timed: bool,
    counters: Counters,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets the activity of `connection` since the previous sample; returns the segments that it sent.
fn add_activity(
    connection: &mut Connection,
    last: &Counters,
    socket: &SocketDetails,
    elapsed: Span,
) -> Option<Sent> {
    let figures = connection.figures.as_ref()?;
    let now = &socket.counters;
    let rate = |before: u64, now: u64| {
        let bytes = now.checked_sub(before)?;
        (!elapsed.is_zero()).then(|| Rate::from_bytes_in(bytes, elapsed))
    };
    // Counters that this kernel lacks are left out.
    connection.sending = figures.acked_bytes.and_then(|now| rate(last.acked, now));
    connection.receiving = figures.received_bytes.and_then(|now| rate(last.received, now));
    let sent = figures.sent_segments.map(|_| now.segments_since(last));
    connection.retransmitted = sent.and_then(ratio);
    if socket.is_timed {
        let model = connection.model.as_ref();
        let sender = PathSender {
            controller: connection.controller.as_deref().unwrap_or_default(),
            has_model: model.is_some_and(|m| m.bw.is_some()),
            bbr_version: model.and_then(|m| m.version),
            bw_lo: model.and_then(|m| m.bw_lo),
            bw_hi: model.and_then(|m| m.bw_hi),
            loss: connection.retransmitted.unwrap_or(0.0),
            srtt: figures.srtt,
            min_rtt: figures.min_rtt,
        };
        connection.limits = limits::shares(&last.times, &now.times, figures, elapsed, &sender);
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_kernel::tcp_info::pin;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn activity_between_samples_is_reported_for_matching_connections_only() {
        let ((mut client, mut server), _other) = (pair(), pair());
        pin(&client, "reno").unwrap();
        // Connections of concurrent tests may use the same port.
        let [from, to] = [&client, &server].map(|end| end.local_addr().unwrap().port());
        let filter = format!("sport = :{from} and dport = :{to} and pid {}", std::process::id());
        let mut reader = Reader::open(Filter::parse(&filter).unwrap()).unwrap();
        let first = reader.sample().unwrap();
        assert_eq!(first.connections.len(), 1);
        assert_eq!((first.connections[0].sending, first.totals[0].retransmitted), (None, None));
        client.write_all(&[7; 50_000]).unwrap();
        server.read_exact(&mut [0; 50_000]).unwrap();
        // The last ACK may be in flight.
        let acked = |r: &mut Reader| r.sample().unwrap().connections[0].figures.as_ref().unwrap().acked_bytes;
        let mut watching = Reader::open(reader.filter().clone()).unwrap();
        while acked(&mut watching) < Some(50_000) {
            std::thread::yield_now();
        }
        let second = reader.sample().unwrap();
        let one = &second.connections[0];
        let bytes = one.sending.unwrap().as_bytes_per_sec() as f64 * (second.t_s - first.t_s);
        assert!((bytes - 50_000.0).abs() < 500.0, "{bytes}");
        assert_eq!((one.controller.as_deref(), one.retransmitted), (Some("reno"), Some(0.0)));
        assert_eq!(one.owner.process.as_ref().unwrap().pid, std::process::id());
        let totals = &second.totals[0];
        assert_eq!(
            (totals.controller.as_str(), totals.connections, totals.sending),
            ("reno", 1, one.sending)
        );
        assert!((one.limits.iter().map(|l| l.share).sum::<f64>() - 1.0).abs() < 1e-9, "{:?}", one.limits);
    }

    #[test]
    fn models_missing_from_sock_diag_come_from_the_source() {
        #[derive(Debug)]
        struct Oracle(u64);
        impl ModelSource for Oracle {
            fn covers(&self, controller: &str) -> bool {
                controller == "reno"
            }
            fn models(&mut self) -> Result<HashMap<u64, PathModel>, String> {
                let state = Some("ProbeBW_UP".to_owned());
                Ok(HashMap::from([(self.0, PathModel { state, ..PathModel::default() })]))
            }
        }
        #[derive(Debug)]
        struct Blind;
        impl ModelSource for Blind {
            fn covers(&self, controller: &str) -> bool {
                controller == "reno"
            }
            fn models(&mut self) -> Result<HashMap<u64, PathModel>, String> {
                Err("only root may read models".to_owned())
            }
        }
        let (client, _server) = pair();
        pin(&client, "reno").unwrap();
        let port = client.local_addr().unwrap().port();
        let filter = Filter::parse(&format!("sport = :{port}")).unwrap();
        let mut reader = Reader::open(filter.clone()).unwrap().without_owners();
        let cookie = reader.sample().unwrap().connections[0].cookie;
        let snapshot = reader.with_models(Box::new(Oracle(cookie))).sample().unwrap();
        let model = snapshot.connections[0].model.as_ref().unwrap();
        assert_eq!(model.state.as_deref(), Some("ProbeBW_UP"));
        let mut blind = Reader::open(filter.clone()).unwrap().without_owners().with_models(Box::new(Blind));
        assert_eq!(blind.sample().unwrap().unseen, ["only root may read models"]);
        let none = Filter::parse(&format!("sport = :{port} and not controller reno")).unwrap();
        blind.set_filter(none);
        assert_eq!(blind.sample().unwrap().unseen, [""; 0], "no note without such a controller");
    }

    #[test]
    fn bbr_exposes_its_model_after_sending() {
        let (mut client, mut server) = pair();
        if pin(&client, "bbr").is_err() {
            println!("SKIPPED: this kernel offers no bbr");
            return;
        }
        let port = client.local_addr().unwrap().port();
        let mut reader = Reader::open(Filter::parse(&format!("sport = :{port}")).unwrap()).unwrap();
        assert_eq!(reader.sample().unwrap().connections[0].model, None);
        let snapshot = loop {
            client.write_all(&[7; 50_000]).unwrap();
            server.read_exact(&mut [0; 50_000]).unwrap();
            let snapshot = reader.sample().unwrap();
            if snapshot.connections[0].model.is_some() {
                break snapshot;
            }
        };
        let model = snapshot.connections[0].model.as_ref().unwrap();
        assert!(model.state.is_some() && model.bw.is_some(), "{model:?}");
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["connections"][0]["controller"], "bbr");
        assert!(json["connections"][0]["model"]["pacing_gain"].as_f64().unwrap() > 0.0);
    }
}
