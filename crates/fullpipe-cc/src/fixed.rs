//! A constant window without congestion control, to measure a path at a given inflight.

use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use crate::{Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot};

/// Grows the window by the acknowledged data, as in slow start, up to the configured size, and
/// keeps it regardless of losses.
#[derive(Clone, Debug)]
pub struct Fixed {
    window_packets: u64,
    smss: u64,
    cwnd: u64,
}

impl Fixed {
    /// A window of `packets` full packets.
    pub fn new(config: &Config, packets: u32) -> Self {
        let smss = u64::from(config.smss.max(1));
        let window_packets = u64::from(packets.max(1));
        let cwnd = config.initial_cwnd.min(window_packets * smss).max(smss);
        Fixed { window_packets, smss, cwnd }
    }
}

impl Build for Fixed {
    const INFO: ControllerInfo = ControllerInfo {
        name: "fixed",
        aliases: &["constant"],
        kernel: None,
        about: "constant window of N packets (fixed:window=N) [default: 10]; simulator only",
        settings: &[Setting {
            key: "window",
            values: "1 to 10000000 (packets)",
            default: "10",
            about: "window size",
        }],
    };

    /// The window in packets.
    type Params = u32;

    fn parse<'a>(settings: Settings<'a>) -> Result<u32, BuildError<'a>> {
        settings.number("window", 10, 1, 10_000_000)
    }

    fn build(config: &Config, packets: &u32) -> Self {
        Fixed::new(config, *packets)
    }

    fn setting(packets: &u32, _: &str) -> Option<SettingValue> {
        Some(SettingValue::number(*packets))
    }
}

impl CongestionControl for Fixed {
    fn on_send(&mut self, _sent: &Sent) {}

    fn on_lost(&mut self, _lost: &Lost) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.cwnd = self.cwnd.saturating_add(ack.newly_acked).min(self.window_packets * self.smss);
    }

    fn on_recovery(&mut self, _event: Recovery, _context: &RecoveryContext) {}

    fn on_mtu(&mut self, smss: u32) {
        self.smss = u64::from(smss.max(1));
        self.cwnd = self.cwnd.max(self.smss);
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.window_packets * self.smss
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn send_quantum(&self) -> u64 {
        2 * self.smss
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn state(&self) -> &'static str {
        "Fixed"
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { state: self.state(), cwnd: self.cwnd, ..Snapshot::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_to_the_configured_size() {
        let config = Config { smss: 1000, initial_cwnd: 10_000, seed: 1, ..Config::default() };
        let mut fixed = Fixed::new(&config, 25);
        assert_eq!(fixed.cwnd(), 10_000);
        fixed.cwnd = fixed.cwnd.saturating_add(50_000).min(fixed.ssthresh());
        assert_eq!(fixed.cwnd(), 25_000);
        assert_eq!(Fixed::new(&config, 3).cwnd(), 3_000);
    }
}
