//! Figure 7 of the paper, from a mesh's own records.

use super::Report;
use fullpipe_presentation::palette::controller_colour;
use fullpipe_presentation::picture::{Axis, Curve, Panel, Picture};

/// The distribution of goodput gains over the first controller, by median ratios of the paths.
pub fn figure(report: &Report) -> Picture {
    let first = report.controllers.first().map_or("", String::as_str);
    let curve = |(nth, name): (usize, &String)| {
        Curve::distribution(name, controller_colour(name).light, &report.gains(nth))
    };
    let curves: Vec<Curve> = report.controllers.iter().enumerate().skip(1).map(curve).collect();
    Picture {
        title: format!(
            "Throughput as a multiple of {first}’s on the same path, {} paths",
            report.pairs.len()
        ),
        subtitle: "Distribution over the paths of a mesh; median over the periods of each path.".to_owned(),
        panels: vec![Panel {
            x: Axis::log_around(format!("throughput gain over {first}, times"), &curves),
            y: Axis::percent_of("paths"),
            curves,
            ..Panel::default()
        }],
        panel_height: 420,
        ..Picture::default()
    }
}
