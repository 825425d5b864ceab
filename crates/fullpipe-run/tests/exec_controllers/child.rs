//! This test program as a child: a controller of `fullpipe-cc` behind the protocol, written without
//! the types of `fullpipe-run`, or a program that misbehaves.

use fullpipe_cc::*;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Stdin, Write, stdin, stdout};
use std::time::Duration;

/// Runs as a child: `controller NAME` or the name of a fault.
pub fn run(words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["controller", name] => controller(name),
        [fault] => misbehave(fault),
        [fault, after] => misbehave_after(fault, after.parse().expect("a number")),
        _ => panic!("unknown arguments: {words:?}"),
    }
}

fn lines() -> impl Iterator<Item = String> {
    BufReader::<Stdin>::new(stdin()).lines().map_while(Result::ok)
}

fn say(line: &str) {
    // At once: of two lines the second would otherwise answer the next call. fullpipe may have
    // closed its end.
    let _ = stdout().write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout().flush());
}

struct Fields(Map<String, Value>);

impl Fields {
    fn number(&self, key: &str) -> u64 {
        self.0.get(key).map_or(0, |value| value.as_u64().unwrap_or_else(|| panic!("{key}: {value}")))
    }

    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().expect("text")
    }

    fn flag(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| *value == Value::Bool(true))
    }

    fn time(&self, key: &str) -> Time {
        Time::from_nanos(self.number(key))
    }

    fn span(&self, key: &str) -> Option<Span> {
        self.0.contains_key(key).then(|| Span::from_nanos(self.number(key)))
    }

    fn ack(&self) -> Ack {
        Ack {
            sample: self.0.get("sample").map_or_else(RateSample::default, |sample| {
                Fields(sample.as_object().expect("an object").clone()).sample()
            }),
            rtt: self.span("rtt"),
            srtt: self.span("srtt"),
            newly_acked: self.number("bytes"),
            newly_lost: self.number("lost_bytes"),
            lost_ranges: self.number("lost_ranges") as u32,
            inflight_before: self.number("inflight_before"),
            inflight: self.number("inflight"),
            delivered: self.number("delivered"),
            lost: self.number("lost"),
            cwnd_limited: self.flag("cwnd_limited"),
            ce_count: self.number("ce_packets") as u32,
            delayed: self.flag("delayed"),
            recovery: match self.text("recovery") {
                "open" => RecoveryState::Open,
                "disorder" => RecoveryState::Disorder,
                "recovery" => RecoveryState::Recovery,
                "loss" => RecoveryState::Loss,
                other => panic!("{other}"),
            },
            next_departure: self.time("next_departure").max(self.time("now")),
            ..Ack::at(self.time("now"))
        }
    }

    fn sample(&self) -> RateSample {
        RateSample {
            rate: self.0.contains_key("rate").then(|| Rate::from_bytes_per_sec(self.number("rate"))),
            delivered: self.number("delivered"),
            interval: self.span("interval").expect("an interval"),
            prior_delivered: self.number("prior_delivered"),
            prior_delivered_at: self.time("prior_delivered_at"),
            tx_in_flight: self.number("tx_in_flight"),
            lost: self.number("lost"),
            app_limited: self.flag("app_limited"),
            has_packet: true,
        }
    }

    fn sent(&self) -> Sent {
        Sent {
            bytes: self.number("bytes"),
            inflight: self.number("inflight"),
            app_limited: self.flag("app_limited"),
            delivered: self.number("delivered"),
            retransmit: self.flag("retransmission"),
            ..Sent::at(self.time("now"))
        }
    }

    fn lost(&self) -> Lost {
        Lost {
            bytes: self.number("bytes"),
            tx_in_flight: self.number("tx_in_flight"),
            delivered_at_send: self.number("delivered_at_send"),
            lost_at_send: self.number("lost_at_send"),
            lost: self.number("lost"),
            delivered: self.number("delivered"),
            app_limited: self.flag("app_limited"),
            ..Lost::at(self.time("now"))
        }
    }

    fn recovery(&self) -> (Recovery, RecoveryContext) {
        let event = match self.text("change") {
            "enter" => Recovery::EnterFast,
            "timeout" => Recovery::EnterRto,
            "exit" => Recovery::Exit,
            "spurious" => Recovery::Spurious,
            other => panic!("{other}"),
        };
        let context = RecoveryContext {
            now: self.time("now"),
            inflight: self.number("inflight"),
            delivered: self.number("delivered"),
            lost: self.number("lost"),
        };
        (event, context)
    }
}

