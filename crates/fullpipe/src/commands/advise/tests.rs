use super::*;
use fullpipe_experiment::recording::{Estimate, Finding};
use fullpipe_host::checks::Group;

fn finding(id: &'static str, verdict: Verdict) -> checks::Finding {
    checks::Finding {
        id,
        group: Group::Kernel,
        verdict,
        state: format!("{id} is so"),
        read: Vec::new(),
        why: "",
        advice: Some(format!("fix {id}")),
        source: "",
    }
}

fn advice(found: Finding, findings: Vec<checks::Finding>, default: &str, rtt_added: f64) -> Advice {
    advice_of(found, findings, default, rtt_added, None)
}

fn advice_of(
    found: Finding,
    findings: Vec<checks::Finding>,
    default: &str,
    rtt_added: f64,
    choice: Option<&BbrChoice>,
) -> Advice {
    let report = Report {
        schema: checks::SCHEMA,
        kernel: String::new(),
        system: String::new(),
        scope: String::new(),
        controller: "bbr".into(),
        findings,
        next: "nothing".into(),
    };
    let e = |median| Estimate { median, low: median, high: median };
    let compared = Compared {
        controller: "bbr".into(),
        baseline: "cubic".into(),
        ratio: e(2.0),
        finding: found,
        retransmits_added: e(0.0),
        rtt_added_ms: Some(e(rtt_added)),
        words: String::new(),
    };
    let evidence = Evidence {
        report: &report,
        compared: &compared,
        choice,
        default: Some(default),
        host: "peer",
        address: "203.0.113.7".parse().unwrap(),
        rounds: 6,
        rate: Rate::from_bits_per_sec(48_000_000),
        rtt: Some(Span::from_millis(41)),
        loaded_ms: Some(100.0),
        is_remote: true,
        is_root: false,
    };
    evidence.advice()
}

#[test]
fn faster_gives_a_command_with_buffer_limits_and_a_trial_over_ssh() {
    let given = advice(Finding::Faster, vec![finding("send-limit", Verdict::Fail)], "cubic", 0.0);
    assert_eq!(given.kind, Kind::Apply);
    let command = given.command.unwrap();
    assert_eq!(command, "sudo fullpipe apply bbr --rate 48mbit --rtt 41ms --confirm 60s");
    assert_eq!(given.command_for_destination.unwrap(), "sudo fullpipe apply bbr --to 203.0.113.7/32");
    let given = advice(Finding::Faster, vec![finding("send-limit", Verdict::Ok)], "cubic", 0.0);
    assert_eq!(given.command.unwrap(), "sudo fullpipe apply bbr --confirm 60s");
}

#[test]
fn a_failed_check_replaces_the_command() {
    for id in ["kernel", "scope", "controller"] {
        let given = advice(Finding::Faster, vec![finding(id, Verdict::Fail)], "cubic", 0.0);
        assert_eq!((given.kind, given.command.as_deref()), (Kind::Blocked, None));
        assert!(given.text.ends_with(&format!("cannot be enabled here: fix {id}")), "{}", given.text);
    }
    assert_eq!(advice(Finding::Faster, vec![finding("fq", Verdict::Fail)], "cubic", 0.0).kind, Kind::Apply);
}

#[test]
fn equal_goodput_is_no_reason_unless_the_queue_is_much_shorter() {
    let given = advice(Finding::Same, vec![], "cubic", -3.0);
    assert_eq!((given.kind, given.command.as_deref()), (Kind::Keep, None));
    assert_eq!(advice(Finding::Same, vec![], "cubic", -40.0).kind, Kind::Apply);
    assert_eq!(advice(Finding::Slower, vec![], "cubic", 0.0).kind, Kind::Keep);
    assert_eq!(advice(Finding::Faster, vec![], "bbr", 0.0).kind, Kind::Enabled);
    let back = advice(Finding::Slower, vec![], "bbr", 0.0);
    let command = back.command.as_deref();
    assert_eq!((back.kind, command), (Kind::Apply, Some("sudo fullpipe apply cubic --confirm 60s")));
}

#[test]
fn inconclusive_suggests_more_rounds() {
    let given = advice(Finding::Inconclusive { more_rounds: 7 }, vec![], "cubic", 0.0);
    assert_eq!(given.kind, Kind::Unclear);
    assert_eq!(given.command.as_deref(), Some("fullpipe advise peer bbr --rounds 13"));
}

#[test]
fn the_choice_of_a_version_decides_whatever_the_goodput_says() {
    let of = |reason, default: &str| {
        let (controller, words) = ("fp_bbr3".to_owned(), "the buffer is shallow".to_owned());
        let choice = BbrChoice { controller, reason, words };
        advice_of(Finding::Faster, vec![], default, 0.0, Some(&choice))
    };
    let given = of(BbrReason::ShallowBuffer, "cubic");
    assert_eq!((given.kind, given.text.as_str()), (Kind::Apply, "use fp_bbr3: the buffer is shallow"));
    assert_eq!(given.command.as_deref(), Some("sudo fullpipe apply fp_bbr3 --confirm 60s"));
    assert_eq!(of(BbrReason::ShallowBuffer, "fp_bbr3").kind, Kind::Enabled);
    let none = of(BbrReason::NoDifference, "cubic");
    assert_eq!((none.kind, none.command), (Kind::Keep, None));
}

#[test]
fn a_faster_controller_that_is_not_the_default_is_recommended() {
    let given = advice(Finding::Slower, vec![], "reno", 0.0);
    assert_eq!(
        given.text,
        "cubic is faster than bbr on this path. The default here, reno, was not measured: `fullpipe \
         advise peer cubic` compares them"
    );
    assert_eq!(given.command.as_deref(), Some("sudo fullpipe apply cubic --confirm 60s"));
    let given = advice(Finding::Same, vec![], "reno", 0.0);
    assert_eq!(given.text, "no relevant difference between bbr and cubic on this path");
    let given = advice(Finding::Inconclusive { more_rounds: 7 }, vec![], "reno", 0.0);
    assert_eq!(given.command.as_deref(), Some("fullpipe advise peer bbr cubic --rounds 13"));
}

#[test]
fn rates_for_buffers_are_rounded_up_to_two_digits() {
    assert_eq!([47_410_000.0, 3_210.0, 100e6].map(rounded_up), [48_000_000, 3_300, 100_000_000]);
}
