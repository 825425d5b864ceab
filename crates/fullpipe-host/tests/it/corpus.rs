//! Every fake host: what the doctor says, what the plan is, and that apply and revert leave it as
//! it was.

use crate::support;
use crate::support::manifest::{Expect, Manifest};
use crate::support::memory::Entry;
use crate::support::{assert_same, restart_with_units, snapshot};
use fullpipe_host::boot;
use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::host::{DelegateFiles, Host, Model, View};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, QdiscChoice, Request};
use fullpipe_host::{apply, revert};
use std::collections::BTreeMap;

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

fn request(expect: &Expect) -> Request {
    let mut request = Request::new(&expect.controller);
    request.qdisc = match expect.qdisc.as_deref() {
        None => QdiscChoice::Recommended,
        Some("keep") => QdiscChoice::Keep,
        Some(kind) => QdiscChoice::Kind(kind.into()),
    };
    request
}

fn question(expect: &Expect) -> Question {
    let path = expect.path.as_ref().map(|p| {
        let (rate, rtt) = p.split_once(' ').unwrap();
        (rate.parse().unwrap(), rtt.parse().unwrap())
    });
    Question { controller: expect.controller.clone(), path }
}

#[test]
fn doctor_reports_each_host_correctly() {
    let names = Manifest::all();
    assert!(names.len() >= 25, "only {} hosts", names.len());
    for name in names {
        let manifest = Manifest::read(&name);
        let (host, _) = manifest.host();
        for expect in &manifest.expect {
            let before = snapshot(&host);
            let report = checks::examine(&host, &question(expect));
            // Every verdict that is not ok is written down in the manifest, and no other.
            let found: BTreeMap<String, String> = report
                .findings
                .iter()
                .filter(|f| f.verdict != Verdict::Ok)
                .map(|f| (f.id.to_owned(), format!("{:?}", f.verdict).to_lowercase()))
                .collect();
            assert_eq!(found, expect.doctor, "{name} ({})", manifest.about);
            if let Some(next) = &expect.next {
                assert!(report.next.contains(next.as_str()), "{name}: {}", report.next);
            }
            for finding in &report.findings {
                assert!(
                    !finding.read.is_empty() && !finding.why.is_empty() && !finding.source.is_empty(),
                    "{name}: {finding:?}"
                );
                let helped = finding.advice.is_some();
                assert!(
                    helped || finding.verdict > Verdict::Warn || finding.id == "boot-qdisc",
                    "{name}: {finding:?}"
                );
            }
            assert_same(&snapshot(&host), &before, &format!("{name}: the doctor changed something"));
        }
    }
}

#[test]
fn offloads_are_judged_on_cards_and_not_on_loopback_or_veth() {
    let ask = |name: &str, controller: &str| {
        let (host, _) = Manifest::read(name).host();
        let report = checks::examine(&host, &Question { controller: controller.into(), path: None });
        report.findings.into_iter().find(|f| f.id == "offloads").unwrap_or_else(|| panic!("{name}"))
    };
    let fine = ask("fast-card-offloads-on", "bbr");
    assert_eq!(fine.verdict, Verdict::Ok);
    assert_eq!(fine.read.len(), 2, "lo and veth0 are not read: {:?}", fine.read);
    assert!(fine.read[0].from.ends_with("eth0") && fine.read[0].value.starts_with("TSO on"), "{fine:?}");
    assert_eq!(fine.advice, None);
    // What a paced controller takes for a slow path, a loss-based one only pays for.
    let off = |controller| ask("fast-card-tso-off", controller);
    assert_eq!((off("bbr").verdict, off("cubic").verdict), (Verdict::Warn, Verdict::Advice));
    assert!(off("bbr").state.contains("25gbit"), "{}", off("bbr").state);
    let router = ask("router-with-lro", "bbr");
    assert_eq!(
        router.state,
        "GRO is off on eth0 (unknown speed); LRO is on for eth0, and this host forwards packets"
    );
    let advice = router.advice.unwrap();
    assert!(advice.starts_with("`ethtool -K eth0 gro on; ethtool -K eth0 lro off`"), "{advice}");
}