/// A controller of `fullpipe-cc`.
fn controller(name: &str) {
    let mut lines = lines().map(|line| Fields(serde_json::from_str(&line).expect("JSON")));
    let init = lines.next().expect("a first line");
    assert_eq!((init.text("event"), init.text("schema")), ("init", "fullpipe/controller/1"));
    let settings = init.0["settings"].as_object().expect("an object");
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(key, value)| (key.as_str(), value.as_str().expect("text"))).collect();
    let config = Config {
        smss: init.number("packet_bytes") as u32,
        initial_cwnd: init.number("initial_window"),
        seed: init.number("seed"),
        paced: init.flag("paced"),
        ..Config::default()
    };
    let mut cc = ControllerSpec::new(name, &settings).expect("a controller").build(&config);
    let mut first = answer(&cc);
    first["schema"] = json!("fullpipe/controller/1");
    first["prr"] = json!(cc.uses_prr());
    first["ecn"] = json!(cc.claims_ecn());
    say(&first.to_string());
    for message in lines {
        match message.text("event") {
            "sent" => cc.on_send(&message.sent()),
            "lost" => cc.on_lost(&message.lost()),
            "handshake" => cc.on_handshake(message.time("now"), message.span("rtt").expect("an RTT")),
            "acked" => cc.on_ack(&message.ack()),
            "recovery" => {
                let (event, context) = message.recovery();
                cc.on_recovery(event, &context);
            }
            "mtu" => cc.on_mtu(message.number("packet_bytes") as u32),
            "ask" => {}
            other => panic!("{other}"),
        }
        if !matches!(message.text("event"), "sent" | "lost") {
            say(&answer(&cc).to_string());
        }
    }
}

fn answer(cc: &Controller) -> Value {
    let snapshot = cc.snapshot();
    let rate = |rate: Option<Rate>| rate.map(Rate::as_bytes_per_sec);
    let gain = |gain: Option<Gain>| gain.map(Gain::as_f64);
    json!({
        "window": cc.cwnd(),
        "ssthresh": Some(cc.ssthresh()).filter(|bytes| *bytes < u64::MAX),
        "pacing_rate": rate(cc.pacing_rate()),
        "quantum": cc.send_quantum(),
        "app_limited": cc.marks_app_limited(),
        "state": cc.state(),
        "bw": rate(snapshot.bw),
        "max_bw": rate(snapshot.max_bw),
        "bw_shortterm": rate(snapshot.bw_shortterm),
        "min_rtt": snapshot.min_rtt.map(Span::as_nanos),
        "pacing_gain": gain(snapshot.pacing_gain),
        "cwnd_gain": gain(snapshot.cwnd_gain),
        "inflight_longterm": snapshot.inflight_longterm,
        "inflight_shortterm": snapshot.inflight_shortterm,
        "rounds": snapshot.rounds,
    })
}

const FIRST: &str = r#"{"schema":"fullpipe/controller/1","window":14480,"sent":false}"#;

/// A program that fails at once.
fn misbehave(fault: &str) {
    match fault {
        "silent" => std::thread::sleep(Duration::from_secs(600)),
        "exits" => std::process::exit(7),
        "version" => say(r#"{"schema":"fullpipe/controller/9"}"#),
        "deaf" => {
            // It greets, asks for everything, and never reads again.
            say(r#"{"schema":"fullpipe/controller/1"}"#);
            std::thread::sleep(Duration::from_secs(600));
        }
        "answers-all" => {
            say(r#"{"schema":"fullpipe/controller/1"}"#);
            lines().skip(1).for_each(|_| say("{}"));
        }
        "chatters" => {
            say(FIRST);
            for line in lines().skip(1) {
                say("{}");
                if line.contains("\"acked\"") {
                    say("debug: got an ACK");
                }
            }
        }
        other => panic!("unknown fault {other}"),
    }
    lines().for_each(drop);
}

/// A program that answers `after` questions and then fails.
fn misbehave_after(fault: &str, after: usize) {
    let mut questions = lines();
    for i in 0..after {
        questions.next();
        say(if i == 0 { FIRST } else { "{}" });
    }
    questions.next();
    match fault {
        "silent" => std::thread::sleep(Duration::from_secs(600)),
        "exits" => {
            eprintln!("out of luck");
            std::process::exit(3);
        }
        "crashes" => std::process::abort(),
        "shuts" => {
            // It closes its output and runs on.
            nix::unistd::close(1).expect("open");
            std::thread::sleep(Duration::from_secs(600));
        }
        "nonsense" => {
            for i in 0..1000 {
                eprintln!("line {i} of \x1b[31mtoo many");
            }
            say("\x1b]0;owned\x07 \u{202e}");
        }
        "dribbles" => loop {
            let _ = stdout().write_all(b"x").and_then(|()| stdout().flush());
            std::thread::sleep(Duration::from_millis(20));
        },
        "endless" => {
            let block = [b'x'; 4096];
            while stdout().write_all(&block).and_then(|()| stdout().flush()).is_ok() {}
        }
        "twice" => say("{}\n{}"),
        line => say(line),
    }
    questions.for_each(drop);
}
