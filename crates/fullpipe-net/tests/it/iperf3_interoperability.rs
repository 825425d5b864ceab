//! Stock iperf3 at either end, with every option that affects the wire; both ends must report the
//! same figures.

use crate::common::{PATIENCE, Running, have, have_ipv6, iperf3_server, patient, run};
use fullpipe_net::client::{self, Config, Family, Outcome};
use fullpipe_net::iperf3::{Params, Protocol};
use fullpipe_net::server;
use fullpipe_testing::check_repeatedly;
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Runs a stock client against a fullpipe server; returns its JSON and the server's last event.
fn stock_client(host: &str, options: &[&str]) -> (Value, Value) {
    let server = Running::start(server::Config { limits: patient(), ..Default::default() });
    let mut command = Command::new("iperf3");
    command.args(["-c", host, "-p", &server.port(), "-J"]).args(options);
    let (code, out, err) = run(command, PATIENCE);
    assert_eq!(code, 0, "{out}{err}{:?}", server.events());
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json.get("error"), None, "{json:#}");
    (json, server.event("test_finished"))
}

/// iperf3 sends whole blocks, also when that is more than the bytes it was asked to send.
#[test]
fn a_stock_client_may_send_as_many_bytes_as_the_limit() {
    if !have("iperf3") {
        return;
    }
    let limits = server::Limits { bytes: Some(1_000_000), ..patient() };
    for options in [
        &["-n", "1000000"][..],
        &["-n", "1000000", "-P", "3"],
        &["-n", "1000000", "-R"],
        &["-n", "1000000", "-R", "-P", "3"],
        &["-u", "-n", "1000000", "-b", "40M", "-l", "1400", "-P", "2"],
    ] {
        let server = Running::start(server::Config { limits: limits.clone(), ..Default::default() });
        let mut command = Command::new("iperf3");
        command.args(["-c", "127.0.0.1", "-p", &server.port(), "-J"]).args(options);
        let (code, out, err) = run(command, PATIENCE);
        assert_eq!(code, 0, "{options:?}: {out}{err}{:?}", server.events());
        let event = server.event("test_finished");
        let is_tcp = options[0] != "-u";
        assert!(
            !is_tcp
                || (event["sent"].as_u64(), event["received"].as_u64()) <= (Some(1_000_000), Some(1_000_000)),
            "{event}"
        );
    }
    let server = Running::start(server::Config { limits, ..Default::default() });
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-p", &server.port(), "-n", "1000001"]);
    assert_ne!(run(command, PATIENCE).0, 0);
    assert!(server.event("test_failed")["reason"].as_str().unwrap().contains("1000000 allowed"));
}

/// Runs the fullpipe client against a stock server.
fn stock_server(host: &str, params: Params) -> Outcome {
    let (_server, port) = iperf3_server();
    let family = if host.contains(':') { Family::V6 } else { Family::V4 };
    let block_chosen = params.block != Params::default().block;
    let config = Config { params, block_chosen, family: Some(family), ..Config::new(host, port) };
    let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(outcome.server, None, "a stock server");
    outcome
}

fn one_second() -> Params {
    Params { seconds: 1, ..Params::default() }
}

