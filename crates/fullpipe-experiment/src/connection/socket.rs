//! Socket state of one endpoint, beyond what is visible on the wire.

use super::Heading;
use super::serde_units::{optional_bps, optional_ms, s};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Final state of one endpoint's socket when it closed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Socket {
    /// The direction it sends.
    pub sends: Heading,
    /// Its last congestion controller.
    pub controller: Option<String>,
    /// The owning process.
    #[serde(default)]
    pub owner: Owner,
    /// The socket cookie, if one was assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
    /// Its network namespace by inode, as in `net:[4026531840]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u32>,
    /// Its network namespace by cookie (`SO_NETNS_COOKIE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
    /// Whether it uses IPv6. Stored separately because addresses may be anonymised.
    #[serde(default)]
    pub ipv6: bool,
    /// The errno that ended it (104 is ECONNRESET, 110 ETIMEDOUT); `None` if it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// Smoothed round-trip time at the end.
    #[serde(rename = "srtt_ms", with = "optional_ms", default)]
    #[schemars(with = "Option<f64>")]
    pub srtt: Option<Span>,
    /// Congestion window at the end, in segments.
    #[serde(default)]
    pub cwnd_segments: u32,
    /// Slow-start threshold in segments; `None` if it was never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh_segments: Option<u32>,
    /// Last delivery-rate sample.
    #[serde(rename = "delivery_bps", with = "optional_bps", default)]
    #[schemars(with = "Option<f64>")]
    pub delivery: Option<Rate>,
    /// Whether that sample was application-limited.
    #[serde(default)]
    pub delivery_app_limited: bool,
    /// Segments delivered.
    #[serde(default)]
    pub delivered_segments: u64,
    /// Retransmission timeouts.
    #[serde(default)]
    pub timeouts: u64,
    /// Reordering events detected by the sender.
    #[serde(default)]
    pub reordering_seen: u64,
    /// Time with data queued or outstanding, at the resolution of kernel ticks.
    #[serde(rename = "busy_s", with = "s", default)]
    #[schemars(with = "f64")]
    pub busy: Span,
    /// Part of `busy` limited by the receive window.
    #[serde(rename = "receive_window_limited_s", with = "s", default)]
    #[schemars(with = "f64")]
    pub receive_window_limited: Span,
    /// Part of `busy` limited by the send buffer.
    #[serde(rename = "send_buffer_limited_s", with = "s", default)]
    #[schemars(with = "f64")]
    pub send_buffer_limited: Span,
}

/// The owner of a socket, as far as known. Names are escaped for terminals.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Owner {
    /// The process that opened or closed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its command name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// User ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Path of its control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Inode of its control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// Its systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Its container, by the first twelve digits of the ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}
