//! How many connections were open while another arm's were, from the same clients: where arms meet, one may take from the other,
//! and their difference is not that of a whole roll-out (Spang, Hannan, Kunamalla, Huang, McKeown and Johari, *Unbiased
//! experiments in congested networks*, IMC 2021).

use crate::{Assigner, By, MOST_ARMS, Outcome};
use std::net::{Ipv4Addr, SocketAddr};

/// The first million connections are enough to know a share.
const MOST: usize = 1 << 20;

/// When connections were open, by the /24 or /56 of the client.
#[derive(Clone, Debug, Default)]
pub struct Overlap {
    spans: Vec<(u64, f64, f64, u8)>,
}

impl Overlap {
    /// Adds a connection.
    pub fn add(&mut self, o: &Outcome) {
        if self.spans.len() < MOST && usize::from(o.arm) < MOST_ARMS {
            let by = Assigner::new(0, By::ClientPrefix { v4: 24, v6: 56 });
            let client = by.hash(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), o.remote);
            self.spans.push((client, o.opened_unix_s, o.opened_unix_s + o.duration_s, o.arm));
        }
    }

    /// The share of connections that were open together with one of another arm and the same client; none of none.
    pub fn share(&self) -> Option<f64> {
        let mut spans = self.spans.clone();
        spans.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut together = vec![false; spans.len()];
        let mut clients = 0;
        while clients < spans.len() {
            let client = spans[clients].0;
            let end = clients + spans[clients..].partition_point(|span| span.0 == client);
            // Earlier ones that were still open, then later ones that opened in time.
            let mut latest = [f64::NEG_INFINITY; MOST_ARMS];
            for i in clients..end {
                let (_, opened, closed, arm) = spans[i];
                together[i] |= others(&latest, arm).any(|other| other > opened);
                latest[usize::from(arm)] = latest[usize::from(arm)].max(closed);
            }
            let mut next = [f64::INFINITY; MOST_ARMS];
            for i in (clients..end).rev() {
                let (_, opened, closed, arm) = spans[i];
                together[i] |= others(&next, arm).any(|other| other < closed);
                next[usize::from(arm)] = opened;
            }
            clients = end;
        }
        let count = together.iter().filter(|is| **is).count();
        (!spans.is_empty()).then(|| count as f64 / spans.len() as f64)
    }
}

fn others(all: &[f64; MOST_ARMS], arm: u8) -> impl Iterator<Item = f64> {
    all.iter().enumerate().filter(move |(i, _)| *i != usize::from(arm)).map(|(_, x)| *x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::example;

    #[test]
    fn only_what_is_open_at_once_from_one_client_in_different_arms_meets() {
        let mut overlap = Overlap::default();
        let mut open = |arm, remote, opened_unix_s, duration_s| {
            overlap.add(&Outcome { opened_unix_s, duration_s, ..example(arm, remote) });
        };
        open(0, "10.0.0.1:1", 0.0, 10.0);
        open(1, "10.0.0.9:1", 5.0, 1.0); // meets the first
        open(1, "10.0.1.1:1", 5.0, 1.0); // another client
        open(0, "10.0.0.1:2", 20.0, 1.0); // later
        open(1, "10.0.0.1:3", 20.5, 1.0); // meets that
        open(1, "10.0.0.1:4", 23.0, 1.0); // meets its own arm only
        open(1, "10.0.0.1:5", 23.0, 1.0);
        assert_eq!(overlap.share(), Some(4.0 / 7.0));
        assert_eq!(Overlap::default().share(), None);
    }
}
