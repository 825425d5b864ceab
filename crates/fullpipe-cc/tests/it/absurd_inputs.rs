//! Whatever a transport says, a controller neither panics nor closes its window for good.

use fullpipe_cc::{
    Ack, CONTROLLERS, Config, CongestionControl, ControllerSpec, Lost, Pacer, Rate, RateSample, Recovery,
    RecoveryContext, RecoveryState, Sampler, Sent, Span, Stamp, Time,
};
use proptest::prelude::*;

/// Small, middling and enormous numbers alike.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        0u64..10_000,
        0u64..1 << 32,
        any::<u64>(),
        (0u32..64).prop_map(|shift| 1 << shift),
    ]
}

fn time() -> impl Strategy<Value = Time> {
    number().prop_map(Time::from_nanos)
}

fn span() -> impl Strategy<Value = Span> {
    number().prop_map(Span::from_nanos)
}

fn sample() -> impl Strategy<Value = RateSample> {
    (
        prop::option::of(number()),
        number(),
        span(),
        number(),
        time(),
        number(),
        number(),
        any::<(bool, bool)>(),
    )
        .prop_map(|(rate, delivered, interval, prior, at, tx, lost, (app_limited, has_packet))| {
            RateSample {
                rate: rate.map(Rate::from_bytes_per_sec),
                delivered,
                interval,
                prior_delivered: prior,
                prior_delivered_at: at,
                tx_in_flight: tx,
                lost,
                app_limited,
                has_packet,
            }
        })
}

fn ack() -> impl Strategy<Value = Ack> {
    let state = prop_oneof![
        Just(RecoveryState::Open),
        Just(RecoveryState::Disorder),
        Just(RecoveryState::Recovery),
        Just(RecoveryState::Loss)
    ];
    (
        (time(), sample(), prop::option::of(span()), prop::option::of(span())),
        (number(), number(), any::<u32>(), number(), number(), number(), number()),
        (any::<bool>(), any::<u32>(), any::<bool>(), state, time()),
    )
        .prop_map(|(a, b, c)| Ack {
            now: a.0,
            sample: a.1,
            rtt: a.2,
            srtt: a.3,
            newly_acked: b.0,
            newly_lost: b.1,
            lost_ranges: b.2,
            inflight_before: b.3,
            inflight: b.4,
            delivered: b.5,
            lost: b.6,
            cwnd_limited: c.0,
            ce_count: c.1,
            delayed: c.2,
            recovery: c.3,
            next_departure: c.4,
        })
}

fn context() -> impl Strategy<Value = RecoveryContext> {
    (time(), number(), number(), number()).prop_map(|(now, inflight, delivered, lost)| RecoveryContext {
        now,
        inflight,
        delivered,
        lost,
    })
}

#[derive(Clone, Debug)]
enum Call {
    Handshake(Time, Span),
    Send(Sent),
    Lost(Lost),
    Ack(Ack),
    Recovery(Recovery, RecoveryContext),
    Mtu(u32),
}

fn call() -> impl Strategy<Value = Call> {
    let event = prop_oneof![
        Just(Recovery::EnterFast),
        Just(Recovery::EnterRto),
        Just(Recovery::Exit),
        Just(Recovery::Spurious)
    ];
    let sent = (time(), number(), number(), any::<bool>(), number(), any::<bool>()).prop_map(
        |(now, bytes, inflight, app_limited, delivered, retransmit)| Sent {
            now,
            bytes,
            inflight,
            app_limited,
            delivered,
            retransmit,
        },
    );
    let lost = (time(), number(), number(), number(), number(), number(), number(), any::<bool>()).prop_map(
        |(now, bytes, tx_in_flight, delivered_at_send, lost_at_send, lost, delivered, app_limited)| Lost {
            now,
            bytes,
            tx_in_flight,
            delivered_at_send,
            lost_at_send,
            lost,
            delivered,
            app_limited,
        },
    );
    prop_oneof![
        1 => (time(), span()).prop_map(|(t, s)| Call::Handshake(t, s)),
        4 => sent.prop_map(Call::Send),
        2 => lost.prop_map(Call::Lost),
        12 => ack().prop_map(Call::Ack),
        3 => (event, context()).prop_map(|(e, c)| Call::Recovery(e, c)),
        1 => prop_oneof![Just(0), Just(1), Just(1448), any::<u32>()].prop_map(Call::Mtu),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_calls_panics_or_closes_the_window(
        smss in prop_oneof![Just(1u32), Just(1448), Just(u32::MAX), any::<u32>()],
        initial_cwnd in number(),
        hystart in prop_oneof![Just("linux"), Just("plus"), Just("off")],
        calls in prop::collection::vec(call(), 1..60),
    ) {
        for about in CONTROLLERS {
            let config = Config { smss, initial_cwnd, ..Config::default() };
            let settings = [("hystart", hystart)];
            let settings = &settings[..usize::from(about.name == "cubic")];
            let mut c = ControllerSpec::new(about.name, settings).unwrap().build(&config);
            let mut smss = smss;
            for call in &calls {
                match call {
                    Call::Handshake(now, rtt) => c.on_handshake(*now, *rtt),
                    Call::Send(sent) => c.on_send(sent),
                    Call::Lost(lost) => c.on_lost(lost),
                    Call::Ack(ack) => c.on_ack(ack),
                    Call::Recovery(event, context) => c.on_recovery(*event, context),
                    Call::Mtu(new) => {
                        smss = *new;
                        c.on_mtu(smss);
                    }
                }
                let floor = u64::from(smss.max(1));
                prop_assert!(c.cwnd() >= floor, "{} after {:?}: {}", about.name, call, c.cwnd());
                prop_assert!(c.send_quantum() >= 1);
                prop_assert!(c.ssthresh() >= floor);
                let _ = (c.pacing_rate(), c.uses_prr(), c.marks_app_limited(), c.snapshot());
            }
        }
    }

    #[test]
    fn sampler_and_pacer_take_any_numbers(
        steps in prop::collection::vec((0u8..5, time(), number(), number()), 1..60)
    ) {
        let (mut sampler, mut pacer) = (Sampler::new(), Pacer::new());
        let mut stamp = Stamp::default();
        for (kind, now, a, b) in steps {
            match kind {
                0 => stamp = sampler.on_sent(now, a, b),
                1 => {
                    sampler.begin_ack();
                    sampler.on_acked(now, a, &stamp);
                    let sample = sampler.finish_ack(now, Some(Span::from_nanos(b)));
                    let zero_is_valid = sample.delivered == 0 || !sample.interval.is_zero();
                    prop_assert!(sample.rate.is_none_or(|r| r > Rate::ZERO || zero_is_valid));
                }
                2 => sampler.on_lost(a),
                3 => sampler.mark_app_limited(a),
                _ => {
                    let departure = pacer.on_sent(now, a, b, Some(Rate::from_bytes_per_sec(b)));
                    prop_assert!(departure >= now);
                }
            }
        }
    }
}
