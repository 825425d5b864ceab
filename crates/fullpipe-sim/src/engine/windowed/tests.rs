use super::super::random_scenarios::scenario;
use super::*;
use crate::segment::ACK_BYTES;
use fullpipe_experiment::scenario::{App, CpuSpec, FlowSpec, PathSpec};
use fullpipe_units::Bytes;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use std::cell::Cell;

/// Bounds the time per case, not its contents.
const EVENTS: u64 = 6_000;

/// Runs `scenario` with the sequential engine, or in windows with `ties` on some threads. Returns the
/// recording and the number of windows.
fn run(scenario: &Scenario, seed: u64, windowed: Option<(Ties, usize)>) -> Result<(String, u64), SimError> {
    let has_windows = Windows::reason_against(&Simulation::new(scenario, seed)).is_none();
    let mut world = World::new(&Simulation::new(scenario, seed).max_events(8 * EVENTS))?;
    match windowed {
        Some((ties, threads)) if has_windows => {
            let windows = Windows::new(&world, threads);
            // Windows that end with their delay, and such that end with some arrivals.
            let most_arrivals = [1, 30, usize::MAX][(seed % 3) as usize];
            let windows = Windows { least_events: 1, most_arrivals, ..windows };
            let windows = &mut Windows { least_shared: 0, ties, dealt: true, ..windows };
            world.run_in_windows(windows, &mut |_| ControlFlow::Continue(()))?;
        }
        _ => world.run(&mut |_| ControlFlow::Continue(()))?,
    }
    let windows = world.windows;
    // Compared as text: missing values are NaN, which never compares equal.
    Ok((serde_json::to_string(&world.finish()).unwrap(), windows))
}

/// A random scenario of few events, mostly with constant delays at the end of the path.
fn short_scenario() -> impl Strategy<Value = (Scenario, u64)> {
    let delays = (select(vec![0u64, 1, 1_000, 3_000_000]), select(vec![0u64, 1, 3_000_000, 50_000_000]));
    let more = (select(vec![1u32, 1, 7]), select(vec![0u64, 3, 10]), any::<u64>());
    (scenario(), delays, more).prop_map(|(mut s, delays, (more, warmup, seed))| {
        for (links, ns) in [(&mut s.path.forward, delays.0), (&mut s.path.reverse, delays.1)] {
            if ns > 0 {
                links.push(LinkSpec { delay: Span::from_nanos(ns), ..LinkSpec::default() });
            }
        }
        for flow in &mut s.flows {
            flow.count *= more;
        }
        // Shortened rather than cut off: the engines count events differently.
        if let Err(SimError::TooManyEvents { at, .. }) = Simulation::new(&s, seed).max_events(EVENTS).run() {
            s.duration = (at - at / 8).max(Span::from_nanos(50));
        }
        s.sample = s.duration / 50;
        s.warmup = s.duration / 30 * warmup;
        (s, seed)
    })
}

/// A packet with data has the bytes of this many ACKs, so that both keep the links in step.
const ACKS_PER_PACKET: u32 = 29;

/// A link on which everything happens at whole steps of 10 µs: an ACK takes one, or a fraction.
fn link_in_step() -> impl Strategy<Value = LinkSpec> {
    let limits = select(vec!["'1p'", "'3p'", "'20p'", "'10000p'"]);
    let faults = select(vec![
        "",
        "loss = '5%'",
        "ingress_loss = '5%'",
        // The queueing delay is then observed, which depends on the order of calls.
        "schedule = [{ at = '30ms', delay = '3ms' }, { at = '90ms', delay = '1ms' }]",
    ]);
    (select(vec![0u32, 1, 1, 5]), select(vec![1u64, 1, 2, 7]), limits, faults).prop_map(
        |(speed, delay, limit, faults)| {
            let rate = speed * ACK_BYTES * 8 * 100_000;
            let text = format!("rate = '{rate}bit'\ndelay = '{delay}ms'\nqueue = {limit}\n{faults}");
            toml::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
        },
    )
}

