//! Loss in bursts: the two-state chain of Gilbert (1960) and Elliott (1963).
//!
//! With transition probabilities p (good to bad) and r (bad to good) per packet the chain is bad
//! for p/(p + r) of the packets, in runs of 1/r packets on average.

use fullpipe_units::{Fraction, Time};
use serde::{Deserialize, Serialize};

use super::{LossKind, LossModel};
use crate::build::LinkError;
use crate::random::Stream;

/// Bursty loss. Either `share` and `burst`: that share of packets is lost, in runs of that many
/// on average. Or the chain itself, as netem's `gemodel` has it: `p`, `r`, `good_loss`, `bad_loss`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliottSpec {
    /// Share of packets lost in the long run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Fraction>,
    /// Mean number of packets lost in a row, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// Probability per packet of going from the good to the bad state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<Fraction>,
    /// Probability per packet of going from the bad to the good state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r: Option<Fraction>,
    /// Loss probability in the good state (default: 0; netem's 1 − k).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_loss: Option<Fraction>,
    /// Loss probability in the bad state (default: 1; netem's 1 − h).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_loss: Option<Fraction>,
}

/// The chain's four probabilities.
#[derive(Clone, Copy, Debug)]
struct Path {
    p: f64,
    r: f64,
    good_loss: f64,
    bad_loss: f64,
}

impl GilbertElliottSpec {
    fn chain(&self) -> Result<Path, LinkError> {
        match *self {
            GilbertElliottSpec {
                share: Some(share),
                burst,
                p: None,
                r: None,
                good_loss: None,
                bad_loss: None,
            } => {
                let burst = burst.unwrap_or(1.0);
                if !burst.is_finite() || burst < 1.0 {
                    return Err(LinkError::new("burst", "a run of losses is at least 1 packet long"));
                }
                let (share, r) = (share.as_f64(), 1.0 / burst);
                if share >= 1.0 {
                    return Err(LinkError::new(
                        "share",
                        "bursts need packets between them: write `loss = \"100%\"`",
                    ));
                }
                let p = r * share / (1.0 - share);
                if p > 1.0 {
                    return Err(LinkError::new(
                        "burst",
                        format!(
                            "runs of {burst} cannot lose {}%: lengthen them to at least {:.2}",
                            share * 100.0,
                            share / (1.0 - share)
                        ),
                    ));
                }
                Ok(Path { p, r, good_loss: 0.0, bad_loss: 1.0 })
            }
            GilbertElliottSpec { share: None, burst: None, p: Some(p), r: Some(r), good_loss, bad_loss } => {
                Ok(Path {
                    p: p.as_f64(),
                    r: r.as_f64(),
                    good_loss: good_loss.unwrap_or(Fraction::ZERO).as_f64(),
                    bad_loss: bad_loss.unwrap_or(Fraction::ONE).as_f64(),
                })
            }
            _ => Err(LinkError::new(
                "kind",
                "gilbert-elliott takes either `share` and `burst`, or `p` and `r` (and `good_loss`, \
                 `bad_loss`)",
            )),
        }
    }
}

impl LossKind for GilbertElliottSpec {
    const ABOUT: &'static str = "in bursts: a chain of a good and a bad state";
    type Model = GilbertElliott;

    fn build(&self, random: Stream) -> Result<GilbertElliott, LinkError> {
        Ok(GilbertElliott::new(self.chain()?, random))
    }

    fn mean(&self) -> Option<f64> {
        let Path { p, r, good_loss, bad_loss } = self.chain().ok()?;
        // With p = r = 0 the chain stays where it starts, in the good state.
        let bad = if p > 0.0 { p / (p + r) } else { 0.0 };
        Some(bad * bad_loss + (1.0 - bad) * good_loss)
    }
}

/// The running chain. It draws how long it stays in a state, not whether each packet leaves it.
pub(crate) struct GilbertElliott {
    chain: Path,
    bad: bool,
    /// Packets left in this state.
    left: u64,
    random: Stream,
}

