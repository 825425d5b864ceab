//! What holds for every path that can be written and every way of driving it.

use std::collections::BTreeMap;

use fullpipe_path::{
    AggregateSpec, BlackoutSpec, BuildContext, CellularSpec, Change, Direction, Distribution, Ecn,
    GilbertElliottSpec, JitterSpec, Limit, LinkSpec, ListSpec, LossSpec, Outcome, Packet, Path, PolicerSpec,
    QueueSpec, ReorderSpec, ScheduledChange, Trace, TraceSpec,
};
use fullpipe_units::{Bytes, Fraction, Rate, Span, Time};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// What became of a packet, without its data.
type Fate = (Time, u32, Option<&'static str>, Ecn);

fn span(max: u64) -> impl Strategy<Value = Span> {
    prop_oneof![Just(Span::ZERO), Just(Span::from_nanos(1)), (0..max).prop_map(Span::from_nanos)]
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        Just(Rate::ZERO),
        Just(Rate::from_bytes_per_sec(1)),
        Just(Rate::from_bits_per_sec(400_000_000_000)),
        Just(Rate::from_bits_per_sec(1_000_000_000_000_000)),
        (1_000u64..10_000_000_000).prop_map(Rate::from_bits_per_sec),
    ]
}

fn share() -> impl Strategy<Value = Fraction> {
    prop_oneof![
        Just(Fraction::ZERO),
        Just(Fraction::ONE),
        (0u32..200_000_000).prop_map(Fraction::from_billionths)
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (0u64..200_000).prop_map(Limit::Bytes),
        (0u64..200).prop_map(Limit::Packets),
        span(1_000_000_000).prop_map(Limit::Time),
        (0.0..4.0).prop_map(Limit::Bdp),
        Just(Limit::Bytes(1)),
        Just(Limit::Bdp(1e300)),
    ]
}

fn queue() -> impl Strategy<Value = QueueSpec> {
    let kinds: Vec<String> = QueueSpec::kinds().map(|(name, _)| name).collect();
    (proptest::sample::select(kinds), limit(), any::<bool>()).prop_map(|(kind, limit, ecn)| {
        let mut table = format!("kind = '{kind}'\nlimit = '{limit}'\n");
        if !matches!(kind.as_str(), "drop-tail" | "fq") {
            table += &format!("ecn = {ecn}\n");
        }
        toml::from_str(&table).expect("a queue")
    })
}

fn loss() -> impl Strategy<Value = LossSpec> {
    prop_oneof![
        share().prop_map(LossSpec::from),
        (share(), share()).prop_map(|(p, r)| LossSpec::GilbertElliott(GilbertElliottSpec {
            p: Some(p),
            r: Some(r),
            ..GilbertElliottSpec::default()
        })),
        vec(1u64..300, 1..20).prop_map(|packets| LossSpec::List(ListSpec { packets, ..ListSpec::default() })),
        (1u64..50).prop_map(|n| LossSpec::List(ListSpec { every: Some(n), ..ListSpec::default() })),
    ]
}

fn change() -> impl Strategy<Value = ScheduledChange> {
    (span(2_000_000_000), option::of(span(100_000_000)), option::of(rate()), option::of(span(300_000_000)))
        .prop_map(|(at, over, rate, delay)| ScheduledChange { at, over, rate, delay, loss: None })
}

