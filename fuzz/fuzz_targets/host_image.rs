//! An image of a host whose files someone else wrote: the modelled kernel, sysctl.d, tuned, UFW,
//! modules, the journal. Whatever they say, looking at it ends, and plans are made or refused with
//! a reason.
#![no_main]

mod image;

use fullpipe_host::checks::{self, Question};
use fullpipe_host::host::Model;
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, Request};
use fullpipe_host::screen::{self, Style};
use fullpipe_host::status;
use image::{Image, parts};
use libfuzzer_sys::fuzz_target;

/// The files that are read, by the number that a part of the input has.
const NAMES: [&str; 24] = [
    "/kernel.json",
    "/etc/sysctl.conf",
    "/etc/sysctl.d/10-a.conf",
    "/etc/sysctl.d/99-b.conf",
    "/usr/lib/sysctl.d/50-c.conf",
    "/usr/lib/systemd/systemd-sysctl",
    "/etc/tuned/active_profile",
    "/etc/tuned/tuned-main.conf",
    "/etc/tuned/p/tuned.conf",
    "/etc/tuned/q/tuned.conf",
    "/etc/ufw/ufw.conf",
    "/etc/default/ufw",
    "/etc/ufw/sysctl.conf",
    "/etc/modules",
    "/etc/modules-load.d/x.conf",
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/self/mounts",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_available_congestion_control",
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/lib/modules/6.1.0/modules.dep",
    "/var/lib/fullpipe/host.journal",
];
/// Makes tuned one of what sets sysctls at boot.
const TUNED: &str = "/etc/systemd/system/multi-user.target.wants/tuned.service";

fuzz_target!(|bytes: &[u8]| {
    let named = parts(bytes).map(|(number, content)| (NAMES[number % NAMES.len()], content.to_vec()));
    let host = Model::new(Image::from_files(named.chain([(TUNED, Vec::new())]).collect()));
    let style = Style { colour: false, width: 100 };
    let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let _ = screen::doctor(style, &report, true);
    if let Ok(status) = status::status(&host, &Store::at("/var/lib/fullpipe")) {
        let _ = screen::status(style, &status);
    }
    if let Ok(plan) = plan::make(&host, &Request::new("bbr"), "/usr/bin/fullpipe") {
        let _ = screen::plan(style, &plan);
    }
});
