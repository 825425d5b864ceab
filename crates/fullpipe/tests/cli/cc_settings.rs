//! `fullpipe cc load --set` and `cc tune`: several variants of a controller at once, each with its
//! own settings, which open sockets follow.

use crate::connections::Connections;
use crate::space::{in_a_space, status, unload};
use fullpipe_ebpf::lifecycle;
use fullpipe_testing::own_test;
use serde_json::Value;
use std::process::{Command, Output};

fn fullpipe(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fullpipe")).arg("cc").args(line.split(' ')).output().unwrap()
}

fn ok(line: &str) -> String {
    let output = fullpipe(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The exit code and the output.
fn refused(line: &str) -> (Option<i32>, String) {
    let output = fullpipe(line);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The windows of a controller's sockets, in packets.
fn windows(name: &str) -> Vec<u32> {
    status(name).sockets.iter().map(|socket| socket.cwnd).collect()
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn variants() {
    ok("load bbr3 --name fpx_wide --set min_pipe_cwnd_packets=60 --set beta_percent=80");
    ok("load bbr3 --name fpx_draft");
    let (mut wide, mut draft) = (Connections::open("fpx_wide", 5), Connections::open("fpx_draft", 5));
    wide.talk(3);
    draft.talk(3);
    let (of_wide, of_draft) = (windows("fpx_wide"), windows("fpx_draft"));
    assert!(of_wide.iter().all(|cwnd| *cwnd >= 60), "{of_wide:?}");
    assert!(of_draft.iter().all(|cwnd| *cwnd < 60), "{of_draft:?}");

    // Each is listed with its settings.
    let reported: Value = serde_json::from_str(&ok("status --json")).unwrap();
    let of = |name: &str| {
        let all = reported["controllers"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["settings"].clone()
    };
    assert_eq!((&of("fpx_wide")["beta_percent"], &of("fpx_draft")["beta_percent"]), (&80.into(), &70.into()));
    assert_eq!(
        (&of("fpx_wide")["ecn"], &of("fpx_wide")["probe_up_pacing_gain"]),
        (&true.into(), &1.25.into())
    );
    for text in [ok("status"), ok("list")] {
        // At any width of the screen.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches("beta_percent=80, min_pipe_cwnd_packets=60").count(), 1, "{text}");
    }

    // Only open sockets of this variant follow.
    let printed = ok("tune fpx_draft min_pipe_cwnd_packets=90 ecn=off");
    let line = printed.lines().find(|line| line.starts_with("min_pipe_cwnd_packets ")).unwrap();
    assert!(line.contains(" 90 ") && line.contains("default 4"), "{printed}");
    wide.talk(2);
    draft.talk(2);
    let of_draft = windows("fpx_draft");
    assert!(of_draft.iter().all(|cwnd| *cwnd >= 90), "{of_draft:?}");
    assert!(windows("fpx_wide").iter().all(|cwnd| *cwnd < 90));
    // Loading a variant again sets, too.
    ok("load bbr3 --name fpx_draft --set ecn=on");
    assert!(!ok("tune fpx_draft").contains("off   (on"), "it is on again");
    let kept = status("fpx_draft").settings;
    assert!(kept.iter().any(|one| one.about.key == "min_pipe_cwnd_packets" && one.value == "90"), "{kept:?}");

    // Google's v3 beside them, with its own gains; a socket can change its variant while open.
    ok("load bbr3 --name fpx_linux --set variant=linux --set beta_percent=75");
    for text in [ok("status"), ok("list")] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("variant=linux, beta_percent=75"), "{text}");
    }
    let gain = |printed: &str| {
        let line = printed.lines().find(|line| line.starts_with("drain_pacing_gain ")).map(str::to_owned);
        line.unwrap().split_whitespace().nth(1).unwrap().to_owned()
    };
    let mut linux = Connections::open("fpx_linux", 5);
    for (variant, drain) in [("linux", "0.344"), ("draft", "0.5"), ("linux", "0.344")] {
        let printed = ok(&format!("tune fpx_linux variant={variant}"));
        assert_eq!(gain(&printed), drain, "{printed}");
        linux.talk(3);
        let status = status("fpx_linux");
        assert!(status.sockets.iter().all(|socket| socket.rounds > Some(0)), "{status:?}");
        let reported = serde_json::to_value(&status).unwrap();
        assert_eq!(reported["settings"]["variant"], variant);
        assert_eq!(reported["settings"]["beta_percent"], 75, "what was set stays");
    }
    drop(linux);

    ok("load hybla --name fpx_hybla --set rtt0=50");
    assert!(ok("tune fpx_hybla").contains("50   (default 25)"));
    drop((wide, draft));
    for name in ["fpx_wide", "fpx_draft", "fpx_linux", "fpx_hybla"] {
        unload(name);
    }
}

#[test]
fn variants_have_own_settings_that_open_sockets_follow() {
    in_a_space(own_test!(variants));
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn refusals() {
    let bad = [
        ("bbr3", "beta_percent=170", "from 1 to 100"),
        ("bbr3", "beta_percent=170", "in percent"),
        ("bbr3", "probe_rtt_interval_ms=soon", "in ms"),
        ("bbr3", "beta_percnt=80", "did you mean `beta_percent`"),
        ("bbr3", "variant=letter", "in the simulator"),
        ("bbr3", "variant=google", "draft or linux"),
        ("bbr3", "variant=linux --set ecn=on", "`ecn` has no effect with variant=linux"),
        ("bbr1", "beta_percent=80", "equals the kernel's bbr"),
        ("hybla", "rtt0=0", "1 to 10000 (ms)"),
        ("bbr3", "beta_percent", "KEY=VALUE"),
    ];
    for (controller, pair, says) in bad {
        let (code, printed) = refused(&format!("load {controller} --name fpy_x --set {pair}"));
        assert_eq!(code, Some(2), "{controller} {pair}: {printed}");
        assert!(printed.contains(says), "{controller} {pair}: {printed}");
    }
    assert!(lifecycle::loaded().unwrap().is_empty(), "nothing was loaded");
    let (code, printed) = refused("tune fpy_x beta_percent=80");
    assert!(code == Some(3) && printed.contains("not loaded"), "{code:?} {printed}");

    ok("load bbr3 --name fpy_x --set beta_percent=80");
    let (code, printed) = refused("tune fpy_x headroom_percent=20 beta_percent=0");
    assert!(code == Some(2) && printed.contains("from 1 to 100"), "{code:?} {printed}");
    let changed: Vec<_> = status("fpy_x").settings.into_iter().filter(|one| !one.is_default()).collect();
    assert!(changed.len() == 1 && changed[0].value == "80", "all of it or nothing: {changed:?}");
    unload("fpy_x");
}

#[test]
fn invalid_settings_are_rejected_with_range_and_unit() {
    in_a_space(own_test!(refusals));
}

#[test]
fn the_settings_of_each_controller_are_listed_without_loading_it() {
    let of_bbr3 = ok("settings bbr3");
    for (key, default) in [("beta_percent", "default 70"), ("probe_up_pacing_gain", "default 1.25")] {
        assert!(of_bbr3.contains(key) && of_bbr3.contains(default), "{of_bbr3}");
    }
    assert!(ok("settings hybla").contains("rtt0"));
    assert!(ok("settings bbr1").contains("no settings"));
}
