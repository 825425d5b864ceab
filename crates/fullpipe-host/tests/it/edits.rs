//! What people do to a host between an apply and its revert: their work is never overwritten,
//! everything else comes
//! back byte for byte.

use crate::support;
use crate::support::manifest::Manifest;
use crate::support::{Fake, assert_same, put, snapshot};
use fullpipe_host::host::{DelegateFiles, Files, Host, Model, View};
use fullpipe_host::journal::Store;
use fullpipe_host::net::{QdiscOperation, ROOT};
use fullpipe_host::plan::Request;
use fullpipe_host::status::status;
use fullpipe_host::{Error, apply, revert};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

/// Something that someone does.
#[derive(Clone, Debug)]
enum Edit {
    /// Writes a file that fullpipe never touched.
    Elsewhere(u8, String),
    /// Adds a line to /etc/sysctl.conf.
    SysctlConf(String),
    /// Changes the permissions of our file.
    OurMode(u32),
    /// Removes our file.
    RemoveOurs,
    /// Replaces it by a link.
    LinkOurs,
    /// Sets a sysctl that is ours.
    Live(&'static str),
    /// Sets one that is not.
    Unrelated(i64),
    /// Puts another discipline on eth0.
    Qdisc,
}

impl Edit {
    /// The paths that it leaves different from what either side of the plan has.
    fn paths(&self) -> Vec<String> {
        match self {
            Edit::Elsewhere(n, _) => vec![format!("/etc/sysctl.d/{n:02}-admin.conf")],
            Edit::SysctlConf(_) => vec!["/etc/sysctl.conf".into()],
            Edit::OurMode(_) | Edit::RemoveOurs | Edit::LinkOurs => {
                vec!["/etc/sysctl.d/99-zz-fullpipe.conf".into()]
            }
            Edit::Live(_) => vec!["/proc/sys/net/ipv4/tcp_congestion_control".into()],
            Edit::Unrelated(_) => vec!["/proc/sys/net/ipv4/tcp_syncookies".into()],
            Edit::Qdisc => vec!["/kernel.json".into()],
        }
    }

