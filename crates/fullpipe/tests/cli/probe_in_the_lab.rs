//! Eight sites, 56 directed pairs, each with its own path: every transfer is accounted for, and
//! controllers compare as on an otherwise idle path.

use crate::hub::{Hub, Way, address};
use crate::program::{fullpipe, output_within, tied};
use crate::sites::{Mesh, Node, accounted, done, failed, in_a_network};
use fullpipe_mesh::record::{History, Outcome, Pair, TransferError};
use fullpipe_mesh::simulate::SimulatedMesh;
use fullpipe_mesh::store::Store;
use fullpipe_testing::{Attempt, check_claim, own_test};
use fullpipe_units::Span;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SITES: [&str; 8] = ["ams", "bom", "cpt", "del", "eze", "fra", "gru", "hnd"];
/// 8 to 40 Mbit/s and an RTT of 6 to 60 ms, by distance; some have a different reverse path, some
/// lose packets.
fn way(from: usize, to: usize) -> Way {
    let apart = from.abs_diff(to) as u32;
    let (low, high) = (from.min(to), from.max(to));
    let mbit = 8 + ((low * 5 + high * 3) % 5) as u32 * 8;
    let mbit = if from > to && high % 3 == 0 { mbit / 2 + 4 } else { mbit };
    Way::plain(mbit, 3 + apart * 4, if low == 0 && high == 5 { 0.3 } else { 0.0 })
}

/// The median of BBR's goodput over CUBIC's in the same period.
fn ratio(history: &History, from: &str, to: &str) -> Option<f64> {
    let at = |name: &str| history.sites.iter().position(|s| s == name).map(|at| at as u16);
    let pair = Pair { from: at(from)?, to: at(to)? };
    let controller = |name: &str| history.controllers.iter().position(|c| c == name).map(|at| at as u16);
    let goodput = |period: i64, cc: u16| {
        history.transfers.iter().find_map(|t| match &t.outcome {
            Outcome::Done(m) if t.pair == pair && t.period == period && t.controller == cc => {
                Some(m.goodput().as_bits_per_sec_f64())
            }
            _ => None,
        })
    };
    let (bbr, cubic) = (controller("bbr")?, controller("cubic")?);
    let mut periods: Vec<i64> = history.transfers.iter().map(|t| t.period).collect();
    periods.sort_unstable();
    periods.dedup();
    let mut ratios: Vec<f64> =
        periods.iter().filter_map(|p| Some(goodput(*p, bbr)? / goodput(*p, cubic)?)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}

#[test]
fn eight_sites_account_for_every_transfer_and_do_not_disturb_each_other() {
    in_a_network(own_test!(inside_eight_sites), Duration::from_secs(3600));
}

#[test]
#[ignore = "runs in networks of its own"]
fn inside_eight_sites() {
    compare(5, 28, &[[(0, 1), (2, 3), (4, 6), (5, 7)]]);
}

#[test]
#[ignore = "takes a quarter of an hour an attempt; docs/evidence/mesh.md has what it says"]
fn all_56_directions_are_measured_as_if_alone() {
    in_a_network(own_test!(inside_all_of_eight_sites), Duration::from_secs(7200));
}

#[test]
#[ignore = "runs in networks of its own"]
fn inside_all_of_eight_sites() {
    // In each of seven rounds, every site is paired with one other; each pair occurs once.
    let seat = |place: usize, nth: usize| if place == 0 { 0 } else { 1 + (place - 1 + nth) % 7 };
    let met = |board: usize, nth: usize| {
        let (a, b) = (seat(board, nth), seat(7 - board, nth));
        (a.min(b), a.max(b))
    };
    compare(11, 20, &std::array::from_fn::<Round, 7, _>(|nth| [0, 1, 2, 3].map(|board| met(board, nth))));
}

#[test]
#[ignore = "takes 40 minutes; docs/evidence/mesh.md has what it says"]
fn figure_7_of_kernel_transfers() {
    in_a_network(own_test!(inside_a_wide_area), Duration::from_secs(3 * 3600));
}

/// Periods of the mesh for figure 7.
const PERIODS: usize = 7;

/// The directory of the example meshes.
fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/mesh")
}

