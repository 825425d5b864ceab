//! Notes on what a capture shows besides the connection.

use super::half::Half;
use fullpipe_experiment::connection::Place;

/// Packets that the capture wrote out of order. At its sender, all disorder of data is the
/// capture's.
pub(super) fn misordered(half: &Half, place: Place) -> u64 {
    let reordered = if place == Place::Sender { half.counts.reordering.segments } else { 0 };
    half.counts.misordered.saturating_add(reordered)
}

/// Notes on the packets of `half`, whose data goes to the end `name`.
pub(super) fn capture_notes(half: &Half, name: &str, place: Place) -> Vec<String> {
    let were = |n: u64, what: &str| match n {
        1 => format!("1 {what} to the {name} was"),
        n => format!("{n} {what}s to the {name} were"),
    };
    let duplicates = half.counts.duplicates;
    let misordered = misordered(half, place);
    let acks = half.disbelief.count;
    let notes = [
        (duplicates > 0).then(|| {
            let were = were(duplicates, "packet");
            format!("{were} captured twice: all other figures exclude the copies")
        }),
        (misordered > 0).then(|| {
            let were = were(misordered, "packet");
            format!("{were} reordered by the capture, not by the network")
        }),
        (acks > 0).then(|| {
            let acks = match acks {
                1 => format!("1 ACK of data to the {name} was"),
                n => format!("{n} ACKs of data to the {name} were"),
            };
            format!(
                "{acks} ignored: more than a window from the data sent, so probably from another \
                 connection with the same ports"
            )
        }),
    ];
    notes.into_iter().flatten().collect()
}
