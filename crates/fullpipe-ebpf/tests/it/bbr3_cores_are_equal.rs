//! The C core of BBR v3 and the Rust one leave the same window, rate, quantum, gains, bounds and
//! state after every call, over simulated paths and over streams that no path would give, in each
//! variant that the C core has.

use crate::transport::{Path, Random, run};
use fullpipe_cc::bbr::v3;
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, RateSample, Recovery, RecoveryContext, RecoveryState, Sent,
};
use fullpipe_ebpf::native;
use fullpipe_units::{Rate, Span, Time};
use std::collections::BTreeMap;
use std::ops::Range;

/// The variants of the C core with their parameters.
const VARIANTS: [(v3::Variant, v3::Params); 2] =
    [(v3::Variant::Draft, v3::Params::DRAFT), (v3::Variant::Linux, v3::Params::LINUX)];

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
    fn new(config: &Config, params: v3::Params, variant: v3::Variant) -> Self {
        Both {
            rust: v3::Bbr3::with_variant(config, params, variant),
            c: native::Bbr3::with_variant(config, &params, variant).expect("a variant of the C core"),
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

/// A path with 2 to the power of `rates` bytes per second and an RTT up to `rtt_us`.
fn any_path(random: &mut Random, rates: Range<u32>, rtt_us: u32, seed: u64) -> Path {
    Path {
        rate: 1 << (rates.start + random.below(rates.end - rates.start)),
        rtt: Span::from_micros(200 + u64::from(random.below(rtt_us))),
        buffer: 20_000 << random.below(6),
        loss: [0, 0, 1, 10, 30, 80][random.below(6) as usize],
        reorder: [0, 0, 5][random.below(3) as usize],
        marks: [0, 0, 20][random.below(3) as usize],
        pauses: random.below(2) == 1,
        seed,
    }
}

#[test]
fn the_c_core_has_no_draft_to_the_letter() {
    let letter = native::Bbr3::with_variant(&Config::default(), &v3::Params::DRAFT, v3::Variant::Letter);
    assert!(letter.is_none());
}

#[test]
fn on_simulated_paths_with_loss_reordering_pauses_and_time_outs() {
    for (variant, params) in VARIANTS {
        simulated_paths(variant, params);
    }
}

fn simulated_paths(variant: v3::Variant, params: v3::Params) {
    let mut states: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut calls = 0;
    for seed in 0..48 {
        let mut random = Random(seed);
        let path = any_path(&mut random, 14..25, 200_000, seed);
        let config = Config { seed, selective_acks: seed % 5 > 0, ..Config::default() };
        let mut both = Both::new(&config, v3::Params { ecn: seed % 2 == 1, ..params }, variant);
        if seed % 3 == 0 {
            both.on_handshake(Time::ZERO, path.rtt);
        }
        run(&mut both, &path, Span::from_secs(25), 12_000);
        calls += both.calls;
        for (state, count) in both.states {
            *states.entry(state).or_default() += count;
        }
    }
    println!("{variant:?}: {calls} calls, by state: {states:?}");
    assert_eq!(states.len(), 7, "every state was visited: {states:?}");
    assert!(calls > 200_000, "{calls}");
}

/// The variant's parameters, but for a third of them, which are anything that they may be.
fn varied(random: &mut Random, mut params: v3::Params) -> v3::Params {
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
    for (variant, defaults) in VARIANTS {
        varied_paths(variant, defaults);
    }
}

fn varied_paths(variant: v3::Variant, defaults: v3::Params) {
    let (mut calls, mut changed) = (0, [false; v3::Params::COUNT]);
    for seed in 0..64 {
        let mut random = Random(2_000 + seed);
        let params = varied(&mut random, defaults);
        for (at, word) in params.to_words().iter().enumerate() {
            changed[at] |= *word != defaults.to_words()[at];
        }
        let path = any_path(&mut random, 16..25, 100_000, seed);
        let config = Config { seed, selective_acks: seed % 5 > 0, ..Config::default() };
        let mut both = Both::new(&config, params, variant);
        run(&mut both, &path, Span::from_secs(25), 6_000);
        calls += both.calls;
    }
    assert_eq!(changed, [true; v3::Params::COUNT], "each was something else at some time");
    assert!(calls > 100_000, "{calls}");
}

/// A connection whose ACKs are made one by one.
struct Steps {
    both: Both,
    now: Time,
    delivered: u64,
}

impl Steps {
    fn new(variant: v3::Variant, params: v3::Params) -> Self {
        let mut both = Both::new(&Config { smss: 1000, ..Config::default() }, params, variant);
        both.on_handshake(Time::ZERO, Span::from_millis(40));
        Steps { both, now: Time::ZERO, delivered: 0 }
    }

    /// An ACK at 10 Mbit/s with a megabyte in flight, which begins a round if it `is_round`.
    fn ack(&mut self, is_round: bool, change: impl FnOnce(&mut Ack)) {
        self.now += Span::from_millis(40);
        let prior_delivered = if is_round { self.delivered } else { 0 };
        self.delivered += 50_000;
        let mut ack = Ack {
            sample: RateSample {
                rate: Some(Rate::from_bytes_per_sec(1_250_000)),
                delivered: 50_000,
                prior_delivered,
                tx_in_flight: 1_000_000,
                has_packet: true,
                ..RateSample::default()
            },
            newly_acked: 50_000,
            inflight: 1_000_000,
            delivered: self.delivered,
            next_departure: self.now,
            ..Ack::at(self.now)
        };
        change(&mut ack);
        self.both.on_ack(&ack);
    }

    fn state(&self) -> &'static str {
        self.both.snapshot().state
    }
}

#[test]
fn startup_counts_lost_ranges_and_in_linux_at_most_15_acks_with_losses() {
    use v3::Variant::{Draft, Linux};
    for (variant, count, state) in
        [(Draft, 20, "Drain"), (Draft, 21, "Startup"), (Linux, 15, "Drain"), (Linux, 16, "Startup")]
    {
        let params = v3::Params { startup_full_loss_count: count, ..v3::Params::DRAFT };
        let mut steps = Steps::new(variant, params);
        steps.ack(true, |_| {});
        for number in 0..=20 {
            // The last one ends the round.
            steps.ack(number == 20, |ack| {
                (ack.newly_lost, ack.lost_ranges) = if number < 20 { (5_000, 1) } else { (0, 0) };
                (ack.sample.lost, ack.sample.app_limited) = (100_000, true);
                ack.recovery = RecoveryState::Recovery;
            });
        }
        assert_eq!(steps.state(), state, "{variant:?}, {count}");
    }
}

#[test]
fn drain_ends_after_three_rounds_and_in_linux_by_the_next_departure() {
    for (variant, params) in VARIANTS {
        let mut steps = Steps::new(variant, params);
        (0..4).for_each(|_| steps.ack(true, |_| {}));
        assert_eq!(steps.state(), "Drain");
        (0..3).for_each(|_| steps.ack(true, |_| {}));
        assert_eq!(steps.state(), "Drain");
        steps.ack(true, |_| {});
        if variant == v3::Variant::Draft {
            assert_eq!(steps.state(), "ProbeBW_DOWN");
            continue;
        }
        (0..20).for_each(|_| steps.ack(true, |_| {}));
        // The megabyte takes 0.8 s; the BDP is in flight 40 ms before its end.
        for (departure, state) in [(750, "Drain"), (770, "ProbeBW_DOWN")] {
            steps.ack(true, |ack| ack.next_departure = ack.now + Span::from_millis(departure));
            assert_eq!(steps.state(), state, "{departure} ms");
        }
    }
}

/// A number of up to `bits` bits, all lengths alike.
fn log(random: &mut Random, bits: u32) -> u64 {
    let width = random.below(bits);
    random.next() & ((1 << width) - 1)
}

#[test]
fn on_streams_that_no_path_would_give() {
    for (variant, params) in VARIANTS {
        impossible_streams(variant, params);
    }
}

fn impossible_streams(variant: v3::Variant, params: v3::Params) {
    for seed in 0..64 {
        let mut random = Random(1_000 + seed);
        let smss = 536 + random.below(8500);
        let config = Config { smss, seed, selective_acks: seed % 4 > 0, ..Config::default() };
        let mut both = Both::new(&config, v3::Params { ecn: seed % 2 == 0, ..params }, variant);
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
                        delayed: random.below(3) == 0,
                        recovery,
                        next_departure: now + Span::from_nanos(log(&mut random, 32)),
                    });
                }
            }
        }
    }
}
