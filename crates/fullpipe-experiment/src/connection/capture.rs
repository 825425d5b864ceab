//! Packet counts of a capture.

use super::{LogFile, is_zero};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Packet counts of one capture. The packets are `tcp`, `other`, `fragments`, `reassembled`,
/// `malformed`, and those of unread link types.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Capture {
    /// Its file or interface.
    pub name: String,
    /// Packets of all kinds.
    pub packets: u64,
    /// TCP packets, those in tunnels included.
    pub tcp: u64,
    /// TCP packets that the filter excluded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub filtered: u64,
    /// Packets of other protocols.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other: u64,
    /// Fragments of TCP packets that are incomplete, or whose fragments contradict each other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fragments: u64,
    /// Fragments of reassembled TCP packets beyond the first of each, which `tcp` counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reassembled: u64,
    /// Truncated or malformed packets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub malformed: u64,
    /// Packets that the capturing host dropped, if the capture has the number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Damaged blocks of the file that were skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub damaged_blocks: u64,
    /// TCP packets in tunnels, per kind of the outermost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<TunnelCount>,
    /// Packets that may carry TCP and were not read: link types, and encapsulations, which `other`
    /// counts, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadCount>,
    /// Where and why reading stopped early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<CaptureDamage>,
    /// What was read of a qlog file; its packets are events and not TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogFile>,
}

/// TCP packets in one kind of tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TunnelCount {
    /// The protocol.
    pub name: String,
    /// Number of packets.
    pub packets: u64,
}

/// Packets of one kind that were not read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnreadCount {
    /// The link type or protocol.
    pub name: String,
    /// LINKTYPE number, if it is a link type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_type: Option<i32>,
    /// Number of packets.
    pub packets: u64,
    /// How to get a capture that can be read.
    pub hint: String,
}

/// Where and why reading stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CaptureDamage {
    /// Bytes before the damage in the decompressed file.
    pub offset: u64,
    /// The problem.
    pub reason: String,
}
