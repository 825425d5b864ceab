//! `fullpipe status` and `doctor` report the host's traffic.

use crate::program;
use fullpipe_testing::own_test;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn status_and_doctor_show_current_traffic() {
    let own = std::env::current_exe().unwrap();
    // An address outside loopback, in its own network namespace.
    let script = format!(
        "ip link set lo up && ip addr add 198.51.100.1/32 dev lo && exec {} --exact {} --ignored \
         --nocapture",
        own.display(),
        own_test!(in_a_space)
    );
    let output = Command::new("unshare").args(["-n", "sh", "-c", &script]).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    if text.starts_with("unshare:") {
        assert!(std::env::var_os("CI").is_none(), "CI must have network namespaces");
        println!("SKIPPED: no network namespaces");
        return;
    }
    assert!(output.status.success(), "{text}");
}

#[test]
#[ignore = "a part of the other test, which starts it"]
fn in_a_space() {
    let reported = |args: &[&str]| -> (Value, String) {
        let json = program::fullpipe().args(args).arg("--json").output().unwrap().stdout;
        let text = program::fullpipe().args(args).output().unwrap().stdout;
        (serde_json::from_slice(&json).unwrap(), String::from_utf8(text).unwrap())
    };
    assert_eq!(reported(&["status"]).0["traffic"], serde_json::json!([]));
    let listener = TcpListener::bind("198.51.100.1:0").unwrap();
    let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut from = listener.accept().unwrap().0;
    to.write_all(&[1; 1000]).unwrap();
    from.read_exact(&mut [0; 1000]).unwrap();

    let (status, text) = reported(&["status"]);
    let traffic = &status["traffic"][0];
    assert_eq!(traffic["connections"], 2, "{status}");
    let controller = traffic["controller"].as_str().unwrap();
    assert!(!controller.is_empty() && traffic["srtt_p50_ms"].as_f64().unwrap() > 0.0, "{status}");
    assert!(
        text.lines().any(|l| l.contains(controller) && l.contains("2 connections") && l.contains("RTT")),
        "{text}"
    );

    let (doctor, _) = reported(&["doctor"]);
    let finding = doctor["findings"].as_array().unwrap().iter().find(|f| f["id"] == "traffic");
    assert!(finding.unwrap()["state"].as_str().unwrap().contains("2 connections"), "{doctor}");
}
