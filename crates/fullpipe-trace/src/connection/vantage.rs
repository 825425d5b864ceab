//! Detects where a capture was taken: the near end answers at once.

use super::tracker::Tracker;
use fullpipe_experiment::connection::{Point, Vantage};
use fullpipe_units::Span;

/// Maximum part of the RTT (1/n) between a host and a capture on it.
const LOCAL_RTT_PART: u64 = 10;

/// Minimum RTT for which the place can be detected.
const MIN_RTT: Span = Span::from_micros(50);

/// A host may take as long to answer a packet that was captured on it, above all a busy one or a
/// virtual machine. Only longer response times of both ends show that the capture was between them.
pub(super) const MIN_BETWEEN: Span = Span::from_millis(1);

/// Whether `part` of the RTT is so small compared with the `rest` that the capture is at that end.
pub(super) fn negligible(part: Span, rest: Span) -> bool {
    part * LOCAL_RTT_PART <= rest + part
}

/// Detects where the capture of a connection was taken.
pub(super) fn vantage(tracker: &Tracker) -> Vantage {
    if let Some(point) = tracker.specified_point {
        return Vantage { point, is_guess: false, evidence: vec!["set with --at".to_owned()] };
    }
    let ms = |s: Span| format!("{:.3} ms", s.as_millis_f64());
    let mut evidence = Vec::new();
    let handshake = (tracker.opening.to_server, tracker.opening.to_client);
    if let (Some(server), Some(client)) = handshake {
        evidence.push(format!(
            "handshake: the server answered after {}, the client after {}",
            ms(server),
            ms(client)
        ));
    }
    let [to_server, to_client] = &tracker.halves;
    let (server, client) = (to_server.leg.min, to_client.leg.min);
    if let (Some(server), Some(client)) = (server, client) {
        evidence.push(format!(
            "minimum response time: {} of the server, {} of the client",
            ms(server),
            ms(client)
        ));
    }
    let (Some(server), Some(client)) = (server, client) else {
        evidence.push("one of the ends has no responses in the capture".to_owned());
        return Vantage { point: Point::Unknown, is_guess: false, evidence };
    };
    let point = if tracker.client.ip() == tracker.server.ip() {
        evidence.push("both ends are on one host".to_owned());
        Point::Unknown
    } else if server + client < MIN_RTT {
        evidence.push("the RTT is too short to detect the place".to_owned());
        Point::Unknown
    } else if negligible(client, server) {
        Point::Client
    } else if negligible(server, client) {
        Point::Server
    } else if server.min(client) < MIN_BETWEEN {
        evidence.push("an end that answers within 1 ms may be the capturing host".to_owned());
        Point::Unknown
    } else {
        Point::Between
    };
    let mut is_guess = false;
    for (half, name) in tracker.halves.iter().zip(["server", "client"]) {
        if point != Point::Unknown && !half.leg.has_answers {
            is_guess = true;
            evidence.push(format!("the {name} answered with data only, which may wait for its application"));
        }
    }
    Vantage { point, is_guess, evidence }
}