/// A random scenario in which nearly all events coincide with others.
fn scenario_in_step() -> impl Strategy<Value = (Scenario, u64)> {
    let flow = (
        select(vec!["reno", "cubic", "bbr", "bbr3"]),
        (select(vec![1u32, 7, 40]), any::<(bool, bool)>()),
        (select(vec![0u64, 1, 20]), select(vec![None, None, Some(20_000u64)])),
        (select(vec![None, Some(100), Some(1000)]), select(vec![None, Some(100_000u64), Some(1_000_000)])),
        (select(vec![1u32, 10]), select(vec![None, None, Some(3u64), Some(40)])),
    );
    let flow =
        flow.prop_map(|(cc, (count, (reverse, paced)), (start, size), (timer_hz, cpu), (window, every))| {
            FlowSpec {
                count,
                paced,
                timer_hz,
                direction: if reverse { Direction::Reverse } else { Direction::Forward },
                start: Start::At(Span::from_millis(start)),
                size: size.map(Bytes),
                cpu: cpu.map(|ns| CpuSpec { per_segment: Span::from_nanos(ns), rate: None }),
                initial_window: window,
                receive_buffer: Some(Bytes(60_000)),
                app: every.map_or(App::Bulk, |ms| App::Bursts {
                    size: Bytes(5 * 1448),
                    every: Span::from_millis(ms),
                }),
                ..FlowSpec::bulk(cc)
            }
        });
    let links = || prop::collection::vec(link_in_step(), 1..3);
    let flows = prop::collection::vec(flow, 1..4);
    (links(), links(), flows, any::<u64>()).prop_map(|(forward, reverse, flows, seed)| {
        let mut s = Scenario::new(PathSpec { forward, reverse }, flows);
        s.mtu = ACKS_PER_PACKET * ACK_BYTES;
        s.duration = Span::from_millis(300);
        s.sample = Span::from_millis(7);
        (s, seed)
    })
}

/// Compares the engines by `cases` random scenarios, or `PROPTEST_CASES` if that is more, in windows
/// on each number of `threads`. Returns the number of windows.
fn compare(
    cases: u32,
    scenarios: &impl Strategy<Value = (Scenario, u64)>,
    ties: Ties,
    threads: &[usize],
) -> Result<u64, String> {
    let windows = Cell::new(0);
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    config.cases = config.cases.max(cases);
    TestRunner::new(config)
        .run(scenarios, |(s, seed)| {
            // Otherwise invalid, or more events than a case may have.
            if let Ok((one, _)) = run(&s, seed, None) {
                for &threads in threads {
                    let other = run(&s, seed, Some((ties, threads)));
                    let (other, n) = other.map_err(|e| TestCaseError::fail(e.to_string()))?;
                    windows.set(windows.get() + n);
                    prop_assert!(one == other, "{threads} threads");
                }
            }
            Ok(())
        })
        .map_err(|e| e.to_string())?;
    Ok(windows.get())
}

#[test]
fn both_engines_record_the_same_bytes_with_any_number_of_threads() {
    let windows = compare(1_000, &short_scenario(), Ties::Kept, &[1, 2, 4]).unwrap();
    assert!(windows > 7_000, "{windows}");
}

#[test]
fn both_engines_record_the_same_bytes_if_events_coincide() {
    let windows = compare(300, &scenario_in_step(), Ties::Kept, &[1, 2, 4]).unwrap();
    assert!(windows > 9_000, "{windows}");
}

#[test]
fn a_wrong_order_of_simultaneous_packets_is_found() {
    for threads in [1, 2] {
        assert!(compare(10_000, &short_scenario(), Ties::Reversed, &[threads]).is_err(), "{threads}");
    }
}

#[test]
fn a_wrong_order_among_threads_is_found() {
    assert!(compare(500, &scenario_in_step(), Ties::ByThread, &[1]).is_ok());
    assert!(compare(10_000, &scenario_in_step(), Ties::ByThread, &[2]).is_err());
}