impl GilbertElliott {
    fn new(chain: Path, mut random: Stream) -> Self {
        let left = random.failures_before_success(chain.p);
        GilbertElliott { chain, bad: false, left, random }
    }
}

impl LossModel for GilbertElliott {
    fn loses(&mut self, _: Time) -> bool {
        if self.left == 0 {
            self.bad = !self.bad;
            let leave = if self.bad { self.chain.r } else { self.chain.p };
            // This packet enters the new state and belongs to it.
            self.left = self.random.failures_before_success(leave).saturating_add(1);
        }
        self.left -= 1;
        let loss = if self.bad { self.chain.bad_loss } else { self.chain.good_loss };
        loss >= 1.0 || (loss > 0.0 && self.random.unit() < loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    fn runs(spec: &GilbertElliottSpec, packets: u32) -> (f64, f64) {
        let mut model = spec.build(stream(1)).unwrap();
        let (mut lost, mut runs, mut previous) = (0.0, 0.0, false);
        for _ in 0..packets {
            let now = model.loses(Time::ZERO);
            lost += f64::from(u8::from(now));
            runs += f64::from(u8::from(now && !previous));
            previous = now;
        }
        (lost / f64::from(packets), lost / runs)
    }

    #[test]
    fn stationary_loss_and_burst_length_are_as_written() {
        for (share, burst) in [("1%", 4.0), ("10%", 2.0), ("30%", 10.0), ("50%", 1.0)] {
            let spec = GilbertElliottSpec {
                share: Some(share.parse().unwrap()),
                burst: Some(burst),
                ..Default::default()
            };
            let expected = spec.share.unwrap().as_f64();
            assert!((spec.mean().unwrap() - expected).abs() < 1e-12);
            let n = 2_000_000;
            let (lost, run) = runs(&spec, n);
            // Lengths of runs and of gaps are geometric: both deviate by about their mean, so a
            // mean over so many of them deviates by that over the root of their number.
            let bursts = f64::from(n) * expected / burst;
            let bound = 4.0 * (2.0 / bursts).sqrt();
            assert!((lost / expected - 1.0).abs() < bound, "{share} {burst}: {lost}");
            assert!((run / burst - 1.0).abs() < bound, "{share} {burst}: {run}");
        }
    }

    #[test]
    fn the_chain_loses_p_over_p_plus_r_in_the_bad_state() {
        let spec: GilbertElliottSpec =
            toml::from_str("p = '2%'\nr = '10%'\ngood_loss = '0.1%'\nbad_loss = '40%'").unwrap();
        let expected = 0.02 / 0.12 * 0.4 + 0.1 / 0.12 * 0.001;
        assert!((spec.mean().unwrap() - expected).abs() < 1e-12);
        let (lost, _) = runs(&spec, 2_000_000);
        assert!((lost / expected - 1.0).abs() < 0.03, "{lost} {expected}");
    }

    #[test]
    fn a_chain_that_never_leaves_the_good_state_loses_nothing() {
        let spec: GilbertElliottSpec = toml::from_str("p = 0\nr = 0").unwrap();
        assert_eq!((spec.mean(), runs(&spec, 1000).0), (Some(0.0), 0.0));
    }

    #[test]
    fn impossible_chains_name_the_key_and_the_reason() {
        let wrong =
            |text: &str| toml::from_str::<GilbertElliottSpec>(text).unwrap().build(stream(0)).err().unwrap();
        assert_eq!(wrong("share = '10%'\nburst = 0.5").key, "burst");
        assert_eq!(wrong("share = '100%'\nburst = 2").key, "share");
        assert!(wrong("share = '90%'\nburst = 2").reason.contains("at least 9.00"));
        assert!(wrong("p = '1%'").reason.contains("`r`"));
        assert!(wrong("share = '1%'\np = '1%'\nr = '1%'").reason.contains("either"));
    }
}
