//! Converts a test to a [`Recording`], the common form of all engines' runs.

use crate::client::{Outcome, Sample};
use crate::iperf3::Protocol;
use fullpipe_experiment::recording::{
    FlowRecording, FlowRow, PathFacts, Provenance, Quantiles, Recording, Series, Source, StateChange, Summary,
};
use fullpipe_experiment::statistics::quantile;
use std::collections::BTreeMap;

/// Records a whole test. `label` distinguishes it from others.
pub fn recording(outcome: &Outcome, label: &str, seed: u64) -> Recording {
    let omit = f64::from(outcome.params.omit);
    let flows: Vec<FlowRecording> = outcome.streams.iter().map(|s| flow(outcome, s.id, omit)).collect();
    let mut names: Vec<&str> = flows.iter().map(|f| f.cc.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let duration_s = flows.iter().map(|f| f.summary.duration_s).fold(0.0, f64::max);
    let summary = Summary {
        // Each stream has its own duration.
        goodput_bps: flows.iter().map(|f| f.summary.goodput_bps).sum(),
        rtt_ms: rtt_quantiles(outcome.samples.iter().filter(|s| s.seconds >= omit)),
        completion_s: outcome.params.byte_budget().map(|_| duration_s),
        ..Summary::total(flows.iter().map(|f| &f.summary), duration_s)
    };
    let direction = match (outcome.params.bidirectional, outcome.params.reverse) {
        (true, _) => "both directions",
        (_, true) => "from the server",
        _ => "to the server",
    };
    Recording {
        label: label.to_owned(),
        contender: None,
        varied: Vec::new(),
        source: Source::Net,
        cc: names.join("+"),
        seed,
        valid: true,
        invalid_because: Vec::new(),
        summary,
        links: Vec::new(),
        path: PathFacts {
            base_rtt_ms: outcome.latency.idle.map(|s| s * 1e3),
            description: format!("{} → {}, {direction}", outcome.local.ip(), outcome.peer),
            ..PathFacts::default()
        },
        fairness: None,
        flows,
        checks: Vec::new(),
        health: None,
        provenance: Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: String::new(),
            kernel: nix::sys::utsname::uname().ok().map(|u| u.release().to_string_lossy().into_owned()),
            bbr_versions: bbr_versions(&outcome.samples),
            ..Provenance::default()
        },
    }
}

/// The version of each BBR that a sender reported, which with -R is the server's.
fn bbr_versions(samples: &[Sample]) -> BTreeMap<String, u8> {
    let sockets = samples.iter().filter_map(|sample| sample.socket.as_ref());
    sockets.filter_map(|socket| Some((socket.controller.clone(), socket.bbr_version?))).collect()
}

fn flow(outcome: &Outcome, id: u64, omit: f64) -> FlowRecording {
    let Some(stream) = outcome.streams.iter().find(|s| s.id == id) else {
        unreachable!("ids come from the streams")
    };
    let udp = outcome.params.protocol == Protocol::Udp;
    let cc = match (&stream.controller, udp) {
        (_, true) => "udp".to_owned(),
        (Some(name), _) => name.clone(),
        (None, _) => "unknown".to_owned(),
    };
    let mut series = Series::with_columns(FlowRow::COLUMNS);
    let mut states: Vec<StateChange> = Vec::new();
    let (mut last_bytes, mut last_at) = (0, 0.0);
    let samples = || outcome.samples.iter().filter(|s| s.stream == id);
    for sample in samples() {
        let seconds = sample.seconds - last_at;
        let rate = sample.bytes.saturating_sub(last_bytes) as f64 * 8.0 / seconds.max(1e-9);
        (last_bytes, last_at) = (sample.bytes, sample.seconds);
        series.push(sample.seconds, &row(rate, sample).values());
        if let Some(state) = sample.socket.as_ref().and_then(|s| s.bbr_mode.clone())
            && states.last().is_none_or(|last| last.state != state)
        {
            states.push(StateChange { at_s: sample.seconds, state });
        }
    }
    let mss = stream.socket.as_ref().map_or(u64::from(outcome.params.block), |s| u64::from(s.mss)).max(1);
    let retransmits = stream.retransmits.unwrap_or(0);
    let packets_sent = if udp {
        stream.packets
    } else {
        stream.sent.unwrap_or(stream.delivered().0).div_ceil(mss) + retransmits
    };
    FlowRecording {
        label: format!("{cc} {}", if stream.sends { "→" } else { "←" }) + &format!(" {id}"),
        cc,
        start_s: 0.0,
        summary: Summary {
            duration_s: stream.delivered().1,
            goodput_bps: stream.goodput(),
            bytes_delivered: stream.delivered().0,
            packets_sent,
            packets_retransmitted: retransmits,
            packets_lost: if udp { stream.lost } else { retransmits },
            rtt_ms: rtt_quantiles(samples().filter(|s| s.seconds >= omit)),
            ..Summary::default()
        },
        series: series.without_empty_columns(),
        states,
        events: Vec::new(),
        distributions: None,
    }
}