/// The example mesh on its paths at a tenth of their rates: eight nodes that transfer 4 MB over
/// kernel TCP with each controller every four minutes. With FULLPIPE_KEEP=DIR, the store and the
/// output of `probe report` are kept in DIR.
#[test]
#[ignore = "runs in networks of its own"]
fn inside_a_wide_area() {
    let read = |name: &str| std::fs::read_to_string(examples().join(name)).unwrap();
    let planned = fullpipe_mesh::file::Mesh::parse("mesh.toml", &read("mesh.toml")).unwrap();
    let (name, day) = ("wide-area-tenth.toml", Span::from_secs(24 * 3600));
    let world = SimulatedMesh::parse(&planned, name, &read(name), day, 1).unwrap();
    let names: Vec<&'static str> = world.sites.iter().map(|name| &*name.clone().leak()).collect();
    let way = |from: usize, to: usize| {
        let pair = Pair { from: from as u16, to: to as u16 };
        // No site sends to itself.
        world
            .links
            .get(&pair)
            .map_or_else(|| Way::plain(1000, 1, 0.0), |link| Way { link: link.clone(), answers_only: false })
    };
    let Some(hub) = Hub::new(names.len(), way) else { return };
    let mut mesh = Mesh::at(&names, address, "period = '240s'\nlimit = '120s'\nsize = '4MB'");
    mesh.patience = Duration::from_secs(3600);
    let nodes: Vec<Node> =
        (0..names.len()).map(|i| mesh.node_in(names[i], "mesh.toml", &[], Some(hub.network(i)))).collect();
    for name in &names {
        let enough = |h: &History| h.transfers.len() >= (PERIODS + 1) * (names.len() - 1) * 2;
        mesh.until(name, "periods", enough);
    }
    // Collected as usual: over the paths, by the mesh's protocol.
    let all =
        std::env::var_os("FULLPIPE_KEEP").map_or_else(|| mesh.directory.path().join("all"), PathBuf::from);
    let mut collect = Command::new("nsenter");
    collect.arg(format!("--net=/proc/{}/ns/net", hub.network(0))).arg(crate::program::path());
    collect.args(["probe", "collect", &mesh.path("mesh.toml"), "--site", names[0], "--store"]);
    collect.arg(mesh.path(names[0])).arg("--into").arg(&all);
    let collected = output_within(tied(&mut collect), Duration::from_secs(300)).expect("it ends in time");
    assert!(collected.status.success(), "{collected:?}");
    nodes.into_iter().for_each(|node| drop(node.stop()));
    for form in ["svg", "html"] {
        let mut report = fullpipe();
        report.args(["probe", "report"]).arg(&all).arg("--out").arg(all.join(format!("mesh.{form}")));
        let report = output_within(&mut report, Duration::from_secs(300)).expect("it ends in time");
        assert!(report.status.success(), "{report:?}");
        if form == "svg" {
            String::from_utf8_lossy(&report.stdout).lines().for_each(|line| println!("probe: {line}"));
        }
    }

    let history = Store::read(&all).unwrap().history(i64::MIN..i64::MAX).unwrap();
    let lost = history.transfers.len() - done(&history);
    println!("probe: {} transfers arrived, {lost} did not", done(&history));
    let mut gains: Vec<f64> = world
        .pairs()
        .filter_map(|p| ratio(&history, names[usize::from(p.from)], names[usize::from(p.to)]))
        .collect();
    gains.sort_by(f64::total_cmp);
    println!("probe: gains {gains:.2?}");
    // As in the paper's figure, BBR is 2 to 25 times as fast on most paths, and slower on none.
    assert!(gains.len() * 10 >= world.pairs().count() * 9, "only {} paths have a ratio", gains.len());
    assert!(gains[0] > 0.95, "{gains:.2?}");
    assert!((2.0..=25.0).contains(&gains[gains.len() / 2]), "{gains:.2?}");
}

