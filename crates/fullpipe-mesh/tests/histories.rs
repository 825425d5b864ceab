//! Arbitrary records: reports never panic and stay bounded.

use fullpipe_mesh::analysis::changes;
use fullpipe_mesh::record::{
    History, Measurement, Minute, Outcome, Pair, Route, RttBand, Transfer, TransferError,
};
use fullpipe_mesh::report::{Report, page, terminal};
use fullpipe_report::About;
use fullpipe_units::{Rate, Span};
use proptest::prelude::*;

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_history_can_be_reported(history in history()) {
        let report = Report::new(&history, false);
        let text = terminal(&report);
        prop_assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        prop_assert!(page(&history, &report, &About::default()).len() < 3_000_000);
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