fn row(rate: f64, sample: &Sample) -> FlowRow {
    let Some(s) = &sample.socket else { return FlowRow { goodput_bps: rate, ..FlowRow::default() } };
    let bytes = |n: Option<u64>| n.map_or(f64::NAN, |n| n as f64);
    let bits = |n: Option<u64>| n.map_or(f64::NAN, |n| n as f64 * 8.0);
    FlowRow {
        goodput_bps: rate,
        srtt_ms: s.rtt_us as f64 / 1e3,
        min_rtt_ms: s.bbr_min_rtt_us.or(s.min_rtt_us).map_or(f64::NAN, |us| us as f64 / 1e3),
        inflight_bytes: s.inflight as f64,
        cwnd_bytes: s.cwnd as f64,
        ssthresh_bytes: bytes(s.ssthresh),
        pacing_bps: bits(s.pacing_rate),
        delivery_rate_bps: bits(s.delivery_rate),
        retransmitted_packets: s.retransmits as f64,
        bw_bps: bits(s.bbr_bw),
        max_bw_bps: bits(s.bbr_bw_hi),
        bw_shortterm_bps: bits(s.bbr_bw_lo),
        pacing_gain: s.bbr_pacing_gain.unwrap_or(f64::NAN),
        cwnd_gain: s.bbr_cwnd_gain.unwrap_or(f64::NAN),
        inflight_longterm_bytes: bytes(s.bbr_inflight_hi),
        inflight_shortterm_bytes: bytes(s.bbr_inflight_lo),
        ..FlowRow::default()
    }
}

fn rtt_quantiles<'a>(samples: impl Iterator<Item = &'a Sample>) -> Quantiles {
    let mut rtts: Vec<f64> = samples
        .filter_map(|s| s.socket.as_ref())
        .filter(|s| s.rtt_us > 0)
        .map(|s| s.rtt_us as f64 / 1e3)
        .collect();
    let mut at = |q| quantile(&mut rtts, q);
    Quantiles { min: at(0.0), p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SocketSample;
    use fullpipe_kernel::tcp_info::CcInfo;
    use fullpipe_testing::bbr_v3_of_each_phase;

    fn sample(socket: Option<SocketSample>) -> Sample {
        Sample { seconds: 1.0, stream: 1, bytes: 0, socket, from_server: false, receiver: None }
    }

    #[test]
    fn bounds_and_version_of_the_senders_bbr_are_recorded() {
        let samples = bbr_v3_of_each_phase().into_iter().map(|(bytes, _)| {
            let socket = SocketSample { controller: "bbr".into(), mss: 1000, ..SocketSample::default() };
            let socket = socket.with_cc_info(CcInfo::decode("bbr", &bytes).as_ref());
            sample(Some(socket))
        });
        let samples: Vec<Sample> = samples.collect();
        assert_eq!(bbr_versions(&samples), BTreeMap::from([("bbr".to_owned(), 3)]));
        assert_eq!(bbr_versions(&[sample(None)]), BTreeMap::new(), "a stock server that sends");
        let rows: Vec<FlowRow> = samples.iter().map(|sample| row(1e6, sample)).collect();
        assert!(
            rows.iter().all(|row| row.bw_bps == 10e6 && row.max_bw_bps == 20e6 && row.min_rtt_ms == 40.0)
        );
        assert!(rows.iter().all(|row| row.inflight_longterm_bytes == 90_000.0));
        assert!(
            rows.iter().all(|row| row.bw_shortterm_bps.is_nan() && row.inflight_shortterm_bytes.is_nan())
        );
        assert_eq!((rows[2].cwnd_gain, rows[3].pacing_gain), (0.5, 1.25));
    }
}
