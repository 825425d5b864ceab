//! Each difference between the variants, one test per branch.

use std::vec::Vec;

use super::undo::UndoState;
use super::variant::Departure;
use super::volume::Bytes;
use super::{Bbr3, Now, Params, State, Variant};
use crate::{
    Ack, Config, CongestionControl, Controller, ControllerSpec, Lost, Rate, RateSample, RecoveryContext,
    RecoveryState, Span, Time,
};

const VARIANTS: [Variant; 3] = [Variant::Draft, Variant::Letter, Variant::Linux];

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// A variant, and the deviation from the draft's letter that is undone.
#[derive(Clone, Copy)]
struct Kind(Variant, Option<Departure>);

/// A connection of 1000-byte packets before its handshake.
fn new(Kind(variant, as_drafted): Kind) -> Bbr3 {
    let config = Config { smss: 1000, initial_cwnd: 10_000, ..Config::default() };
    let params = if variant == Variant::Linux { Params::LINUX } else { Params::DRAFT };
    let mut bbr = Bbr3::with_variant(&config, params, variant);
    bbr.as_drafted = as_drafted;
    bbr
}

/// After a handshake of 40 ms, with a full pipe and an estimate of 1 MB/s, in `state`.
fn steady(kind: Kind, state: State) -> Bbr3 {
    let mut bbr = new(kind);
    bbr.on_handshake(Time::ZERO, Span::from_millis(40));
    bbr.full_pipe.set_reached();
    bbr.full_pipe.restart(Rate::MAX);
    bbr.model.bw = Rate::from_bytes_per_sec(1_000_000);
    bbr.out.cwnd = Bytes(100_000);
    bbr.enter(state);
    bbr
}

/// An ACK of nothing at `time`.
fn now(time: Time) -> Now {
    Now {
        time,
        sample: RateSample { has_packet: true, ..RateSample::default() },
        delivery_rate: Rate::ZERO,
        newly_acked: Bytes::ZERO,
        inflight: Bytes(50_000),
        delivered: Bytes(1_000_000),
        cwnd_limited: false,
        delayed: false,
        next_departure: time,
    }
}

fn context() -> RecoveryContext {
    RecoveryContext { now: at(100), inflight: 0, delivered: 0, lost: 0 }
}

/// A result for each variant: draft, letter, Linux.
fn each<T>(of: impl Fn(Kind) -> T) -> [T; 3] {
    VARIANTS.map(|variant| of(Kind(variant, None)))
}

/// Like [`each`]. With `departure` undone, the draft must behave like the letter; with any other, it must
/// not change.
fn each_letter<T: PartialEq + core::fmt::Debug>(departure: Departure, of: impl Fn(Kind) -> T) -> [T; 3] {
    let results = each(&of);
    for &(name, undone) in Departure::CHOICES {
        let expected = if undone == Some(departure) { &results[1] } else { &results[0] };
        assert_eq!(&of(Kind(Variant::Draft, undone)), expected, "as_drafted={name}");
    }
    results
}

#[test]
fn setting_selects_the_variant_and_its_parameters() {
    for (name, variant, params) in [
        ("draft", Variant::Draft, Params::DRAFT),
        ("letter", Variant::Letter, Params::DRAFT),
        ("linux", Variant::Linux, Params::LINUX),
    ] {
        let pairs = [("variant", name)];
        let Controller::Bbr3(bbr) = ControllerSpec::new("bbr3", &pairs).unwrap().build(&Config::default())
        else {
            panic!()
        };
        assert_eq!((bbr.variant, bbr.params), (variant, params), "{name}");
    }
    let Controller::Bbr3(bbr) = ControllerSpec::new("bbr3", &[]).unwrap().build(&Config::default()) else {
        panic!()
    };
    assert_eq!((bbr.variant, bbr.params), (Variant::Draft, Params::DRAFT));
    let pairs = [("variant", "linux"), ("drain_pacing_gain", "0.5")];
    let Controller::Bbr3(bbr) = ControllerSpec::new("bbr3", &pairs).unwrap().build(&Config::default()) else {
        panic!()
    };
    assert_eq!(bbr.params, Params { drain_pacing_gain: 128, ..Params::LINUX });
    assert!(ControllerSpec::new("bbr3", &[("variant", "google")]).is_err());
    for &(name, undone) in Departure::CHOICES {
        let pairs = [("as_drafted", name)];
        let Controller::Bbr3(bbr) = ControllerSpec::new("bbr3", &pairs).unwrap().build(&Config::default())
        else {
            panic!()
        };
        assert_eq!((bbr.variant, bbr.as_drafted), (Variant::Draft, undone));
        assert!(super::variant::AS_DRAFTED.values.contains(name), "{name}");
    }
    assert!(Params::DRAFT.with(&[("variant", "letter")]).is_err(), "not a parameter of the kernel's program");
}

