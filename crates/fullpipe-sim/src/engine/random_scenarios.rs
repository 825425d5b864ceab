//! Random scenarios: every run ends, and every packet is accounted for.

use super::Simulation;
use super::world::World;
use crate::error::SimError;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::{
    AccessSpec, AckFrequency, After, App, AppWrite, CpuSpec, Direction, FlowRef, FlowSpec, PathSpec,
    Scenario, Start,
};
use fullpipe_path::{LinkSpec, QueueSpec};
use fullpipe_units::{Bytes, Rate};
use proptest::prelude::*;
use proptest::sample::select;

/// Bounds the time per case, not its contents.
const EVENTS: u64 = 60_000;

fn link() -> impl Strategy<Value = LinkSpec> {
    let rates =
        ["", "rate = '0bit'", "rate = '12kbit'", "rate = '1mbit'", "rate = '100mbit'", "rate = '400gbit'"];
    let delays = ["0s", "1ns", "3us", "1ms", "50ms", "5s"];
    let limits = ["'1 bytes'", "'1p'", "'3000 bytes'", "'1bdp'", "'20ms'", "'1000bdp'", "'1000000p'"];
    let kinds: Vec<String> = QueueSpec::kinds().map(|(name, _)| format!("'{name}'")).collect();
    let queues = limits.iter().map(|l| (*l).to_owned()).chain(kinds).collect::<Vec<_>>();
    let losses = ["0%", "0.1%", "5%", "50%", "100%"];
    let extras = [
        "",
        "",
        "",
        "jitter = '3ms'",
        "policer = { rate = '1mbit', burst = '15k' }",
        "blackouts = [{ at = '1s', for = '90s' }]",
        "reorder = { share = '5%', by = '3ms' }",
        "ingress_loss = '2%'",
        "schedule = [{ at = '1s', delay = '200ms' }, { at = '2s', delay = '1ns' }, \
         { at = '3s', delay = '10s' }]",
        "schedule = [{ at = '1s', loss = '100%' }, { at = '100s', loss = '0%' }]",
        "trace = { ms = [1, 1, 7, 300] }",
    ];
    (
        select(rates.to_vec()),
        select(delays.to_vec()),
        select(queues),
        select(losses.to_vec()),
        select(extras.to_vec()),
    )
        .prop_map(|(rate, delay, queue, loss, extra)| {
            let rate = if extra.starts_with("trace") { "" } else { rate };
            let text = format!("{rate}\ndelay = '{delay}'\nqueue = {queue}\nloss = '{loss}'\n{extra}");
            toml::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
        })
}

fn app() -> impl Strategy<Value = App> {
    prop_oneof![
        3 => Just(App::Bulk),
        1 => (1u64..1 << 36, 1u64..1 << 20).prop_map(|(r, chunk)| App::Rate {
            rate: Rate::from_bytes_per_sec(r),
            chunk: Bytes(chunk),
        }),
        1 => (1u64..1 << 24, 1u64..1 << 33).prop_map(|(size, every)| App::Bursts {
            size: Bytes(size),
            every: Span::from_nanos(every),
        }),
        1 => (1u64..1 << 20, 1u64..1 << 24, 0u64..1 << 31).prop_map(|(request, response, think)| {
            App::RequestResponse {
                request: Bytes(request),
                response: Bytes(response),
                think: Span::from_nanos(think),
            }
        }),
        1 => prop::collection::vec((0u64..1 << 31, 1u64..1 << 40), 1..20).prop_map(|pauses_and_bytes| {
            let mut at = Span::ZERO;
            let writes = pauses_and_bytes.into_iter().map(|(pause, bytes)| {
                at += Span::from_nanos(pause);
                AppWrite { at, bytes: Bytes(bytes) }
            });
            App::Writes { writes: writes.collect() }
        }),
    ]
}

