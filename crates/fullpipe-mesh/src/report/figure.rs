//! Figure 7 of the paper, of a mesh's own records.

use super::Seen;
use crate::record::{ControllerId, History};
use crate::see::gains;
use fullpipe_report::colour_of;
use fullpipe_report::picture::{Axis, Curve, Panel, Picture};

/// How many paths gain how much over the first controller: the distribution of the median ratios.
pub fn figure(history: &History, seen: &Seen) -> Picture {
    let first = seen.controllers.first().map_or("", String::as_str);
    let curve = |(nth, name): (usize, &String)| {
        Curve::distribution(name, colour_of(name).light, &gains(history, nth as ControllerId))
    };
    let curves: Vec<Curve> = seen.controllers.iter().enumerate().skip(1).map(curve).collect();
    Picture {
        title: format!("Throughput as a multiple of {first}’s on the same path, {} paths", seen.pairs.len()),
        subtitle: "Distribution over the paths of a mesh: of each the median over its periods.".to_owned(),
        panels: vec![Panel {
            x: Axis::log_around(format!("throughput gain over {first}, times"), &curves),
            y: Axis::share("paths"),
            curves,
            ..Panel::default()
        }],
        panel_height: 420,
        ..Picture::default()
    }
}
