//! A test in iperf3's `--json` format, so that existing scripts keep working. Values that iperf3
//! does not have are under the key `fullpipe`.

use super::{Interval, Outcome, StreamInterval, StreamOutcome, Sum};
use crate::iperf3::Protocol;
use serde_json::{Map, Value, json};
use std::time::UNIX_EPOCH;

/// Converts a whole test.
pub fn iperf3_json(outcome: &Outcome) -> Value {
    json!({
        "start": start(outcome),
        "intervals": outcome.intervals.iter().map(|i| interval(i, outcome)).collect::<Vec<_>>(),
        "end": end(outcome),
        "fullpipe": {
            "server": outcome.server,
            "iperf2": outcome.iperf2,
            "latency": outcome.latency,
            "senders": outcome.streams.iter().map(|s| json!({
                "id": s.id, "controller": s.controller, "socket": s.socket, "receiver": s.receiver,
            })).collect::<Vec<_>>(),
        },
    })
}

/// Connections and parameters.
fn start(outcome: &Outcome) -> Value {
    let params = &outcome.params;
    let began = outcome.started.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let first = outcome.streams.first();
    let facts = first.map(|s| s.facts).unwrap_or_default();
    let socket = first.and_then(|s| s.socket.as_ref().or(s.receiver.as_ref()));
    json!({
        "connected": outcome.streams.iter().map(|s| json!({
            "socket": s.id,
            "local_host": outcome.local.ip().to_string(),
            "local_port": s.facts.local_port,
            "remote_host": outcome.peer.ip().to_string(),
            "remote_port": outcome.peer.port(),
        })).collect::<Vec<_>>(),
        "version": concat!("fullpipe ", env!("CARGO_PKG_VERSION")),
        "system_info": system(),
        "timestamp": { "time": httpdate::fmt_http_date(outcome.started), "timesecs": began },
        "connecting_to": { "host": outcome.peer.ip().to_string(), "port": outcome.peer.port() },
        "cookie": outcome.cookie,
        "target_bitrate": params.rate,
        "tcp_mss_default": socket.map_or(params.mss, |socket| socket.mss),
        "sock_bufsize": params.window,
        "sndbuf_actual": facts.send_buffer,
        "rcvbuf_actual": facts.receive_buffer,
        "test_start": {
            "protocol": if params.protocol == Protocol::Udp { "UDP" } else { "TCP" },
            "num_streams": params.parallel,
            "blksize": params.block,
            "omit": params.omit,
            "duration": params.seconds,
            "bytes": params.bytes,
            "blocks": params.blocks,
            "reverse": u8::from(params.reverse),
            "bidir": u8::from(params.bidirectional),
            "tos": params.tos,
            "target_bitrate": params.rate,
        },
    })
}

/// Results of the whole test.
fn end(outcome: &Outcome) -> Value {
    let udp = outcome.params.protocol == Protocol::Udp;
    let mut end = json!({
        "streams": outcome.streams.iter().map(|s| stream(s, outcome)).collect::<Vec<_>>(),
        "cpu_utilization_percent": {
            "host_total": outcome.cpu_local[0],
            "host_user": outcome.cpu_local[1],
            "host_system": outcome.cpu_local[2],
        },
    });
    if let Some(cpu) = outcome.cpu_remote {
        let percent = &mut end["cpu_utilization_percent"];
        for (key, value) in ["remote_total", "remote_user", "remote_system"].into_iter().zip(cpu) {
            percent[key] = value.into();
        }
    }
    // For bidirectional tests, iperf3 has separate keys for the reverse path.
    let first_sends = outcome.params.client_sends();
    for (sends, suffix) in [(first_sends, ""), (!first_sends, "_bidir_reverse")] {
        let Some(sum) = outcome.sum(sends) else { continue };
        if udp {
            let mut both = received(&sum, sends);
            Datagrams::from_sum(&sum).write(&mut both);
            end[format!("sum{suffix}")] = both;
        }
        let [at_sender, at_receiver] = both_ends(&sum, sends, udp);
        if sum.sent.is_some() {
            end[format!("sum_sent{suffix}")] = at_sender;
        }
        if sum.received.is_some() {
            end[format!("sum_received{suffix}")] = at_receiver;
        }
    }
    let sender = outcome.streams.iter().find(|s| s.sends == first_sends).and_then(|s| s.controller.clone());
    for (key, name) in
        [("sender_tcp_congestion", sender), ("receiver_tcp_congestion", outcome.receiver_controller.clone())]
    {
        if let Some(name) = name.filter(|_| !udp) {
            end[key] = name.into();
        }
    }
    if let Some(text) = &outcome.server_output {
        end["server_output_text"] = text.clone().into();
    }
    end
}

