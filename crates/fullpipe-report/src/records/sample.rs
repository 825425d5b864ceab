//! The fields of a record that a report uses, whatever format the record came in.

use fullpipe_experiment::connection::{Connection, Direction, Handshake, Heading, Point, is_anonymised};
use fullpipe_units::Span;
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::IpAddr;

/// One connection as a report counts it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    pub(super) controller: Option<String>,
    /// Address of the peer; in a capture, of the client.
    pub(super) remote: IpAddr,
    /// Port of the server.
    pub(super) port: u16,
    pub(super) start_s: f64,
    /// `None` if the connection was open before recording began.
    pub(super) duration_s: Option<f64>,
    /// Payload bytes of both directions.
    pub(super) bytes: u64,
    /// Payload divided by the time with data to send.
    pub(super) goodput_bps: Option<f64>,
    pub(super) min_rtt_ms: Option<f64>,
    pub(super) segments: u64,
    pub(super) retransmitted: u64,
}

/// The kernel counts busy time in ticks of up to 10 ms: a shorter busy time gives no usable rate.
pub(super) const MIN_BUSY_S: f64 = 0.05;

/// The direction that the recorded socket sent; in a capture, the direction with more data.
pub(super) fn sent(c: &Connection) -> &Direction {
    c.direction(heading(c))
}

/// The opposite of [`sent`].
#[cfg(feature = "parquet")]
pub(super) fn received(c: &Connection) -> &Direction {
    c.direction(match heading(c) {
        Heading::ToServer => Heading::ToClient,
        Heading::ToClient => Heading::ToServer,
    })
}

fn heading(c: &Connection) -> Heading {
    c.socket.as_ref().map_or(c.bulk().1, |socket| socket.sends)
}

impl Sample {
    pub(super) fn from_record(c: &Connection) -> Sample {
        let sent = sent(c);
        let socket = c.socket.as_deref();
        let concluded = || sent.sender.as_ref().and_then(|s| s.name.clone());
        let goodput = match socket {
            Some(socket) => rate(sent.bytes, socket.busy.as_secs_f64()),
            None => sent.goodput.map(|rate| rate.as_bits_per_sec_f64()),
        };
        Sample {
            controller: socket.and_then(|s| s.controller.clone()).or_else(concluded),
            remote: match c.vantage.point {
                Point::Client => c.server.ip(),
                _ => c.client.ip(),
            },
            port: c.server.port(),
            start_s: c.start_s,
            duration_s: (c.opening.handshake == Handshake::Seen).then(|| c.duration.as_secs_f64()),
            bytes: c.to_server.bytes.saturating_add(c.to_client.bytes),
            goodput_bps: goodput,
            min_rtt_ms: sent.rtprop.map(Span::as_millis_f64),
            segments: sent.segments,
            retransmitted: sent.retransmissions.segments,
        }
    }
}

/// Bits per second; `None` if the busy time is too short for a rate.
pub(super) fn rate(bytes: u64, busy_s: f64) -> Option<f64> {
    (bytes > 0 && busy_s >= MIN_BUSY_S).then(|| bytes as f64 * 8.0 / busy_s)
}

/// The prefix that a site is usually assigned, as `192.0.2.0/24` or `2001:db8:1::/48`. A hashed
/// address keeps its hashed prefix.
pub(super) fn prefix(ip: IpAddr) -> String {
    match ip {
        IpAddr::V6(v6) if is_anonymised(ip) => Ipv6Net::new_assert(v6, 96).trunc().to_string(),
        IpAddr::V6(v6) => Ipv6Net::new_assert(v6, 48).trunc().to_string(),
        IpAddr::V4(v4) => Ipv4Net::new_assert(v4, 24).trunc().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::connection;

    #[test]
    fn socket_and_capture_give_the_same_sample() {
        let mut c = connection(2);
        let socket = Sample::from_record(&c);
        assert_eq!((socket.controller.as_deref(), socket.port), (Some("bbr"), 443));
        assert_eq!((socket.goodput_bps, socket.duration_s), (Some(1_000_002.0 * 8.0 / 1.6), Some(2.5)));
        assert_eq!((socket.segments, socket.retransmitted, socket.bytes), (701, 10, 1_000_302));
        c.socket = None;
        let capture = Sample::from_record(&c);
        assert_eq!(Sample { controller: None, goodput_bps: Some(4e6), ..socket }, capture);
    }

    #[test]
    fn prefixes_have_the_length_that_sites_are_assigned() {
        let of = |ip: &str| prefix(ip.parse().unwrap());
        assert_eq!(of("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("2001:db8:1:2::3"), "2001:db8:1::/48");
        assert_eq!(of("100::1234:5678:9abc:def0"), "100::1234:5678:0:0/96");
    }
}
