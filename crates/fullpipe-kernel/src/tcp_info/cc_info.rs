//! `TCP_CC_INFO`: the state that a socket's congestion controller exposes.

use super::controller;
use crate::netlink::u32_at;
use crate::sockopt;
use fullpipe_units::{Gain, Rate, Span};
use std::io;
use std::os::fd::AsFd;

/// State exposed by a congestion controller; most expose none.
#[derive(Clone, Debug, PartialEq)]
pub enum CcInfo {
    /// BBR, any version.
    Bbr(BbrInfo),
    /// Vegas and its relatives (illinois, veno, westwood, yeah … use the same structure).
    Vegas(VegasInfo),
    /// DCTCP.
    Dctcp(DctcpInfo),
}

/// `struct tcp_bbr_info`: the path model of BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbrInfo {
    /// The bandwidth estimate (maximum filter over delivery rates).
    pub bw: Rate,
    /// The round-trip propagation time estimate (minimum filter).
    pub min_rtt: Span,
    /// Pacing rate over bandwidth estimate.
    pub pacing_gain: Gain,
    /// cwnd over the estimated BDP.
    pub cwnd_gain: Gain,
    /// Additional state of BBR v3; mainline's BBR is v1 and has none.
    pub v3: Option<Bbr3Info>,
}

/// What `struct tcp_bbr_info` goes on with in BBR v3 (github.com/google/bbr, branch `v3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr3Info {
    /// Of BBR: 3.
    pub version: u8,
    /// `enum tcp_bbr_mode`: 0 Startup, 1 Drain, 2 ProbeBW, 3 ProbeRTT.
    pub mode: u8,
    /// `enum tcp_bbr_phase`, within ProbeBW.
    pub phase: u8,
    /// The short-term bound of inflight; `None` where there is none. Segments.
    pub inflight_lo: Option<u32>,
    /// The long-term bound. Segments.
    pub inflight_hi: Option<u32>,
    /// The most that was acknowledged beyond what the bandwidth explains. Segments.
    pub extra_acked: u32,
}

/// Where in its state machine a BBR v1 sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BbrMode {
    /// Exponential growth until the pipe is full.
    Startup,
    /// Draining the queue that Startup built.
    Drain,
    /// Cycling pacing gains around the bandwidth estimate.
    ProbeBw,
    /// Four packets in flight, to measure the propagation delay.
    ProbeRtt,
}

/// `struct tcpvegas_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VegasInfo {
    /// Whether delay-based control is active.
    pub enabled: bool,
    /// RTT samples in this round.
    pub rtt_count: u32,
    /// The RTT of this round.
    pub rtt: Span,
    /// The lowest RTT seen.
    pub min_rtt: Span,
}

/// `struct tcp_dctcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DctcpInfo {
    /// Whether both ends agreed on ECN.
    pub enabled: bool,
    /// Whether the receiver's last packet was marked.
    pub ce: bool,
    /// The moving average of the marked share, in 1/1024.
    pub alpha: u32,
    /// Bytes marked in this window.
    pub marked: u32,
    /// Bytes acknowledged in this window.
    pub acked: u32,
}

impl CcInfo {
    /// Queries the socket's controller; `None` if it exposes no state.
    ///
    /// # Errors
    /// When the descriptor is not a TCP socket.
    pub fn query(socket: &impl AsFd) -> io::Result<Option<CcInfo>> {
        let name = controller(socket)?;
        let mut bytes = [0; 128];
        let length = sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_CC_INFO, &mut bytes)?;
        Ok(CcInfo::decode(&name, &bytes[..length]))
    }

    /// Decodes the state of controller `name`. The bytes are an untagged union, so the name selects the variant.
    pub fn decode(name: &str, bytes: &[u8]) -> Option<CcInfo> {
        let u32_at = |offset| u32_at(bytes, offset);
        let micros = |offset| u32_at(offset).map(|us| Span::from_micros(us.into()));
        if name.starts_with("bbr") {
            let bw = u64::from(u32_at(0)?) | u64::from(u32_at(4)?) << 32;
            return Some(CcInfo::Bbr(BbrInfo {
                bw: Rate::from_bytes_per_sec(bw),
                min_rtt: micros(8)?,
                pacing_gain: Gain::from_256ths(u32_at(12)?),
                cwnd_gain: Gain::from_256ths(u32_at(16)?),
                v3: Bbr3Info::decode(bytes),
            }));
        }
        if name == "dctcp" {
            let flags = u32_at(0)?.to_ne_bytes();
            return Some(CcInfo::Dctcp(DctcpInfo {
                enabled: u16::from_ne_bytes([flags[0], flags[1]]) != 0,
                ce: u16::from_ne_bytes([flags[2], flags[3]]) != 0,
                alpha: u32_at(4)?,
                marked: u32_at(8)?,
                acked: u32_at(12)?,
            }));
        }
        Some(CcInfo::Vegas(VegasInfo {
            enabled: u32_at(0)? != 0,
            rtt_count: u32_at(4)?,
            rtt: micros(8)?,
            min_rtt: micros(12)?,
        }))
    }
}

