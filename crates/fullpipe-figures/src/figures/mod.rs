//! One file per figure, registered in [`FIGURES`].

mod aggregation;
mod cellular;
mod coexistence;
mod core_scale;
mod cubic_window;
mod fig1;
mod fig10;
mod fig2;
mod fig3;
mod fig4;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod lan_loss;
mod long_fat;
mod many_cubic;
mod policer;
mod small_buffers;
mod starvation;
mod tcp_bbr;
mod two_rtt;
mod vm_pair;
mod wan_host;
mod when_bbr;

use crate::Figure;
use fullpipe_experiment::format_number::significant;
use fullpipe_experiment::recording::Source;

/// "BBR: Congestion-Based Congestion Control", Cardwell, Cheng, Gunn, Hassas Yeganeh, Jacobson,
/// CACM 60(2), 2017.
const PAPER: &str = "Cardwell et al., CACM 60(2), 2017";

/// Controller names and titles of the BBR versions.
const VERSIONS: [(&str, &str); 2] = [("bbr", "BBR v1"), ("bbr3", "BBR v3")];

/// All figures: those of the paper in order, then the operators' measurements and later
/// publications.
pub static FIGURES: &[Figure] = &[
    fig1::FIGURE,
    fig2::FIGURE,
    fig3::FIGURE,
    fig4::FIGURE,
    fig5::FIGURE,
    fig6::FIGURE,
    fig7::FIGURE,
    fig8::FIGURE,
    fig9::FIGURE,
    fig10::FIGURE,
    cellular::FIGURE,
    aggregation::FIGURE,
    policer::FIGURE,
    coexistence::FIGURE,
    lan_loss::FIGURE,
    vm_pair::FIGURE,
    long_fat::FIGURE,
    wan_host::FIGURE,
    core_scale::FIGURE,
    two_rtt::FIGURE,
    tcp_bbr::FIGURE,
    cubic_window::FIGURE,
    many_cubic::FIGURE,
    starvation::FIGURE,
    small_buffers::FIGURE,
    when_bbr::FIGURE,
];

/// The text of the scenario file of a figure.
macro_rules! scenario {
    ($name:literal) => {
        include_str!(concat!("../../scenarios/", $name, ".toml"))
    };
}
use scenario;

/// The chapter of a figure.
macro_rules! chapter {
    ($name:literal) => {
        include_str!(concat!("../../chapters/", $name, ".md"))
    };
}
use chapter;

/// Additional queue in packets of 1500 bytes that is allowed in the lab for a BBR flow with some
/// tens of packets in flight. An ACK of the kernel covers one or two packets, so that single rate
/// samples are 1 or 2 % high, and BBR uses the maximum of ten rounds. That consumes the pacing
/// margin of 1 % that drains the queue between probes, and raises values rounded to pairs of
/// packets by a pair.
fn lab_tolerance_packets(source: Source) -> f64 {
    if source == Source::Lab { 2.0 } else { 0.0 }
}

/// Queue in packets of 1500 bytes that a probe of BBR v1 may leave in the lab. There the drain
/// phase often ends after a round trip rather than by inflight: it has drained a quarter BDP and
/// left the rest of what the probe added. For the simulator, each figure has its own bound.
fn queue_after_probe(source: Source) -> Option<f64> {
    (source == Source::Lab).then(|| PROBE_PACKETS + lab_tolerance_packets(source))
}

/// Packets that a probe adds beyond a quarter BDP: three send quanta, two packets and rounding
/// (`bbr_quantization_budget`).
const PROBE_PACKETS: f64 = 9.0;

/// Formats a number with three significant digits.
fn n(x: f64) -> String {
    if x.is_finite() { significant(x, 3) } else { "nothing".to_owned() }
}

/// Formats numbers as `12.0, 38.0`.
fn listed(values: &[f64]) -> String {
    values.iter().map(|v| n(*v)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_parses_and_ids_are_unique() {
        for (i, figure) in FIGURES.iter().enumerate() {
            let cases = figure.cases().unwrap_or_else(|e| panic!("{e}"));
            assert!(!cases.is_empty(), "{}", figure.id);
            assert!(FIGURES[..i].iter().all(|f| f.id != figure.id));
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([n(0.01234), n(1.5), n(1234.5), n(f64::NAN)], ["0.0123", "1.50", "1234", "nothing"]);
    }
}