/// Four pairs of sites, no site in two of them.
type Round = [(usize, usize); 4];

/// Runs the mesh for a number of periods, and then the pairs of each round alone on their paths.
fn compare(periods: usize, period_s: usize, rounds: &[Round]) {
    check_claim("eight sites, each path as it is alone", || {
        let hub = Hub::new(SITES.len(), way)?;
        Some(Attempt::run(Vec::new(), || {
            // 28 slots: at 8 Mbit/s a transfer takes about 0.6 s, most take half of that.
            let mut mesh = Mesh::at(&SITES, address, &format!("period = '{period_s}s'\nsize = '512k'"));
            mesh.patience = Duration::from_secs(900);
            let start = |mesh: &Mesh, i: usize| -> Node {
                mesh.node_in(SITES[i], "mesh.toml", &[], Some(hub.network(i)))
            };
            let nodes: Vec<Node> = (0..SITES.len()).map(|i| start(&mesh, i)).collect();
            for name in SITES {
                let enough = |h: &History| h.transfers.len() >= (periods + 1) * (SITES.len() - 1) * 2;
                mesh.until(name, "periods", enough);
            }
            // Counted both as sent and as received, with small probes.
            let memory = nodes.iter().map(Node::memory_kb).max().unwrap();
            nodes.into_iter().for_each(|node| drop(node.stop()));
            let (mut arrived, mut lost) = (0, 0);
            for name in SITES {
                mesh.whole(name);
                let history = mesh.history(name);
                accounted(&history, name, SITES.len() - 1);
                arrived += done(&history);
                // The node that ends first aborts transfers from others.
                let ended =
                    failed(&history, TransferError::Broken) + failed(&history, TransferError::Refused);
                lost += history.transfers.len() - done(&history) - ended;
            }
            println!("probe: {arrived} transfers of eight sites arrived, {lost} did not; {memory} kB");
            assert!(lost * 50 <= arrived, "{lost} of {arrived}");
            assert!(memory < 50 << 10, "{memory} kB");

            let printed: Vec<_> =
                rounds.iter().flat_map(|round| alone(&hub, &mesh, *round, periods)).collect();
            for (from, to, alone, within) in &printed {
                println!("probe: {from} -> {to}: bbr/cubic {within:.3} in the mesh, {alone:.3} alone");
            }
            let off = printed.iter().filter(|(.., alone, within)| (within / alone - 1.0).abs() >= 0.1);
            let off: Vec<_> = off.collect();
            assert!(off.is_empty(), "{} of {} are further off: {off:?}", off.len(), printed.len());
        }))
    });
}

/// The ratio of each direction of a round's pairs alone on their paths, and in the mesh.
fn alone(
    hub: &Hub,
    mesh: &Mesh,
    pairs: Round,
    periods: usize,
) -> Vec<(&'static str, &'static str, f64, f64)> {
    let meshes = pairs.map(|(a, b)| {
        let at = |i: usize| address([a, b][i]);
        let mesh = Mesh::at(&[SITES[a], SITES[b]], at, "period = '8s'\nsize = '512k'");
        let nodes = [a, b].map(|i| mesh.node_in(SITES[i], "mesh.toml", &[], Some(hub.network(i))));
        (mesh, nodes)
    });
    let mut printed = Vec::new();
    for ((alone, nodes), (a, b)) in meshes.into_iter().zip(pairs) {
        for (from, to) in [(SITES[a], SITES[b]), (SITES[b], SITES[a])] {
            let enough = |h: &History| h.transfers.len() >= (periods + 3) * 2;
            let by_itself = ratio(&alone.until(from, "periods alone", enough), from, to).unwrap();
            let within = ratio(&mesh.history(from), from, to).unwrap();
            printed.push((from, to, by_itself, within));
        }
        drop(nodes);
    }
    printed
}
