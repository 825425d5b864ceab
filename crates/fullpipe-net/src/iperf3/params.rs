//! The parameters of a test.

use super::udp::{MAX_UDP_BLOCK, MIN_UDP_BLOCK};
use super::{Malformed, Object, extension};
use serde_json::{Value, json};

/// iperf3's default for `-l` on TCP.
pub const DEFAULT_TCP_BLOCK: u32 = 128 * 1024;
/// Maximum streams per direction, as in iperf3.
pub const MAX_STREAMS: u32 = 128;

const MAX_SECONDS: i64 = 86_400;
const MAX_OMIT: i64 = 600;
const MAX_BLOCK: i64 = 1024 * 1024;
const MAX_WINDOW: i64 = 512 * 1024 * 1024;
const MAX_MSS: i64 = 32 * 1024 - 1;
/// 10 Tbit/s and 9 PB: above any sensible value, below the precision limit of doubles.
const MAX_RATE: i64 = 10_000_000_000_000;
const MAX_BYTES: i64 = 9_000_000_000_000_000;

/// The transport protocol of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The parameters of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Seconds to send (`-t`); 0 with [`bytes`](Self::bytes) or [`blocks`](Self::blocks).
    pub seconds: u32,
    /// Seconds omitted at the beginning (`-O`).
    pub omit: u32,
    /// Total bytes to send (`-n`); 0 for no limit.
    pub bytes: u64,
    /// Total blocks to send (`-k`); 0 for no limit.
    pub blocks: u64,
    /// Streams per direction (`-P`).
    pub parallel: u32,
    /// The server sends (`-R`).
    pub reverse: bool,
    /// Both ends send (`--bidir`).
    pub bidirectional: bool,
    /// Bytes per block or datagram (`-l`).
    pub block: u32,
    /// Socket buffers in bytes (`-w`); 0 for the system default.
    pub window: u32,
    /// Bits per second per stream (`-b`); 0 for no limit.
    pub rate: u64,
    /// `TCP_MAXSEG` (`-M`); 0 for the system default.
    pub mss: u32,
    /// `TCP_NODELAY` (`-N`).
    pub no_delay: bool,
    /// The IP type-of-service byte (`-S`).
    pub tos: u8,
    /// The sender's controller (`-C`).
    pub congestion: Option<String>,
    /// Datagram counters of 64 bits.
    pub udp_counters_64bit: bool,
    /// The client requests the server's output (`--get-server-output`).
    pub get_server_output: bool,
    /// The client's program and version.
    pub client_version: String,
    /// A fullpipe client's extension request.
    pub extension: Option<extension::Request>,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            protocol: Protocol::Tcp,
            seconds: 10,
            omit: 0,
            bytes: 0,
            blocks: 0,
            parallel: 1,
            reverse: false,
            bidirectional: false,
            block: DEFAULT_TCP_BLOCK,
            window: 0,
            rate: 0,
            mss: 0,
            no_delay: false,
            tos: 0,
            congestion: None,
            udp_counters_64bit: false,
            get_server_output: false,
            client_version: concat!("fullpipe ", env!("CARGO_PKG_VERSION")).to_owned(),
            extension: None,
        }
    }
}

impl Params {
    /// Parses a client's parameters and refuses absurd values.
    ///
    /// # Errors
    /// Names the field, its value and its bounds.
    pub fn parse(text: &[u8]) -> Result<Params, Malformed> {
        let mut o = Object::parse("parameters", text)?;
        let protocol = match (o.flag("tcp"), o.flag("udp"), o.flag("sctp")) {
            (_, true, _) => Protocol::Udp,
            (_, _, true) => return Err(Malformed("SCTP is not supported".to_owned())),
            _ => Protocol::Tcp,
        };
        let defaults = Params::default();
        let number = |name: &str, min: i64, max: i64, default: u64| {
            Ok::<u64, Malformed>(o.integer(name, min, max)?.map_or(default, |v| v as u64))
        };
        let small = |name: &str, min: i64, max: i64, default: u32| {
            Ok::<u32, Malformed>(o.integer(name, min, max)?.map_or(default, |v| v as u32))
        };
        let (block_min, block_max, block_default) = match protocol {
            Protocol::Tcp => (1, MAX_BLOCK, DEFAULT_TCP_BLOCK),
            Protocol::Udp => (MIN_UDP_BLOCK as i64, MAX_UDP_BLOCK as i64, 1460),
        };
        let params = Params {
            protocol,
            seconds: small("time", 0, MAX_SECONDS, defaults.seconds)?,
            omit: small("omit", 0, MAX_OMIT, 0)?,
            bytes: number("num", 0, MAX_BYTES, 0)?,
            blocks: number("blockcount", 0, MAX_BYTES, 0)?,
            parallel: small("parallel", 1, i64::from(MAX_STREAMS), 1)?,
            reverse: o.flag("reverse"),
            bidirectional: o.flag("bidirectional"),
            block: match o.integer("len", 0, MAX_BLOCK)? {
                None | Some(0) => block_default,
                Some(_) => small("len", block_min, block_max, block_default)?,
            },
            window: small("window", 0, MAX_WINDOW, 0)?,
            rate: number("bandwidth", 0, MAX_RATE, 0)?,
            mss: small("MSS", 0, MAX_MSS, 0)?,
            no_delay: o.flag("nodelay"),
            tos: small("TOS", 0, 255, 0)? as u8,
            congestion: o.text("congestion", 15)?,
            udp_counters_64bit: o.flag("udp_counters_64bit"),
            get_server_output: o.flag("get_server_output"),
            client_version: o.text("client_version", 256)?.unwrap_or_default(),
            extension: match o.remove("fullpipe") {
                None => None,
                Some(value) => {
                    Some(serde_json::from_value(value).map_err(|e| Malformed(format!("`fullpipe`: {e}")))?)
                }
            },
        };
        if params.reverse && params.bidirectional {
            return Err(Malformed("`reverse` and `bidirectional` exclude each other".to_owned()));
        }
        if params.bytes > 0 && params.blocks > 0 {
            return Err(Malformed("`num` and `blockcount` exclude each other".to_owned()));
        }
        Ok(params)
    }

