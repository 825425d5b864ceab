//! Arbitrary records: reports never panic and stay bounded.

use fullpipe_experiment::{Recording, Scenario};
use fullpipe_mesh::analysis::changes;
use fullpipe_mesh::record::{
    History, Measurement, Minute, Outcome, Pair, Route, RttBand, Transfer, TransferError,
};
use fullpipe_mesh::report::{Report, Summary, page, terminal};
use fullpipe_presentation::page::About;
use fullpipe_units::{Rate, Span};
use proptest::prelude::*;

fn simulate(scenario: &Scenario, seed: u64) -> Result<Recording, String> {
    fullpipe_sim::Simulation::new(scenario, seed).run().map_err(|e| e.to_string())
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(0), 0..10_000_000_000u64, Just(u64::MAX)].prop_map(Span::from_nanos)
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..100i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX), 1 => any::<i64>()]
}

fn pair() -> impl Strategy<Value = Pair> {
    (0..4u16, 0..4u16).prop_map(|(from, to)| Pair { from, to })
}

prop_compose! {
    fn measured()(
        bytes in prop_oneof![Just(0), Just(8_000_000), any::<u64>()],
            duration in span(), rtt in span(), min_rtt in span(),
        segments in any::<u32>(), retransmitted in any::<u32>(),
            limited in prop_oneof![Just(f32::NAN), 0f32..2.0],
        rate in prop::option::of(any::<u64>()), cpu in span(),
    ) -> Outcome {
        Outcome::Done(Box::new(Measurement {
            bytes, duration, delivery_rate: rate.map(Rate::from_bytes_per_sec),
                rtt, min_rtt, segments, retransmitted,
            receive_window_limited: limited, send_buffer_limited: limited, cpu,
        }))
    }
}

prop_compose! {
    fn transfer()(
        at in time(), period in time(), pair in pair(), controller in 0..4u16,
        outcome in prop_oneof![
            3 => measured(),
            1 => prop::sample::select(vec![
                TransferError::Unreachable, TransferError::TooSlow,
                TransferError::SenderBudget, TransferError::Version])
                .prop_map(Outcome::Failed),
        ],
    ) -> Transfer {
        Transfer { at_ms: at.saturating_mul(1000), period, pair, controller, outcome }
    }
}

prop_compose! {
    fn minute()(
        at in time(), pair in pair(), sent in any::<u16>(), arrived in any::<u16>(), answered in any::<u16>(),
        rtt in prop::option::of((span(), span(), span(), span())),
    ) -> Minute {
        let rtt = rtt.map(|(min, p50, p95, max)| RttBand { min, p50, p95, max });
        Minute { at_ms: at.saturating_mul(1000), pair, sent, arrived, answered, rtt }
    }
}

prop_compose! {
    fn history()(
        sites in prop::collection::vec("\\PC{0,12}", 0..5),
        controllers in prop::collection::vec("[a-z]{0,6}", 0..4),
        period in prop_oneof![Just(Span::ZERO), Just(Span::from_secs(60)), Just(Span::MAX)],
        transfers in prop::collection::vec(transfer(), 0..200),
        minutes in prop::collection::vec(minute(), 0..100),
        routes in prop::collection::vec((time(), pair()), 0..4),
    ) -> History {
        let routes =
            routes.into_iter().map(|(at_ms, pair)| Route { at_ms, pair, hops: vec![None] }).collect();
        History { sites, controllers, period, transfers, minutes, routes }
    }
}

/// A member may claim transfers of any size; to simulate 200 of 9 EB each would take for ever.
#[test]
fn transfers_of_absurd_sizes_are_reported_and_not_simulated() {
    let transfer = |period: i64| {
        let bytes = 9_000_000_000_000_000_000;
        let measured = Measurement {
            bytes,
            duration: Span::from_secs(1),
            delivery_rate: None,
            rtt: Span::from_millis(40),
            min_rtt: Span::from_millis(40),
            segments: 1000,
            retransmitted: 10,
            receive_window_limited: 0.0,
            send_buffer_limited: 0.0,
            cpu: Span::from_millis(1),
        };
        let outcome = Outcome::Done(Box::new(measured));
        let pair = Pair { from: 0, to: 1 };
        Transfer { at_ms: period * 60_000, period, pair, controller: (period % 2) as u16, outcome }
    };
    let history = History {
        sites: vec!["a".into(), "b".into()],
        controllers: vec!["cubic".into(), "bbr".into()],
        period: Span::from_secs(60),
        transfers: (0..200).map(transfer).collect(),
        ..History::default()
    };
    let began = std::time::Instant::now();
    let report = Report::new(&history, Some(simulate));
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((report.pairs.len(), report.pairs[0].transfers), (1, 200));
    assert!(report.pairs[0].expected.is_none() && report.pairs[0].diagnosis.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_history_can_be_reported(history in history()) {
        let report = Report::new(&history, None);
        let text = terminal(&report);
        prop_assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        prop_assert!(page(&Summary::from(&history), &report, &About::default()).len() < 3_000_000);
        serde_json::to_string(&report).unwrap();
    }

    /// Duplicated records count once.
    #[test]
    fn duplicates_change_nothing(history in history()) {
        let mut twice = history.clone();
        twice.transfers.extend(history.transfers.clone());
        prop_assert_eq!(changes(&history).len(),
            changes(&History { minutes: history.minutes.clone(), ..twice }).len());
    }
}
