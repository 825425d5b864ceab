//! What links do, seen from outside: written as a scenario file writes them, packets in, fates out.

use fullpipe_path::{BuildContext, Change, Direction, DropCause, LinkSpec, Outcome, Packet, Path};
use fullpipe_units::{Rate, Span, Time};

fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_millis(n)
}

fn us(n: u64) -> Time {
    Time::ZERO + Span::from_micros(n)
}

fn chain(links: &[&str]) -> Path<u32> {
    let links: Vec<LinkSpec> = links.iter().map(|text| toml::from_str(text).unwrap()).collect();
    Path::new(&links, &BuildContext::for_path(&links, &[], Direction::Forward, 1500, 7)).unwrap()
}

/// When each packet arrived, and which were dropped why.
#[derive(Default, Debug)]
struct Log {
    arrived: Vec<(Time, u32)>,
    dropped: Vec<(Time, u32, DropCause)>,
}

impl Log {
    fn advance(&mut self, chain: &mut Path<u32>, now: Time) {
        chain.advance(now, &mut |at, outcome| match outcome {
            Outcome::Delivered(packet) => self.arrived.push((at, packet.data)),
            Outcome::Dropped(packet, cause) => self.dropped.push((at, packet.data, cause)),
        });
    }

    /// Mean rate of 1500-byte packets that arrived between two times.
    fn rate(&self, from: Time, to: Time) -> f64 {
        let n = self.arrived.iter().filter(|(at, _)| *at > from && *at <= to).count();
        n as f64 * 1500.0 * 8.0 / to.since(from).as_secs_f64()
    }
}

/// Sends `rate` packets of 1500 bytes a millisecond, evenly, for so long, and lets all arrive.
fn send(chain: &mut Path<u32>, per_ms: u64, from_ms: u64, to_ms: u64, log: &mut Log) {
    for i in from_ms * per_ms..to_ms * per_ms {
        let at = us(i * 1000 / per_ms);
        log.advance(chain, at);
        chain.push(at, Packet::new(0, 1500, i as u32));
    }
}

#[test]
fn a_buffer_of_one_bdp_holds_one_bdp() {
    // 12 Mbit/s and 2 · 25 ms: 75 000 bytes, 50 packets.
    let forward: LinkSpec = toml::from_str("rate = '12mbit'\ndelay = '25ms'\nqueue = '1bdp'").unwrap();
    let back: LinkSpec = toml::from_str("delay = '25ms'").unwrap();
    let forward = [forward];
    let ctx = BuildContext::for_path(&forward, &[back], Direction::Forward, 1500, 1);
    assert_eq!(ctx.bdp(), 75_000);
    let mut chain = Path::new(&forward, &ctx).unwrap();
    for i in 0..60 {
        chain.push(Time::ZERO, Packet::new(0, 1500, i));
    }
    let mut log = Log::default();
    log.advance(&mut chain, Time::ZERO);
    let stats = chain.stats().next().unwrap();
    assert_eq!(
        (stats.queue_bytes, stats.max_queue_bytes, stats.queue_delay()),
        (75_000, 75_000, Span::from_millis(50))
    );
    log.advance(&mut chain, ms(1000));
    // One was being sent, 50 waited.
    assert_eq!((log.arrived.len(), log.dropped.len()), (51, 9));
    assert_eq!(log.arrived[50].0, ms(51 + 25));
}

#[test]
fn wire_loss_uses_capacity_and_ingress_loss_does_not() {
    // Twice the rate is offered; half of it is lost.
    let mut on_wire = chain(&["rate = '12mbit'\nqueue = '10p'\nloss = { kind = 'list', every = 2 }"]);
    let mut before = chain(&["rate = '12mbit'\nqueue = '10p'\ningress_loss = { kind = 'list', every = 2 }"]);
    for (chain, expected) in [(&mut on_wire, 6e6), (&mut before, 12e6)] {
        let mut log = Log::default();
        send(chain, 2, 0, 2000, &mut log);
        let rate = log.rate(ms(100), ms(1900));
        assert!((rate / expected - 1.0).abs() < 0.01, "{rate} {expected}");
        assert!(log.dropped.iter().any(|(.., cause)| *cause == DropCause::Loss));
    }
}