/// The maximum data of one stream in the buffers of both ends.
fn in_buffers() -> f64 {
    let most = |name| -> f64 {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        text.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    most("tcp_wmem") + most("tcp_rmem")
}

/// Sender and receiver agree except for data in flight at the end: a tenth normally, and the
/// buffers of `streams` on a stalled machine.
fn agree_over(streams: usize, sent: f64, received: f64) {
    assert!(sent > 0.0 && received > 0.0, "{sent} sent, {received} received");
    let on_its_way = (0.1 * sent).max(streams as f64 * in_buffers());
    assert!((sent - received).abs() <= on_its_way, "{sent} sent, {received} received");
}

fn agree(sent: f64, received: f64) {
    agree_over(1, sent, received);
}

/// As [`agree`], of a peer that reports both.
fn agree_ends(sent: Option<u64>, received: Option<u64>) {
    agree(sent.unwrap() as f64, received.unwrap() as f64);
}

/// Checks that a figure is in a range.
fn check_range(what: &str, figure: f64, range: std::ops::Range<f64>) -> Result<(), String> {
    if range.contains(&figure) { Ok(()) } else { Err(format!("{what}: {figure}")) }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_stock_client_sends() {
    if !have("iperf3") {
        return;
    }
    let (json, event) = stock_client("127.0.0.1", &["-t", "1"]);
    let end = &json["end"];
    agree(number(&end["sum_sent"]["bytes"]), number(&end["sum_received"]["bytes"]));
    assert_eq!(end["sum_received"]["bytes"], event["received"], "the client shows the reported bytes");
}

#[test]
fn a_stock_client_receives() {
    if !have("iperf3") {
        return;
    }
    let (json, event) = stock_client("127.0.0.1", &["-t", "1", "-R", "-C", "reno"]);
    let end = &json["end"];
    agree(number(&end["sum_sent"]["bytes"]), number(&end["sum_received"]["bytes"]));
    assert_eq!(end["sum_sent"]["bytes"], event["sent"]);
    assert_eq!(event["controller"], "reno", "the server's sockets use what the client asked for");
    assert_eq!(end["sender_tcp_congestion"], "reno", "and the client shows it");
}

#[test]
fn a_stock_client_does_both_at_once_over_two_streams_each() {
    if !have("iperf3") {
        return;
    }
    let (json, event) = stock_client("127.0.0.1", &["-t", "1", "--bidir", "-P", "2"]);
    let end = &json["end"];
    assert_eq!(end["streams"].as_array().unwrap().len(), 4);
    agree_over(2, number(&end["sum_sent"]["bytes"]), number(&end["sum_received"]["bytes"]));
    let back = &end["sum_received_bidir_reverse"]["bytes"];
    agree_over(2, number(&event["sent"]), number(back));
    for stream in end["streams"].as_array().unwrap() {
        agree(number(&stream["sender"]["bytes"]), number(&stream["receiver"]["bytes"]));
    }
}

#[test]
fn a_stock_client_sends_over_four_streams() {
    if !have("iperf3") {
        return;
    }
    let (json, event) = stock_client("127.0.0.1", &["-t", "1", "-P", "4"]);
    let end = &json["end"];
    assert_eq!(end["streams"].as_array().unwrap().len(), 4);
    assert_eq!(end["sum_received"]["bytes"], event["received"]);
    for stream in end["streams"].as_array().unwrap() {
        agree(number(&stream["sender"]["bytes"]), number(&stream["receiver"]["bytes"]));
    }
}

#[test]
fn a_stock_client_sends_a_number_of_bytes_and_every_one_is_counted() {
    if !have("iperf3") {
        return;
    }
    let (json, event) = stock_client("127.0.0.1", &["-n", "50M"]);
    assert_eq!(json["end"]["sum_sent"]["bytes"], json["end"]["sum_received"]["bytes"]);
    assert_eq!(event["received"], 50 * 1024 * 1024);
}

#[test]
fn a_stock_client_receives_a_number_of_bytes() {
    if !have("iperf3") {
        return;
    }
    // Data that arrives before the stock client enters the running state is read and not counted:
    // retry.
    let all = 50 * 1024 * 1024;
    let counted = (0..5).any(|_| {
        let (json, event) = stock_client("127.0.0.1", &["-n", "50M", "-R"]);
        assert_eq!(event["sent"], all);
        let received = number(&json["end"]["sum_received"]["bytes"]);
        assert!(received <= f64::from(all), "{received}");
        received == f64::from(all)
    });
    assert!(counted, "the client never counted what it was sent");
}

#[test]
fn a_stock_client_keeps_to_its_rate() {
    if !have("iperf3") {
        return;
    }
    for direction in [&[][..], &["-R"]] {
        check_repeatedly("a stock client's rate", || {
            let (json, _) =
                stock_client("127.0.0.1", &[&["-t", "2", "-b", "80M", "-l", "32K"], direction].concat());
            let rate = number(&json["end"]["sum_received"]["bits_per_second"]);
            check_range(&format!("{direction:?}"), rate, 72e6..88e6)
        });
    }
}

#[test]
fn a_stock_client_measures_udp_both_ways() {
    if !have("iperf3") {
        return;
    }
    for direction in [&[][..], &["-R"], &["--bidir"]] {
        let options = [&["-u", "-t", "1", "-b", "20M", "-l", "1200"], direction].concat();
        check_repeatedly("a stock client's datagrams", || {
            let (json, _) = stock_client("127.0.0.1", &options);
            let sum = &json["end"]["sum"];
            check_range(&format!("{direction:?}: packets"), number(&sum["packets"]), 1500.0..f64::INFINITY)?;
            check_range(&format!("{direction:?}: % lost"), number(&sum["lost_percent"]), 0.0..5.0)?;
            check_range(&format!("{direction:?}: rate"), number(&sum["bits_per_second"]), 16e6..24e6)
        });
    }
}

#[test]
fn a_stock_client_omits_its_first_second() {
    if !have("iperf3") {
        return;
    }
    check_repeatedly("a stock client's second second", || {
        let (json, event) = stock_client("127.0.0.1", &["-t", "1", "-O", "1", "-b", "80M"]);
        let received = number(&json["end"]["sum_received"]["bytes"]);
        check_range("one second at 80 Mbit/s, not two", received, 7e6..13e6)?;
        check_range("seconds", number(&event["seconds"]), 0.8..1.5)
    });
}

#[test]
fn stock_client_connects_over_ipv6() {
    if !have("iperf3") || !have_ipv6() {
        return;
    }
    for options in [&["-t", "1"][..], &["-t", "1", "-R"], &["-t", "1", "-u", "-b", "5M"]] {
        stock_client("::1", options);
    }
}

#[test]
fn a_stock_client_gets_the_server_output() {
    if !have("iperf3") {
        return;
    }
    let (json, _) = stock_client(
        "127.0.0.1",
        &["-n", "1M", "--get-server-output", "-w", "128K", "-M", "1000", "-N", "-S", "16"],
    );
    assert!(json["server_output_text"].as_str().unwrap().contains("test_finished"), "{json:#}");
}

#[test]
fn a_refused_stock_client_gets_the_reason() {
    if !have("iperf3") {
        return;
    }
    let limits = server::Limits { seconds: 5, ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-p", &server.port(), "-t", "60"]);
    let (code, out, err) = run(command, PATIENCE);
    assert_ne!(code, 0);
    assert!((out + &err).contains("duration"), "{err}");
    assert!(server.event("test_failed")["reason"].as_str().unwrap().contains("60 s requested, 5 s allowed"));
}

#[test]
fn we_send_to_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    let outcome = stock_server("127.0.0.1", Params { congestion: Some("reno".into()), ..one_second() });
    let sum = outcome.sum(true).unwrap();
    agree_ends(sum.sent, sum.received);
    assert_eq!(outcome.streams[0].controller.as_deref(), Some("reno"));
    assert!(sum.retransmits.is_some());
}

#[test]
fn we_receive_from_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    let outcome =
        stock_server("127.0.0.1", Params { reverse: true, congestion: Some("reno".into()), ..one_second() });
    let sum = outcome.sum(false).unwrap();
    agree_ends(sum.sent, sum.received);
    assert!(sum.retransmits.is_some(), "its count of retransmits crosses the wire");
    assert_eq!(outcome.streams[0].controller.as_deref(), Some("reno"), "and which controller it used");
}

#[test]
fn we_do_both_at_once_with_a_stock_server_over_two_streams_each() {
    if !have("iperf3") {
        return;
    }
    let outcome = stock_server("127.0.0.1", Params { bidirectional: true, parallel: 2, ..one_second() });
    assert_eq!(outcome.streams.len(), 4);
    for stream in &outcome.streams {
        agree_ends(stream.sent, stream.received);
    }
}

#[test]
fn we_send_over_four_streams_to_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    let outcome = stock_server("127.0.0.1", Params { parallel: 4, ..one_second() });
    assert_eq!(outcome.streams.iter().map(|s| s.id).collect::<Vec<_>>(), [1, 3, 4, 5]);
    for stream in &outcome.streams {
        agree_ends(stream.sent, stream.received);
    }
}

