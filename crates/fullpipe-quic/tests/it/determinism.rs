//! The same seed gives the same bytes.

use crate::world::{World, flow, link};
use fullpipe_quic::harness::Stacks;
use fullpipe_sim::Transports;
use fullpipe_testing::{own_test, print_lines, printed_in_another_process};

/// One line for each repeatable contender and seed: a hash of the time and size of every packet
/// that arrived.
fn digests() -> Vec<String> {
    let mut lines = Vec::new();
    for cc in Stacks.names().iter().filter(|cc| Stacks.facts(&flow(cc)).repeatable) {
        for seed in [1, 2] {
            let forward = [link(
                "rate = '20mbit'\ndelay = '10ms'\nqueue = '1bdp'\nloss = '0.5%'\n\
                 reorder = { share = '0.5%', by = '3ms' }",
            )];
            let mut world = World::new(&flow(cc), &forward, &[link("delay = '10ms'\nloss = '0.5%'")], seed);
            world.bulk(3.0);
            assert_eq!(world.failure(), None, "{cc}");
            lines.push(format!("{cc} {seed} {:016x}", world.digest));
        }
    }
    lines
}

/// For the other process of `same_seed_gives_the_same_bytes_in_two_processes`.
#[test]
#[ignore = "prints for another test"]
fn print_digests() {
    print_lines(&digests());
}

#[test]
fn same_seed_gives_the_same_bytes_in_two_processes() {
    let own = digests();
    let seeds_differ =
        own.chunks(2).all(|pair| pair[0].split(' ').next_back() != pair[1].split(' ').next_back());
    assert!(own.len() > 20 && seeds_differ, "{own:?}");
    assert_eq!(own, printed_in_another_process(own_test!(print_digests)));
}
