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
        let gains = gains(history, nth as ControllerId);
        let n = gains.len().max(1) as f64;
        // A step at each path.
        let points = gains
            .iter()
            .enumerate()
            .flat_map(|(i, gain)| [(*gain, i as f64 / n), (*gain, (i + 1) as f64 / n)]);
        Curve::line(name, colour_of(name).light, points.collect::<Vec<_>>())
    };
    Picture {
        title: format!("Throughput as a multiple of {first}’s on the same path, {} paths", seen.pairs.len()),
        subtitle: "Distribution over the paths of a mesh: of each the median over its periods.".to_owned(),
        panels: vec![Panel {
            x: Axis::log(format!("throughput gain over {first}")),
            y: Axis::linear("share of paths").from_to(0.0, 1.0),
            curves: seen.controllers.iter().enumerate().skip(1).map(curve).collect(),
            ..Panel::default()
        }],
        panel_height: 420,
        ..Picture::default()
    }
}