#[test]
fn we_send_a_number_of_bytes_to_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    let bytes = 50 * 1024 * 1024;
    let sum = stock_server("127.0.0.1", Params { bytes, seconds: 0, ..Params::default() }).sum(true).unwrap();
    assert_eq!(sum.sent, Some(bytes));
    agree_ends(sum.sent, sum.received);
}

#[test]
fn we_receive_a_number_of_bytes_from_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    let bytes = 50 * 1024 * 1024;
    let params = Params { bytes, seconds: 0, reverse: true, ..Params::default() };
    let sum = stock_server("127.0.0.1", params).sum(false).unwrap();
    assert!(sum.received >= Some(bytes), "{:?}", sum.received);
}

#[test]
fn we_keep_to_our_rate_with_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    for reverse in [false, true] {
        let params = Params { reverse, seconds: 2, rate: 80_000_000, ..Params::default() };
        check_repeatedly("our rate", || {
            let rate = stock_server("127.0.0.1", params.clone()).sum(!reverse).unwrap().goodput();
            check_range(&format!("reverse {reverse}"), rate, 72e6..88e6)
        });
    }
}

#[test]
fn we_measure_udp_both_ways_with_a_stock_server() {
    if !have("iperf3") {
        return;
    }
    for (reverse, bidirectional) in [(false, false), (true, false), (false, true)] {
        let params = Params {
            protocol: Protocol::Udp,
            rate: 20_000_000,
            block: 1200,
            reverse,
            bidirectional,
            udp_counters_64bit: true,
            ..one_second()
        };
        check_repeatedly("our datagrams", || {
            let outcome = stock_server("127.0.0.1", params.clone());
            for sum in [outcome.sum(true), outcome.sum(false)].into_iter().flatten() {
                check_range("packets", sum.packets as f64, 1500.0..f64::INFINITY)?;
                check_range("part lost", sum.lost as f64 / sum.packets as f64, 0.0..0.05)?;
                check_range("rate", sum.goodput(), 16e6..24e6)?;
            }
            Ok(())
        });
    }
}

