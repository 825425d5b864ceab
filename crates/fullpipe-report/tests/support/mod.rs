//! A race that never happened, in the shape engines give: for tests that need results to report.

use fullpipe_experiment::recording::{
    Event, EventKind, FlowRecording, LinkRecording, PathFacts, Provenance, Quantiles, QueueQuantiles,
    Recording, Results, Series, Source, StateChange, Summary, column,
};

const RATE: f64 = 100e6;
const LIMIT: f64 = RATE * 1448.0 / 1500.0;
const RTT_MS: f64 = 100.0;
const BDP: f64 = 1_250_000.0;

/// A window that grows to `peak` of the BDP and falls to `floor` of it, with period `period_s`.
struct Saw {
    cc: &'static str,
    floor: f64,
    peak: f64,
    period_s: f64,
}

/// bbr, cubic, hybla, reno, each alone for `seconds` on 100 Mbit/s, 100 ms, 1 BDP, 1 % loss.
pub fn race(seconds: f64) -> Results {
    let saws = [
        Saw { cc: "bbr", floor: 0.97, peak: 1.1, period_s: 0.8 },
        Saw { cc: "cubic", floor: 0.01, peak: 0.04, period_s: 0.7 },
        Saw { cc: "hybla", floor: 0.02, peak: 0.22, period_s: 0.5 },
        Saw { cc: "reno", floor: 0.005, peak: 0.02, period_s: 0.9 },
    ];
    Results::new(
        saws.iter().map(|s| recording(s.cc, vec![flow(s, s.cc.to_owned(), seconds, 1.0)], seconds)).collect(),
    )
}

/// bbr and cubic at once, three to one.
#[allow(dead_code)]
pub fn together(seconds: f64) -> Results {
    let bbr = Saw { cc: "bbr", floor: 0.7, peak: 0.8, period_s: 0.8 };
    let cubic = Saw { cc: "cubic", floor: 0.2, peak: 0.3, period_s: 4.0 };
    let flows = vec![flow(&bbr, "bbr 1".into(), seconds, 1.0), flow(&cubic, "cubic 1".into(), seconds, 1.0)];
    Results::new(vec![recording("bbr+cubic", flows, seconds)])
}

fn flow(saw: &Saw, label: String, seconds: f64, scale: f64) -> FlowRecording {
    let mut series = Series::with_columns([
        column::GOODPUT_BPS,
        column::RTT_MS,
        column::SRTT_MS,
        column::MIN_RTT_MS,
        column::INFLIGHT_BYTES,
        column::CWND_BYTES,
        column::PACING_BPS,
        column::BW_BPS,
        column::SENT_PACKETS,
        column::LOST_PACKETS,
        column::RETRANSMITTED_PACKETS,
    ]);
    let is_bbr = saw.cc == "bbr";
    let mut delivered = 0.0;
    let mut sum = 0.0;
    let rows = (seconds * 100.0).round() as usize;
    let (mut states, mut events) = (Vec::new(), Vec::new());
    let mut last_phase = 1.0;
    for row in 0..rows {
        let t = row as f64 / 100.0;
        let phase = (t / saw.period_s).fract();
        if phase < last_phase {
            let state = if is_bbr { "ProbeBW" } else { "CongestionAvoidance" };
            let state = if t < 0.3 { if is_bbr { "Startup" } else { "SlowStart" } } else { state };
            states.push(StateChange { at_s: t, state: state.to_owned() });
            events.push(Event { at_s: t, kind: EventKind::RecoveryEntered, value: Some(saw.peak * BDP) });
        }
        last_phase = phase;
        let window = BDP * scale * (saw.floor + (saw.peak - saw.floor) * phase);
        let queue_ms = ((window / BDP - 1.0) * RTT_MS).max(0.0);
        let rtt = RTT_MS + queue_ms;
        // A ripple, so that plots have something to smooth and to thin out.
        let goodput = (window * 8e3 / rtt * LIMIT / RATE * (1.0 + 0.04 * (t * 91.0).sin())).min(LIMIT);
        delivered += goodput / 800.0;
        sum += goodput;
        let packets = (delivered / 1448.0).floor();
        let rtt_known = if row == 0 { f64::NAN } else { rtt };
        let (pacing, bw) = if is_bbr { (RATE, RATE * 0.99) } else { (f64::NAN, f64::NAN) };
        let lost = (packets * 0.01).floor();
        series.push(
            t,
            &[
                goodput,
                rtt_known,
                rtt_known,
                RTT_MS,
                window,
                window * 1.02,
                pacing,
                bw,
                packets + lost,
                lost,
                lost,
            ],
        );
    }
    let goodput = if rows == 0 { 0.0 } else { sum / rows as f64 };
    let packets = (delivered / 1448.0) as u64;
    let over = ((saw.peak - 1.0) * RTT_MS).max(0.0);
    let summary = Summary {
        duration_s: seconds,
        goodput_bps: goodput,
        utilization: Some(goodput / LIMIT),
        bytes_delivered: delivered as u64,
        packets_sent: packets + packets / 100,
        packets_retransmitted: packets / 100,
        packets_lost: packets / 100,
        rtt_ms: Quantiles {
            min: Some(RTT_MS),
            p50: Some(RTT_MS + over / 2.0),
            p95: Some(RTT_MS + over * 0.95),
            p99: Some(RTT_MS + over),
        },
        queue_ms: QueueQuantiles { p50: Some(over / 2.0), p95: Some(over * 0.95), max: Some(over) },
        completion_s: None,
    };
    FlowRecording {
        label,
        cc: saw.cc.to_owned(),
        start_s: 0.0,
        summary,
        series,
        states,
        events,
        distributions: None,
    }
}

