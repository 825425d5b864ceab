//! HighSpeed TCP (RFC 3649), as in Linux `net/ipv4/tcp_highspeed.c`: above 38 packets, growth per
//! round trip rises and the decrease falls with the window, by the RFC's table.

use super::{Modular, Module, Tcp};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Settings};

/// RFC 3649 appendix B: growth is the row's number from one on; the windows up to which the rows
/// apply, and b(w) in 1/256.
#[rustfmt::skip]
const ROWS: [(u32, u32); 72] = [
    (38, 128), (118, 112), (221, 104), (347, 98), (495, 93), (663, 89), (851, 86), (1058, 83),
    (1284, 81), (1529, 78), (1793, 76), (2076, 74), (2378, 72), (2699, 71), (3039, 69), (3399, 68),
    (3778, 66), (4177, 65), (4596, 64), (5036, 62), (5497, 61), (5979, 60), (6483, 59), (7009, 58),
    (7558, 57), (8130, 56), (8726, 55), (9346, 54), (9991, 53), (10661, 52), (11358, 52),
    (12082, 51), (12834, 50), (13614, 49), (14424, 48), (15265, 48), (16137, 47), (17042, 46),
    (17981, 45), (18955, 45), (19965, 44), (21013, 43), (22101, 43), (23230, 42), (24402, 41),
    (25618, 41), (26881, 40), (28193, 39), (29557, 39), (30975, 38), (32450, 38), (33986, 37),
    (35586, 36), (37253, 36), (38992, 35), (40808, 35), (42707, 34), (44694, 33), (46776, 33),
    (48961, 32), (51258, 32), (53677, 31), (56230, 30), (58932, 30), (61799, 29), (64851, 28),
    (68113, 28), (71617, 27), (75401, 26), (79517, 26), (84035, 25), (89053, 24),
];

/// The response function of HighSpeed TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct HighSpeedModule {
    /// The row that applies.
    row: usize,
}

impl HighSpeedModule {
    fn find_row(&mut self, cwnd: u32) {
        while cwnd > ROWS[self.row].0 && self.row < ROWS.len() - 1 {
            self.row += 1;
        }
        while self.row > 0 && cwnd <= ROWS[self.row - 1].0 {
            self.row -= 1;
        }
    }
}

impl Module for HighSpeedModule {
    fn init(&mut self, window: &mut Window, _: &Tcp) {
        self.row = 0;
        window.clamp = window.clamp.min(super::yeah::CLAMP);
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !tcp.is_limiting(window) {
            return;
        }
        if window.in_slow_start() {
            window.slow_start(acked);
            return;
        }
        self.find_row(window.cwnd);
        if window.cwnd < window.clamp {
            // Each ACK counts once, however many packets it acknowledges.
            window.cwnd_count = window.cwnd_count.saturating_add(self.row as u32 + 1);
            if window.cwnd_count >= window.cwnd {
                window.cwnd_count -= window.cwnd;
                window.cwnd += 1;
            }
        }
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        let less = window.cwnd.wrapping_mul(ROWS[self.row].1) >> 8;
        window.cwnd.wrapping_sub(less).max(2)
    }
}

/// The HighSpeed TCP controller.
pub type HighSpeed = Modular<HighSpeedModule>;

impl Build for HighSpeed {
    const INFO: ControllerInfo = ControllerInfo {
        name: "highspeed",
        aliases: &["hstcp"],
        kernel: Some("highspeed"),
        about: "HighSpeed TCP (RFC 3649): Reno that grows faster and shrinks less with large windows",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        Modular::build(config, HighSpeedModule::default())
    }
}
