//! Where a capture was taken: whose answers come at once.

use super::life::Life;
use fullpipe_experiment::connection::{Point, Vantage};
use fullpipe_units::Span;

/// An end answers its own packets within this share of the round trip: its stack's time, and the way from its network
/// card to where captures are taken.
const SHARE: u64 = 10;

/// Round trips shorter than this do not tell the ends apart from what lies between.
const TOO_SHORT: Span = Span::from_micros(50);

/// Whether `part` of a round trip is so little beside the `rest` that an end stands there.
pub(super) fn negligible(part: Span, rest: Span) -> bool {
    part * SHARE <= rest + part
}

/// Where the capture of `life` was taken.
pub(super) fn vantage(life: &Life) -> Vantage {
    if let Some(point) = life.given {
        return Vantage { point, evidence: vec!["you said so (--at)".to_owned()] };
    }
    let ms = |s: Span| format!("{:.3} ms", s.as_millis_f64());
    let mut evidence = Vec::new();
    let handshake = (life.opening.to_server, life.opening.to_client);
    if let (Some(server), Some(client)) = handshake {
        evidence.push(format!(
            "handshake: the server answered after {}, the client after {}",
            ms(server),
            ms(client)
        ));
    }
    let [to_server, to_client] = &life.halves;
    let (server, client) = (to_server.leg.min, to_client.leg.min);
    if let (Some(server), Some(client)) = (server, client) {
        evidence.push(format!(
            "least time until what passed here was answered: {} by the server, {} by the client",
            ms(server),
            ms(client)
        ));
    }
    let (Some(server), Some(client)) = (server, client) else {
        evidence.push("one of the two ends never answered anything here".to_owned());
        return Vantage { point: Point::Unknown, evidence };
    };
    let point = if server + client < TOO_SHORT {
        evidence.push("the whole round trip is too short to tell its parts apart".to_owned());
        Point::Unknown
    } else if negligible(client, server) {
        Point::Client
    } else if negligible(server, client) {
        Point::Server
    } else {
        Point::Between
    };
    Vantage { point, evidence }
}
