//! `fullpipe cc update` under open sockets: a thousand of them continue, with their model of the
//! path if both builds have the same layout of state, and with a notice if not. A kill before any
//! step leaves one build or the other.

use crate::connections::Connections;
use crate::space::{WITHOUT_LINKS, in_a_space, in_a_space_without_links, status, unload};
use crate::steps;
use fullpipe_ebpf::Controller;
use fullpipe_ebpf::lifecycle::{self, Outcome, Status};
use fullpipe_ebpf::load_options::BuildInfo;
use fullpipe_testing::own_test;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FULLPIPE: &str = env!("CARGO_BIN_EXE_fullpipe");
/// Another build with BBR v3's current layout (`FP_STATE_LAYOUT` of its programs), and one with an
/// unknown layout.
const SAME: BuildInfo = BuildInfo { build: 1, state_layout: Some(3), format: Some(2) };
const OTHER: BuildInfo = BuildInfo { state_layout: Some(77), ..SAME };

impl Connections {
    /// The status, and the minimum and maximum round count of these sockets.
    fn status_and_rounds(&self) -> (Status, u64, u64) {
        let status = status(self.name);
        let rounds: Vec<u64> = status.sockets.iter().filter_map(|socket| socket.rounds).collect();
        assert_eq!(rounds.len(), self.ends.len(), "each of the sockets is there");
        (status, *rounds.iter().min().unwrap(), *rounds.iter().max().unwrap())
    }
}

/// Updates while other connections are busy, with a byte that no other test sends.
fn update_while_busy(controller: Controller, name: &'static str) -> Outcome {
    let done = AtomicBool::new(false);
    let mut busy = Connections::open(name, 20);
    std::thread::scope(|scope| {
        let talker = scope.spawn(|| {
            let mut exchanges = 0;
            while !done.load(Ordering::Relaxed) {
                busy.talk(1);
                exchanges += 1;
            }
            // And after the update.
            busy.talk(20);
            exchanges
        });
        std::thread::sleep(Duration::from_millis(100));
        let outcome = lifecycle::update(controller, Some(name)).unwrap();
        done.store(true, Ordering::Relaxed);
        assert!(talker.join().unwrap() > 0);
        outcome
    })
}

fn has_links() -> bool {
    std::env::var_os(WITHOUT_LINKS).is_none()
}

/// A name for each way to register: the parts run in parallel, and names are global on the machine.
fn own_name(with: &'static str, without: &'static str) -> &'static str {
    if has_links() { with } else { without }
}

