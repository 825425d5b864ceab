//! Share of connections open at the same time as one of another arm from the same client: where
//! arms share a bottleneck, one may take bandwidth from the other, and the difference is not that
//! of a full roll-out (Spang, Hannan, Kunamalla, Huang, McKeown and Johari, *Unbiased experiments
//! in congested networks*, IMC 2021).

use crate::{AssignBy, Assigner, MAX_ARMS, Outcome};
use std::net::{Ipv4Addr, SocketAddr};

/// Maximum connections considered; a million are enough to estimate a share.
const MAX_CONNECTIONS: usize = 1 << 20;

/// Times during which connections were open, by the /24 or /56 of the client.
#[derive(Clone, Debug, Default)]
pub struct Overlap {
    spans: Vec<(u64, f64, f64, u8)>,
}

impl Overlap {
    /// Adds a connection.
    pub fn add(&mut self, o: &Outcome) {
        if self.spans.len() < MAX_CONNECTIONS && usize::from(o.arm) < MAX_ARMS {
            let by = Assigner::new(0, AssignBy::ClientPrefix { v4: 24, v6: 56 });
            let client = by.hash(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), o.remote);
            self.spans.push((client, o.opened_unix_s, o.opened_unix_s + o.duration_s, o.arm));
        }
    }

    /// Share of connections open at the same time as one of another arm from the same client;
    /// `None` without connections.
    pub fn share(&self) -> Option<f64> {
        let mut spans = self.spans.clone();
        spans.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut overlaps = vec![false; spans.len()];
        let mut start = 0;
        while start < spans.len() {
            let client = spans[start].0;
            let end = start + spans[start..].partition_point(|span| span.0 == client);
            // Earlier connections that were still open, then later ones that opened before this one closed.
            let mut latest = [f64::NEG_INFINITY; MAX_ARMS];
            for i in start..end {
                let (_, opened, closed, arm) = spans[i];
                overlaps[i] |= other_arms(&latest, arm).any(|other| other > opened);
                latest[usize::from(arm)] = latest[usize::from(arm)].max(closed);
            }
            let mut next = [f64::INFINITY; MAX_ARMS];
            for i in (start..end).rev() {
                let (_, opened, closed, arm) = spans[i];
                overlaps[i] |= other_arms(&next, arm).any(|other| other < closed);
                next[usize::from(arm)] = opened;
            }
            start = end;
        }
        let count = overlaps.iter().filter(|is| **is).count();
        (!spans.is_empty()).then(|| count as f64 / spans.len() as f64)
    }
}

fn other_arms(all: &[f64; MAX_ARMS], arm: u8) -> impl Iterator<Item = f64> {
    all.iter().enumerate().filter(move |(i, _)| *i != usize::from(arm)).map(|(_, x)| *x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::example;

    #[test]
    fn only_concurrent_connections_of_one_client_in_different_arms_overlap() {
        let mut overlap = Overlap::default();
        let mut open = |arm, remote, opened_unix_s, duration_s| {
            overlap.add(&Outcome { opened_unix_s, duration_s, ..example(arm, remote) });
        };
        open(0, "10.0.0.1:1", 0.0, 10.0);
        open(1, "10.0.0.9:1", 5.0, 1.0); // overlaps the first
        open(1, "10.0.1.1:1", 5.0, 1.0); // another client
        open(0, "10.0.0.1:2", 20.0, 1.0); // later
        open(1, "10.0.0.1:3", 20.5, 1.0); // overlaps that
        open(1, "10.0.0.1:4", 23.0, 1.0); // overlaps its own arm only
        open(1, "10.0.0.1:5", 23.0, 1.0);
        assert_eq!(overlap.share(), Some(4.0 / 7.0));
        assert_eq!(Overlap::default().share(), None);
    }
}