#[test]
fn linux_rejects_settings_without_effect_and_keeps_the_others() {
    let varied: Vec<(&str, &str)> = Params::SETTINGS
        .iter()
        .map(|one| match one.values {
            "on or off" => (one.key, if one.default == "on" { "off" } else { "on" }),
            _ if one.key.ends_with("_gain") => (one.key, "1"),
            _ => (one.key, "7"),
        })
        .collect();
    let mut rejected = Vec::new();
    for &pair in &varied {
        let build = |variant| {
            let pairs = [pair, ("variant", variant)];
            ControllerSpec::new("bbr3", &pairs).map(drop).map_err(|e| std::format!("{e}"))
        };
        assert_eq!((build("draft"), build("letter")), (Ok(()), Ok(())), "{pair:?}");
        if let Err(error) = build("linux") {
            assert!(error.contains("has no effect with variant=linux"), "{error}");
            rejected.push(pair.0);
        }
    }
    assert_eq!(rejected, ["ecn", "loss_thresh_permille", "drain_rounds", "extra_acked_rounds"]);

    // Its counter has four bits: a larger limit is never reached.
    let build = |count| {
        let pairs = [("variant", "linux"), ("startup_full_loss_count", count)];
        ControllerSpec::new("bbr3", &pairs).map(drop).map_err(|e| std::format!("{e}"))
    };
    assert_eq!(build("15"), Ok(()));
    assert!(build("16").is_err_and(|error| error.contains("from 1 to 15 with variant=linux")));
}

#[test]
fn letter_advances_the_max_bw_filter_without_a_sample() {
    let remembered = each_letter(Departure::MaxBwFilter, |kind| {
        let mut bbr = steady(kind, State::ProbeBwDown);
        bbr.update_max_bw(&Now { delivery_rate: Rate::from_bytes_per_sec(7), ..now(at(1)) });
        for _ in 0..3 {
            bbr.enter(State::ProbeBwDown);
            bbr.cycle.ack_phase = super::probe_bw::AckPhase::ProbeStopping;
            bbr.model.round_start = true;
            bbr.update_probe_bw_cycle_phase(&now(at(2)));
        }
        bbr.model.max_bw().as_bytes_per_sec()
    });
    assert_eq!(remembered, [7, 0, 7]);
}

#[test]
fn letter_keeps_extra_acked_delivered_on_restart_from_idle() {
    let kept = each_letter(Departure::IdleRestart, |kind| {
        let mut bbr = steady(kind, State::ProbeBwCruise);
        bbr.aggregation.delivered = Bytes(5_000);
        bbr.handle_restart_from_idle(at(500), Bytes::ZERO);
        bbr.aggregation.delivered.0
    });
    assert_eq!(kept, [0, 5_000, 0]);
}

fn lost_packet() -> Lost {
    Lost {
        now: at(100),
        bytes: 1_000,
        tx_in_flight: 50_000,
        delivered_at_send: 0,
        lost_at_send: 0,
        lost: 1_000,
        delivered: 0,
        app_limited: false,
    }
}

#[test]
fn letter_saves_undo_state_at_the_first_loss_of_each_round() {
    for (is_loss_in_round, expected) in
        [(false, [UndoState::Startup, UndoState::None, UndoState::Startup]), (true, [UndoState::Startup; 3])]
    {
        let kept = each_letter(Departure::UndoState, |kind| {
            let mut bbr = steady(kind, State::ProbeBwDown);
            bbr.save_state_upon_loss();
            bbr.undo.state = UndoState::Startup;
            bbr.congestion.is_loss_in_round = is_loss_in_round;
            bbr.handle_lost_packet(&lost_packet());
            bbr.undo.state
        });
        assert_eq!(kept, expected);
    }
}