/// Whether the update carried over sockets, their state, settings.
fn carried(outcome: Outcome) -> [bool; 3] {
    match outcome {
        Outcome::Replaced(carried) => [carried.sockets, carried.state, carried.settings],
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn a_thousand() {
    let (name, count) = (own_name("fpu_bbr3", "fpu_map"), 1_000);
    lifecycle::load_as_build(Controller::Bbr3, name, SAME).unwrap();
    let given = [("beta_percent", "80"), ("variant", "linux")];
    lifecycle::tune(name, &given.map(|(key, value)| (key.to_owned(), value.to_owned()))).unwrap();
    let mut connections = Connections::open(name, count);
    connections.talk(10);
    let (before, least, most) = connections.status_and_rounds();
    assert!(!before.is_this_build && least >= 8, "{least} to {most} rounds");

    // The same layout: everything continues unchanged.
    assert_eq!(carried(update_while_busy(Controller::Bbr3, name)), [true; 3]);
    connections.talk(2);
    let (after, still, _) = connections.status_and_rounds();
    println!("{count} sockets: at least {least} rounds before, {still} after an update to the same layout");
    assert!(after.is_this_build && still > least, "{least} rounds before, {still} after");
    for (key, value) in given {
        let kept = after.settings.iter().find(|one| one.about.key == key).unwrap();
        assert_eq!(kept.value, value, "{key}");
    }
    // They have the new build: its settings apply to them.
    lifecycle::tune(name, &[("min_pipe_cwnd_packets".to_owned(), "90".to_owned())]).unwrap();
    connections.talk(1);
    assert!(connections.status_and_rounds().0.sockets.iter().all(|socket| socket.cwnd >= 90));
    drop(connections);
    unload(name);

    // Another layout, of a build without settings: the sockets continue with a new model.
    lifecycle::load_as_build(Controller::Bbr3, name, BuildInfo { format: None, ..OTHER }).unwrap();
    let mut connections = Connections::open(name, count);
    connections.talk(10);
    assert_eq!(carried(update_while_busy(Controller::Bbr3, name)), [true, false, false]);
    connections.talk(3);
    let (after, _, most) = connections.status_and_rounds();
    println!("{count} sockets: at most {most} rounds after an update to another layout");
    assert!(after.is_this_build && most < 8, "{most} rounds in three exchanges");
    connections.talk(10);
    let (_, least, _) = connections.status_and_rounds();
    assert!(least >= 8, "the model learns again: {least} rounds");
    drop(connections);
    unload(name);
}

#[test]
fn a_thousand_sockets_survive_an_update_with_state_or_a_notice() {
    in_a_space(own_test!(a_thousand));
}

#[test]
fn a_thousand_sockets_survive_an_update_without_links() {
    in_a_space_without_links(own_test!(a_thousand));
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn inside_the_socket() {
    let name = "fpv_bbr1";
    lifecycle::load_as_build(Controller::Bbr1, name, SAME).unwrap();
    let mut connections = Connections::open(name, 50);
    connections.talk(10);
    let (before, least, _) = connections.status_and_rounds();
    assert!(!before.is_this_build);
    // The kernel would clear their state, so they keep their programs.
    assert_eq!(carried(update_while_busy(Controller::Bbr1, name)), [false, true, true]);
    connections.talk(2);
    let (after, still, _) = connections.status_and_rounds();
    assert!(after.is_this_build && still > least, "{least} rounds before, {still} after");
    // Also after the name is used again.
    assert_eq!(carried(lifecycle::update(Controller::Hybla, Some(name)).unwrap()), [false, true, false]);
    connections.talk(2);
    assert!(connections.status_and_rounds().1 > still);
    assert_eq!(carried(lifecycle::update(Controller::Bbr3, Some(name)).unwrap()), [true, false, false]);
    connections.talk(2);
    assert!(connections.status_and_rounds().2 < 8, "BBR v3 begins with what it sees itself");
    drop(connections);
    unload(name);
}

#[test]
fn sockets_with_inline_state_keep_their_build() {
    in_a_space(own_test!(inside_the_socket));
    in_a_space_without_links(own_test!(inside_the_socket));
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn default() {
    let name = "fps_bbr3";
    lifecycle::load_as_build(Controller::Bbr3, name, SAME).unwrap();
    set_default(name);
    assert_eq!(carried(lifecycle::update(Controller::Bbr3, Some(name)).unwrap()), [true; 3]);
    // New connections follow the settings of the build that they have.
    lifecycle::tune(name, &[("min_pipe_cwnd_packets".to_owned(), "90".to_owned())]).unwrap();
    let mut connections = Connections::by_default(name, 5);
    connections.talk(3);
    let windows: Vec<u32> = status(name).sockets.iter().map(|socket| socket.cwnd).collect();
    assert!(windows.len() == 10 && windows.iter().all(|cwnd| *cwnd >= 90), "{windows:?}");
    drop(connections);
    unload(name);
}

#[test]
fn new_connections_use_the_new_build_of_the_default() {
    in_a_space(own_test!(default));
    in_a_space_without_links(own_test!(default));
}

fn set_default(name: &str) {
    std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name).unwrap();
}

/// The controller of a connection that a listener accepts.
fn accepted(listener: &TcpListener) -> String {
    let _to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let name = getsockopt(&listener.accept().unwrap().0, sockopt::TcpCongestion).unwrap();
    name.to_string_lossy().trim_end_matches('\0').to_owned()
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn listeners() {
    let name = own_name("fpx_bbr3", "fpx_map");
    for again in ["load", "update"] {
        match again {
            "load" => assert_eq!(lifecycle::load(Controller::Bbr3, Some(name)).unwrap(), Outcome::Loaded),
            _ => lifecycle::load_as_build(Controller::Bbr3, name, SAME).unwrap(),
        }
        set_default(name);
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (follows, chose) = (listen(), listen());
        setsockopt(&chose, sockopt::TcpCongestion, &name.into()).unwrap();
        let outcome = lifecycle::load(Controller::Bbr3, Some(name)).unwrap();
        assert_eq!(outcome == Outcome::AlreadyLoaded, again == "load", "{outcome:?}");
        assert_eq!((accepted(&follows).as_str(), accepted(&chose).as_str()), (name, name), "{again}");
        // A connection follows the settings of the build that it has.
        lifecycle::tune(name, &[("min_pipe_cwnd_packets".to_owned(), "90".to_owned())]).unwrap();
        let to = TcpStream::connect(follows.local_addr().unwrap()).unwrap();
        let mut connection = Connections { name, ends: vec![(follows.accept().unwrap().0, to)] };
        connection.talk(3);
        let windows: Vec<u32> =
            status(name).sockets.iter().filter(|socket| !socket.listens).map(|socket| socket.cwnd).collect();
        assert!(!windows.is_empty() && windows.iter().all(|cwnd| *cwnd >= 90), "{again}: {windows:?}");
        drop(connection);
        set_default("reno");
        assert_eq!((accepted(&follows).as_str(), accepted(&chose).as_str()), ("reno", name), "{again}");
        drop((follows, chose));
        unload(name);
    }
}

#[test]
fn listeners_follow_the_default_after_a_reload_or_update() {
    in_a_space(own_test!(listeners));
    in_a_space_without_links(own_test!(listeners));
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn refused() {
    let name = "fpr_bbr3";
    lifecycle::load_as_build(Controller::Bbr3, name, SAME).unwrap();
    lifecycle::tune(name, &[("beta_percent".to_owned(), "80".to_owned())]).unwrap();
    // The first replaces the other build, the second finds this build.
    for found in ["another build", "this build"] {
        let mut load = Command::new(FULLPIPE);
        load.args(["cc", "load", "bbr3", "--name", name, "--set", "beta_percent=60"]);
        let output = load.args(["--route", "203.0.113.0/24"]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains("no route to"), "{found}: {printed}");
        let status = status(name);
        let beta = status.settings.iter().find(|one| one.about.key == "beta_percent").unwrap();
        assert!(status.is_this_build && beta.value == "80", "{found}: {beta:?}");
    }
    unload(name);
}

#[test]
fn a_rejected_use_leaves_settings_unchanged() {
    in_a_space(own_test!(refused));
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn killed() {
    let name = own_name("fpw_bbr3", "fpw_map");
    let (mut old, mut new, mut neither) = (0, 0, 0);
    for n in 0.. {
        lifecycle::load_as_build(Controller::Bbr3, name, SAME).unwrap();
        let mut connections = Connections::open(name, 20);
        connections.talk(6);
        let (_, least, _) = connections.status_and_rounds();
        let mut update = Command::new("sh");
        update.args(["-c", &format!("exec {FULLPIPE} cc update bbr3 --name {name}")]);
        let end = steps::kill_before(update, Path::new(FULLPIPE), n);
        let at = match &end {
            steps::End::Killed(step) => format!("killed before step {n}: {step}"),
            steps::End::Itself(status) => format!("not killed: {status}"),
        };
        connections.talk(2);
        let (after, still, _) = connections.status_and_rounds();
        assert!(still > least, "{at}: {least} rounds before, {still} after");
        // Without links the name is unregistered for a moment.
        assert!(after.registered || !has_links(), "{at}");
        neither += usize::from(!after.registered);
        println!("{} after {at}", if after.is_this_build { "this build" } else { "the other" });
        *(if after.is_this_build { &mut new } else { &mut old }) += 1;
        // Another update completes the interrupted one.
        lifecycle::update(Controller::Bbr3, Some(name)).unwrap();
        connections.talk(1);
        assert!(connections.status_and_rounds().0.is_this_build, "{at}");
        drop(connections);
        unload(name);
        if let steps::End::Itself(status) = end {
            assert!(status.success() && after.is_this_build, "{at}");
            break;
        }
    }
    println!(
        "{old} kills left the build that was there, {} the new one, {neither} an unregistered one",
        new - 1
    );
    assert!(old > 10, "an update is more than {old} steps");
}

#[test]
fn a_killed_update_leaves_one_build_and_all_sockets() {
    in_a_space(own_test!(killed));
}

#[test]
fn a_killed_update_without_links_can_be_completed() {
    in_a_space_without_links(own_test!(killed));
}