    /// Encodes the parameters.
    pub fn to_json(&self) -> Value {
        let mut v = json!({
            match self.protocol { Protocol::Tcp => "tcp", Protocol::Udp => "udp" }: true,
            "omit": self.omit,
            "time": self.seconds,
            "num": self.bytes,
            "blockcount": self.blocks,
            "parallel": self.parallel,
            "len": self.block,
            "pacing_timer": 1000,
            "client_version": self.client_version,
        });
        let mut set = |name: &str, present: bool, value: Value| {
            if present {
                v[name] = value;
            }
        };
        set("reverse", self.reverse, true.into());
        set("bidirectional", self.bidirectional, true.into());
        set("window", self.window > 0, self.window.into());
        set("bandwidth", self.rate > 0, self.rate.into());
        set("MSS", self.mss > 0, self.mss.into());
        set("nodelay", self.no_delay, true.into());
        set("TOS", self.tos > 0, self.tos.into());
        set("udp_counters_64bit", self.udp_counters_64bit, 1.into());
        set("get_server_output", self.get_server_output, 1.into());
        if let Some(name) = &self.congestion {
            set("congestion", true, name.clone().into());
        }
        if let Some(request) = &self.extension {
            set("fullpipe", true, json!(request));
        }
        v
    }

    /// Whether the client sends.
    pub fn client_sends(&self) -> bool {
        !self.reverse || self.bidirectional
    }

    /// Whether the server sends.
    pub fn server_sends(&self) -> bool {
        self.reverse || self.bidirectional
    }

    /// Streams in both directions together.
    pub fn streams(&self) -> usize {
        self.parallel as usize * if self.bidirectional { 2 } else { 1 }
    }

    /// The byte limit per sending end; `None` for a test bounded by time.
    pub fn byte_budget(&self) -> Option<u64> {
        match (self.bytes, self.blocks) {
            (0, 0) => None,
            (0, blocks) => Some(blocks.saturating_mul(u64::from(self.block))),
            (bytes, _) => Some(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_from_iperf3_are_parsed() {
        let text = br#"{"tcp":true,"omit":1,"time":5,"num":0,"blockcount":0,"parallel":4,"reverse":true,
            "window":65536,"len":131072,"bandwidth":100000000,"pacing_timer":1000,"congestion":"cubic","client_version":"3.12"}"#;
        let p = Params::parse(text).unwrap();
        assert_eq!((p.protocol, p.seconds, p.omit, p.parallel, p.reverse), (Protocol::Tcp, 5, 1, 4, true));
        assert_eq!((p.window, p.rate, p.congestion.as_deref()), (65536, 100_000_000, Some("cubic")));
        assert_eq!(p.byte_budget(), None);
    }

    #[test]
    fn absurd_parameters_are_refused_by_name() {
        for (field, value) in [
            ("time", "-1"),
            ("time", "1e300"),
            ("parallel", "0"),
            ("parallel", "100000"),
            ("num", "-5"),
            ("bandwidth", "-1"),
            ("window", "99999999999"),
            ("len", "1073741824"),
            ("omit", "601"),
            ("MSS", "65536"),
            ("TOS", "256"),
            ("congestion", "7"),
            ("congestion", "\"a name far too long for a controller\""),
        ] {
            let text = format!("{{\"tcp\":true,\"{field}\":{value}}}");
            let error = Params::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("`{field}`")), "{text}: {error}");
        }
        assert!(Params::parse(b"{\"udp\":true,\"len\":4}").is_err(), "too small for its header");
        assert!(Params::parse(b"{\"sctp\":true}").is_err());
        assert!(Params::parse(b"{\"reverse\":true,\"bidirectional\":true}").is_err());
        assert!(Params::parse(b"[]").is_err());
        assert!(Params::parse(b"\xff\xfe").is_err());
        assert!(Params::parse(&b"[".repeat(8192)).is_err(), "nesting is bounded");
    }

    proptest! {
        #[test]
        fn parameters_round_trip(
            seconds in 0u32..86_400, bytes in 0u64..1 << 50, parallel in 1u32..=128, window in 0u32..1 << 29,
            block in 16u32..65_000, rate in 0u64..10_000_000_000_000, udp: bool, direction in 0..3, tos: u8,
            congestion in proptest::option::of("[a-z]{1,15}"),
        ) {
            let params = Params {
                protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
                seconds, bytes, parallel, window, block, rate, tos, congestion,
                reverse: direction == 1,
                bidirectional: direction == 2,
                ..Params::default()
            };
            prop_assert_eq!(Params::parse(params.to_json().to_string().as_bytes()), Ok(params));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Params::parse(&bytes);
        }

        #[test]
        fn arbitrary_json_never_panics(
            name in "tcp|udp|time|num|len|parallel|bandwidth|fullpipe|congestion",
            value in "-?[0-9]{1,25}(\\.[0-9])?(e[0-9]{1,3})?|true|null|\"x\"|\\[\\]|\\{\\}") {
            let _ = Params::parse(format!("{{\"{name}\":{value}}}").as_bytes());
        }
    }
}