impl Bbr3Info {
    /// v1's structure has 20 bytes; v3's goes on to 52 and has its version in a byte of them.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let &[mode, phase, _, version] = bytes.get(36..40)? else { return None };
        let bound = |at| u32_at(bytes, at).map(|bound| Some(bound).filter(|&b| b != u32::MAX));
        (version != 0).then_some(())?;
        let (inflight_lo, inflight_hi) = (bound(40)?, bound(44)?);
        Some(Bbr3Info { version, mode, phase, inflight_lo, inflight_hi, extra_acked: u32_at(bytes, 48)? })
    }
}

impl BbrInfo {
    /// Version: 1, or as reported by later versions.
    pub fn version(&self) -> u8 {
        self.v3.map_or(1, |v3| v3.version)
    }

    /// The mode of a v1 sender, derived from its gains (`bbr_update_gains`), since the kernel does not expose it.
    /// `None` for gains of no v1 mode, such as before the first ACK.
    pub fn mode(&self) -> Option<BbrMode> {
        const HIGH_GAIN: u32 = 256 * 2885 / 1000 + 1;
        const DRAIN_GAIN: u32 = 256 * 1000 / 2885;
        match (self.pacing_gain.as_256ths(), self.cwnd_gain.as_256ths()) {
            (HIGH_GAIN, HIGH_GAIN) => Some(BbrMode::Startup),
            (DRAIN_GAIN, HIGH_GAIN) => Some(BbrMode::Drain),
            (256, 256) => Some(BbrMode::ProbeRtt),
            (320 | 192 | 256, 512) => Some(BbrMode::ProbeBw),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn bbr_bandwidth_is_a_64_bit_value() {
        let bytes = words(&[1, 1, 40_000, 739, 739]);
        let Some(CcInfo::Bbr(bbr)) = CcInfo::decode("bbr", &bytes) else { panic!("not BBR") };
        assert_eq!(bbr.bw, Rate::from_bytes_per_sec((1 << 32) + 1));
        assert_eq!(bbr.min_rtt, Span::from_millis(40));
        assert_eq!(bbr.mode(), Some(BbrMode::Startup));
    }

    #[test]
    fn gains_identify_the_mode() {
        let mode = |pacing, cwnd| {
            let bytes = words(&[0, 0, 0, pacing, cwnd]);
            let Some(CcInfo::Bbr(bbr)) = CcInfo::decode("bbr", &bytes) else { panic!("not BBR") };
            bbr.mode()
        };
        assert_eq!(mode(88, 739), Some(BbrMode::Drain));
        assert_eq!(mode(320, 512), Some(BbrMode::ProbeBw));
        assert_eq!(mode(256, 256), Some(BbrMode::ProbeRtt));
        assert_eq!(mode(0, 0), None);
    }

    #[test]
    fn controllers_without_state_give_none() {
        assert_eq!(CcInfo::decode("cubic", &[]), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        super::super::pin(&listener, "reno").unwrap();
        assert_eq!(CcInfo::query(&listener).unwrap(), None);
    }

    #[test]
    fn the_length_identifies_the_bbr_version() {
        let mut v3 = vec![0u8; 52];
        (v3[36], v3[37], v3[39], v3[48]) = (2, 3, 3, 5);
        v3[40..44].copy_from_slice(&u32::MAX.to_ne_bytes());
        let bbr = |bytes| match CcInfo::decode("bbr", bytes) {
            Some(CcInfo::Bbr(bbr)) => Some(bbr),
            _ => None,
        };
        let told = bbr(&v3).unwrap();
        assert_eq!(told.version(), 3);
        assert_eq!(
            told.v3.map(|v3| (v3.mode, v3.phase, v3.inflight_lo, v3.inflight_hi)),
            Some((2, 3, None, Some(0)))
        );
        assert_eq!(bbr(&v3[..20]).map(|b| b.version()), Some(1));
        assert_eq!(bbr(&v3[..19]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(name in "bbr|bbr3|dctcp|vegas|cubic", bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = CcInfo::decode(&name, &bytes);
        }
    }
}