#[test]
fn letter_ends_up_by_what_is_in_flight_after_the_ack() {
    let states = |inflight| {
        each_letter(Departure::ProbeUpEnd, |kind| {
            let mut bbr = steady(kind, State::ProbeBwUp);
            bbr.cycle.prev_probe_too_high = true;
            bbr.model.inflight_longterm = Bytes(50_000);
            let now = Now { inflight: Bytes(inflight), newly_acked: Bytes(1_000), ..now(at(100)) };
            bbr.update_probe_bw_cycle_phase(&now);
            bbr.state
        })
    };
    assert_eq!(states(49_000), [State::ProbeBwDown, State::ProbeBwUp, State::ProbeBwDown]);
    assert_eq!(states(50_000), [State::ProbeBwDown; 3]);
}

#[test]
fn letter_compares_reno_rounds_with_bytes() {
    let states = each_letter(Departure::RenoRounds, |kind| {
        let mut bbr = steady(kind, State::ProbeBwCruise);
        // The target is 40 packets, the limit 63 rounds.
        bbr.cycle.rounds_since_probe_up = 50;
        bbr.update_probe_bw_cycle_phase(&now(Time::ZERO));
        bbr.state
    });
    assert_eq!(states, [State::ProbeBwRefill, State::ProbeBwCruise, State::ProbeBwRefill]);
}

#[test]
fn letter_sets_the_initial_pacing_rate_only_at_the_start() {
    let rates = each_letter(Departure::PacingRate, |kind| {
        let mut bbr = new(kind);
        let before = bbr.out.pacing_rate;
        let rtt = Some(Span::from_millis(40));
        bbr.on_ack(&Ack { rtt, srtt: rtt, ..Ack::at(at(40)) });
        bbr.out.pacing_rate < before
    });
    assert_eq!(rates, [true, false, true]);
}

#[test]
fn letter_does_not_end_startup_on_marks() {
    let reached = each_letter(Departure::StartupMarks, |kind| {
        let mut bbr = new(kind);
        bbr.on_handshake(Time::ZERO, Span::from_millis(40));
        bbr.congestion.ce_in_round = Bytes(10_000);
        bbr.congestion.loss_round_start = true;
        let mut now = now(at(100));
        now.sample.tx_in_flight = 100_000;
        bbr.check_startup_done(&now, &Ack::at(at(100)));
        bbr.state
    });
    assert_eq!(reached[..2], [State::Drain, State::Startup]);
}

#[test]
fn letter_runs_the_model_on_acks_without_new_data() {
    let rounds = each_letter(Departure::EmptyAcks, |kind| {
        let mut bbr = new(kind);
        bbr.on_ack(&Ack::at(at(40)));
        bbr.model.round_count
    });
    assert_eq!(rounds, [0, 1, 0]);
}

#[test]
fn linux_ignores_marks_but_claims_ecn() {
    let marked = each(|kind| {
        let mut bbr = steady(kind, State::ProbeBwCruise);
        bbr.on_ack(&Ack { ce_count: 1, ..Ack::at(at(100)) });
        assert!(bbr.claims_ecn());
        bbr.congestion.is_loss_in_round
    });
    assert!(marked[0] && !marked[2]);
}

#[test]
fn linux_counts_acks_with_losses_in_startup() {
    let counted = |acks| {
        each(|kind| {
            let mut bbr = new(kind);
            for _ in 0..acks {
                let ack = Ack { lost_ranges: 3, newly_lost: 3_000, ..Ack::at(at(100)) };
                bbr.check_startup_done(&now(at(100)), &ack);
            }
            bbr.congestion.lost_ranges_in_round
        })
    };
    assert_eq!(counted(1), [3, 3, 1]);
    assert_eq!(counted(20), [60, 60, 15]);
}

