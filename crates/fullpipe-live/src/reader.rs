//! Looking at the host's connections again and again.

use crate::connection::{Beliefs, Connection};
use crate::counters::{Before, Counters};
use crate::filter::{Filter, Subject};
use crate::limits::{self, Times};
use crate::owner::{Owner, Owners};
use crate::totals::{Sent, Total, ratio, totals};
use fullpipe_kernel::netlink::DumpItem;
use fullpipe_kernel::sock_diag::{Extensions, Family, Query, SockDiag};
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

/// Names the form of [`Snapshot`] as JSON.
pub const SCHEMA: &str = "fullpipe/watch/1";

/// Why the connections could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The kernel does not answer.
    #[error(
        "the kernel does not tell of its sockets: {0}; it needs CONFIG_INET_DIAG (`modprobe tcp_diag`), and no sandbox \
         that forbids netlink"
    )]
    Kernel(#[from] io::Error),
}

/// Who knows what controllers believe whose sockets do not tell, as those that are loaded as eBPF programs.
pub trait BeliefSource: Debug {
    /// Whether it may know what a controller of that name believes: it is asked only where one is in use.
    fn knows(&self, controller: &str) -> bool;

    /// The beliefs by the sockets' cookies, or why they cannot be had.
    ///
    /// # Errors
    /// A reason for people.
    fn beliefs(&mut self) -> Result<HashMap<u64, Beliefs>, String>;
}

/// The host's connections at one time.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// When, in seconds since 1970.
    pub unix_s: f64,
    /// Since the first look, in seconds.
    pub t_s: f64,
    /// Whether the kernel's table stood still while it was read: otherwise connections may be missing.
    pub complete: bool,
    /// What could not be seen, and why, in words.
    pub unseen: Vec<String>,
    /// By controller.
    pub totals: Vec<Total>,
    /// Those that the filter wants.
    pub connections: Vec<Connection>,
}

/// Looks at the connections of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Reader {
    kernel: SockDiag,
    filter: Filter,
    owners: Option<Owners>,
    beliefs: Option<Box<dyn BeliefSource>>,
    /// By cookie.
    before: HashMap<u64, Before>,
    began: Option<Instant>,
    /// The look before, in nanoseconds after the first.
    last_ns: u64,
    /// How many there were; goes round.
    looks: u32,
}

impl Reader {
    /// Looks at what `filter` wants, and finds out who holds it.
    ///
    /// # Errors
    /// When the kernel does not offer it.
    pub fn open(filter: Filter) -> Result<Reader, LookError> {
        Ok(Reader {
            kernel: SockDiag::open()?,
            filter,
            owners: Some(Owners::default()),
            beliefs: None,
            before: HashMap::new(),
            began: None,
            last_ns: 0,
            looks: 0,
        })
    }

    /// Leaves processes and control groups alone, unless the filter asks for them.
    pub fn without_owners(mut self) -> Reader {
        if !self.filter.asks_for_owners() {
            self.owners = None;
        }
        self
    }

    /// Also asks `source` what controllers believe.
    pub fn with_beliefs(mut self, source: Box<dyn BeliefSource>) -> Reader {
        self.beliefs = Some(source);
        self
    }

    /// What it looks at.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Looks at something else from now on.
    pub fn set_filter(&mut self, filter: Filter) {
        if filter.asks_for_owners() && self.owners.is_none() {
            self.owners = Some(Owners::default());
        }
        self.filter = filter;
    }

