//! Compares fp_bbr3's adaptations to stock kernels with the draft's per-packet state, in the lab:
//! without loss, with 1 % and 5 % loss, and with reordering. Prints a table: `cargo test -p
//! fullpipe --features full --test cli bbr3_adaptations:: -- --nocapture` as root.

use crate::loading::can_load;
use fullpipe_ebpf::measured::{Comparison, NAME, PacketComparison, Recorder};
use fullpipe_experiment::scenario::{Vocabulary, parse};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serialises the tests, since the measuring controller exists once per machine; none if it cannot
/// be loaded.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    can_load().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A path: rate, delay of each direction, limit of the queue.
type Line = (&'static str, &'static str, &'static str);

const WIDE_AREA: Line = ("50mbit", "20ms", "1bdp");
/// A burst is a quarter of the data in flight.
const SHORT: Line = ("100mbit", "2ms", "100p");

/// The comparison on a path with losses from `seed`, and the reasons why the lab's timing is
/// invalid, if any.
fn measure(recorder: &Recorder, line: Line, disturbance: &str, seed: u64) -> (Comparison, Vec<String>) {
    let (rate, delay, limit) = line;
    // At 5 % loss v3 sends more slowly, and needs more time for as many packets.
    let seconds = if disturbance.contains("5%") { 20 } else { 13 };
    let text = format!(
        "duration = '{seconds}s'\n[path]\n[[path.forward]]\nrate = '{rate}'\ndelay = '{delay}'\n\
         queue = {{ kind = 'drop-tail', limit = '{limit}' }}\n{disturbance}\n\
         [[path.reverse]]\ndelay = '{delay}'\n[[flow]]\ncc = '{NAME}'\n"
    );
    let no_files = |name: &str| Err(format!("no file {name}"));
    let case = parse("adaptations", &text, &Vocabulary::new([NAME]), &no_files).unwrap().remove(0);
    let mut seen = Comparison::default();
    // Read only while packets arrive: a ring that fills faster than it is read would never be
    // empty.
    let mut records = Vec::new();
    let mut drain = || recorder.drain(|record| records.push(*record)).unwrap();
    let recording = fullpipe_lab::run(&case.scenario, seed, &mut |_| {
        drain();
        ControlFlow::Continue(())
    })
    .unwrap();
    drain();
    records.iter().for_each(|record| seen.add(record));
    seen.finish();
    (seen, recording.invalid_because)
}

/// Differences beyond the bounds. `lost_exact` is the minimum share of lost packets with an exact
/// `tx_in_flight`, `lost_agree` the minimum share of agreeing verdicts on them.
fn differences(seen: &Comparison, lost_exact: f64, lost_agree: f64) -> Vec<String> {
    // Measured: 97.7 to 99.9 % exact, p99 error at most 1.1 %; of lost packets 98.3 to 100 % exact,
    // and at least 98.9 % of verdicts agree.
    let acked = &seen.acked;
    let (exact, p99) = (acked.tx_in_flight.exact(), acked.tx_in_flight.error(0.99));
    [
        // At 5 % loss v3 slows down as the draft requires: 4.7 to 10.7 Mbit/s in 24 runs of both
        // engines, at least 8 100 packets. A receiver acknowledges every second packet, and packets
        // out of order at once.
        (
            acked.tx_in_flight.count() > 2500,
            format!("{} are too few to judge by", acked.tx_in_flight.count()),
        ),
        (exact > 0.85, format!("tx_in_flight is exact in {exact:.3}")),
        (p99 < 0.05, format!("tx_in_flight: error p99 {p99:.3}")),
        (acked.lost.exact() > 0.95, format!("lost is exact in {:.3}", acked.lost.exact())),
        (acked.verdicts.agreement() > 0.98, format!("acked: {:?}", acked.verdicts)),
        (
            seen.lost.tx_in_flight.exact() > lost_exact,
            format!("lost: tx_in_flight is exact in {:.3}", seen.lost.tx_in_flight.exact()),
        ),
        (seen.lost.verdicts.agreement() > lost_agree, format!("lost: {:?}", seen.lost.verdicts)),
    ]
    .into_iter()
    .filter_map(|(holds, printed)| (!holds).then_some(printed))
    .collect()
}

/// Reading a record may cause another to be written: a reader that continues until the ring is
/// empty never ends.
#[test]
fn reading_ends_even_if_each_record_causes_another() {
    let Some(_turn) = turn() else { return };
    let recorder = Recorder::start().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::TcpCongestion, &NAME.into()).unwrap();
    sender.set_nodelay(true).unwrap();
    let mut say = || {
        sender.write_all(b"x").unwrap();
        receiver.read_exact(&mut [0]).unwrap();
    };
    for _ in 0..100 {
        say();
    }
    let mut read = 0;
    recorder
        .drain(|_| {
            read += 1;
            if read < 20_000 {
                say();
            }
        })
        .unwrap();
    // Each byte is sent as a segment of its own, and gets at most one ACK.
    assert!((100..=300).contains(&read), "{read} records were read of at most 200 and some of opening");
    let mut later = 0;
    recorder.drain(|_| later += 1).unwrap();
    assert!(later >= read, "{later}: what {read} records made is there at the next look");
}

