//! What was read of a capture, as a record.

use crate::analysis::PacketCounts;
use crate::error::{Damage, link_type};
use crate::input::Counters;
use crate::wire::LINK_HINT;
use fullpipe_experiment::connection::{Capture, CaptureDamage, TunnelCount, UnreadCount};

/// The packet counts of the capture `name`, and its damage.
pub fn capture_facts(
    name: &str,
    counters: &Counters,
    packets: &PacketCounts,
    damage: Option<&Damage>,
) -> Capture {
    let links = counters.unread_links.iter().map(|(&number, &packets)| UnreadCount {
        name: format!("link type {}", link_type(number)),
        link_type: Some(number),
        packets,
        hint: LINK_HINT.to_owned(),
    });
    let encapsulations = packets.encapsulation.unread().map(|(kind, packets)| UnreadCount {
        name: kind.name().to_owned(),
        link_type: None,
        packets,
        hint: kind.hint().to_owned(),
    });
    let tunnels = packets.encapsulation.tunnels();
    Capture {
        name: name.to_owned(),
        packets: counters.frames,
        tcp: packets.tcp,
        filtered: packets.filtered,
        other: packets.other,
        fragments: packets.fragments,
        reassembled: packets.reassembled,
        malformed: packets.short,
        dropped: counters.dropped,
        damaged_blocks: counters.damaged_blocks,
        tunnels: tunnels.map(|(t, packets)| TunnelCount { name: t.name().to_owned(), packets }).collect(),
        unread: links.chain(encapsulations).collect(),
        damage: damage.map(|d| CaptureDamage { offset: d.offset, reason: d.reason.clone() }),
        log: None,
    }
}
