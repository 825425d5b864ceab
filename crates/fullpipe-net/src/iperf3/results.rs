//! The results of each end.

use super::{Malformed, Object};
use crate::printable;
use serde_json::{Value, json};

/// The results of one end.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Results {
    /// CPU use of this end over the test in percent of a core: total, user, system.
    pub cpu: [f64; 3],
    /// Whether [`StreamResults::retransmits`] is meaningful; `None` from an end that only received.
    pub has_retransmits: Option<bool>,
    /// The controller of this end's sockets; made printable.
    pub congestion_used: Option<String>,
    /// Results per stream.
    pub streams: Vec<StreamResults>,
    /// The server's text output, if requested; made printable.
    pub server_output: Option<String>,
}

/// A count; `None` where iperf3 sends −1, which up to 3.12 is encoded as 2⁶⁴−1.
fn count(o: &Object, name: &str) -> Result<Option<u64>, Malformed> {
    const MINUS_ONE: f64 = u64::MAX as f64;
    let value = o.number(name, -1.0, MINUS_ONE)?;
    Ok(value.filter(|v| (0.0..1e18).contains(v)).map(|v| v as u64))
}

/// One stream as measured by one end.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StreamResults {
    /// Stream id.
    pub id: u64,
    /// Bytes sent or received after the omitted seconds.
    pub bytes: u64,
    /// Segments retransmitted, at a TCP sender.
    pub retransmits: Option<u64>,
    /// Seconds, at a UDP receiver (RFC 3550 section 6.4.1).
    pub jitter: f64,
    /// Lost datagrams, at a UDP receiver.
    pub errors: u64,
    /// Datagrams sent, or the highest number received.
    pub packets: u64,
    /// Seconds measured.
    pub seconds: f64,
}

impl Results {
    /// Parses the peer's results.
    ///
    /// # Errors
    /// Names the field that is missing or absurd.
    pub fn parse(text: &[u8]) -> Result<Results, Malformed> {
        let mut o = Object::parse("results", text)?;
        let need = |o: &Object, name: &str, min: f64| {
            o.number(name, min, 1e18)?.ok_or_else(|| Malformed(format!("`{name}` is missing")))
        };
        let cpu = [
            need(&o, "cpu_util_total", -1.0)?,
            need(&o, "cpu_util_user", -1.0)?,
            need(&o, "cpu_util_system", -1.0)?,
        ];
        let has_retransmits = match count(&o, "sender_has_retransmits")? {
            Some(0) => Some(false),
            Some(_) => Some(true),
            None => None,
        };
        let congestion_used = o.text("congestion_used", 64)?.map(|t| printable::line(&t).into_owned());
        let server_output = o.text("server_output_text", super::MAX_RESULTS)?;
        let server_output = server_output.map(|t| printable::lines(&t).into_owned());
        let Some(Value::Array(list)) = o.remove("streams") else {
            return Err(Malformed("`streams` is missing".to_owned()));
        };
        let streams = list
            .into_iter()
            .map(|value| {
                let Value::Object(map) = value else {
                    return Err(Malformed("`streams`: expected objects".to_owned()));
                };
                let s = Object(map);
                let start = s.number("start_time", 0.0, 1e9)?.unwrap_or(0.0);
                let end = s.number("end_time", 0.0, 1e9)?.unwrap_or(0.0);
                Ok(StreamResults {
                    id: need(&s, "id", 0.0)? as u64,
                    bytes: need(&s, "bytes", 0.0)? as u64,
                    retransmits: count(&s, "retransmits")?,
                    jitter: need(&s, "jitter", 0.0)?,
                    // A late datagram cancels a loss, so iperf3 can report less than zero.
                    errors: need(&s, "errors", -1e18)?.max(0.0) as u64,
                    packets: need(&s, "packets", 0.0)? as u64,
                    seconds: (end - start).max(0.0),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Results { cpu, has_retransmits, congestion_used, streams, server_output })
    }

    /// Encodes the results.
    pub fn to_json(&self) -> Value {
        let mut v = json!({
            "cpu_util_total": self.cpu[0],
            "cpu_util_user": self.cpu[1],
            "cpu_util_system": self.cpu[2],
            "sender_has_retransmits": self.has_retransmits.map_or(-1, i32::from),
            "streams": self.streams.iter().map(|s| json!({
                "id": s.id,
                "bytes": s.bytes,
                "retransmits": s.retransmits.map_or(-1, |n| n as i64),
                "jitter": s.jitter,
                "errors": s.errors,
                "omitted_errors": 0,
                "packets": s.packets,
                "omitted_packets": 0,
                "start_time": 0,
                "end_time": s.seconds,
            })).collect::<Vec<_>>(),
        });
        if let Some(name) = &self.congestion_used {
            v["congestion_used"] = name.clone().into();
        }
        if let Some(text) = &self.server_output {
            v["server_output_text"] = text.clone().into();
        }
        v
    }

    /// The stream with this id.
    pub fn stream(&self, id: u64) -> Option<&StreamResults> {
        self.streams.iter().find(|s| s.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn results_from_iperf3_are_parsed() {
        let text = br#"{"cpu_util_total":12.5,"cpu_util_user":0.5,"cpu_util_system":12,
            "sender_has_retransmits":1,
            "congestion_used":"cubic","streams":[{"id":1,"bytes":1048576,"retransmits":3,"jitter":0,"errors":0,
            "packets":0,"start_time":0,"end_time":1.5}]}"#;
        let r = Results::parse(text).unwrap();
        assert_eq!(r.stream(1).unwrap().bytes, 1_048_576);
        assert_eq!(r.stream(1).unwrap().retransmits, Some(3));
        assert_eq!(r.stream(1).unwrap().seconds, 1.5);
        assert_eq!(r.stream(2), None);
    }

    #[test]
    fn a_receiver_has_no_retransmits_in_any_encoding() {
        for minus_one in ["-1", "18446744073709551615", "1.8446744073709552e+19"] {
            let text = format!(
                "{{\"cpu_util_total\":1,\"cpu_util_user\":1,\"cpu_util_system\":1,\"sender_has_retransmits\":{minus_one},\
                 \"streams\":[{{\"id\":1,\"bytes\":1,\"retransmits\":{minus_one},\"jitter\":0,\"errors\":0,\"packets\":0}}]}}"
            );
            let results = Results::parse(text.as_bytes()).unwrap();
            assert_eq!((results.has_retransmits, results.streams[0].retransmits), (None, None));
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = Results::parse(br#"{"cpu_util_total":1}"#).unwrap_err().to_string();
        assert!(error.contains("cpu_util_user"), "{error}");
        assert!(Results::parse(b"{}").is_err());
    }

    proptest! {
        #[test]
        fn results_round_trip(
            bytes in 0u64..1 << 52, id in 1u64..300,
            retransmits in proptest::option::of(0u64..1 << 40), ms in 0u32..10_000_000) {
            let results = Results {
                cpu: [1.5, 0.5, 1.0],
                has_retransmits: Some(true),
                congestion_used: Some("bbr".into()),
                streams: vec![StreamResults { id, bytes, retransmits,
                    seconds: f64::from(ms) / 1e3, ..Default::default() }],
                server_output: None,
            };
            prop_assert_eq!(Results::parse(results.to_json().to_string().as_bytes()), Ok(results));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Results::parse(&bytes);
        }
    }
}