#[test]
fn a_rate_change_applies_to_queued_packets_at_once() {
    let mut chain = chain(&["rate = '12mbit'\nqueue = '1m'\nschedule = [
        { at = '1s', rate = '24mbit' }, { at = '2s', rate = '6mbit' }, { at = '3s', rate = 0 }, \
        { at = '4s', rate = '12mbit' }]"]);
    let mut log = Log::default();
    send(&mut chain, 2, 0, 3000, &mut log);
    log.advance(&mut chain, ms(20_000));
    for (from, to, expected) in
        [(0, 1000, 12e6), (1000, 2000, 24e6), (2000, 3000, 6e6), (3000, 4000, 0.0), (4000, 4500, 12e6)]
    {
        let rate = log.rate(ms(from), ms(to));
        assert!((rate - expected).abs() <= 24_000.0, "{from} ms: {rate} instead of {expected}");
    }
}

#[test]
fn a_shorter_delay_does_not_let_packets_overtake() {
    let mut chain = chain(&[
        "delay = '100ms'\nschedule = [{ at = '50ms', delay = '10ms' }, { at = '200ms', delay = '60ms' }]",
    ]);
    for (i, at) in [0, 40, 49, 50, 95, 130, 199, 200].into_iter().enumerate() {
        chain.push(ms(at), Packet::new(0, 1500, i as u32));
    }
    let mut log = Log::default();
    log.advance(&mut chain, ms(1000));
    let arrivals: Vec<u64> = log.arrived.iter().map(|(at, _)| at.as_nanos() / 1_000_000).collect();
    assert_eq!(arrivals, [100, 140, 149, 149, 149, 149, 209, 260]);
    assert!(log.arrived.iter().enumerate().all(|(i, (_, number))| *number == i as u32));
}

#[test]
fn a_blackout_loses_or_holds_packets() {
    let mut losing = chain(&["rate = '12mbit'\nblackouts = [{ at = '100ms', for = '200ms' }]\nqueue = '1m'"]);
    let mut log = Log::default();
    send(&mut losing, 1, 0, 500, &mut log);
    log.advance(&mut losing, ms(1000));
    assert_eq!(log.dropped.len(), 200);
    assert!(
        log.dropped
            .iter()
            .all(|&(at, _, cause)| cause == DropCause::Blackout && at >= ms(100) && at < ms(300))
    );

    let mut holding =
        chain(&["rate = '12mbit'\nblackouts = [{ at = '100ms', for = '200ms', hold = true }]\nqueue = '1m'"]);
    let mut log = Log::default();
    send(&mut holding, 1, 0, 500, &mut log);
    assert_eq!(holding.stats().next().unwrap().max_queue_packets, 200);
    log.advance(&mut holding, ms(2000));
    assert_eq!((log.arrived.len(), log.dropped.len()), (500, 0));
    assert!(!log.arrived.iter().any(|&(at, _)| at > ms(100) && at <= ms(300)));
}

#[test]
fn a_minutes_blackout_is_survived() {
    let mut chain =
        chain(&["rate = '12mbit'\nblackouts = [{ at = '1s', for = '5min', hold = true }]\nqueue = '1m'"]);
    chain.push(ms(2000), Packet::new(0, 1500, 0));
    assert_eq!(chain.next_event(), ms(301_000), "the end of the blackout");
    let mut log = Log::default();
    log.advance(&mut chain, ms(400_000));
    assert_eq!(log.arrived, [(ms(301_001), 0)]);
}

#[test]
fn a_policed_flow_gets_its_burst_and_then_the_rate() {
    let mut chain = chain(&["rate = '120mbit'\npolicer = { rate = '12mbit', burst = 150000 }"]);
    let mut log = Log::default();
    send(&mut chain, 4, 0, 3000, &mut log);
    log.advance(&mut chain, ms(4000));
    let first = log.dropped[0];
    // 150 kB of tokens at 48 − 12 Mbit/s last 33 ms.
    assert_eq!(first.2, DropCause::Policer);
    assert!((33.0 - first.0.as_secs_f64() * 1e3).abs() < 1.0, "{first:?}");
    let rate = log.rate(ms(100), ms(2900));
    assert!((rate / 12e6 - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn a_cellular_link_grants_more_only_to_flows_that_queue() {
    let text = "cellular = { min = '1.2mbit', max = '24mbit', interval = '50ms' }\nqueue = '10m'";
    // At the granted rate exactly nothing changes: 1 packet in 10 ms.
    let mut polite = chain(&[text]);
    let mut log = Log::default();
    for i in 0..500u64 {
        log.advance(&mut polite, ms(i * 10));
        polite.push(ms(i * 10), Packet::new(0, 1500, i as u32));
    }
    let stuck = polite.stats().next().unwrap().rate;
    assert!(stuck <= Rate::from_bits_per_sec(1_500_000), "{stuck}");
    // A sender of a quarter more than it got, as BBR probes, climbs to the top.
    let mut probing = chain(&[text]);
    let mut log = Log::default();
    let (mut now, mut number) = (0u64, 0u32);
    for _ in 0..200 {
        let granted = probing.stats().next().unwrap().rate.as_bytes_per_sec();
        let packets = granted * 5 / 4 * 50 / 1000 / 1500 + 1;
        for i in 0..packets {
            let at = us(now * 1000 + i * 50_000 / packets);
            log.advance(&mut probing, at);
            probing.push(at, Packet::new(0, 1500, number));
            number += 1;
        }
        now += 50;
    }
    assert_eq!(probing.stats().next().unwrap().rate, Rate::from_bits_per_sec(24_000_000));
}

#[test]
fn a_recorded_link_delivers_at_its_opportunities() {
    // Two packets in each third millisecond: 8 Mbit/s.
    let mut chain = chain(&["trace = { ms = [3, 3] }\ndelay = '10ms'\nqueue = '10p'"]);
    let mut log = Log::default();
    send(&mut chain, 1, 0, 3000, &mut log);
    let rate = log.rate(ms(300), ms(2900));
    assert!((rate / 8e6 - 1.0).abs() < 0.01, "{rate}");
    assert!(log.arrived.iter().all(|(at, _)| (at.as_nanos() / 1_000_000 - 10) % 3 == 0));
    assert_eq!(chain.stats().next().unwrap().rate, Rate::from_bits_per_sec(8_000_000));
}

#[test]
fn acknowledgements_are_aggregated_and_thinned() {
    let mut chain = chain(&["delay = '5ms'\naggregate = { hold = '20ms', thin = 4 }"]);
    for i in 0..40u32 {
        chain.push(ms(u64::from(i)), Packet { pure_ack: true, ..Packet::new(0, 52, i) });
    }
    let mut log = Log::default();
    log.advance(&mut chain, ms(1000));
    // The first burst opens at 5 ms and takes what arrives until 25 ms, 0 to 20; the next 21 to 39.
    let bursts: Vec<(u64, u32)> = log.arrived.iter().map(|(at, n)| (at.as_nanos() / 1_000_000, *n)).collect();
    let first = [3, 7, 11, 15, 19, 20].map(|n| (25, n));
    let second = [24, 28, 32, 36, 39].map(|n| (46, n));
    assert_eq!(bursts, [&first[..], &second].concat());
    assert!(log.dropped.iter().all(|(.., cause)| *cause == DropCause::Thinned));
    assert_eq!(log.dropped.len() + log.arrived.len(), 40);
}

#[test]
fn reordered_packets_are_overtaken_and_no_others() {
    let mut chain = chain(&["delay = '10ms'\nreorder = { share = '10%', by = '5ms' }"]);
    let mut log = Log::default();
    send(&mut chain, 1, 0, 2000, &mut log);
    log.advance(&mut chain, ms(3000));
    let late =
        log.arrived.iter().filter(|(at, n)| at.since(ms(u64::from(*n))) == Span::from_millis(15)).count();
    let on_time =
        log.arrived.iter().filter(|(at, n)| at.since(ms(u64::from(*n))) == Span::from_millis(10)).count();
    assert_eq!(late + on_time, 2000);
    // Four standard deviations of a binomial of 2000 and 10 %.
    assert!(late.abs_diff(200) < 54, "{late}");
    assert!(log.arrived.windows(2).any(|w| w[1].1 < w[0].1));
}

#[test]
fn jitter_keeps_the_order_by_default() {
    for (reorder, ordered) in [(false, true), (true, false)] {
        let mut chain =
            chain(&[&format!("delay = '20ms'\njitter = {{ spread = '10ms', reorder = {reorder} }}")]);
        let mut log = Log::default();
        send(&mut chain, 1, 0, 1000, &mut log);
        log.advance(&mut chain, ms(2000));
        assert_eq!(log.arrived.len(), 1000);
        assert_eq!(log.arrived.windows(2).all(|w| w[0].1 < w[1].1), ordered);
    }
}

#[test]
fn the_slowest_link_sets_the_rate_and_delays_add_up() {
    let mut chain = chain(&[
        "rate = '120mbit'\ndelay = '3ms'",
        "rate = '12mbit'\ndelay = '5ms'\nqueue = '1m'",
        "rate = '24mbit'\ndelay = '7ms'",
    ]);
    for i in 0..10 {
        chain.push(Time::ZERO, Packet::new(0, 1500, i));
    }
    let mut log = Log::default();
    log.advance(&mut chain, ms(1000));
    for (i, (at, _)) in log.arrived.iter().enumerate() {
        // 0.1 + 1·(i + 1) + 0.5 ms of sending.
        assert_eq!(*at, us(100 + 3000 + 1000 * (i as u64 + 1) + 5000 + 500 + 7000));
    }
    let queues: Vec<u64> = chain.stats().map(|stats| stats.max_queue_packets).collect();
    assert_eq!(queues, [9, 9, 0]);
}

#[test]
fn a_late_reader_changes_neither_queueing_nor_delay() {
    // Arrivals each millisecond on a link that takes 1 ms a packet, read up to 40 ms late.
    let text = "rate = '12mbit'\ndelay = '5ms'";
    let mut chain = chain(&[text]);
    let mut log = Log::default();
    let mut wall = 0;
    for i in 0..1000u64 {
        chain.push(ms(i), Packet::new(0, 1500, i as u32));
        if i % 7 == 3 {
            wall = wall.max(i + 40);
            log.advance(&mut chain, ms(wall));
        }
    }
    log.advance(&mut chain, ms(5000));
    assert_eq!(log.arrived.len(), 1000);
    assert!(log.arrived.iter().all(|(at, n)| *at == ms(u64::from(*n) + 6)));
}

#[test]
fn aqms_limit_the_delay_of_an_overload_where_drop_tail_fills_the_buffer() {
    // A tenth more than 12 Mbit/s, from a sender that never slows down; a packet is a millisecond.
    let standing = |queue: &str| {
        let mut chain = chain(&[&format!("rate = '12mbit'\nqueue = {{ kind = '{queue}', limit = '500p' }}")]);
        let mut log = Log::default();
        let mut lengths = Vec::new();
        for i in 0..44_000u64 {
            let at = us(i * 10_000 / 11);
            log.advance(&mut chain, at);
            chain.push(at, Packet::new(0, 1500, i as u32));
            if at > ms(20_000) {
                lengths.push(chain.stats().next().unwrap().queue_packets);
            }
        }
        let rate = log.rate(ms(1000), ms(39_000));
        assert!((rate / 12e6 - 1.0).abs() < 0.01, "{queue} wastes capacity: {rate}");
        lengths.iter().sum::<u64>() / lengths.len() as u64
    };
    assert!(standing("drop-tail") > 490, "{}", standing("drop-tail"));
    // PIE steers to 15 ms; CoDel to 5 ms, but it must find its drop rate again and again.
    for (queue, most) in [("pie", 25), ("fq-pie", 25), ("codel", 50), ("fq-codel", 50)] {
        let length = standing(queue);
        assert!((3..most).contains(&length), "{queue}: {length} ms");
    }
}

#[test]
fn fair_queues_protect_a_sparse_flow_from_a_bulk_flow() {
    // Of a flow that sends one packet in 50 ms beside one that fills the buffer: the longest delay.
    let worst = |queue: &str| {
        let mut chain = chain(&[&format!("rate = '12mbit'\nqueue = {{ kind = '{queue}', limit = '200p' }}")]);
        let mut worst = Span::ZERO;
        for i in 0..8000u64 {
            let at = us(i * 500);
            chain.advance(at, &mut |at, outcome| {
                if let Outcome::Delivered(packet) = outcome
                    && packet.flow == 1
                {
                    worst = worst.max(at.since(us(u64::from(packet.data))));
                }
            });
            chain.push(at, Packet::new(0, 1500, 0));
            if i % 100 == 50 {
                chain.push(at, Packet::new(1, 100, (i * 500) as u32));
            }
        }
        worst
    };
    assert!(worst("drop-tail") > Span::from_millis(150), "{}", worst("drop-tail"));
    for fair in ["fq", "fq-codel", "fq-pie"] {
        assert!(worst(fair) < Span::from_millis(3), "{fair}: {}", worst(fair));
    }
}

#[test]
fn the_engine_can_change_a_link_or_gets_an_error() {
    let mut plain = chain(&["rate = '12mbit'\ndelay = '5ms'"]);
    let change = Change {
        link: 0,
        rate: Some("120mbit".parse().unwrap()),
        delay: Some(Span::from_millis(1)),
        loss: Some("100%".parse().unwrap()),
    };
    assert_eq!(plain.check(&change), Ok(()));
    plain.push(Time::ZERO, Packet::new(0, 1500, 0));
    plain.apply(us(500), &Change { loss: None, ..change });
    plain.push(ms(1), Packet::new(0, 1500, 1));
    plain.apply(ms(1), &Change { link: 0, loss: change.loss, ..Change::default() });
    let mut log = Log::default();
    log.advance(&mut plain, ms(100));
    // Half a packet at a tenth of the time: 0.5 + 0.05 + 1 ms.
    assert_eq!(log.arrived, [(us(1550), 0)]);
    assert_eq!(log.dropped, [(us(1100), 1, DropCause::Loss)]);

    let error = |links: &[&str], change: &Change| chain(links).check(change).unwrap_err().to_string();
    assert!(error(&["delay = '1ms'"], &change).contains("`rate`"));
    assert!(error(&["rate = '1mbit'\nloss = { kind = 'list', every = 3 }"], &change).contains("`loss`"));
    assert!(error(&[], &change).contains("no such link"));
}

#[test]
fn invalid_links_are_refused_with_the_key_and_a_remedy() {
    let error = |text: &str| {
        let links = [toml::from_str::<LinkSpec>(text).unwrap_or_else(|e| panic!("{text}: {e}"))];
        let ctx = BuildContext::for_path(&links, &[], Direction::Forward, 1500, 1);
        Path::<()>::new(&links, &ctx).err().unwrap_or_else(|| panic!("{text} was built")).to_string()
    };
    for (text, key, way_out) in [
        ("queue = '64k'", "`queue`", "add one"),
        ("rate = '1mbit'\ntrace = { ms = [1] }", "`rate`", "remove one"),
        ("trace = { ms = [1] }\ncellular = { min = '1mbit', max = '2mbit' }", "`trace`", "remove one"),
        ("trace = 'cell.trace'", "`trace`", "load_trace"),
        ("trace = { ms = [] }", "`trace`", "at least one line"),
        ("trace = { ms = [0] }", "`trace`", "greater than 0"),
        (
            "delay = '1ms'\nschedule = [{ at = '1s', rate = '1mbit' }]",
            "`schedule[0].rate`",
            "rate it starts with",
        ),
        (
            "rate = '1mbit'\nloss = { kind = 'list', every = 2 }\nschedule = [{ at = '1s', loss = '1%' }]",
            "`schedule[0].loss`",
            "plain share",
        ),
        ("blackouts = [{ at = '1s', for = '1s', hold = true }]", "`blackouts`", "remove `hold`"),
        ("blackouts = [{ at = '1s', for = '1s', every = '1s' }]", "`blackouts[0].every`", "never be up"),
        ("policer = { rate = '1mbit', burst = 100 }", "`policer.burst`", "at least 1500"),
        (
            "aggregate = { hold = '1ms' }\nreorder = { share = '1%', by = '1ms' }",
            "`aggregate`",
            "second link",
        ),
        ("rate = '1mbit'\nqueue = { kind = 'fq-codel', flows = 0 }", "`queue.flows`", "1 to 65536"),
        ("rate = '1mbit'\nqueue = { kind = 'pie', tupdate = '1ns' }", "`queue.tupdate`", "at least 100us"),
        ("loss = { kind = 'gilbert-elliott', share = '1%', burst = 0.1 }", "`loss.burst`", "at least 1"),
        ("ingress_loss = { kind = 'list' }", "`ingress_loss.kind`", "`packets`"),
        ("cellular = { min = '2mbit', max = '1mbit' }", "`cellular.max`", "swap"),
    ] {
        let e = error(text);
        assert!(e.contains("link 0") && e.contains(key) && e.contains(way_out), "{text}: {e}");
    }
}

#[test]
fn a_million_packets_wait_and_leave_in_order() {
    let mut chain = chain(&["rate = '1gbit'\nqueue = '2000000p'"]);
    for i in 0..1_000_000 {
        chain.push(Time::ZERO, Packet::new(0, 1500, i));
    }
    assert_eq!(chain.stats().next().unwrap().queue_packets, 999_999);
    let mut log = Log::default();
    log.advance(&mut chain, ms(20_000));
    assert!(
        log.arrived.iter().enumerate().all(|(i, (at, n))| *n == i as u32 && *at == us(12 * (i as u64 + 1)))
    );
    assert_eq!(log.arrived.len(), 1_000_000);
}