#[test]
fn linux_resets_congestion_signals_on_entering_drain() {
    let lossy = each(|kind| {
        let mut bbr = new(kind);
        bbr.congestion.is_loss_in_round = true;
        bbr.enter_drain();
        bbr.congestion.is_loss_in_round
    });
    assert_eq!(lossy, [true, true, false]);
}

#[test]
fn linux_ends_drain_by_inflight_at_the_next_departure() {
    let states = each(|kind| {
        let mut bbr = steady(kind, State::Drain);
        // 50 kB in flight, of which 20 kB are delivered by then; the BDP is 40 kB.
        bbr.check_drain_done(&Now { next_departure: at(120), ..now(at(100)) });
        bbr.state
    });
    assert_eq!(states, [State::Drain, State::Drain, State::ProbeBwDown]);
}

#[test]
fn linux_has_no_limit_on_the_rounds_of_drain() {
    let states = each(|kind| {
        let mut bbr = steady(kind, State::Drain);
        bbr.model.round_count = 10;
        bbr.check_drain_done(&now(at(100)));
        bbr.state
    });
    assert_eq!(states, [State::ProbeBwDown, State::ProbeBwDown, State::Drain]);
}

#[test]
fn linux_has_its_own_gains() {
    let gains = |state| {
        each(|kind| {
            let mut bbr = new(kind);
            bbr.enter(state);
            bbr.out.pacing_gain.as_256ths()
        })
    };
    assert_eq!(gains(State::Startup), [709, 709, 710]);
    assert_eq!(gains(State::Drain), [128, 128, 88]);
    assert_eq!(gains(State::ProbeBwDown), [230, 230, 232]);
}

#[test]
fn linux_looks_for_growth_on_every_ack_and_counts_rounds() {
    let rate = |bytes| Now { delivery_rate: Rate::from_bytes_per_sec(bytes), ..now(at(100)) };
    let full = |before: u64| {
        each(|kind| {
            let mut bbr = new(kind);
            bbr.full_pipe.restart(Rate::from_bytes_per_sec(100));
            bbr.model.round_start = false;
            for _ in 0..5 {
                bbr.check_full_bw_reached(&rate(before));
            }
            bbr.model.round_start = true;
            for _ in 0..3 {
                bbr.check_full_bw_reached(&rate(200));
            }
            bbr.full_pipe.now
        })
    };
    // Growth within a round moves Linux's baseline, so that three rounds at 200 are a plateau.
    assert_eq!(full(200), [false, false, true]);
    // ACKs within a round without growth count in no variant.
    assert_eq!(full(100), [false; 3]);
}

#[test]
fn linux_tolerates_five_256ths_of_the_packets_in_flight() {
    let sample = |lost| RateSample { lost, tx_in_flight: 100_000, has_packet: true, ..RateSample::default() };
    let too_high = |lost| each(|kind| new(kind).is_inflight_too_high(&sample(lost)));
    assert_eq!(too_high(1_000), [false; 3]);
    assert_eq!(too_high(2_000), [false, false, true]);
    assert_eq!(too_high(3_000), [true; 3]);
}

#[test]
fn linux_judges_loss_on_acks_too() {
    let states = each(|kind| {
        let mut bbr = steady(kind, State::ProbeBwUp);
        bbr.cycle.is_bw_probe_sample = true;
        let mut now = now(at(100));
        (now.sample.lost, now.sample.tx_in_flight) = (10_000, 100_000);
        bbr.update_probe_bw_cycle_phase(&now);
        bbr.state
    });
    assert_eq!(states, [State::ProbeBwUp, State::ProbeBwUp, State::ProbeBwDown]);
}

#[test]
fn linux_target_inflight_includes_the_quantization_budget() {
    let targets = each(|kind| {
        let mut bbr = steady(kind, State::ProbeBwCruise);
        bbr.model.bw = Rate::from_bytes_per_sec(100_000);
        bbr.out.send_quantum = Bytes(2_000);
        bbr.target_inflight().0
    });
    assert_eq!(targets, [4_000, 4_000, 6_000]);
}

