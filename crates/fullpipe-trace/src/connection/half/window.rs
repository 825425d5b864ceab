//! What the receiver allows, and whether that holds the sender.

use super::{Answer, Half};
use crate::connection::course::Told;
use crate::sequence::unwrap;
use crate::wire::Flags;
use fullpipe_units::Time;

/// A sender may wait until this part of the window is open (`tcp_tso_should_defer()`, `tcp_tso_win_divisor`).
const ROOM: u64 = 3;

/// Data that left its sender when that had been told the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    echo: u32,
    /// When the first of it passed.
    since: Time,
    /// Whether the last of it left no room in the receiver's window.
    full: bool,
}

impl Half {
    /// Whether the receiver's window holds the sender now.
    #[inline]
    pub(super) fn is_closed(&mut self, mss: u64) -> bool {
        let Some(edge) = self.edge else { return false };
        let room = edge.saturating_sub(self.next);
        // A sender that offloads segmentation leaves a little room until there is more of it.
        self.closed = room < mss || self.closed && room < edge.saturating_sub(self.una) / ROOM;
        self.closed
    }

    /// Data up to `end` passes that its sender sent when the receiver had allowed `window`. Elsewhere than at the sender
    /// packets of one moment pass one after another: whether the window held it until the next is what the last of them says.
    pub(super) fn sent_under(
        &mut self,
        echo: u32,
        window: Option<(u64, u64)>,
        end: u64,
        (at, mss): (Time, u64),
    ) {
        let full = self.holes.is_empty() && window.is_some_and(|(edge, _)| edge < end + mss);
        if let (true, Some(course), Some((_, window))) = (full, &mut self.course, window) {
            course.fills(window);
        }
        match self.moment {
            Some(moment) if moment.echo == echo => self.moment = Some(Moment { full, ..moment }),
            before => {
                if let Some(before) = before.filter(|m| m.full) {
                    self.bins.spend(before.since, at, |bin, t| bin.closed += t);
                }
                self.moment = Some(Moment { echo, since: at, full });
            }
        }
    }

    /// An acknowledgment with the timestamp `value` passes on its way to the sender.
    pub(in crate::connection) fn told(&mut self, value: u32, a: &Answer, scale: Option<u8>) {
        self.selective |= !a.sack.blocks().is_empty();
        let window = scale.map(|scale| {
            let window = u64::from(a.window) << scale;
            (unwrap(self.una, a.ack) + window, window)
        });
        if let Some(course) = &mut self.course {
            course.answered(value, Told { at: a.at, window }, self.counts.fresh);
        }
    }

    /// An acknowledgment of `ack` tells its sender of a window.
    #[inline]
    pub(super) fn window(&mut self, a: &Answer, ack: u64, scale: Option<u8>, fin_acked: bool) {
        // A SYN's window is not scaled (RFC 7323 §2.2), a reset's means nothing.
        if a.flags.has(Flags::RST) {
            return;
        }
        let shift = if a.flags.has(Flags::SYN) { 0 } else { scale.unwrap_or(0) };
        let window = u64::from(a.window) << shift;
        let edge = ack + window;
        if ack >= self.una && (scale.is_some() || a.flags.has(Flags::SYN)) {
            self.edge = Some(self.edge.map_or(edge, |e| if window == 0 { edge } else { e.max(edge) }));
        }
        if a.flags.has(Flags::SYN) || fin_acked {
            return;
        }
        let w = &mut self.counts.window;
        w.scale_unknown |= scale.is_none();
        if window == 0 {
            w.zero += 1;
        }
        w.min_bytes = Some(w.min_bytes.map_or(window, |m| m.min(window)));
        w.max_bytes = Some(w.max_bytes.map_or(window, |m| m.max(window)));
    }
}