/// A loss at the end of a burst is detected by a tail loss probe and in no other way.
#[test]
fn losses_that_tail_loss_probes_repair_are_noted() {
    let Some(_turn) = turn() else { return };
    let recorder = Recorder::start().unwrap();
    let text = format!(
        "duration = '12s'\n[path]\n[[path.forward]]\nrate = '40mbit'\ndelay = '20ms'\nloss = '10%'\n\
         [[path.reverse]]\ndelay = '20ms'\n[[flow]]\ncc = '{NAME}'\ncount = 24\n\
         app = {{ kind = 'bursts', size = '14k', every = '600ms' }}\n"
    );
    let no_files = |name: &str| Err(format!("no file {name}"));
    let case = parse("probes", &text, &Vocabulary::new([NAME]), &no_files).unwrap().remove(0);
    fullpipe_lab::run(&case.scenario, 1, &mut |_| {
        recorder.drain(|_| {}).unwrap();
        ControlFlow::Continue(())
    })
    .unwrap();
    // 48 of 480 bursts lose their last packet; the kernel repairs about 16 of them by a probe.
    let noted = recorder.probe_losses().unwrap();
    println!("{noted} losses repaired by probes");
    assert!(noted > 0);
}

fn row(condition: &str, what: &str, looked: &PacketComparison) {
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
fn approximations_are_close_to_the_per_packet_state() {
    let Some(_turn) = turn() else { return };
    let recorder = Recorder::start().unwrap();
    println!(
        "| path | packet | looked up | tx_in_flight exact | error p50 | p99 | lost exact | error p50 | p99 | \
         verdicts agree | too strict / too lax |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    // The last two numbers are bounds for lost packets: the share with an exact tx_in_flight, and
    // the share of agreeing verdicts. Measured: 77 and 100, 94 and 98.5, 99 and 100, 78 and 99.4,
    // 71 and 97, 100 and 100 %. With reordering and without loss few packets are lost.
    for (condition, line, disturbance, exact, agree) in [
        ("no loss", WIDE_AREA, "", 0.50, 0.90),
        ("1 % loss", WIDE_AREA, "loss = '1%'", 0.80, 0.95),
        ("5 % loss", WIDE_AREA, "loss = '5%'", 0.80, 0.95),
        ("2 % late by 4 ms", WIDE_AREA, "reorder = { share = '2%', by = '4ms' }", 0.50, 0.90),
        ("2 % late by 20 ms", WIDE_AREA, "reorder = { share = '2%', by = '20ms' }", 0.50, 0.85),
        ("1 % loss, 100 Mbit/s, 4 ms", SHORT, "loss = '1%'", 0.90, 0.97),
    ] {
        // Real TCP on a shared machine: if one attempt does not meet the bounds, the next must.
        let mut believable = false;
        let shown = (1..=3).any(|attempt| {
            let (seen, doubts) = measure(&recorder, line, disturbance, attempt);
            row(condition, "newest acked", &seen.acked);
            row(condition, "of these, retransmitted", &seen.acked_retransmitted);
            row(condition, "lost", &seen.lost);
            believable |= doubts.is_empty();
            let off = differences(&seen, exact, agree);
            if !off.is_empty() {
                // A late lab disturbs the approximations, which does not matter if they are within
                // the bounds.
                println!("{condition}, attempt {attempt}: {}", [&off[..], &doubts].concat().join("; "));
            }
            off.is_empty()
        });
        if !shown && !believable {
            println!(
                "NOT SHOWN: {condition}: the lab was late in each of three attempts; the output above says \
                 why"
            );
            continue;
        }
        assert!(shown, "{condition}: not close in three attempts; the output above says why");
    }
}
