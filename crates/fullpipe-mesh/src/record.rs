//! What a mesh tells: the transfers of its standing connections, the probes between them, the routes.
//!
//! A sender writes down what it sent: whatever is known of the direction `from → to` is in the records of `from`. Clocks of sites need
//! not agree: what is compared are transfers of one sender, and what is set side by side of several sites is meant to the minute.

use fullpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A site, by its place in [`History::sites`].
pub type SiteId = u16;
/// A controller, by its place in [`History::controllers`].
pub type ControllerId = u16;

/// One direction between two sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// Who sends.
    pub from: SiteId,
    /// Who receives.
    pub to: SiteId,
}

/// One transfer of a standing connection, or the attempt of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// When it began, by the sender's clock: milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The number of the period that it belongs to, counted by the sender since 1970: transfers of one pair and period are compared.
    pub period: i64,
    /// From where to where.
    pub pair: Pair,
    /// Whose turn it was.
    pub controller: ControllerId,
    /// How it came out.
    pub outcome: Outcome,
}

/// How a transfer came out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// All bytes arrived: the receiver said so.
    Done(Box<Measured>),
    /// They did not.
    Failed(Trouble),
}

/// What a transfer that arrived told. From the sender's `TCP_INFO`, as differences over the transfer, but for what the receiver says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Payload moved.
    pub bytes: u64,
    /// From its first byte given to the kernel until the receiver's word that all had arrived.
    pub duration: Span,
    /// The kernel's last estimate of the delivery rate that was not limited by the application, if it made one.
    pub delivery_rate: Option<Rate>,
    /// Smoothed round-trip time at its end.
    pub rtt: Span,
    /// The least round-trip time that the kernel has seen on the connection.
    pub min_rtt: Span,
    /// Data segments sent, those sent again among them.
    pub segments: u32,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Of the time with data waiting: the share during which the receiver's window held it up.
    pub receive_window_limited: f32,
    /// The share during which the sender's own buffer held it up.
    pub send_buffer_limited: f32,
    /// Processor time that the sending thread used.
    pub cpu: Span,
}

impl Measured {
    /// Payload over the whole duration.
    pub fn goodput(&self) -> Rate {
        Rate::from_bytes_in(self.bytes, self.duration)
    }

    /// Segments sent again, of all sent.
    pub fn retransmitted_share(&self) -> f64 {
        if self.segments == 0 { 0.0 } else { f64::from(self.retransmitted) / f64::from(self.segments) }
    }
}

/// Why a transfer did not come about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// No connection within the time allowed: down, unreachable, or a firewall that drops.
    Unreachable,
    /// Refused at once: nobody listens.
    Refused,
    /// The other end is not who the mesh file says, or does not take us for a member.
    NotAMember,
    /// The other end speaks another version.
    Version,
    /// Small messages arrive, full segments do not: a path that swallows large packets.
    LargePacketsVanish,
    /// Bytes went out, and nothing more was acknowledged.
    Stalled,
    /// It moved, but not to its end within the time allowed.
    TooSlow,
    /// The connection broke under it.
    Broken,
    /// The sender's budget of the day is spent.
    SenderBudget,
    /// The receiver's budget of the day is spent.
    ReceiverBudget,
    /// The sender's kernel has no such controller, or may not use it.
    NoSuchController,
    /// One of its ends was busy with other transfers all its time.
    NoTurn,
}

/// The small probes of one direction and minute, sent between transfers: one a second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Minute {
    /// When it began, by the sender's clock: milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Who asked, and who answered: both directions are in its round trips.
    pub pair: Pair,
    /// Probes sent.
    pub sent: u16,
    /// Of these, those that reached the other end (it counts them).
    pub arrived: u16,
    /// Of these, those whose answer came back.
    pub answered: u16,
    /// Round-trip times of those answered: least, median, 95th percentile, greatest. None if none was.
    pub rtt: Option<RttBand>,
}

/// Round-trip times of a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RttBand {
    /// The least.
    pub min: Span,
    /// The median.
    pub p50: Span,
    /// The 95th percentile.
    pub p95: Span,
    /// The greatest.
    pub max: Span,
}

/// The routers on the way, asked when the path seems to have changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// When, by the sender's clock: milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Of which direction.
    pub pair: Pair,
    /// The routers, nearest first. None where one did not answer.
    pub hops: Vec<Option<IpAddr>>,
}

/// What is known of a mesh over a time.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct History {
    /// The names of its sites.
    pub sites: Vec<String>,
    /// The names of its controllers, as kernels know them; the first is what the others are compared with.
    pub controllers: Vec<String>,
    /// How long a period is.
    pub period: Span,
    /// All transfers, by time.
    pub transfers: Vec<Transfer>,
    /// All minutes of probes, by time.
    pub minutes: Vec<Minute>,
    /// All routes, by time.
    pub routes: Vec<Route>,
}

impl History {
    /// A pair in words: `lab → sea`.
    pub fn name(&self, pair: Pair) -> String {
        let of = |site: SiteId| self.sites.get(usize::from(site)).map_or("?", String::as_str);
        format!("{} → {}", of(pair.from), of(pair.to))
    }
}