fn recording(cc: &str, flows: Vec<FlowRecording>, seconds: f64) -> Recording {
    let mut link = Series::with_columns([column::QUEUE_BYTES, column::RATE_BPS, column::DROPPED_PACKETS]);
    let first = &flows[0].series;
    for (row, &t) in first.t_s.iter().enumerate() {
        let inflight: f64 =
            flows.iter().map(|f| f.series.get(column::INFLIGHT_BYTES).map_or(0.0, |v| v[row])).sum();
        link.push(t, &[(inflight - BDP).max(0.0), RATE, row as f64 / 10.0]);
    }
    let mut summary = flows[0].summary.clone();
    for other in &flows[1..] {
        summary.goodput_bps += other.summary.goodput_bps;
        summary.bytes_delivered += other.summary.bytes_delivered;
        summary.packets_sent += other.summary.packets_sent;
        summary.packets_lost += other.summary.packets_lost;
        summary.packets_retransmitted += other.summary.packets_retransmitted;
    }
    summary.utilization = Some(summary.goodput_bps / LIMIT);
    let lost = summary.packets_lost;
    Recording {
        label: cc.to_owned(),
        contender: None,
        varied: Vec::new(),
        source: Source::Sim,
        cc: cc.to_owned(),
        seed: 1,
        valid: true,
        invalid_because: Vec::new(),
        links: vec![LinkRecording {
            label: "forward 1".to_owned(),
            name: None,
            packets_in: summary.packets_sent,
            packets_out: summary.packets_sent - lost,
            drops: [("loss".to_owned(), lost)].into(),
            ce_marked: 0,
            series: link,
        }],
        summary,
        fairness: None,
        flows,
        path: PathFacts {
            rate_bps: Some(RATE),
            goodput_limit_bps: Some(LIMIT),
            base_rtt_ms: Some(RTT_MS),
            bdp_bytes: Some(BDP as u64),
            buffer_bytes: Some(BDP as u64),
            description: "100 Mbit/s, 100 ms, 1 BDP drop-tail, 1 % loss".to_owned(),
        },
        checks: Vec::new(),
        health: None,
        provenance: Provenance {
            version: "0.1.0".to_owned(),
            scenario: format!("duration = \"{seconds}s\"\nseed = 1\n\n[[flow]]\ncc = \"{cc}\"\n"),
            ..Provenance::default()
        },
    }
}

/// A download of a thousand kB that a server with `bbr` (even numbers) or `cubic` sent.
#[allow(dead_code, reason = "not every test asks for it")]
pub fn connection(number: u32) -> fullpipe_experiment::connection::Connection {
    let bytes = 1_000_000 + u64::from(number);
    serde_json::from_value(serde_json::json!({
        "number": number,
        "client": format!("192.0.{}.{}:50000", number % 8, number % 250),
        "server": "10.0.0.1:443",
        "start_s": 1_790_000_000.0 + f64::from(number) * 60.0,
        "duration_s": 2.5,
        "opening": { "handshake": "seen" },
        "closing": "closed",
        "vantage": { "point": "server" },
        "to_client": {
            "place": "sender", "bytes": bytes, "bytes_sent": bytes + 14_480,
            "packets": 800, "data_packets": 701, "segments": 701, "segment_bytes": 1448,
            "active_s": 2.0, "goodput_bps": 4e6, "rtprop_ms": 40.0,
            "rtt": { "min_ms": 40.0 }, "retransmissions": { "segments": 10, "bytes": 14_480 },
            "lost_segments": 10,
            "limits": { "shares": [{ "by": "bandwidth", "share": 1.0 }] },
        },
        "to_server": { "place": "receiver", "bytes": 300, "bytes_sent": 300, "packets": 400, "segments": 1 },
        "socket": {
            "sends": "to_client", "controller": if number.is_multiple_of(2) { "bbr" } else { "cubic" },
            "owner": { "pid": 42, "process": "nginx", "uid": 33, "unit": "nginx.service" },
            "srtt_ms": 41.0, "cwnd_segments": 200, "busy_s": 1.6,
        },
    }))
    .unwrap()
}