fn blackout() -> impl Strategy<Value = BlackoutSpec> {
    (span(1_000_000_000), span(500_000_000), option::of(span(900_000_000)), any::<bool>()).prop_map(
        |(at, length, pause, hold)| {
            // Sometimes the pause is too short to be allowed.
            let every = pause.map(|pause| length + pause);
            BlackoutSpec { at, r#for: length, every, hold }
        },
    )
}

fn jitter() -> impl Strategy<Value = JitterSpec> {
    let distribution =
        prop_oneof![Just(Distribution::Uniform), Just(Distribution::Normal), Just(Distribution::Pareto)];
    (span(50_000_000), distribution, any::<bool>()).prop_map(|(spread, distribution, reorder)| JitterSpec {
        spread,
        distribution,
        reorder,
    })
}

fn aggregate() -> impl Strategy<Value = AggregateSpec> {
    let max_bytes = option::of(9000u64..100_000);
    (any::<bool>(), span(50_000_000), option::of(1u32..20), max_bytes, option::of(1u32..5)).prop_map(
        |(hold, time, max, max_bytes, thin)| AggregateSpec {
            hold: hold.then_some(time),
            every: (!hold).then_some(time),
            max,
            max_bytes: max_bytes.map(Bytes),
            thin,
        },
    )
}

/// How fast a link is.
#[derive(Clone, Debug)]
enum Speed {
    None,
    Rate(Rate, Vec<ScheduledChange>),
    Trace(Vec<u64>),
    Cellular(CellularSpec),
}

fn speed() -> impl Strategy<Value = Speed> {
    prop_oneof![
        Just(Speed::None),
        (rate(), vec(change(), 0..4)).prop_map(|(rate, schedule)| Speed::Rate(rate, schedule)),
        vec(0u64..60, 1..40).prop_map(|mut ms| {
            ms.sort_unstable();
            Speed::Trace(ms)
        }),
        (rate(), rate(), span(200_000_000)).prop_map(|(min, max, interval)| Speed::Cellular(CellularSpec {
            min,
            max,
            interval
        })),
    ]
}

/// Any link, including ones that cannot be built.
fn link() -> impl Strategy<Value = LinkSpec> {
    let front = (
        speed(),
        option::of(queue()),
        option::of(loss()),
        option::weighted(0.1, loss()),
        option::weighted(0.1, (rate(), 0u64..100_000)),
        option::weighted(0.3, blackout()),
    );
    let line = (
        span(300_000_000),
        option::weighted(0.2, jitter()),
        option::weighted(0.2, (share(), span(50_000_000))),
        option::weighted(0.2, aggregate()),
    );
    (front, line).prop_map(|((speed, queue, loss, ingress_loss, policer, blackouts), line)| {
        let (delay, jitter, reorder, aggregate) = line;
        let mut link = LinkSpec {
            delay,
            jitter,
            reorder: reorder.map(|(share, by)| ReorderSpec { share, by }),
            aggregate,
            loss,
            ingress_loss,
            policer: policer.map(|(rate, burst)| PolicerSpec {
                rate,
                burst: Bytes(burst),
                initial: None,
                from: None,
            }),
            blackouts: blackouts.into_iter().collect(),
            ..LinkSpec::default()
        };
        match speed {
            Speed::None => return link,
            Speed::Rate(rate, schedule) => (link.rate, link.schedule) = (Some(rate), schedule),
            Speed::Trace(ms) => link.trace = Some(TraceSpec::Inline(Trace { ms })),
            Speed::Cellular(cellular) => link.cellular = Some(cellular),
        }
        link.queue = queue;
        link
    })
}

/// A packet: time since the one before, flow, bytes, ECN-capable, pure acknowledgement.
type Arrival = (u64, u32, u32, bool, bool);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![Just(0u64), 0u64..1_000_000, 0u64..20_000_000];
    let bytes = prop_oneof![Just(1500u32), Just(52), Just(1), 1u32..70_000];
    vec((gap, 0u32..5, bytes, any::<bool>(), any::<bool>()), 1..200)
}

/// The chain of these links, if it can be built.
fn build(links: &[LinkSpec], seed: u64) -> Option<Path<u32>> {
    let ctx = BuildContext::for_path(links, &[], Direction::Forward, 1500, seed);
    match Path::new(links, &ctx) {
        Ok(chain) => Some(chain),
        Err(e) => {
            assert!(e.link < links.len() && !e.key.is_empty() && e.reason.len() > 10, "{e}");
            None
        }
    }
}

/// When and how the engine calls.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Style {
    /// At every event, before the next packet.
    Prompt,
    /// Once after each packet, at its time.
    Sloppy,
    /// All packets first.
    Late,
}

/// Pushes the packets, then lets a minute pass. Packets are numbered in order.
fn drive(chain: &mut Path<u32>, arrivals: &[Arrival], style: Style) -> Vec<Fate> {
    let mut fates = Vec::new();
    let mut sink = |at: Time, outcome: Outcome<u32>| {
        fates.push(match outcome {
            Outcome::Delivered(p) => (at, p.data, None, p.ecn),
            Outcome::Dropped(p, cause) => (at, p.data, Some(cause.name()), p.ecn),
        });
    };
    let mut now = Time::ZERO;
    let mut events = 0u32;
    let mut prompt = |chain: &mut Path<u32>, until: Time, sink: &mut dyn FnMut(Time, Outcome<u32>)| {
        while chain.next_event() <= until && chain.next_event() != Time::NEVER {
            chain.advance(chain.next_event(), &mut |at, outcome| sink(at, outcome));
            events += 1;
            // Cellular grants and blackouts come at most once or twice in a millisecond.
            assert!(events < 200_000, "no end of events");
        }
    };
    for (number, &(gap, flow, bytes, ect, pure_ack)) in arrivals.iter().enumerate() {
        now += Span::from_nanos(gap);
        if style == Style::Prompt {
            prompt(chain, now, &mut sink);
        }
        let ecn = if ect { Ecn::Ect0 } else { Ecn::NotEct };
        chain.push(now, Packet { ecn, pure_ack, ..Packet::new(flow, bytes, number as u32) });
        if style == Style::Sloppy {
            chain.advance(now, &mut sink);
        }
    }
    let end = now + Span::from_secs(60);
    if style == Style::Prompt {
        prompt(chain, end, &mut sink);
    }
    chain.advance(end, &mut sink);
    fates
}