    /// Looks. What happened since the look before is known of connections that were there then.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn look(&mut self) -> Result<Snapshot, LookError> {
        let Dumped { mut connections, besides, mut complete, at: now } = self.dump()?;
        let (mut unseen, mut beliefs) = (Vec::new(), HashMap::new());
        let asked = self.beliefs.as_mut().filter(|source| {
            connections.iter().any(|c| c.controller.as_deref().is_some_and(|name| source.knows(name)))
        });
        if let Some(source) = asked {
            match source.beliefs() {
                Ok(told) => beliefs = told,
                Err(why) => unseen.push(why),
            }
        }
        let began = *self.began.get_or_insert(now);
        let now_ns = nanos(now.duration_since(began));
        let elapsed = Span::from_nanos(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
        self.looks = self.looks.wrapping_add(1);
        let Reader { filter, owners, before, looks, .. } = self;
        let mut besides = besides.into_iter();
        let mut sent = Vec::with_capacity(connections.len());
        connections.retain_mut(|connection| {
            let Some(beside) = besides.next() else { return false };
            // The kernel goes on by position in a bucket that may have changed: it shows a socket twice, or not.
            let last = before.get(&connection.cookie).copied();
            if last.is_some_and(|last| last.look == *looks) {
                complete = false;
                return false;
            }
            if let Some(owners) = owners {
                connection.owner = owners.of(beside.inode, beside.cgroup);
            }
            if filter.asks_for_owners() && !filter.wants(&connection.subject()) {
                return false;
            }
            if let Some(told) = beliefs.remove(&connection.cookie) {
                connection.beliefs = Some(Box::new(told));
            }
            if let Some(last) = &last {
                connection.watched = Span::from_nanos(now_ns.saturating_sub(last.first_ns));
            }
            sent.push(last.and_then(|last| since(connection, &last.counters, &beside, elapsed)));
            if connection.figures.is_some() {
                let first_ns = last.map_or(now_ns, |last| last.first_ns);
                let seen = Before { first_ns, counters: beside.counters, look: *looks };
                before.insert(connection.cookie, seen);
            }
            true
        });
        before.retain(|_, seen| seen.look == *looks);
        // After a rush the room that it took is given back.
        if before.capacity() / 4 > before.len().max(1024) {
            before.shrink_to(2 * before.len());
        }
        if let Some(hidden) = self.owners.as_ref().map(Owners::hidden).filter(|h| *h > 0) {
            unseen.push(format!(
                "the sockets of {hidden} processes of other users: as root their names are shown"
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

    /// Reads the kernel's table, of which nothing is kept but what is told; those that are surely not wanted are left out.
    fn dump(&mut self) -> Result<Dumped, LookError> {
        let nobody = Owner::default();
        let (mut connections, mut besides, mut complete) = (Vec::new(), Vec::new(), true);
        // Few controllers drive many connections.
        let mut names: Vec<Arc<str>> = Vec::new();
        let wanted = Extensions::INFO | Extensions::CONG | Extensions::VEGASINFO;
        let query = Query { extensions: wanted, ..Query::default() };
        let by_owner = self.filter.asks_for_owners();
        for family in Family::BOTH {
            let others = connections.len();
            let dump = self.kernel.dump(family, &query, |seen| match seen {
                DumpItem::Entry(view) => {
                    let (Some(local), Some(remote)) = (view.local(), view.remote()) else { return };
                    let (state, controller) = (view.state(), view.controller());
                    let subject = Subject { local, remote, state, controller, owner: &nobody };
                    if !by_owner && !self.filter.wants(&subject) {
                        return;
                    }
                    let controller = controller.map(|name| {
                        names.iter().find(|known| ***known == *name).cloned().unwrap_or_else(|| {
                            names.push(name.into());
                            Arc::clone(&names[names.len() - 1])
                        })
                    });
                    let info = view.info();
                    connections.push(Connection::of(&view, (local, remote), controller, info.as_ref()));
                    besides.push(Beside {
                        inode: view.inode(),
                        cgroup: view.cgroup_id(),
                        is_timed: info.as_ref().is_some_and(|info| Times::of(info).is_some()),
                        counters: info.as_ref().map(Counters::of).unwrap_or_default(),
                    });
                }
                DumpItem::Restart => {
                    connections.truncate(others);
                    besides.truncate(others);
                }
            });
            let dump = match dump {
                Ok(dump) => dump,
                Err(e) => {
                    // The kernel may be in the middle of it still, and would refuse the next.
                    self.kernel = SockDiag::open()?;
                    return Err(e.into());
                }
            };
            complete &= dump.consistent;
        }
        // Before owners are looked for, which takes a while: the counters are of now.
        let at = Instant::now();
        if let Some(owners) = &mut self.owners {
            owners.refresh(besides.iter().map(|b| b.inode));
        }
        Ok(Dumped { connections, besides, complete, at })
    }
}

/// The kernel's table at one time.
struct Dumped {
    connections: Vec<Connection>,
    /// One for each of them.
    besides: Vec<Beside>,
    /// Whether the table stood still, as far as that is seen.
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

/// What is needed of a socket beside what is told of it.
struct Beside {
    inode: u32,
    cgroup: Option<u64>,
    /// Whether the kernel accounts for its time.
    is_timed: bool,
    counters: Counters,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes into `connection` what happened since the look before; the segments that it sent.
fn since(connection: &mut Connection, last: &Counters, beside: &Beside, elapsed: Span) -> Option<Sent> {
    let figures = connection.figures.as_ref()?;
    let now = &beside.counters;
    let rate = |before: u64, now: u64| {
        let bytes = now.checked_sub(before)?;
        (!elapsed.is_zero()).then(|| Rate::from_bytes_in(bytes, elapsed))
    };
    // What this kernel does not count is not told.
    connection.sending = figures.acked_bytes.and_then(|now| rate(last.acked, now));
    connection.receiving = figures.received_bytes.and_then(|now| rate(last.received, now));
    let sent = figures.sent_segments.map(|_| now.segments_since(last));
    connection.retransmitted = sent.and_then(ratio);
    // Controllers that are programs tell nothing of themselves to sock_diag (`get_info` is not theirs to fill).
    let named = connection.controller.as_deref().is_some_and(|name| name.contains("bbr"));
    let modelled = named || connection.beliefs.as_ref().is_some_and(|b| b.bw.is_some());
    if beside.is_timed {
        connection.limits = limits::shares(&last.times, &now.times, figures, elapsed, modelled);
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
    fn what_was_sent_between_two_looks_is_told_of_the_wanted_connection_only() {
        let ((mut client, mut server), _other) = (pair(), pair());
        pin(&client, "reno").unwrap();
        // Clients of other servers, as of the tests beside, may have the same port.
        let [from, to] = [&client, &server].map(|end| end.local_addr().unwrap().port());
        let filter = format!("sport = :{from} and dport = :{to} and pid {}", std::process::id());
        let mut reader = Reader::open(Filter::parse(&filter).unwrap()).unwrap();
        let first = reader.look().unwrap();
        assert_eq!(first.connections.len(), 1);
        assert_eq!((first.connections[0].sending, first.totals[0].retransmitted), (None, None));
        client.write_all(&[7; 50_000]).unwrap();
        server.read_exact(&mut [0; 50_000]).unwrap();
        // The last ACK may be on its way.
        let acked = |r: &mut Reader| r.look().unwrap().connections[0].figures.as_ref().unwrap().acked_bytes;
        let mut watching = Reader::open(reader.filter().clone()).unwrap();
        while acked(&mut watching) < Some(50_000) {
            std::thread::yield_now();
        }
        let second = reader.look().unwrap();
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
    fn beliefs_that_sockets_do_not_tell_come_from_who_knows_them() {
        #[derive(Debug)]
        struct Oracle(u64);
        impl BeliefSource for Oracle {
            fn knows(&self, controller: &str) -> bool {
                controller == "reno"
            }
            fn beliefs(&mut self) -> Result<HashMap<u64, Beliefs>, String> {
                let state = Some("ProbeBW_UP".to_owned());
                Ok(HashMap::from([(self.0, Beliefs { state, ..Beliefs::default() })]))
            }
        }
        #[derive(Debug)]
        struct Blind;
        impl BeliefSource for Blind {
            fn knows(&self, controller: &str) -> bool {
                controller == "reno"
            }
            fn beliefs(&mut self) -> Result<HashMap<u64, Beliefs>, String> {
                Err("only root may look".to_owned())
            }
        }
        let (client, _server) = pair();
        pin(&client, "reno").unwrap();
        let port = client.local_addr().unwrap().port();
        let filter = Filter::parse(&format!("sport = :{port}")).unwrap();
        let mut reader = Reader::open(filter.clone()).unwrap().without_owners();
        let cookie = reader.look().unwrap().connections[0].cookie;
        let snapshot = reader.with_beliefs(Box::new(Oracle(cookie))).look().unwrap();
        let beliefs = snapshot.connections[0].beliefs.as_ref().unwrap();
        assert_eq!(beliefs.state.as_deref(), Some("ProbeBW_UP"));
        let mut blind = Reader::open(filter.clone()).unwrap().without_owners().with_beliefs(Box::new(Blind));
        assert_eq!(blind.look().unwrap().unseen, ["only root may look"]);
        let none = Filter::parse(&format!("sport = :{port} and not controller reno")).unwrap();
        blind.set_filter(none);
        assert_eq!(blind.look().unwrap().unseen, [""; 0], "nothing is missed of what is not there");
    }

    #[test]
    fn bbr_tells_what_it_believes_once_it_has_sent() {
        let (mut client, mut server) = pair();
        if pin(&client, "bbr").is_err() {
            println!("SKIPPED: this kernel offers no bbr");
            return;
        }
        let port = client.local_addr().unwrap().port();
        let mut reader = Reader::open(Filter::parse(&format!("sport = :{port}")).unwrap()).unwrap();
        assert_eq!(reader.look().unwrap().connections[0].beliefs, None);
        let snapshot = loop {
            client.write_all(&[7; 50_000]).unwrap();
            server.read_exact(&mut [0; 50_000]).unwrap();
            let snapshot = reader.look().unwrap();
            if snapshot.connections[0].beliefs.is_some() {
                break snapshot;
            }
        };
        let beliefs = snapshot.connections[0].beliefs.as_ref().unwrap();
        assert!(beliefs.state.is_some() && beliefs.bw.is_some(), "{beliefs:?}");
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["connections"][0]["controller"], "bbr");
        assert!(json["connections"][0]["beliefs"]["pacing_gain"].as_f64().unwrap() > 0.0);
    }
}
