//! DCTCP (RFC 8257), as in Linux `net/ipv4/tcp_dctcp.c`: the window shrinks by half the smoothed
//! share α of marked packets.
//!
//! The receiver must report how many packets were marked. Transports of this crate report the exact
//! number ([`Ack::ce_count`](crate::Ack::ce_count)), as QUIC and Accurate ECN do; Linux's receiver
//! echoes each change of the mark at once instead (RFC 8257 §3.2), which amounts to the same count
//! where ACKs are not lost. Linux's PLB, which moves marked flows to other paths, is not part of this
//! module. Without marks DCTCP is Reno, as is Linux's where the peer does not support ECN.

use super::{CaEvent, CaState, Modular, Module, Tcp, before, half};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};

/// α counts in 1/1024.
const ALPHA_SHIFT: u32 = 10;
const ALPHA_MAX: u32 = 1 << ALPHA_SHIFT;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The gain of α's filter is 2 to the power of minus this.
    pub dctcp_shift_g: u32,
    /// Initial α, in 1/1024.
    pub dctcp_alpha_on_init: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { dctcp_shift_g: 4, dctcp_alpha_on_init: ALPHA_MAX }
    }
}

/// DCTCP's estimate of marks.
#[derive(Clone, Copy, Debug)]
pub struct DctcpModule {
    params: Params,
    /// Packets delivered, and delivered with marks, when the window of the estimate began.
    old_delivered: u32,
    old_delivered_ce: u32,
    alpha: u32,
    /// The end of that window, as a sequence number.
    next_seq: u32,
    /// The window before the last reduction.
    loss_cwnd: u32,
}

impl DctcpModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        DctcpModule {
            params,
            old_delivered: 0,
            old_delivered_ce: 0,
            alpha: params.dctcp_alpha_on_init.min(ALPHA_MAX),
            next_seq: 0,
            loss_cwnd: 0,
        }
    }

    /// The smoothed share of marked packets in 1/1024.
    pub fn alpha(&self) -> u32 {
        self.alpha
    }

    fn restart(&mut self, tcp: &Tcp) {
        self.next_seq = tcp.snd_nxt;
        self.old_delivered = tcp.delivered;
        self.old_delivered_ce = tcp.delivered_ce;
    }

    /// Loss halves the window (RFC 8257 §3.5).
    fn react_to_loss(&mut self, window: &mut Window) {
        self.loss_cwnd = window.cwnd;
        window.ssthresh = half(window);
    }
}

impl Module for DctcpModule {
    fn init(&mut self, _: &mut Window, tcp: &Tcp) {
        *self = Self::new(self.params);
        self.restart(tcp);
    }

    /// `dctcp_update_alpha`: once per window, α moves to the share of marked packets
    /// (RFC 8257 §3.3).
    fn in_ack_event(&mut self, tcp: &Tcp, _: bool) {
        if before(tcp.snd_una, self.next_seq) {
            return;
        }
        let gain = self.params.dctcp_shift_g.min(ALPHA_SHIFT);
        let delivered = tcp.delivered.wrapping_sub(self.old_delivered);
        let marked = tcp.delivered_ce.wrapping_sub(self.old_delivered_ce);
        // The shift alone would never reach zero.
        let decay = match self.alpha >> gain {
            0 => self.alpha,
            decay => decay,
        };
        self.alpha -= decay;
        if marked > 0 {
            let rise = (marked << (ALPHA_SHIFT - gain)) / delivered.max(1);
            self.alpha = self.alpha.saturating_add(rise).min(ALPHA_MAX);
        }
        self.restart(tcp);
    }

    fn set_state(&mut self, window: &mut Window, tcp: &Tcp, state: CaState) {
        if state == CaState::Recovery && tcp.state != CaState::Recovery {
            self.react_to_loss(window);
        }
    }

    fn cwnd_event(&mut self, window: &mut Window, _: &Tcp, event: CaEvent) {
        if event == CaEvent::Loss {
            self.react_to_loss(window);
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        tcp.reno(window, acked);
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        self.loss_cwnd = window.cwnd;
        let less = window.cwnd.wrapping_mul(self.alpha) >> (ALPHA_SHIFT + 1);
        window.cwnd.wrapping_sub(less).max(2)
    }

    fn undo_cwnd(&mut self, window: &Window, _: u32) -> u32 {
        window.cwnd.max(self.loss_cwnd)
    }
}

/// The DCTCP controller.
pub type Dctcp = Modular<DctcpModule>;

impl Build for Dctcp {
    const INFO: ControllerInfo = ControllerInfo {
        name: "dctcp",
        aliases: &[],
        kernel: Some("dctcp"),
        about: "DCTCP (RFC 8257): shrinks by the share of ECN marks; for data centres, needs ECN",
        settings: &[
            Setting {
                key: "dctcp_shift_g",
                values: "0 to 10",
                default: "4",
                about: "the share of marks is averaged with a gain of 2 to the power of minus this",
            },
            Setting {
                key: "dctcp_alpha_on_init",
                values: "0 to 1024 (1/1024)",
                default: "1024",
                about: "initial share of marks",
            },
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::default();
        Ok(Params {
            dctcp_shift_g: settings.number("dctcp_shift_g", d.dctcp_shift_g, 0, ALPHA_SHIFT)?,
            dctcp_alpha_on_init: settings.number(
                "dctcp_alpha_on_init",
                d.dctcp_alpha_on_init,
                0,
                ALPHA_MAX,
            )?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build(config, DctcpModule::new(*params))
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(SettingValue::number(match key {
            "dctcp_shift_g" => params.dctcp_shift_g,
            "dctcp_alpha_on_init" => params.dctcp_alpha_on_init,
            _ => return None,
        }))
    }
}
