//! Locations in a mesh: a site, a pair or a direction.

use crate::record::{History, Pair, SiteId};
use serde::{Deserialize, Serialize};

/// A part of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Location {
    /// All traffic from and to a site.
    Site(SiteId),
    /// All traffic from a site.
    Sending(SiteId),
    /// All traffic to a site.
    Receiving(SiteId),
    /// Both directions between two sites; the lower one is `from`.
    Both(Pair),
    /// One direction.
    Direction(Pair),
}

impl Location {
    /// Whether the direction is part of this location.
    pub fn contains(self, pair: Pair) -> bool {
        match self {
            Location::Site(site) => pair.from == site || pair.to == site,
            Location::Sending(site) => pair.from == site,
            Location::Receiving(site) => pair.to == site,
            Location::Both(both) => pair == both || pair == both.reversed(),
            Location::Direction(direction) => pair == direction,
        }
    }

    /// A description: `all traffic from lab`, `lab ⇄ sea`, `lab → sea`.
    pub fn name(self, history: &History) -> String {
        let site = |id: SiteId| history.sites.get(usize::from(id)).map_or("?", String::as_str);
        match self {
            Location::Site(id) => format!("site {}", site(id)),
            Location::Sending(id) => format!("all traffic from {}", site(id)),
            Location::Receiving(id) => format!("all traffic to {}", site(id)),
            Location::Both(pair) => format!("{} ⇄ {}", site(pair.from), site(pair.to)),
            Location::Direction(pair) => history.name(pair),
        }
    }
}

impl Pair {
    /// The reverse direction.
    pub fn reversed(self) -> Pair {
        Pair { from: self.to, to: self.from }
    }

    /// The same value for both directions: from the lower site.
    pub fn unordered(self) -> Pair {
        if self.from <= self.to { self } else { self.reversed() }
    }
}
