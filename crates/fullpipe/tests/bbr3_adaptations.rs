//! How close fp_bbr3's adaptations to stock kernels come to the draft's per-packet state, in the lab: without loss,
//! with 1 % and 5 %, and with reordering. Prints a table:
//! `cargo test -p fullpipe --features full --test bbr3_adaptations -- --nocapture` as root.

mod loading;

use fullpipe_ebpf::measured::{Comparison, Looked, NAME, Recorder};
use fullpipe_experiment::scenario::{Vocabulary, parse};
use loading::can_load;
use std::ops::ControlFlow;

fn measure(recorder: &Recorder, disturbance: &str) -> Comparison {
    let text = format!(
        "duration = '20s'\n[path]\n[[path.forward]]\nrate = '50mbit'\ndelay = '20ms'\n\
         queue = {{ kind = 'drop-tail', limit = '1bdp' }}\n{disturbance}\n\
         [[path.reverse]]\ndelay = '20ms'\n[[flow]]\ncc = '{NAME}'\n"
    );
    let no_files = |name: &str| Err(format!("no file {name}"));
    let case = parse("adaptations", &text, &Vocabulary::new([NAME]), &no_files).unwrap().remove(0);
    let mut seen = Comparison::default();
    let mut drain = || recorder.drain(|record| seen.add(record)).unwrap();
    let recording = fullpipe_lab::run(&case.scenario, 1, &mut |_| {
        drain();
        ControlFlow::Continue(())
    })
    .unwrap();
    drain();
    seen.finish();
    assert!(recording.summary.goodput_bps > 5e6, "{:?}", recording.summary);
    seen
}

fn row(condition: &str, what: &str, looked: &Looked) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let (tx, lost) = (&looked.tx_in_flight, &looked.lost);
    println!(
        "| {condition} | {what} | {} | {} | {} | {} | {} | {} | {} | {} | {} / {} |",
        tx.count(),
        percent(tx.exact()),
        percent(tx.error(0.5)),
        percent(tx.error(0.99)),
        percent(lost.exact()),
        percent(lost.error(0.5)),
        percent(lost.error(0.99)),
        percent(looked.verdicts.agreement()),
        looked.verdicts.too_strict,
        looked.verdicts.too_lax,
    );
}

#[test]
fn what_stands_for_the_per_packet_state_is_close_to_it() {
    if !can_load() {
        return;
    }
    let recorder = Recorder::start().unwrap();
    println!(
        "| path | packet | looked up | tx_in_flight exact | error p50 | p99 | lost exact | error p50 | p99 | \
         verdicts agree | too strict / too lax |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    // The last number is the share of verdicts on lost packets that must agree. Measured: 97.5, 99.0, 100, 89.0 and
    // 78.4 %. Where packets overtake, RACK waits up to an RTT, and what it then takes for lost was sent long before
    // the newest acknowledged packet.
    for (condition, disturbance, agree) in [
        ("no loss", "", 0.90),
        ("1 % loss", "loss = '1%'", 0.95),
        ("5 % loss", "loss = '5%'", 0.95),
        ("2 % late by 4 ms", "reorder = { share = '2%', by = '4ms' }", 0.75),
        ("2 % late by 20 ms", "reorder = { share = '2%', by = '20ms' }", 0.60),
    ] {
        let seen = measure(&recorder, disturbance);
        row(condition, "newest acked", &seen.acked);
        row(condition, "of these, sent again", &seen.acked_again);
        row(condition, "lost", &seen.lost);
        // Measured: 93.5 to 99.6 % exact, error at most 1.5 % in 99 of 100; lost 98.2 to 100 % exact.
        let acked = &seen.acked;
        assert!(acked.tx_in_flight.count() > 5000, "{condition}: too little to judge by");
        assert!(acked.tx_in_flight.exact() > 0.85, "{condition}: {}", acked.tx_in_flight.exact());
        assert!(acked.tx_in_flight.error(0.99) < 0.05, "{condition}: {}", acked.tx_in_flight.error(0.99));
        assert!(acked.lost.exact() > 0.95, "{condition}: {}", acked.lost.exact());
        assert!(acked.verdicts.agreement() > 0.98, "{condition}: {:?}", acked.verdicts);
        assert!(seen.lost.verdicts.agreement() > agree, "{condition}: {:?}", seen.lost.verdicts);
    }
}