#[test]
fn kernel_without_struct_ops_links_is_reported_as_needing_a_trial() {
    let ask = |name: &str| {
        let (host, _) = Manifest::read(name).host();
        let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
        report.findings.into_iter().find(|f| f.id == "ebpf").unwrap().state
    };
    for old in ["debian-11", "script-leftovers-bbrplus"] {
        let state = ask(old);
        assert!(state.contains("can be loaded") && state.contains("`fullpipe cc list`"), "{old}: {state}");
    }
    // Of 5.14 by its number, with what the distribution carried to it.
    let carried = ask("tuned-wins");
    assert!(carried.contains("can be loaded") && !carried.contains("cc list"), "{carried}");
    assert!(ask("debian-10-kernel-4.19").contains("no BTF"));
}

#[test]
fn doctor_json_names_its_schema() {
    let (host, _) = Manifest::read("bbr-everywhere").host();
    let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], "fullpipe/doctor/1");
    assert!(json["findings"].as_array().unwrap().iter().all(|f| f["id"].is_string() && f["read"].is_array()));
}

#[test]
fn each_host_gets_its_plan_or_its_refusal_and_is_restored_byte_for_byte() {
    for name in Manifest::all() {
        let manifest = Manifest::read(&name);
        for expect in &manifest.expect {
            let (host, pristine) = manifest.host();
            let original = snapshot(&host);
            let context = format!("{name}, {}", expect.controller);
            let made = plan::make(&host, &request(expect), "/usr/bin/fullpipe");
            assert_same(&snapshot(&host), &original, &format!("{context}: planning changed something"));
            let plan = match (made, &expect.refused) {
                (Ok(plan), None) => plan,
                (Err(error), Some(parts)) => {
                    assert!(!parts.is_empty(), "{context}: {error}");
                    for part in parts {
                        assert!(error.text().contains(part.as_str()), "{context}: {error}");
                    }
                    continue;
                }
                (Ok(plan), Some(_)) => panic!("{context}: not refused: {plan:?}"),
                (Err(error), None) => panic!("{context}: {error}"),
            };
            let titles: Vec<String> = plan.steps.iter().map(|s| s.change.title()).collect();
            assert_eq!(Some(&titles), expect.plan.as_ref(), "{context}");
            assert_eq!(plan.notes, expect.notes, "{context}");
            match apply::apply(&host, &store(), &request(expect), &apply::Options::default()) {
                Err(error) => {
                    let expected =
                        expect.apply_fails.as_ref().unwrap_or_else(|| panic!("{context}: {error}"));
                    assert!(error.text().contains(expected.as_str()), "{context}: {error}");
                }
                Ok(applied) => {
                    assert_eq!(applied.observed.as_deref(), Some(expect.controller.as_str()), "{context}");
                    if !plan.is_empty() {
                        let again =
                            apply::apply(&host, &store(), &request(expect), &apply::Options::default())
                                .unwrap();
                        assert_eq!(again.made, 0, "{context}: applying twice makes nothing new");
                    }
                    holds_after_a_restart(&host, &pristine, expect, &context);
                    revert::revert(&host, &store(), &revert::Options::default()).unwrap();
                }
            }
            assert_same(&snapshot(&host), &original, &context);
        }
    }
}

/// The boot programs leave the host with the controller, on a machine of its own that is started
/// from these files.
fn holds_after_a_restart(
    host: &support::Fake,
    pristine: &BTreeMap<String, Entry>,
    expect: &Expect,
    context: &str,
) {
    let twin = Model::new(host.files().copy());
    restart_with_units(&twin, pristine);
    let live = twin.sysctl("net.ipv4.tcp_congestion_control").unwrap();
    assert_eq!(live, expect.controller, "{context}: after a restart");
    if !expect.controller.starts_with("fp_") {
        // The same when someone runs `sysctl --system` by hand.
        for assignment in boot::simulate(&twin, boot::Program::Procps) {
            let _ = twin.set_sysctl(&assignment.key, &assignment.value);
        }
        assert_eq!(twin.sysctl("net.ipv4.tcp_congestion_control").unwrap(), expect.controller, "{context}");
    }
}
