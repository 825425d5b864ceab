//! 10 s over 100 Mbit/s and 40 ms with a queue of one BDP, goodput in Mbit/s with the handshake.
//!
//! The bounds are a few percent below what this crate measured on 2026-11-29 with `cargo test --
//! --nocapture`, which
//! prints the figures.

use crate::transfer::{Report, Transfer};
use fullpipe_path::QueueSpec;

/// The controller's mean goodput over `seeds`, and the reports.
fn measure(controller: &'static str, loss: &str, seeds: u64) -> (f64, Vec<Report>) {
    let reports: Vec<Report> =
        (1..=seeds).map(|seed| Transfer::over_100mbit(controller, loss, seed).run()).collect();
    let mean = reports.iter().map(|report| report.goodput).sum::<f64>() / seeds as f64;
    for report in &reports {
        println!(
            "{controller}, loss {loss}: {:.2} Mbit/s (mean {mean:.2}), \
             median queue {} B, {} of {} packets dropped by the queue",
            report.goodput, report.median_queue, report.overflowed, report.sent,
        );
        assert!(!report.closed);
    }
    (mean, reports)
}

#[test]
fn bbr3_fills_the_link_with_a_short_queue() {
    let (mean, reports) = measure("bbr3", "0", 1);
    assert!(mean >= 88.0, "{mean}");
    assert!(reports[0].median_queue <= 15_000, "{}", reports[0].median_queue);
}

#[test]
fn bbr3_keeps_its_rate_at_one_percent_loss() {
    let (mean, _) = measure("bbr3", "1%", 5);
    assert!(mean >= 72.0, "{mean}");
}

/// With recovery's end as in RFC 9002 §7.3.2, it would conserve packets all the time.
#[test]
fn bbr_fills_the_link_with_and_without_loss() {
    let (mean, _) = measure("bbr", "0", 1);
    assert!(mean >= 90.0, "{mean}");
    let (mean, _) = measure("bbr", "1%", 2);
    assert!(mean >= 86.0, "{mean}");
}

#[test]
fn cubic_fills_the_link_and_falls_with_loss() {
    let (mean, reports) = measure("cubic", "0", 1);
    assert!(mean >= 90.0, "{mean}");
    assert!(reports[0].overflowed < 200, "HyStart leaves slow start before the queue overflows far");
    // Reno's response function: a window of √(1.5/0.01) packets, 3.6 Mbit/s.
    let (mean, _) = measure("cubic", "1%", 5);
    assert!((2.2..4.5).contains(&mean), "{mean}");
}

#[test]
fn ecn_marks_replace_losses() {
    let mut transfer = Transfer::over_100mbit("cubic", "0", 1);
    transfer.forward.queue = QueueSpec::from_kind("codel");
    let dropped = transfer.run();
    let queue: QueueSpec = {
        let link: fullpipe_path::LinkSpec =
            toml::from_str("queue = { kind = 'codel', ecn = true }").expect("a valid queue");
        link.queue.expect("it was given")
    };
    transfer.forward.queue = Some(queue);
    let marked = transfer.run();
    println!("CoDel: {} B lost, with ECN {} B, {} marks", dropped.lost, marked.lost, marked.marked);
    assert!(marked.marked > 0 && dropped.lost > 0);
    assert!(marked.lost < dropped.lost, "{} {}", marked.lost, dropped.lost);
    assert!(marked.goodput >= 80.0, "{}", marked.goodput);
    assert!(marked.median_queue < 200_000, "{}: marks do not reach the controller", marked.median_queue);
}
