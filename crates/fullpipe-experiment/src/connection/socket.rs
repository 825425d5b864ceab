//! What the socket of one end knew, beyond what passes on the wire.

use super::Heading;
use super::serde_units::{optional_bps, optional_ms, s};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One end's own account of a connection, from its socket as that closed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Socket {
    /// The direction whose data it sent.
    pub sends: Heading,
    /// Its last congestion controller.
    pub controller: Option<String>,
    /// Who held it.
    #[serde(default)]
    pub owner: Owner,
    /// The kernel's lasting name for it, where somebody had asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
    /// Its network namespace by inode, as in `net:[4026531840]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u32>,
    /// The same by the number that the kernel gives no other namespace (`SO_NETNS_COOKIE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
    /// Whether its addresses are those of IPv6. Told apart from them, which may have been replaced.
    #[serde(default)]
    pub ipv6: bool,
    /// The error that ended it, by the kernel's number (104 is ECONNRESET, 110 ETIMEDOUT); none where it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// Smoothed round-trip time at the end.
    #[serde(rename = "srtt_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub srtt: Option<Span>,
    /// Congestion window at the end, in segments.
    #[serde(default)]
    pub cwnd_segments: u32,
    /// Slow-start threshold in segments; none if it was never reduced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh_segments: Option<u32>,
    /// The last sample of the delivery rate.
    #[serde(rename = "delivery_bps", with = "optional_bps", default)]
    #[schemars(with = "Option<f64>")]
    pub delivery: Option<Rate>,
    /// Whether that was taken while the application had nothing to send.
    #[serde(default)]
    pub delivery_app_limited: bool,
    /// Segments delivered.
    #[serde(default)]
    pub delivered_segments: u64,
    /// Retransmission time-outs.
    #[serde(default)]
    pub timeouts: u64,
    /// Times that the sender saw reordering.
    #[serde(default)]
    pub reordering_seen: u64,
    /// Time with data to send or outstanding, in the kernel's ticks.
    #[serde(rename = "busy_s", with = "s", default)]
    #[schemars(with = "f64")]
    pub busy: Span,
    /// Of it, time that the receiver's window was full.
    #[serde(rename = "receive_window_limited_s", with = "s", default)]
    #[schemars(with = "f64")]
    pub receive_window_limited: Span,
    /// Of it, time that the send buffer was.
    #[serde(rename = "send_buffer_limited_s", with = "s", default)]
    #[schemars(with = "f64")]
    pub send_buffer_limited: Span,
}

/// Who held a socket, as far as it is known. Names are as a terminal may show them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Owner {
    /// The process that opened or closed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What that called itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The control group by its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The same by inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// systemd's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The container by the first twelve digits of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}