#[test]
fn linux_bounds_short_term_inflight_on_entering_cruise() {
    let bounds = each(|kind| {
        let mut bbr = steady(kind, State::ProbeBwDown);
        (bbr.model.inflight_shortterm, bbr.model.inflight_longterm) = (Bytes(80_000), Bytes(50_000));
        bbr.start_probe_bw_cruise();
        bbr.model.inflight_shortterm.0
    });
    assert_eq!(bounds, [80_000, 80_000, 50_000]);
    let mut bbr = steady(Kind(Variant::Linux, None), State::ProbeBwDown);
    bbr.model.inflight_longterm = Bytes(50_000);
    bbr.start_probe_bw_cruise();
    assert_eq!(bbr.model.inflight_shortterm, Bytes::INFINITE, "only a bound that is set");
}

#[test]
fn linux_bounds_extra_acked_by_a_tenth_of_a_second_and_two_slots() {
    let extra = |burst: u64, rounds: u64| {
        each(|kind| {
            let mut bbr = steady(kind, State::ProbeBwCruise);
            bbr.model.bw = Rate::from_bytes_per_sec(100_000);
            bbr.update_ack_aggregation(&Now { newly_acked: Bytes(burst), ..now(Time::ZERO) });
            for round in 1..=rounds {
                bbr.model.round_start = true;
                bbr.model.round_count = round;
                bbr.update_ack_aggregation(&Now { newly_acked: Bytes(1_000), ..now(at(1_000 * round)) });
            }
            bbr.extra_acked().0
        })
    };
    assert_eq!(extra(50_000, 0), [50_000, 50_000, 10_000]);
    assert_eq!(extra(5_000, 9), [5_000; 3]);
    assert_eq!(extra(5_000, 10), [5_000, 5_000, 1_000]);
}

#[test]
fn linux_renews_the_min_rtt_stamp_on_an_equal_sample() {
    let stamps = each(|kind| {
        let mut bbr = steady(kind, State::ProbeBwCruise);
        bbr.update_min_rtt(&now(at(6_000)), Some(Span::from_millis(40)));
        bbr.model.min_rtt_stamp
    });
    assert_eq!(stamps, [Time::ZERO, Time::ZERO, at(6_000)]);
}

#[test]
fn linux_does_not_replace_an_expired_min_rtt_by_a_delayed_ack() {
    let delays = |delayed| {
        each(|kind| {
            let mut bbr = steady(kind, State::ProbeBwCruise);
            bbr.update_min_rtt(&Now { delayed, ..now(at(6_000)) }, Some(Span::from_millis(60)));
            bbr.probe_rtt.min_delay.map(Span::as_millis_f64)
        })
    };
    assert_eq!(delays(true), [Some(60.0), Some(60.0), Some(40.0)]);
    assert_eq!(delays(false), [Some(60.0); 3]);
}

#[test]
fn linux_undo_does_not_change_the_state() {
    let states = each(|kind| {
        let mut bbr = steady(kind, State::ProbeBwDown);
        bbr.undo.state = UndoState::ProbeBwUp;
        bbr.handle_spurious_loss_detection(&context());
        bbr.state
    });
    assert_eq!(states, [State::ProbeBwRefill, State::ProbeBwRefill, State::ProbeBwDown]);
}

#[test]
fn linux_restores_the_window_after_a_timeout_only() {
    let windows = |timeout: bool| {
        each(|kind| {
            let mut bbr = steady(kind, State::ProbeBwCruise);
            bbr.on_enter_fast_recovery();
            bbr.recovery = if timeout { RecoveryState::Loss } else { RecoveryState::Recovery };
            bbr.out.cwnd = Bytes(10_000);
            bbr.on_exit_recovery();
            bbr.out.cwnd.0
        })
    };
    assert_eq!(windows(false), [100_000, 100_000, 10_000]);
    assert_eq!(windows(true), [100_000; 3]);
}

#[test]
fn linux_bounds_inflight_by_the_window_before_a_timeout_unless_probing() {
    let bounds = |state| {
        each(|kind| {
            let mut bbr = steady(kind, state);
            bbr.on_enter_rto(&context());
            bbr.model.inflight_shortterm.finite()
        })
    };
    assert_eq!(bounds(State::ProbeBwCruise), [None, None, Some(100_000)]);
    assert_eq!(bounds(State::ProbeBwUp), [None; 3]);
}
