//! How much of the stream has been sent, from s2n-quic's events.

use s2n_quic::provider::event::events::{Frame, FrameSent, PacketHeader};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the data's stream.
#[derive(Default)]
pub struct Progress {
    sent: AtomicU64,
    resent: AtomicU64,
    /// One more than the number of the newest packet with data that had been sent before.
    newest: AtomicU64,
}

impl Progress {
    /// Bytes sent at least once.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Packets with data that had been sent before.
    pub fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }
}

/// The subscriber that keeps them.
pub struct Frames(pub Arc<Progress>);

impl Subscriber for Frames {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_frame_sent(&mut self, (): &mut (), _: &ConnectionMeta, event: &FrameSent) {
        let (Frame::Stream { offset, len, .. }, PacketHeader::OneRtt { number, .. }) =
            (&event.frame, &event.packet_header)
        else {
            return;
        };
        let sent = self.0.sent.fetch_max(offset + u64::from(*len), Ordering::Relaxed);
        if *offset < sent && self.0.newest.swap(number + 1, Ordering::Relaxed) != number + 1 {
            self.0.resent.fetch_add(1, Ordering::Relaxed);
        }
    }
}