    fn perform_steps(&self, host: &Fake) {
        const OURS: &str = "/etc/sysctl.d/99-zz-fullpipe.conf";
        let append = |path: &str, text: &str| {
            let old = host.content(path).unwrap_or_default();
            let mode = host.stat(path).map_or(0o644, |s| s.mode);
            host.files().put(path, format!("{old}{text}\n").as_bytes(), mode);
        };
        match self {
            Edit::Elsewhere(n, text) => append(&format!("/etc/sysctl.d/{n:02}-admin.conf"), text),
            Edit::SysctlConf(text) => append("/etc/sysctl.conf", &format!("# {text}")),
            Edit::OurMode(mode) if host.exists(OURS) => {
                host.files().put(OURS, host.content(OURS).unwrap().as_bytes(), *mode);
            }
            Edit::RemoveOurs if host.exists(OURS) => support::remove(host, OURS),
            Edit::LinkOurs if host.exists(OURS) => {
                support::remove(host, OURS);
                host.link(OURS, "/dev/null", 0, 0).unwrap();
            }
            Edit::OurMode(_) | Edit::RemoveOurs | Edit::LinkOurs => {}
            Edit::Live(controller) => host.set_sysctl("net.ipv4.tcp_congestion_control", controller).unwrap(),
            Edit::Unrelated(value) => host.set_sysctl("net.ipv4.tcp_syncookies", &value.to_string()).unwrap(),
            Edit::Qdisc => host
                .change_qdisc(&QdiscOperation::Replace {
                    device: "eth0".into(),
                    parent: ROOT,
                    handle: 0x0042_0000,
                    kind: "bfifo".into(),
                    options: String::new(),
                })
                .unwrap(),
        }
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (0u8..100, "[a-z#=. ]{0,30}").prop_map(|(n, t)| Edit::Elsewhere(n, format!("# {t}"))),
        "[a-z#=. ]{0,30}".prop_map(Edit::SysctlConf),
        prop_oneof![Just(0o600u32), Just(0o644), Just(0o755)].prop_map(Edit::OurMode),
        Just(Edit::RemoveOurs),
        Just(Edit::LinkOurs),
        prop_oneof![Just("reno"), Just("cubic"), Just("bbr")].prop_map(Edit::Live),
        (0i64..3).prop_map(Edit::Unrelated),
        Just(Edit::Qdisc),
    ]
}

const HOSTS: [&str; 5] = [
    "debian-12-multiqueue",
    "hand-edited-sysctl-conf",
    "ufw-enabled",
    "script-leftovers-bbrplus",
    "debian-11",
];

fn without(all: &BTreeMap<String, String>, paths: &[String]) -> BTreeMap<String, String> {
    all.iter().filter(|(p, _)| !paths.contains(p)).map(|(p, s)| (p.clone(), s.clone())).collect()
}

#[test]
fn status_reports_a_file_that_wins_at_the_next_boot() {
    for name in HOSTS {
        let (host, _) = Manifest::read(name).host();
        apply::apply(&host, &store(), &Request::new("bbr"), &apply::Options::default()).unwrap();
        let now = status(&host, &store()).unwrap();
        assert!(now.consistent && now.drift.is_empty(), "{name}: {now:?}");
        let later = "/etc/sysctl.d/zzz-later.conf";
        put(&host, later, "net.ipv4.tcp_congestion_control = cubic\n");
        let now = status(&host, &store()).unwrap();
        assert!(!now.consistent && now.drift.iter().any(|one| one.contains(later)), "{name}: {now:?}");

        // What never was to last does not differ from what was wanted.
        let (host, _) = Manifest::read(name).host();
        put(&host, later, "net.ipv4.tcp_congestion_control = cubic\n");
        let live = Request { live_only: true, ..Request::new("bbr") };
        apply::apply(&host, &store(), &live, &apply::Options::default()).unwrap();
        assert!(status(&host, &store()).unwrap().consistent, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreign_changes_are_never_overwritten_unasked(
        which in 0..HOSTS.len(),
        edits in proptest::collection::vec(edit(), 0..4),
    ) {
        let name = HOSTS[which];
        let (host, _) = Manifest::read(name).host();
        let original = snapshot(&host);
        let options = apply::Options::default();
        let applied = apply::apply(&host, &store(), &Request::new("bbr"), &options).unwrap();
        let ours: Vec<String> = applied.plan.steps.iter().map(|s| s.change.title()).collect();
        let foreign: Vec<String> = edits
            .iter()
            .filter(|e| match e {
                Edit::Live(_) => false,
                Edit::Qdisc => !ours.iter().any(|o| o == "queueing discipline of eth0"),
                _ => !e.paths().iter().any(|p| ours.contains(p)),
            })
            .flat_map(Edit::paths)
            .collect();
        for edit in &edits {
            edit.perform_steps(&host);
        }
        let edited = snapshot(&host);
        let mut touched: Vec<String> = edits.iter().flat_map(Edit::paths).collect();
        // Allowed and available follow what was chosen live; a module in use stays.
        for (edit, also) in [(&edits, "/sys/module"), (&edits, "/proc/sys/net/ipv4/tcp_a")] {
            if edit.iter().any(|e| matches!(e, Edit::Live(_) | Edit::Qdisc)) {
                touched.extend(original.keys().chain(edited.keys()).filter(|p| p.starts_with(also)).cloned());
            }
        }
        match revert::revert(&host, &store(), &revert::Options::default()) {
            Ok(_) => {
                // Only what was elsewhere was edited, or an edit happened to be what was there before.
                assert_same(&without(&snapshot(&host), &touched), &without(&original, &touched), name);
                for path in foreign {
                    let now = snapshot(&host);
                    prop_assert_eq!(now.get(&path), edited.get(&path), "{} was overwritten", path);
                }
            }
            Err(Error::Check(text)) => {
                prop_assert!(text.contains("changed since fullpipe applied \
                    them") && text.contains("now:"), "{}", text);
                assert_same(&snapshot(&host), &edited, &format!("{name}: a refusal touched something"));
                let twin = Model::new(host.files().copy());
                let keep = revert::Options { keep_changed: true, ..Default::default() };
                revert::revert(&host, &store(), &keep).unwrap();
                let kept = snapshot(&host);
                assert_same(&without(&kept, &touched), &without(&original, &touched), &format!("{name}: kept \
                    what was changed"));
                let force = revert::Options { force: true, ..Default::default() };
                revert::revert(&twin, &store(), &force).unwrap();
                let (now, before) = (without(&snapshot(&twin), &foreign), without(&original, &foreign));
                assert_same(&now, &before, &format!("{name}: forced"));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
