//! The C core of BBR v3 and the Rust one leave the same window, rate, quantum, gains, bounds and
//! state after every call, over simulated paths and over streams that no path would give.

mod transport;

use fullpipe_cc::bbr::v3;
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, RateSample, Recovery, RecoveryContext, RecoveryState, Sent,
};
use fullpipe_ebpf::native;
use fullpipe_units::{Rate, Span, Time};
use std::collections::BTreeMap;
use transport::{Path, Random, run};

/// 140 Tbit/s. The C core multiplies rates by gains in 64 bits; beyond 2^54 bytes/s that would not
/// fit.
const FASTEST: Rate = Rate::from_bytes_per_sec(1 << 44);

/// Both cores, fed the same and compared after each call.
struct Both {
    rust: v3::Bbr3,
    c: native::Bbr3,
    calls: u64,
    states: BTreeMap<&'static str, u64>,
}

impl Both {
    fn new(config: &Config, params: v3::Params) -> Self {
        Both {
            rust: v3::Bbr3::new(config, params),
            c: native::Bbr3::new(config, &params),
            calls: 0,
            states: BTreeMap::new(),
        }
    }

    fn compare(&mut self, after: &dyn std::fmt::Debug) {
        self.calls += 1;
        let outputs = |cc: &dyn CongestionControl| {
            let own = (cc.marks_app_limited(), cc.claims_ecn());
            (cc.snapshot(), cc.cwnd(), cc.pacing_rate(), cc.send_quantum(), own)
        };
        let (rust, c) = (outputs(&self.rust), outputs(&self.c));
        assert_eq!(rust, c, "call {} (left: Rust, right: C): {after:?}\n{:#?}", self.calls, self.c.state());
        *self.states.entry(rust.0.state).or_default() += 1;
    }
}

impl CongestionControl for Both {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.rust.on_handshake(now, rtt);
        self.c.on_handshake(now, rtt);
        self.compare(&"handshake");
    }

    fn on_send(&mut self, sent: &Sent) {
        self.rust.on_send(sent);
        self.c.on_send(sent);
        self.compare(sent);
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.rust.on_lost(lost);
        self.c.on_lost(lost);
        self.compare(lost);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.rust.on_ack(ack);
        self.c.on_ack(ack);
        self.compare(ack);
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        self.rust.on_recovery(event, context);
        self.c.on_recovery(event, context);
        self.compare(&event);
    }

    fn on_mtu(&mut self, smss: u32) {
        self.rust.on_mtu(smss);
        self.c.on_mtu(smss);
    }

    fn cwnd(&self) -> u64 {
        self.rust.cwnd()
    }

    fn ssthresh(&self) -> u64 {
        self.rust.ssthresh()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.rust.pacing_rate()
    }

    fn send_quantum(&self) -> u64 {
        self.rust.send_quantum()
    }

    fn marks_app_limited(&self) -> bool {
        self.rust.marks_app_limited()
    }

    fn snapshot(&self) -> fullpipe_cc::Snapshot {
        self.rust.snapshot()
    }
}

#[test]
fn on_simulated_paths_with_loss_reordering_pauses_and_time_outs() {
    let mut states: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut calls = 0;
    for seed in 0..48 {
        let mut random = Random(seed);
        let path = Path {
            rate: 1u64 << (14 + random.below(11)),
            rtt: Span::from_micros(200 + u64::from(random.below(200_000))),
            buffer: 20_000 << random.below(6),
            loss: [0, 0, 1, 10, 30, 80][random.below(6) as usize],
            reorder: [0, 0, 5][random.below(3) as usize],
            marks: [0, 0, 20][random.below(3) as usize],
            pauses: random.below(2) == 1,
            seed,
        };
        let config = Config { seed, selective_acks: seed % 5 > 0, ..Config::default() };
        let mut both = Both::new(&config, v3::Params { ecn: seed % 2 == 1, ..v3::Params::DRAFT });
        if seed % 3 == 0 {
            both.on_handshake(Time::ZERO, path.rtt);
        }
        run(&mut both, &path, Span::from_secs(25), 12_000);
        calls += both.calls;
        for (state, count) in both.states {
            *states.entry(state).or_default() += count;
        }
    }
    println!("{calls} calls, by state: {states:?}");
    assert_eq!(states.len(), 7, "every state was visited: {states:?}");
    assert!(calls > 200_000, "{calls}");
}

/// The draft's parameters, but for a third of them, which are anything that they may be.
fn varied(random: &mut Random) -> v3::Params {
    let mut params = v3::Params::DRAFT;
    for setting in v3::Params::SETTINGS {
        if random.below(3) > 0 {
            continue;
        }
        let value = match setting.values.strip_prefix("a number from ") {
            None => ["on", "off"][random.below(2) as usize].to_owned(),
            Some(range) => {
                let bounds: Vec<u32> = range.split(' ').filter_map(|word| word.parse().ok()).collect();
                let (least, most) = (bounds[0], bounds[1]);
                // Small numbers more often than large ones.
                let above = (most - least).min(1 << random.below(24));
                let whole = least + random.below(above.max(1));
                let is_fine = range.ends_with("1/256") && whole < most;
                if is_fine { format!("{whole}.{:03}", random.below(1000)) } else { whole.to_string() }
            }
        };
        params = params.with(&[(setting.key, &value)]).unwrap_or_else(|error| panic!("{error}"));
    }
    params
}

