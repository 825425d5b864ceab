//! Scalable TCP (Kelly, "Scalable TCP: Improving Performance in Highspeed Wide Area Networks",
//! 2003), as in Linux `net/ipv4/tcp_scalable.c`: a packet per hundred acknowledged packets, and an
//! eighth less on loss.

use super::{Modular, Module, Tcp};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Settings};

/// Acknowledged packets per packet of growth; a smaller window grows as Reno's.
pub(super) const ACKS_PER_INCREASE: u32 = 100;

/// Multiplicative increase and decrease.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScalableModule;

impl Module for ScalableModule {
    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !tcp.is_limiting(window) {
            return;
        }
        let acked = window.rest_of_slow_start(acked);
        if acked == 0 {
            return;
        }
        window.additive_increase(window.cwnd.min(ACKS_PER_INCREASE), acked);
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        (window.cwnd - (window.cwnd >> 3)).max(2)
    }
}

/// The Scalable TCP controller.
pub type Scalable = Modular<ScalableModule>;

impl Build for Scalable {
    const INFO: ControllerInfo = ControllerInfo {
        name: "scalable",
        aliases: &[],
        kernel: Some("scalable"),
        about: "Scalable TCP: grows by one percent of the window per round trip, loses an eighth on loss",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        Modular::build(config, ScalableModule)
    }
}
