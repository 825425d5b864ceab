//! One file a figure; a line here makes it known.

mod aggregation;
mod cellular;
mod coexistence;
mod core_scale;
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
mod policer;
mod vm_pair;
mod wan_host;

use crate::Figure;
use fullpipe_experiment::format_number::significant;
use fullpipe_experiment::recording::Source;

/// "BBR: Congestion-Based Congestion Control", Cardwell, Cheng, Gunn, Hassas Yeganeh, Jacobson, CACM 60(2), 2017.
const PAPER: &str = "Cardwell et al., CACM 60(2), 2017";

/// BBR's versions, by the controller's name and in words.
const VERSIONS: [(&str, &str); 2] = [("bbr", "BBR v1"), ("bbr3", "BBR v3")];

/// All figures, in the order of the paper, then the operators' measurements.
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
];

/// The scenario file of a figure: its name and text, and its `about`.
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

/// Packets of 1500 bytes by which a BBR flow of some tens of packets may queue more in the lab than simulated. An
/// ACK of the kernel covers one packet or two, so single rate samples come out 1 or 2 % high, and BBR believes the
/// highest of ten rounds: that eats the pacing margin of 1 % which otherwise drains the queue between two probes,
/// and lifts what is rounded to pairs of packets by one pair.
fn spare_packets(source: Source) -> f64 {
    if source == Source::Lab { 2.0 } else { 0.0 }
}

/// Packets of 1500 bytes that a probe of BBR v1 may leave queued in real time. There the phase after it more often ends
/// when its round trip is over than by what is in flight: it has then taken a quarter BDP away and left all that
/// the probe added beyond. In the simulator each figure has a bound of its own.
fn left_by_a_probe(source: Source) -> Option<f64> {
    (source == Source::Lab).then(|| PROBE_ADDS + spare_packets(source))
}

/// Packets that a probe adds beyond a quarter BDP: three send quanta, two packets and rounding
/// (`bbr_quantization_budget`).
const PROBE_ADDS: f64 = 9.0;

/// A number for a sentence: three significant digits.
fn n(x: f64) -> String {
    if x.is_finite() { significant(x, 3) } else { "nothing".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_s_scenario_reads_and_its_id_is_its_own() {
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
