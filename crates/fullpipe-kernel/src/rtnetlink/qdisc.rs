//! Queueing disciplines: list them, and change one at a time.

use super::Rtnetlink;
use crate::netlink::{Attributes, CREATE, REPLACE, Request, c_string, parse_c_string, u32_at, u64_at};
use serde::{Deserialize, Serialize};
use std::io;

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;
/// `struct tcmsg`.
const TCMSG: usize = 20;

/// The parent of a device's root discipline (`TC_H_ROOT`).
pub const ROOT: u32 = u32::MAX;

/// One queueing discipline of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QdiscNode {
    /// The device's name.
    pub device: String,
    /// `fq`, `mq`, `pfifo_fast`…
    pub kind: String,
    /// Its own handle, 0 when the kernel created it by default.
    pub handle: u32,
    /// Its parent, [`ROOT`] for the root.
    pub parent: u32,
    /// Its options as dumped and accepted by the kernel (`TCA_OPTIONS`), in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Packets dropped since it was created.
    #[serde(default)]
    pub drops: u64,
    /// Packets dropped by fq at its `flow_limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_plimit: Option<u64>,
}

/// A change to a device's queueing disciplines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QdiscOperation {
    /// Attaches a discipline of `kind` at `parent`, replacing an existing one.
    Replace {
        /// The device's name.
        device: String,
        /// Parent: [`ROOT`] or a class (`0x00010003` is `1:3`).
        parent: u32,
        /// The new discipline's handle, 0 to let the kernel choose.
        handle: u32,
        /// Its kind.
        kind: String,
        /// Its options in hexadecimal, empty for the defaults.
        options: String,
    },
    /// Removes the root, so that the kernel attaches its default tree.
    DeleteRoot {
        /// The device's name.
        device: String,
    },
}

impl Rtnetlink {
    /// All disciplines of all devices in this network namespace.
    ///
    /// # Errors
    /// When the kernel returns an error, or its table never is consistent.
    pub fn qdiscs(&mut self) -> io::Result<Vec<QdiscNode>> {
        let names = self.names()?;
        let bodies = self.socket.table(&Request::new(RTM_GETQDISC, 0, &[0; TCMSG]), RTM_NEWQDISC)?;
        let named = |body: &Vec<u8>| {
            let (index, mut node) = parse_qdisc(body)?;
            node.device = names.iter().find(|(i, _)| *i == index)?.1.clone();
            Some(node)
        };
        Ok(bodies.iter().filter_map(named).collect())
    }

    /// Performs one change.
    ///
    /// # Errors
    /// When the device does not exist, or the error returned by the kernel.
    pub fn change_qdisc(&mut self, operation: &QdiscOperation) -> io::Result<()> {
        let (QdiscOperation::Replace { device, .. } | QdiscOperation::DeleteRoot { device }) = operation;
        let index = self.index(device)?;
        let body = |handle: u32, parent: u32| {
            let mut body = [0u8; TCMSG];
            body[4..8].copy_from_slice(&index.to_ne_bytes());
            body[8..12].copy_from_slice(&handle.to_ne_bytes());
            body[12..16].copy_from_slice(&parent.to_ne_bytes());
            body
        };
        let request = match operation {
            QdiscOperation::Replace { parent, handle, kind, options, .. } => {
                let mut request = Request::new(RTM_NEWQDISC, CREATE | REPLACE, &body(*handle, *parent));
                request.attribute(TCA_KIND, &c_string(kind));
                let options = unhex(options).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "options are not hexadecimal")
                })?;
                if !options.is_empty() {
                    request.attribute(TCA_OPTIONS, &options);
                }
                request
            }
            QdiscOperation::DeleteRoot { .. } => Request::new(RTM_DELQDISC, 0, &body(0, ROOT)),
        };
        self.socket.change(request)
    }
}

/// Parses the body of an `RTM_NEWQDISC` message: interface index and discipline, without the
/// device's name.
pub fn parse_qdisc(body: &[u8]) -> Option<(u32, QdiscNode)> {
    let attributes = Attributes(body.get(TCMSG..)?);
    let stats = attributes.nested(TCA_STATS2);
    let kind = parse_c_string(attributes.get(TCA_KIND)?);
    // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
    let drops = stats.get(TCA_STATS_QUEUE).and_then(|q| u32_at(q, 8)).map_or(0, u64::from);
    // struct tc_fq_qd_stats: gc_flows, highprio_packets, tcp_retrans, throttled, flows_plimit.
    let flows_plimit = stats.get(TCA_STATS_APP).filter(|_| kind == "fq").and_then(|a| u64_at(a, 32));
    let node = QdiscNode {
        device: String::new(),
        kind,
        handle: u32_at(body, 8)?,
        parent: u32_at(body, 12)?,
        options: hex(attributes.get(TCA_OPTIONS).unwrap_or_default()),
        drops,
        flows_plimit,
    };
    Some((u32_at(body, 4)?, node))
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Decodes [`hex`]; `None` for invalid digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;
    use proptest::prelude::*;

    #[test]
    fn flow_limit_drops_of_fq_are_parsed() {
        let mut app = vec![0u8; 80];
        app[32..40].copy_from_slice(&17u64.to_ne_bytes());
        let mut queue = vec![0u8; 20];
        queue[8..12].copy_from_slice(&3u32.to_ne_bytes());
        let mut stats = Vec::new();
        put_attribute(&mut stats, TCA_STATS_QUEUE, &queue);
        put_attribute(&mut stats, TCA_STATS_APP, &app);
        let mut body = vec![0u8; TCMSG];
        body[4] = 2;
        body[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        put_attribute(&mut body, TCA_KIND, b"fq\0");
        put_attribute(&mut body, TCA_STATS2, &stats);
        let (_, node) = parse_qdisc(&body).unwrap();
        assert_eq!((node.kind.as_str(), node.parent, node.drops), ("fq", ROOT, 3));
        assert_eq!(node.flows_plimit, Some(17));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((_, node)) = parse_qdisc(&bytes) {
                prop_assert!(unhex(&node.options).is_some());
            }
        }

        #[test]
        fn hexadecimal_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        }
    }
}