#[test]
fn we_reach_a_stock_server_over_ipv6() {
    if !have("iperf3") || !have_ipv6() {
        return;
    }
    let outcome = stock_server("::1", one_second());
    assert!(outcome.peer.is_ipv6());
    stock_server("::1", Params { protocol: Protocol::Udp, rate: 5_000_000, ..one_second() });
}

#[test]
fn our_json_has_the_keys_of_a_stock_client() {
    if !have("iperf3") {
        return;
    }
    let udp = |reverse, bidirectional| Params {
        protocol: Protocol::Udp,
        rate: 5_000_000,
        block: 1200,
        parallel: 2,
        reverse,
        bidirectional,
        ..one_second()
    };
    let tcp = |reverse, bidirectional| Params { parallel: 2, reverse, bidirectional, ..one_second() };
    let cases = [
        ("-t 1 -P 2", tcp(false, false)),
        ("-t 1 -P 2 -R", tcp(true, false)),
        ("-t 1 -P 2 --bidir", tcp(false, true)),
        ("-t 1 -P 2 -u -b 5M -l 1200", udp(false, false)),
        ("-t 1 -P 2 -u -b 5M -l 1200 -R", udp(true, false)),
        ("-t 1 -P 2 -u -b 5M -l 1200 --bidir", udp(false, true)),
    ];
    for (options, params) in cases {
        let (stock, _) = stock_client("127.0.0.1", &options.split(' ').collect::<Vec<_>>());
        let ours = client::iperf3_json(&stock_server("127.0.0.1", params.clone()));
        let mut paths = Vec::new();
        leaves(&stock, String::new(), &mut paths);
        assert!(paths.len() > 70, "{options}: {paths:?}");
        for path in paths {
            let kind = |v: Option<&Value>| v.map(|v| (v.is_number(), v.is_string(), v.as_bool()));
            assert_eq!(kind(ours.pointer(&path)), kind(stock.pointer(&path)), "{options}: {path}");
        }
        if params.protocol == Protocol::Tcp && params.client_sends() {
            let sender = &ours["end"]["streams"][0]["sender"];
            let rtt = |name: &str| number(&sender[name]);
            let in_order = rtt("min_rtt") <= rtt("mean_rtt") && rtt("mean_rtt") <= rtt("max_rtt");
            assert!(0.0 < rtt("min_rtt") && in_order, "{options}: {sender}");
        }
    }
}

/// The JSON pointers of all values; of arrays, the first two elements, which every run has.
fn leaves(value: &Value, at: String, paths: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| leaves(value, format!("{at}/{key}"), paths));
        }
        Value::Array(list) if at == "/intervals" => {
            list.iter().take(1).for_each(|value| leaves(value, format!("{at}/0"), paths));
        }
        Value::Array(list) => {
            list.iter().take(2).enumerate().for_each(|(i, value)| leaves(value, format!("{at}/{i}"), paths));
        }
        _ => paths.push(at),
    }
}