#[test]
fn on_simulated_paths_with_whatever_can_be_set() {
    let (mut calls, mut changed) = (0, [false; v3::Params::COUNT]);
    for seed in 0..64 {
        let mut random = Random(2_000 + seed);
        let params = varied(&mut random);
        for (at, word) in params.to_words().iter().enumerate() {
            changed[at] |= *word != v3::Params::DRAFT.to_words()[at];
        }
        let path = Path {
            rate: 1u64 << (16 + random.below(9)),
            rtt: Span::from_micros(200 + u64::from(random.below(100_000))),
            buffer: 20_000 << random.below(6),
            loss: [0, 0, 1, 10, 30, 80][random.below(6) as usize],
            reorder: [0, 0, 5][random.below(3) as usize],
            marks: [0, 0, 20][random.below(3) as usize],
            pauses: random.below(2) == 1,
            seed,
        };
        let config = Config { seed, selective_acks: seed % 5 > 0, ..Config::default() };
        let mut both = Both::new(&config, params);
        run(&mut both, &path, Span::from_secs(25), 6_000);
        calls += both.calls;
    }
    assert_eq!(changed, [true; v3::Params::COUNT], "each was something else at some time");
    assert!(calls > 100_000, "{calls}");
}

/// A number of up to `bits` bits, all lengths alike.
fn log(random: &mut Random, bits: u32) -> u64 {
    let width = random.below(bits);
    random.next() & ((1 << width) - 1)
}

#[test]
fn on_streams_that_no_path_would_give() {
    for seed in 0..64 {
        let mut random = Random(1_000 + seed);
        let smss = 536 + random.below(8500);
        let config = Config { smss, seed, selective_acks: seed % 4 > 0, ..Config::default() };
        let mut both = Both::new(&config, v3::Params { ecn: seed % 2 == 0, ..v3::Params::DRAFT });
        let mut now = Time::ZERO;
        let (mut delivered, mut lost) = (0u64, 0u64);
        let mut recovery = RecoveryState::Open;
        for _ in 0..1500 {
            now += Span::from_nanos(log(&mut random, 34));
            let inflight = log(&mut random, 32);
            match random.below(20) {
                0 => both.on_send(&Sent {
                    now,
                    bytes: 1448,
                    inflight: if random.below(2) == 0 { 0 } else { inflight },
                    app_limited: random.below(2) == 0,
                    delivered,
                    retransmit: false,
                }),
                1 | 2 => {
                    let bytes = log(&mut random, 17);
                    lost += bytes;
                    both.on_lost(&Lost {
                        now,
                        bytes,
                        tx_in_flight: log(&mut random, 32),
                        delivered_at_send: delivered.saturating_sub(inflight),
                        lost_at_send: lost.saturating_sub(log(&mut random, 20)),
                        lost,
                        delivered,
                        app_limited: random.below(3) == 0,
                    });
                }
                3 => {
                    let (event, next) = [
                        (Recovery::EnterFast, RecoveryState::Recovery),
                        (Recovery::EnterRto, RecoveryState::Loss),
                        (Recovery::Exit, RecoveryState::Open),
                        (Recovery::Spurious, RecoveryState::Open),
                    ][random.below(4) as usize];
                    recovery = next;
                    both.on_recovery(event, &RecoveryContext { now, inflight, delivered, lost });
                }
                _ => {
                    let newly_acked = log(&mut random, 18);
                    delivered += newly_acked;
                    let interval = Span::from_nanos(1 + log(&mut random, 36));
                    let over = log(&mut random, 30);
                    both.on_ack(&Ack {
                        now,
                        sample: RateSample {
                            rate: (random.below(5) > 0)
                                .then(|| Rate::from_bytes_in(over, interval).min(FASTEST)),
                            delivered: over,
                            interval,
                            prior_delivered: delivered.saturating_sub(log(&mut random, 24)),
                            prior_delivered_at: Time::ZERO,
                            tx_in_flight: log(&mut random, 30),
                            lost: if random.below(2) == 0 { 0 } else { log(&mut random, 24) },
                            app_limited: random.below(4) == 0,
                            has_packet: random.below(10) > 0,
                        },
                        rtt: (random.below(4) > 0).then(|| Span::from_nanos(1 + log(&mut random, 31))),
                        srtt: Some(Span::from_nanos(1 + log(&mut random, 31))).filter(|_| both.calls > 50),
                        newly_acked,
                        newly_lost: if random.below(8) == 0 { log(&mut random, 17) } else { 0 },
                        lost_ranges: random.below(4),
                        inflight_before: inflight,
                        inflight,
                        delivered,
                        lost,
                        cwnd_limited: random.below(2) == 0,
                        ce_count: if random.below(6) == 0 { random.below(5) } else { 0 },
                        delayed: false,
                        recovery,
                        next_departure: now,
                    });
                }
            }
        }
    }
}
