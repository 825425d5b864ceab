//! The schedule: each transfer of a period has its slot, and no site has two at a time.

use crate::file::Mesh;
use crate::record::{ControllerId, Pair, SiteId};
use fullpipe_units::{Rate, Span};

/// The start of a transfer within a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The direction.
    pub pair: Pair,
    /// The controller.
    pub controller: ControllerId,
    /// Offset from the start of the period.
    pub start: Span,
    /// Time until the next slot of these sites.
    pub length: Span,
}

/// The slots of a mesh.
///
/// Pairs are scheduled like a round-robin tournament (the circle method): in each round every site
/// meets one other, in both directions. A slot is divided between the controllers in an order that
/// rotates by one each period, so that no controller always follows another; with `together`, all
/// share the whole slot.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    period: Span,
    controllers: u64,
    together: bool,
    /// Indexed by `from * sites + to`: the turn of each pair.
    turn: Vec<Option<u32>>,
    sites: usize,
    turns: u64,
}

impl Schedule {
    /// The schedule of a mesh.
    pub fn new(mesh: &Mesh) -> Schedule {
        let sites = mesh.sites.len();
        // With an odd number of sites one is idle in each round.
        let players = sites + sites % 2;
        let mut turn = vec![None; sites * sites];
        for round in 0..players.saturating_sub(1) {
            for board in 0..players / 2 {
                let seat = |place: usize| {
                    if place == 0 { 0 } else { 1 + (place - 1 + round) % (players - 1) }
                };
                let (a, b) = (seat(board), seat(players - 1 - board));
                if a < sites && b < sites {
                    turn[a * sites + b] = Some(2 * round as u32);
                    turn[b * sites + a] = Some(2 * round as u32 + 1);
                }
            }
        }
        Schedule {
            period: mesh.period,
            controllers: mesh.controllers.len() as u64,
            together: mesh.together,
            turn,
            sites,
            turns: 2 * players.saturating_sub(1) as u64,
        }
    }

    /// The time a transfer has before another transfer of its sites begins.
    pub fn slot_length(&self) -> Span {
        let parts = if self.together { 1 } else { self.controllers };
        self.period / (self.turns * parts).max(1)
    }

    /// The lowest rate at which transfers of `size` bytes finish within their slots. Controllers
    /// that send together share it.
    pub fn min_rate(&self, size: u64) -> Rate {
        let shared = if self.together { self.controllers } else { 1 };
        Rate::from_bytes_in(size.saturating_mul(shared), self.slot_length())
    }

    /// The slot of `pair` and `controller` in period number `period`; `None` for a site and itself.
    pub fn slot(&self, pair: Pair, controller: ControllerId, period: i64) -> Option<Slot> {
        let at = usize::from(pair.from) * self.sites + usize::from(pair.to);
        if usize::from(pair.to) >= self.sites {
            return None;
        }
        let turn = u64::from(self.turn.get(at).copied().flatten()?);
        let length = self.slot_length();
        let part = if self.together {
            turn
        } else {
            let moved = (i64::from(controller) + period).rem_euclid(self.controllers as i64) as u64;
            turn * self.controllers + moved
        };
        Some(Slot { pair, controller, start: length * part, length })
    }

    /// All slots of a period, by start time.
    pub fn slots(&self, period: i64) -> Vec<Slot> {
        let ids = 0..self.sites as SiteId;
        let pairs = ids.clone().flat_map(|from| ids.clone().map(move |to| Pair { from, to }));
        let mut slots: Vec<Slot> = pairs
            .flat_map(|pair| (0..self.controllers as ControllerId).map(move |c| (pair, c)))
            .filter_map(|(pair, c)| self.slot(pair, c, period))
            .collect();
        slots.sort_by_key(|s| (s.start, s.pair, s.controller));
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn schedule(sites: usize, together: bool) -> Schedule {
        let mut text = format!("[mesh]\nname = 'a'\nkey_file = 'k'\ntogether = {together}\n");
        for i in 0..sites {
            text += &format!("[[site]]\nname = 's{i}'\naddress = '192.0.2.{i}'\n");
        }
        Schedule::new(&Mesh::parse("m.toml", &text).unwrap())
    }

    #[test]
    fn every_pair_has_a_slot_and_no_site_has_two_at_once() {
        for sites in 2..=17 {
            for period in [0, 1, 7, -3] {
                let schedule = schedule(sites, false);
                let slots = schedule.slots(period);
                assert_eq!(slots.len(), sites * (sites - 1) * 2);
                let mut busy = HashSet::new();
                for slot in &slots {
                    assert!(slot.start + slot.length <= Span::from_secs(60));
                    for site in [slot.pair.from, slot.pair.to] {
                        assert!(busy.insert((slot.start, site)), "{sites} sites: {slot:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn controllers_rotate_or_start_together() {
        let pair = Pair { from: 2, to: 1 };
        let apart = schedule(4, false);
        let start = |s: &Schedule, c, p| s.slot(pair, c, p).unwrap().start;
        assert_eq!(start(&apart, 0, 0), start(&apart, 1, 1));
        assert_ne!(start(&apart, 0, 0), start(&apart, 1, 0));
        let together = schedule(4, true);
        assert_eq!(start(&together, 0, 0), start(&together, 1, 0));
        assert_eq!(together.slot(Pair { from: 1, to: 1 }, 0, 0), None);
        assert_eq!(together.slot(Pair { from: 1, to: 9 }, 0, 0), None);
        // With eight sites, a site meets seven others in two directions: 14 turns a minute, two
        // transfers each.
        let eight = schedule(8, false).min_rate(8 << 20);
        assert!((31.0..32.0).contains(&(eight.as_bits_per_sec_f64() / 1e6)), "{eight}");
    }
}
