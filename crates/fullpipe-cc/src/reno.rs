//! NewReno: RFC 5681's slow start and congestion avoidance, RFC 6582's recovery, with the kernel's
//! counting of packets (`tcp_reno_cong_avoid`, `tcp_reno_ssthresh`): stretched ACKs count in full, a
//! packet is counted only once it is acknowledged in its entirety.

use crate::control::{Ack, Config};
use crate::loss_based::{Growth, LossBased, Window};
use crate::registry::{About, Build, BuildError, Settings};

/// Additive increase of a packet per round trip, multiplicative decrease to a half.
#[derive(Clone, Copy, Debug, Default)]
pub struct RenoGrowth;

impl Growth for RenoGrowth {
    #[inline]
    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        if window.is_limiting(ack) {
            window.reno(acked);
        }
    }

    #[inline]
    fn ssthresh(&mut self, window: &Window) -> u32 {
        (window.cwnd >> 1).max(2)
    }
}

/// The NewReno controller.
pub type Reno = LossBased<RenoGrowth>;

impl Build for Reno {
    const ABOUT: About = About {
        name: "reno",
        aliases: &["newreno"],
        kernel: Some("reno"),
        about: "NewReno (RFC 5681, RFC 6582): one packet more each round trip, half the window on loss",
        settings: &[],
    };

    fn build<'a>(config: &Config, _settings: Settings<'a>) -> Result<Self, BuildError<'a>> {
        Ok(LossBased::new(config, RenoGrowth))
    }
}