fn access() -> impl Strategy<Value = Option<AccessSpec>> {
    let links = [
        "",
        "",
        "delay = '3ms'",
        "rate = '300kbit'",
        "rate = '0bit'",
        "rate = '20mbit'\nqueue = '3p'",
        "rate = '5mbit'\nqueue = 'fq-codel'",
    ];
    select(links.to_vec()).prop_map(|text| (!text.is_empty()).then(|| toml::from_str(text).unwrap()))
}

fn ack_frequency() -> impl Strategy<Value = Option<AckFrequency>> {
    let some = (select(vec![0u32, 1, 9, 1000]), select(vec![1u64, 25, 1000]), select(vec![0u32, 1, 3]))
        .prop_map(|(ack_eliciting_threshold, delay, reordering_threshold)| AckFrequency {
            ack_eliciting_threshold,
            max_ack_delay: Span::from_millis(delay),
            reordering_threshold,
        });
    prop::option::weighted(0.3, some)
}

fn cpu() -> impl Strategy<Value = Option<CpuSpec>> {
    let costs = [(0u64, Some("300mbit")), (700, Some("20gbit")), (40_000, None), (1_000_000_000, None)];
    let some = select(costs.to_vec()).prop_map(|(ns, rate)| CpuSpec {
        per_segment: Span::from_nanos(ns),
        rate: rate.map(|r| r.parse().unwrap()),
    });
    prop::option::weighted(0.3, some)
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![
        4 => select(vec![0u64, 7, 500_000_000]).prop_map(|at| Start::At(Span::from_nanos(at))),
        1 => (select(vec![None, Some(1), Some(50_000)]), select(vec![0u64, 3_000_000])).prop_map(
            |(bytes, delay)| {
                let after = FlowRef::Number(0);
                Start::After(After { after, bytes: bytes.map(Bytes), delay: Span::from_nanos(delay) })
            }
        ),
    ]
}

fn flow() -> impl Strategy<Value = FlowSpec> {
    let names: Vec<&str> = fullpipe_cc::CONTROLLERS.iter().map(|c| c.name).collect();
    let few = (select(names), select(vec![1u32, 10, 3000]), any::<bool>(), any::<bool>());
    let times = (select(vec![0u64, 1, 20_000_000, 3_000_000_000]), start());
    let sizes = (
        select(vec![None, Some(1), Some(100_000), Some(1 << 40)]),
        select(vec![None, Some(200_000), Some(6 << 20)]),
        select(vec![None, Some(140_000)]),
        select(vec![None, Some(9u64)]),
    );
    let ways = (
        access(),
        ack_frequency(),
        any::<(bool, bool)>(),
        select(vec![None, Some(true)]),
        select(vec![None, None, Some(100), Some(1000)]),
        cpu(),
    );
    (few, times, sizes, app(), 1u32..4, ways).prop_map(
        |(
            (cc, initial_window, ecn, reverse),
            (extra, start),
            (size, receive, send, stop),
            app,
            count,
            ways,
        )| {
            let (access, ack_frequency, (paced, auto_tuning), tso, timer_hz, cpu) = ways;
            FlowSpec {
                count,
                initial_window,
                ecn,
                direction: if reverse { Direction::Reverse } else { Direction::Forward },
                extra_rtt: Span::from_nanos(extra),
                start,
                access,
                ack_frequency,
                paced,
                tso,
                timer_hz,
                cpu,
                auto_tuning,
                size: size.map(Bytes),
                receive_buffer: receive.map(Bytes),
                send_buffer: send.map(Bytes),
                stop: stop.map(Span::from_secs),
                app,
                ..FlowSpec::bulk(cc)
            }
        },
    )
}

/// Period of the longest trace of a link.
const LONGEST_TRACE: Span = Span::from_millis(300);

pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    let links = || prop::collection::vec(link(), 0..3);
    let flows = prop::collection::vec(flow(), 1..3);
    (links(), links(), flows, select(vec![68u32, 576, 1500, 65_535]), select(vec![1u64, 10, 300])).prop_map(
        |(forward, reverse, flows, mtu, seconds)| {
            let mut s = Scenario::new(PathSpec { forward, reverse }, flows);
            s.duration = Span::from_secs(seconds);
            s.sample = s.duration / 50;
            s.mtu = mtu;
            s
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    /// Whatever a scenario says, the run ends; every packet of every flow is accounted for at any
    /// time, at the sender, on the path and in the store of SACK blocks; no more arrives than a
    /// direction of the path can carry; and no sender is silent for longer than its timeout allows
    /// while data waits.
    #[test]
    fn no_scenario_breaks_or_hangs_a_run(s in scenario(), seed in any::<u64>()) {
        let result = Simulation::new(&s, seed).max_events(EVENTS).run();
        match result {
            Ok(r) => prop_assert!(r.flows.iter().all(|f| f.summary.goodput_bps.is_finite())),
            Err(e) => {
                let expected = matches!(e, SimError::TooManyEvents { .. } | SimError::Scenario(_));
                prop_assert!(expected, "{e}");
                if matches!(e, SimError::Scenario(_)) {
                    return Ok(());
                }
            }
        }
        let mut world = World::new(&Simulation::new(&s, seed).max_events(EVENTS)).unwrap();
        let mut now = Time::ZERO;
        for audit in 1..=8 {
            let pause = world.max_events / 8 * audit;
            while world.events < pause && world.next() <= world.end && world.flows.unfinished > 0 {
                world.events += 1;
                now = world.next();
                world.step(now);
            }
            let mut dropped = 0;
            for c in &world.flows.connections {
                c.sender.audit();
                dropped += c.recorder.dropped;
                prop_assert!(c.recorder.arrived() + c.recorder.dropped <= c.sender.counts.sent);
                prop_assert!(c.receiver.delivered() >= c.sender.acknowledged());
                prop_assert!(c.sender.counts.arrived <= c.recorder.arrived());
            }
            let mut inside = 0;
            let mut dropped_on_path = 0;
            let ways = [&world.forward, &world.reverse].into_iter().flat_map(|way| way.stats());
            let own = world.flows.connections.iter().filter_map(|c| c.access.as_ref());
            for stats in ways.chain(own.flat_map(|access| access.stats())) {
                inside += stats.inside_packets();
                dropped_on_path += stats.dropped_packets();
            }
            prop_assert!(dropped <= dropped_on_path);
            // What comes out of the path at this very time may not have been handed over yet.
            let at_the_end = world.next() <= now;
            let stored = world.flows.sacks.in_use() as u64;
            prop_assert!(at_the_end || stored <= inside + dropped_on_path + world.in_extra_delay());
            let (sent, arrived): (u64, u64) = world.flows.connections.iter().fold((0, 0), |(s, a), c| {
                (s + c.sender.counts.sent, a + c.recorder.arrived())
            });
            for way in [Direction::Forward, Direction::Reverse] {
                if let Some(rate) = s.highest_rate_in(way) {
                    let flows = world.flows.connections.iter().zip(&world.flows.reversed);
                    let same_way = flows.filter(|(_, reversed)| **reversed == (way == Direction::Reverse));
                    let payload: u64 = same_way.map(|(c, _)| c.receiver.arrived()).sum();
                    // The rate of a trace is its mean: within a period it may deliver all at once.
                    let has_trace = s.path.links(way).iter().any(|link| link.trace.is_some());
                    let period = if has_trace { LONGEST_TRACE } else { Span::ZERO };
                    let most = rate.bytes_in(now.since(Time::ZERO) + period);
                    prop_assert!(payload <= most, "{payload} of {most} at {now:?}");
                }
            }
            if !at_the_end {
                world.flows.connections.iter().for_each(|c| c.sender.audit_silence(now));
            }
            // A loss on the wire is counted when it is decided and reported when the packet would have left.
            let under_way = inside + (dropped_on_path - dropped);
            let missing = sent - arrived - dropped;
            prop_assert!(at_the_end || missing <= under_way, "{sent} {arrived} {dropped} {under_way}");
        }
    }
}

impl World {
    /// Packets in the flows' own delays.
    fn in_extra_delay(&self) -> u64 {
        self.flows.connections.iter().map(|c| c.in_extra_delay() as u64).sum()
    }
}