/// The sums of one direction at its sender and its receiver.
fn both_ends(sum: &Sum, sends: bool, udp: bool) -> [Value; 2] {
    let mut at_sender = json!({
        "start": 0, "end": sum.sent_seconds, "seconds": sum.sent_seconds, "bytes": sum.sent,
        "bits_per_second": sum.sent.unwrap_or(0) as f64 * 8.0 / sum.sent_seconds.max(1e-9), "sender": sends,
    });
    if let Some(retransmits) = sum.retransmits {
        at_sender["retransmits"] = retransmits.into();
    }
    let mut at_receiver = received(sum, sends);
    if udp {
        Datagrams { packets: sum.packets, ..Datagrams::default() }.write(&mut at_sender);
        Datagrams::from_sum(sum).write(&mut at_receiver);
        // For UDP, `sender` names the end that the figures come from, not the direction.
        at_sender["sender"] = true.into();
        at_receiver["sender"] = false.into();
    }
    [at_sender, at_receiver]
}

/// The received sum of one direction.
fn received(sum: &Sum, sends: bool) -> Value {
    json!({
        "start": 0, "end": sum.received_seconds, "seconds": sum.received_seconds, "bytes": sum.received,
        "bits_per_second": sum.goodput(), "sender": sends,
    })
}

/// System information, as the beginning of `uname -a`.
fn system() -> String {
    let Ok(uname) = nix::sys::utsname::uname() else { return String::new() };
    let parts = [uname.sysname(), uname.nodename(), uname.release(), uname.version(), uname.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// Datagram figures beside bytes.
#[derive(Clone, Copy, Default)]
struct Datagrams {
    packets: u64,
    lost: u64,
    /// Seconds.
    jitter: f64,
}

impl Datagrams {
    fn from_sum(sum: &Sum) -> Datagrams {
        Datagrams { packets: sum.packets, lost: sum.lost, jitter: sum.jitter }
    }

    fn write(self, into: &mut Value) {
        into["jitter_ms"] = (self.jitter * 1e3).into();
        into["lost_packets"] = self.lost.into();
        into["packets"] = self.packets.into();
        let share = if self.packets == 0 { 0.0 } else { self.lost as f64 * 100.0 / self.packets as f64 };
        into["lost_percent"] = share.into();
    }

    /// Writes the figures of an interval; a sender knows only the number sent.
    fn write_interval(self, sends: bool, into: &mut Value) {
        if sends { into["packets"] = self.packets.into() } else { self.write(into) }
    }
}

fn interval(interval: &Interval, outcome: &Outcome) -> Value {
    let udp = outcome.params.protocol == Protocol::Udp;
    let seconds = interval.end - interval.start;
    let common = |bytes: u64, sends: bool| {
        json!({
            "start": interval.start, "end": interval.end, "seconds": seconds, "bytes": bytes,
            "bits_per_second": bytes as f64 * 8.0 / seconds.max(1e-9),
                "omitted": interval.omitted, "sender": sends,
        })
    };
    let one = |s: &StreamInterval| {
        let mut v = common(s.bytes, s.sends);
        v["socket"] = s.id.into();
        if udp {
            Datagrams { packets: s.packets, lost: s.lost, jitter: s.jitter }.write_interval(s.sends, &mut v);
        }
        if let Some(n) = s.retransmits {
            v["retransmits"] = n.into();
        }
        if let Some(socket) = &s.socket {
            v["snd_cwnd"] = socket.cwnd.into();
            v["snd_wnd"] = socket.snd_wnd.into();
            v["rtt"] = socket.rtt_us.into();
            v["rttvar"] = socket.rttvar_us.into();
            v["pmtu"] = socket.pmtu.into();
            v["fullpipe"] = json!(socket);
        }
        v
    };
    let sum = |sends: bool| {
        let streams: Vec<_> = interval.streams.iter().filter(|s| s.sends == sends).collect();
        let mut v = common(streams.iter().map(|s| s.bytes).sum(), sends);
        if let Some(n) = streams.iter().map(|s| s.retransmits).sum::<Option<u64>>() {
            v["retransmits"] = n.into();
        }
        if udp {
            let of_all = Datagrams {
                packets: streams.iter().map(|s| s.packets).sum(),
                lost: streams.iter().map(|s| s.lost).sum(),
                jitter: streams.iter().map(|s| s.jitter).sum::<f64>() / streams.len().max(1) as f64,
            };
            of_all.write_interval(sends, &mut v);
        }
        v
    };
    let mut v = Map::new();
    v.insert("streams".into(), interval.streams.iter().map(one).collect());
    v.insert("sum".into(), sum(outcome.params.client_sends()));
    if outcome.params.bidirectional {
        v.insert("sum_bidir_reverse".into(), sum(false));
    }
    if let Some(rtt) = interval.probe_rtt {
        v.insert("fullpipe_probe_rtt_ms".into(), (rtt * 1e3).into());
    }
    Value::Object(v)
}

fn stream(s: &StreamOutcome, outcome: &Outcome) -> Value {
    if outcome.params.protocol == Protocol::Udp {
        let mut udp = json!({
            "socket": s.id, "start": 0, "end": s.received_seconds, "seconds": s.received_seconds,
            "bytes": s.received, "bits_per_second": s.goodput(),
                "out_of_order": s.out_of_order, "sender": s.sends,
        });
        Datagrams { packets: s.packets, lost: s.lost, jitter: s.jitter }.write(&mut udp);
        return json!({ "udp": udp });
    }
    let mut sender = json!({
        "socket": s.id, "start": 0, "end": s.sent_seconds, "seconds": s.sent_seconds, "bytes": s.sent,
        "bits_per_second": s.sent.unwrap_or(0) as f64 * 8.0 / s.sent_seconds.max(1e-9), "sender": s.sends,
    });
    if let Some(n) = s.retransmits {
        sender["retransmits"] = n.into();
    }
    // Over the whole test including omitted seconds, as in iperf3.
    let sockets = || outcome.samples.iter().filter(|x| x.stream == s.id).filter_map(|x| x.socket.as_ref());
    let rtts: Vec<u64> = sockets().map(|socket| socket.rtt_us).filter(|&us| us > 0).collect();
    // Zero where unknown, for example for a stock sender at the other end: iperf3 does the same and
    // its readers expect the keys.
    sender["min_rtt"] = rtts.iter().min().copied().unwrap_or(0).into();
    sender["mean_rtt"] = rtts.iter().sum::<u64>().checked_div(rtts.len() as u64).unwrap_or(0).into();
    sender["max_rtt"] = rtts.iter().max().copied().unwrap_or(0).into();
    sender["max_snd_wnd"] = sockets().filter_map(|socket| socket.snd_wnd).max().unwrap_or(0).into();
    sender["max_snd_cwnd"] = sockets().map(|socket| socket.cwnd).max().unwrap_or(0).into();
    let mut ends = Map::new();
    if s.sent.is_some() {
        ends.insert("sender".into(), sender);
    }
    if s.received.is_some() {
        let receiver = json!({
            "socket": s.id, "start": 0, "end": s.received_seconds, "seconds": s.received_seconds,
            "bytes": s.received, "bits_per_second": s.goodput(), "sender": s.sends,
        });
        ends.insert("receiver".into(), receiver);
    }
    Value::Object(ends)
}
