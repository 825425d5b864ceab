//! Where in a mesh something is.

use crate::record::{History, Pair, SiteId};
use serde::{Deserialize, Serialize};

/// A part of a mesh.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// All that a site sends and receives.
    Site(SiteId),
    /// All that a site sends.
    Sending(SiteId),
    /// All that a site receives.
    Receiving(SiteId),
    /// Both directions between two sites; the lower one is `from`.
    Both(Pair),
    /// One direction.
    Direction(Pair),
}

impl Place {
    /// Whether that direction is part of it.
    pub fn holds(self, pair: Pair) -> bool {
        match self {
            Place::Site(site) => pair.from == site || pair.to == site,
            Place::Sending(site) => pair.from == site,
            Place::Receiving(site) => pair.to == site,
            Place::Both(both) => pair == both || pair == both.turned(),
            Place::Direction(direction) => pair == direction,
        }
    }

    /// In words: `all that lab sends`, `lab ⇄ sea`, `lab → sea`.
    pub fn name(self, history: &History) -> String {
        let site = |id: SiteId| history.sites.get(usize::from(id)).map_or("?", String::as_str);
        match self {
            Place::Site(id) => format!("the site {}", site(id)),
            Place::Sending(id) => format!("all that {} sends", site(id)),
            Place::Receiving(id) => format!("all that {} receives", site(id)),
            Place::Both(pair) => format!("{} ⇄ {}", site(pair.from), site(pair.to)),
            Place::Direction(pair) => history.name(pair),
        }
    }
}

impl Pair {
    /// The other way.
    pub fn turned(self) -> Pair {
        Pair { from: self.to, to: self.from }
    }

    /// The same for both ways: from the lower site.
    pub fn both(self) -> Pair {
        if self.from <= self.to { self } else { self.turned() }
    }
}
