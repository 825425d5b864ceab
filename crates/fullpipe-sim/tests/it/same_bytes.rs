//! What a scenario gives that uses none of what was added since is what it gave before, byte by
//! byte.

use crate::common::{losing, path, run, scenario};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{App, Direction, PathSpec, Scenario};
use fullpipe_units::{Bytes, Span};

/// Columns that recordings had when the hashes were taken.
const COLUMNS: [&str; 19] = [
    "goodput_bps",
    "rtt_ms",
    "srtt_ms",
    "min_rtt_ms",
    "inflight_bytes",
    "cwnd_bytes",
    "ssthresh_bytes",
    "pacing_bps",
    "bw_bps",
    "delivery_rate_bps",
    "pacing_gain",
    "cwnd_gain",
    "inflight_longterm_bytes",
    "inflight_shortterm_bytes",
    "delivered_bytes",
    "sent_packets",
    "retransmitted_packets",
    "lost_packets",
    "rounds",
];

/// FNV-1a of what was measured.
fn hash(mut recording: Recording) -> String {
    for flow in &mut recording.flows {
        flow.series.columns.retain(|column| COLUMNS.contains(&column.name.as_str()));
    }
    let text = serde_json::to_string(&(&recording.summary, &recording.flows, &recording.links)).unwrap();
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
}

fn all() -> Vec<(&'static str, Scenario)> {
    let mut mixed =
        scenario(losing(path("20mbit", "50ms", "1bdp"), "0.5%"), &["bbr", "bbr3", "cubic", "reno"], 8);
    mixed.flows[1].start = Span::from_millis(700).into();
    mixed.flows[2].direction = Direction::Reverse;
    mixed.flows[3].extra_rtt = Span::from_millis(30);
    mixed.flows[3].ecn = true;
    let wire = "[[forward]]\nrate='40mbit'\ndelay='10ms'\nqueue={kind='fq-codel',ecn=true}\n\
                jitter='2ms'\nreorder={share='1%',by='4ms'}\n\
                [[forward]]\ndelay='3ms'\nblackouts=[{at='2s',for='60ms'}]\n[[reverse]]\nrate='2mbit'\n\
                delay='12ms'\naggregate={hold='5ms',thin=2}";
    let wire: PathSpec = toml::from_str(wire).unwrap();
    let mut many = scenario(path("100mbit", "30ms", "0.5bdp"), &["cubic", "bbr3"], 4);
    many.flows.iter_mut().for_each(|flow| (flow.count, flow.stagger) = (20, Span::from_millis(17)));
    let mut bound = scenario(path("200mbit", "60ms", "1bdp"), &["bbr", "cubic", "hybla"], 5);
    bound.flows[0].receive_buffer = Some(Bytes(1_000_000));
    bound.flows[1].send_buffer = Some(Bytes(400_000));
    bound.flows[2].tso = Some(true);
    let mut apps = scenario(path("10mbit", "40ms", "2bdp"), &["cubic", "bbr", "bbr3"], 6);
    apps.flows[0].app =
        toml::from_str::<App>("kind='request-response'\nresponse='100k'\nthink='50ms'").unwrap();
    apps.flows[1].app = toml::from_str::<App>("kind='bursts'\nsize='200k'\nevery='900ms'").unwrap();
    apps.flows[2].size = Some(Bytes(1_500_000));
    let mut lossless =
        scenario(path("100mbit", "40ms", "100bdp"), &["bbr", "bbr3", "cubic", "reno", "hybla"], 5);
    lossless.flows.iter_mut().for_each(|flow| flow.receive_buffer = Some(Bytes(1_000_000)));
    lossless.flows[1].tso = Some(true);
    lossless.flows[2].auto_tuning = true;
    vec![
        ("lossless", lossless),
        ("mixed", mixed),
        ("wire", scenario(wire, &["bbr", "bbr3", "cubic"], 5)),
        ("many", many),
        ("bound", bound),
        ("apps", apps),
    ]
}

/// A change of the simulator's behaviour updates these hashes, and its commit explains why.
#[test]
fn unused_options_change_no_byte() {
    let got: Vec<_> = all().into_iter().map(|(name, scenario)| (name, hash(run(&scenario)))).collect();
    let taken = HASHES.map(|(name, hash)| (name, hash.to_owned()));
    assert_eq!(got, taken);
}

const HASHES: [(&str, &str); 6] = [
    ("lossless", "f6256ef6cb0832c6"),
    ("mixed", "d50ccea44575f7dd"),
    ("wire", "3e99823faaf3f721"),
    ("many", "f205090620a5c48b"),
    ("bound", "cfb12cdfc5b5057a"),
    ("apps", "6c85d328fa9686fc"),
];