fn delivered(fates: &[Fate]) -> Vec<(Time, u32)> {
    fates.iter().filter(|fate| fate.2.is_none()).map(|fate| (fate.0, fate.1)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_delivered_dropped_or_inside(
        links in vec(link(), 0..4), arrivals in arrivals(), seed: u64,
    ) {
        let Some(mut chain) = build(&links, seed) else { return Ok(()) };
        let fates = drive(&mut chain, &arrivals, Style::Prompt);
        let mut seen = BTreeMap::new();
        for (_, number, cause, _) in &fates {
            prop_assert!(seen.insert(*number, *cause).is_none(), "packet {} came out twice", number);
        }
        let inside: u64 = chain.stats().map(|stats| stats.inside_packets()).sum();
        prop_assert_eq!(seen.len() as u64 + inside, arrivals.len() as u64);
        // Each link hands on to the next what it delivers.
        let mut handed_on = arrivals.len() as u64;
        for stats in chain.stats() {
            prop_assert_eq!(stats.arrived_packets, handed_on);
            handed_on = stats.delivered_packets;
            prop_assert!(stats.queue_packets <= stats.inside_packets());
        }
        prop_assert_eq!(handed_on, delivered(&fates).len() as u64);
        let dropped: u64 = chain.stats().map(|stats| stats.dropped_packets()).sum();
        prop_assert_eq!(dropped, fates.len() as u64 - handed_on);
    }

    #[test]
    fn the_same_seed_gives_the_same_outcomes(links in vec(link(), 1..3), arrivals in arrivals(), seed: u64) {
        let (Some(mut a), Some(mut b)) = (build(&links, seed), build(&links, seed)) else { return Ok(()) };
        prop_assert_eq!(drive(&mut a, &arrivals, Style::Prompt), drive(&mut b, &arrivals, Style::Prompt));
    }

    #[test]
    fn outcomes_do_not_depend_on_when_the_engine_calls(
        links in vec(link(), 1..3), arrivals in arrivals(), seed: u64,
    ) {
        let Some(mut prompt) = build(&links, seed) else { return Ok(()) };
        let fates = drive(&mut prompt, &arrivals, Style::Prompt);
        for style in [Style::Sloppy, Style::Late] {
            let mut chain = build(&links, seed).expect("built before");
            prop_assert_eq!(drive(&mut chain, &arrivals, style), fates.clone(), "{:?}", style);
        }
    }

    #[test]
    fn outcomes_are_reported_in_order_and_announced(
        links in vec(link(), 1..3), arrivals in arrivals(), seed: u64,
    ) {
        let Some(mut chain) = build(&links, seed) else { return Ok(()) };
        let mut now = Time::ZERO;
        let mut latest = Time::ZERO;
        for (number, &(gap, flow, bytes, _, pure_ack)) in arrivals.iter().enumerate() {
            now += Span::from_nanos(gap);
            // Half a gap early nothing may arrive that was not announced.
            let announced = chain.next_event();
            let mut early = Vec::new();
            chain.advance(now, &mut |at, outcome| early.push((at, matches!(outcome, Outcome::Delivered(_)))));
            for (at, arrived) in early {
                prop_assert!(at >= latest && at <= now);
                prop_assert!(
                    !arrived || at >= announced,
                    "arrived at {:?}, announced for {:?}",
                    at,
                    announced
                );
                latest = at;
            }
            prop_assert!(chain.next_event() > now, "what was due has been done");
            chain.push(now, Packet { pure_ack, ..Packet::new(flow, bytes, number as u32) });
        }
    }

    #[test]
    fn a_link_without_jitter_and_reordering_keeps_the_order_of_a_flow(
        links in vec(link(), 1..4), arrivals in arrivals(), seed: u64,
    ) {
        let plain: Vec<LinkSpec> = links
            .into_iter()
            .map(|mut link| {
                link.reorder = None;
                link.jitter = link.jitter.map(|jitter| JitterSpec { reorder: false, ..jitter });
                link
            })
            .collect();
        let Some(mut chain) = build(&plain, seed) else { return Ok(()) };
        let mut latest = BTreeMap::new();
        for (_, number) in delivered(&drive(&mut chain, &arrivals, Style::Prompt)) {
            let flow = arrivals[number as usize].1;
            if let Some(before) = latest.insert(flow, number) {
                prop_assert!(before < number, "{} after {}", number, before);
            }
        }
    }

    #[test]
    fn changes_from_outside_never_lose_a_packet(
        link in link(),
        arrivals in arrivals(),
        changes in vec((rate(), span(300_000_000), share()), 1..10),
        seed: u64,
    ) {
        let Some(mut chain) = build(std::slice::from_ref(&link), seed) else { return Ok(()) };
        let mut now = Time::ZERO;
        let mut fates = 0u64;
        for (number, &(gap, flow, bytes, ..)) in arrivals.iter().enumerate() {
            now += Span::from_nanos(gap);
            let (rate, delay, loss) = changes[number % changes.len()];
            let change = Change { link: 0, rate: Some(rate), delay: Some(delay), loss: Some(loss) };
            let applies = chain.check(&change);
            if let Err(e) = applies {
                prop_assert!(e.key == "rate" || e.key == "loss");
            }
            chain.apply(now, &change);
            chain.push(now, Packet::new(flow, bytes, number as u32));
        }
        chain.advance(now + Span::from_secs(60), &mut |_, _| fates += 1);
        let inside: u64 = chain.stats().map(|stats| stats.inside_packets()).sum();
        prop_assert_eq!(fates + inside, arrivals.len() as u64);
    }

    #[test]
    fn the_end_of_time_does_not_panic(
        links in vec(link(), 1..3), arrivals in arrivals(), seed: u64, before in 0u64..1 << 40,
    ) {
        let Some(mut chain) = build(&links, seed) else { return Ok(()) };
        let mut now = Time::from_nanos(u64::MAX - before);
        let mut fates = 0u64;
        for (number, &(gap, flow, bytes, ..)) in arrivals.iter().enumerate() {
            now += Span::from_nanos(gap);
            chain.push(now, Packet::new(flow, bytes, number as u32));
            chain.advance(now, &mut |_, _| fates += 1);
        }
        chain.advance(Time::NEVER, &mut |_, _| fates += 1);
        let inside: u64 = chain.stats().map(|stats| stats.inside_packets()).sum();
        prop_assert_eq!(fates + inside, arrivals.len() as u64);
    }

    #[test]
    fn a_link_survives_a_round_trip(link in link()) {
        let json = serde_json::to_string(&link).unwrap();
        prop_assert_eq!(&serde_json::from_str::<LinkSpec>(&json).unwrap(), &link);
        prop_assert_eq!(&toml::from_str::<LinkSpec>(&toml::to_string(&link).unwrap()).unwrap(), &link);
    }

    #[test]
    fn a_drop_tail_link_is_the_virtual_time_formula(
        kbit in 1u64..1_000_000,
        delay in span(100_000_000),
        limit in 0u64..100_000,
        arrivals in arrivals(),
    ) {
        let rate = Rate::from_bits_per_sec(kbit * 1000);
        let link = LinkSpec {
            rate: Some(rate),
            delay,
            queue: Some(QueueSpec::from(Limit::Bytes(limit))),
            ..LinkSpec::default()
        };
        let mut chain = build(&[link], 1).expect("a plain link");
        let fates = drive(&mut chain, &arrivals, Style::Prompt);
        // departure = max(arrival, last departure) + length/rate, in units of 1/rate ns: exact.
        let unit = u128::from(rate.as_bytes_per_sec());
        let (mut now, mut last) = (0u128, 0u128);
        let mut sent: Vec<(u128, u64)> = Vec::new();
        let mut expected = Vec::new();
        for (number, &(gap, _, bytes, ..)) in arrivals.iter().enumerate() {
            now += u128::from(gap);
            // What is still there: the first is being sent, the others wait.
            let there: Vec<u64> =
                sent.iter().filter(|(end, _)| end / unit > now).map(|(_, bytes)| *bytes).collect();
            let waiting: u64 = there.iter().skip(1).sum();
            if !there.is_empty() && waiting + u64::from(bytes) > limit {
                continue;
            }
            let start = if there.is_empty() { now * unit } else { last };
            last = start + u128::from(bytes) * 1_000_000_000;
            sent.push((last, u64::from(bytes)));
            expected.push((Time::from_nanos((last / unit) as u64) + delay, number as u32));
        }
        let mut got = delivered(&fates);
        prop_assert_eq!(got.len(), expected.len());
        for (got, expected) in got.drain(..).zip(expected) {
            prop_assert_eq!(got.1, expected.1);
            // The crate's reciprocal is rounded up by less than 2⁻⁶⁴ of a nanosecond a byte.
            let difference = got.0.as_nanos().abs_diff(expected.0.as_nanos());
            prop_assert!(difference == 0, "packet {}: {} ns", got.1, difference);
        }
    }
}

/// The properties say nothing about links that cannot be built: enough of them must be.
#[test]
fn at_least_half_of_the_random_links_are_valid() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let built =
        (0..1000).filter(|_| build(&[link().new_tree(&mut runner).unwrap().current()], 1).is_some()).count();
    assert!(built > 500, "{built} of 1000");
}
