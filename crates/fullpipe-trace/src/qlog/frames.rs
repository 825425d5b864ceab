//! The frames of a packet, as far as they matter here.

use super::value::{Object, first, text, whole};
use serde_json::Value;

/// Bytes of the largest packet, and at most of a frame in it.
const MAX_PACKET_BYTES: u64 = 65_535;

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// Ranges of packet numbers, both ends included, and the path of a multipath acknowledgment.
    Ack(Vec<(u64, u64)>, Option<u64>),
    Stream {
        id: u64,
        offset: u64,
        length: u64,
    },
    /// The sender of the frame waits for credit of the connection, or of a stream.
    Blocked(Option<u64>),
    /// Credit for the connection, or for a stream.
    Credit(Option<u64>),
    /// Neither acknowledged nor counted as in flight.
    Silent,
    Other,
}

/// The frames of a packet; `None` if the log does not have them.
pub(super) fn frames(data: &Object) -> Option<Vec<Frame>> {
    let frames = data.get("frames")?.as_array()?;
    Some(frames.iter().filter_map(Value::as_object).map(frame).collect())
}

fn frame(o: &Object) -> Frame {
    let stream = first(o, &["stream_id", "id"]).and_then(whole);
    let kind = first(o, &["frame_type", "type"]).and_then(Value::as_str).unwrap_or_default();
    match kind.to_ascii_lowercase().as_str() {
        "ack" | "ack_ecn" | "path_ack" | "path_ack_ecn" | "ack_mp" => ack(o),
        kind if kind.starts_with("ack_receive_timestamps") || kind == "ack_extended" => ack(o),
        "stream" => {
            let raw = o.get("raw").and_then(Value::as_object);
            let payload = raw.and_then(|raw| first(raw, &["payload_length", "length"]));
            Frame::Stream {
                id: stream.unwrap_or(0),
                offset: o.get("offset").and_then(whole).unwrap_or(0),
                length: o.get("length").or(payload).and_then(whole).unwrap_or(0).min(MAX_PACKET_BYTES),
            }
        }
        "data_blocked" => Frame::Blocked(None),
        "stream_data_blocked" => Frame::Blocked(Some(stream.unwrap_or(0))),
        "max_data" => Frame::Credit(None),
        "max_stream_data" => Frame::Credit(Some(stream.unwrap_or(0))),
        "padding" | "connection_close" => Frame::Silent,
        _ => Frame::Other,
    }
}

fn ack(o: &Object) -> Frame {
    let ranges = o.get("acked_ranges").and_then(Value::as_array);
    let range = |v: &Value| match v {
        Value::Array(ends) => {
            let from = whole(ends.first()?)?;
            Some((from, ends.get(1).and_then(whole).unwrap_or(from)))
        }
        // One number, or `3-7`.
        Value::String(s) => match s.split_once('-') {
            Some((from, to)) => Some((from.trim().parse().ok()?, to.trim().parse().ok()?)),
            None => whole(v).map(|n| (n, n)),
        },
        _ => whole(v).map(|n| (n, n)),
    };
    // Some stacks begin with the larger end.
    let ordered = |(a, b): (u64, u64)| (a.min(b), a.max(b));
    let ranges = ranges.into_iter().flatten().filter_map(range).map(ordered).collect();
    Frame::Ack(ranges, o.get("path_id").and_then(whole))
}

/// What the data of a packet event says of the packet itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    /// Packet-number space: initial, handshake, data.
    pub(super) space: u64,
    pub(super) number: Option<u64>,
    pub(super) bytes: u64,
}

/// The packet of an event.
pub(super) fn packet(data: &Object) -> Packet {
    let header = data.get("header").and_then(Value::as_object).unwrap_or(data);
    let raw = data.get("raw").and_then(Value::as_object);
    let kind = text(header, "packet_type").or_else(|| text(data, "packet_type")).unwrap_or_default();
    let bytes = raw
        .and_then(|raw| first(raw, &["length", "payload_length"]))
        .or_else(|| first(data, &["packet_size"]))
        .or_else(|| first(header, &["packet_size", "length", "payload_length"]))
        .and_then(whole);
    Packet {
        space: space(kind),
        number: first(header, &["packet_number"]).or_else(|| first(data, &["packet_number"])).and_then(whole),
        bytes: bytes.unwrap_or(0).min(MAX_PACKET_BYTES),
    }
}

/// The packet-number space of a packet type or of a space.
pub(super) fn space(name: &str) -> u64 {
    match name.to_ascii_lowercase().as_str() {
        "initial" => 0,
        "handshake" => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(frame_: Value) -> Frame {
        frame(frame_.as_object().unwrap())
    }

    #[test]
    fn ranges_are_read_in_all_forms() {
        let ranges = json!([[1, 3], ["9", "7"], [12], 20, "30-31"]);
        let found = read(json!({"frame_type": "ack", "acked_ranges": ranges}));
        assert_eq!(found, Frame::Ack(vec![(1, 3), (7, 9), (12, 12), (20, 20), (30, 31)], None));
        assert_eq!(
            read(json!({"frame_type": "ack", "acked_ranges": [[], ["x"], null]})),
            Frame::Ack(vec![], None)
        );
    }

    #[test]
    fn packets_of_all_versions_have_number_and_size() {
        let expected = Packet { space: 2, number: Some(7), bytes: 1200 };
        for data in [
            json!({"header": {"packet_type": "1RTT", "packet_number": 7}, "raw": {"length": 1200}}),
            json!({"packet_type": "1RTT", "header": {"packet_number": "7", "packet_size": 1200}}),
            json!({"header": {"packet_type": "1RTT", "packet_number": 7, "length": 1200}}),
            json!({"packet_type": "1RTT", "packet_number": 7, "packet_size": "1200"}),
        ] {
            assert_eq!(packet(data.as_object().unwrap()), expected, "{data}");
        }
        assert_eq!(packet(json!({"raw": {"length": u64::MAX}}).as_object().unwrap()).bytes, 65_535);
    }

    #[test]
    fn stream_length_is_that_of_the_payload() {
        let stream = |length| Frame::Stream { id: 4, offset: 100, length };
        let raw = json!({"length": 1010, "payload_length": 1000});
        assert_eq!(
            read(json!({"frame_type": "stream", "stream_id": 4, "offset": 100, "raw": raw})),
            stream(1000)
        );
        assert_eq!(read(json!({"frame_type": "stream", "id": "4", "offset": "100", "length": 9})), stream(9));
        let long = json!({"frame_type": "stream", "id": 4, "offset": 100, "length": u64::MAX});
        assert_eq!(read(long), stream(65_535));
    }
}
