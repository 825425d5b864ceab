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

/// Fields that BBR v3 appends to `struct tcp_bbr_info` (github.com/google/bbr, branch `v3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bbr3Info {
    /// Version of BBR: 3.
    pub version: u8,
    /// `enum tcp_bbr_mode`, as in v1; `None` for an unknown number.
    pub mode: Option<BbrMode>,
    /// `enum tcp_bbr_phase`; `None` before the first ACK and for an unknown number.
    pub phase: Option<BbrPhase>,
    /// The long-term bandwidth bound: the maximum filter.
    pub bw_hi: Rate,
    /// The short-term bandwidth bound; `None` without one.
    pub bw_lo: Option<Rate>,
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

/// State of a BBR v3 sender (`enum tcp_bbr_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BbrPhase {
    /// Exponential growth until the pipe is full.
    Startup,
    /// Draining the queue that Startup built.
    Drain,
    /// Reduced inflight, to measure the propagation delay.
    ProbeRtt,
    /// Probing for more bandwidth.
    ProbeBwUp,
    /// Draining the queue of the last probe.
    ProbeBwDown,
    /// Sending at the estimated bandwidth, with headroom.
    ProbeBwCruise,
    /// Refilling the pipe before a probe.
    ProbeBwRefill,
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

    /// Decodes the state of controller `name`. The bytes are an untagged union, so the name selects
    /// the variant.
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
        // 64-bit rates in bytes per second are split into two words, the low one first.
        let rate = |at| Some(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at + 4)?) << 32);
        (version != 0).then_some(())?;
        Some(Bbr3Info {
            version,
            mode: BbrMode::from_number(mode),
            phase: BbrPhase::from_number(phase),
            bw_hi: Rate::from_bytes_per_sec(rate(20)?),
            bw_lo: Some(rate(28)?).filter(|&bw| bw != u64::MAX).map(Rate::from_bytes_per_sec),
            inflight_lo: bound(40)?,
            inflight_hi: bound(44)?,
            extra_acked: u32_at(bytes, 48)?,
        })
    }
}

impl BbrMode {
    fn from_number(number: u8) -> Option<Self> {
        const BY_NUMBER: [BbrMode; 4] =
            [BbrMode::Startup, BbrMode::Drain, BbrMode::ProbeBw, BbrMode::ProbeRtt];
        BY_NUMBER.get(usize::from(number)).copied()
    }

    /// The name of the state.
    pub fn name(self) -> &'static str {
        match self {
            BbrMode::Startup => "Startup",
            BbrMode::Drain => "Drain",
            BbrMode::ProbeBw => "ProbeBW",
            BbrMode::ProbeRtt => "ProbeRTT",
        }
    }
}

impl BbrPhase {
    /// From `enum tcp_bbr_phase`, in which 0 is `BBR_PHASE_INVALID`.
    fn from_number(number: u8) -> Option<Self> {
        const BY_NUMBER: [BbrPhase; 7] = [
            BbrPhase::Startup,
            BbrPhase::Drain,
            BbrPhase::ProbeRtt,
            BbrPhase::ProbeBwUp,
            BbrPhase::ProbeBwDown,
            BbrPhase::ProbeBwCruise,
            BbrPhase::ProbeBwRefill,
        ];
        BY_NUMBER.get(usize::from(number.checked_sub(1)?)).copied()
    }

    /// The name of the state, as in the draft.
    pub fn name(self) -> &'static str {
        match self {
            BbrPhase::Startup => "Startup",
            BbrPhase::Drain => "Drain",
            BbrPhase::ProbeRtt => "ProbeRTT",
            BbrPhase::ProbeBwUp => "ProbeBW_UP",
            BbrPhase::ProbeBwDown => "ProbeBW_DOWN",
            BbrPhase::ProbeBwCruise => "ProbeBW_CRUISE",
            BbrPhase::ProbeBwRefill => "ProbeBW_REFILL",
        }
    }
}

impl BbrInfo {
    /// The name of the current state: the phase of v3, or the mode of v1. `None` if it cannot be
    /// determined.
    pub fn state(&self) -> Option<&'static str> {
        match &self.v3 {
            Some(v3) => v3.phase.map(BbrPhase::name).or(v3.mode.map(BbrMode::name)),
            None => self.mode().map(BbrMode::name),
        }
    }

    /// Version: 1, or as reported by later versions.
    pub fn version(&self) -> u8 {
        self.v3.map_or(1, |v3| v3.version)
    }

    /// The mode: as reported by v3; derived from the gains of v1 (`bbr_update_gains`), which does
    /// not report it. `None` for gains of no v1 mode, such as before the first ACK.
    pub fn mode(&self) -> Option<BbrMode> {
        const HIGH_GAIN: u32 = 256 * 2885 / 1000 + 1;
        const DRAIN_GAIN: u32 = 256 * 1000 / 2885;
        if let Some(v3) = &self.v3 {
            return v3.mode;
        }
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

    fn to_bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn bbr_bandwidth_is_a_64_bit_value() {
        let bytes = to_bytes(&[1, 1, 40_000, 739, 739]);
        let Some(CcInfo::Bbr(bbr)) = CcInfo::decode("bbr", &bytes) else { panic!("not BBR") };
        assert_eq!(bbr.bw, Rate::from_bytes_per_sec((1 << 32) + 1));
        assert_eq!(bbr.min_rtt, Span::from_millis(40));
        assert_eq!(bbr.mode(), Some(BbrMode::Startup));
    }

    #[test]
    fn gains_identify_the_mode() {
        let mode = |pacing, cwnd| {
            let bytes = to_bytes(&[0, 0, 0, pacing, cwnd]);
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
        let decoded = bbr(&v3).unwrap();
        assert_eq!(decoded.version(), 3);
        assert_eq!(
            decoded.v3.map(|v3| (v3.mode, v3.phase, v3.inflight_lo, v3.inflight_hi)),
            Some((Some(BbrMode::ProbeBw), Some(BbrPhase::ProbeRtt), None, Some(0)))
        );
        assert_eq!(bbr(&v3[..20]).map(|b| b.version()), Some(1));
        assert_eq!(bbr(&v3[..19]), None);
    }

    /// `struct tcp_bbr_info` as v3 fills it in, with this mode, phase and gains (in 1/256).
    fn v3_bytes(mode: u8, phase: u8, pacing_gain: u32, cwnd_gain: u32) -> Vec<u8> {
        let mut bytes = to_bytes(&[1_250_000, 0, 40_000, pacing_gain, cwnd_gain]);
        bytes.extend(to_bytes(&[2_500_000, 1, u32::MAX, u32::MAX]));
        bytes.extend([mode, phase, 0, 3]);
        bytes.extend(to_bytes(&[u32::MAX, 90, 7]));
        assert_eq!(bytes.len(), 52);
        bytes
    }

    #[test]
    fn every_phase_of_bbr_v3_is_decoded() {
        for (mode, phase, gains, state, of_mode) in [
            (0, 1, (710, 512), "Startup", BbrMode::Startup),
            (1, 2, (88, 512), "Drain", BbrMode::Drain),
            (3, 3, (256, 128), "ProbeRTT", BbrMode::ProbeRtt),
            (2, 4, (320, 576), "ProbeBW_UP", BbrMode::ProbeBw),
            (2, 5, (232, 512), "ProbeBW_DOWN", BbrMode::ProbeBw),
            (2, 6, (256, 512), "ProbeBW_CRUISE", BbrMode::ProbeBw),
            (2, 7, (256, 512), "ProbeBW_REFILL", BbrMode::ProbeBw),
            // Before the first ACK the phase is invalid; unknown numbers fall back to the mode.
            (0, 0, (710, 512), "Startup", BbrMode::Startup),
            (2, 99, (256, 512), "ProbeBW", BbrMode::ProbeBw),
        ] {
            let bytes = v3_bytes(mode, phase, gains.0, gains.1);
            let Some(CcInfo::Bbr(bbr)) = CcInfo::decode("bbr", &bytes) else { panic!("not BBR") };
            assert_eq!((bbr.state(), bbr.mode(), bbr.version()), (Some(state), Some(of_mode), 3), "{phase}");
            let v3 = bbr.v3.unwrap();
            assert_eq!(v3.bw_hi, Rate::from_bytes_per_sec((1 << 32) + 2_500_000));
            assert_eq!((v3.bw_lo, v3.inflight_lo, v3.inflight_hi, v3.extra_acked), (None, None, Some(90), 7));
        }
        let mut bytes = v3_bytes(2, 6, 256, 512);
        bytes[28..36].copy_from_slice(&to_bytes(&[1_000_000, 0]));
        let Some(CcInfo::Bbr(bbr)) = CcInfo::decode("bbr3", &bytes) else { panic!("not BBR") };
        assert_eq!(bbr.v3.unwrap().bw_lo, Some(Rate::from_bytes_per_sec(1_000_000)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            name in "bbr|bbr3|dctcp|vegas|cubic",
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = CcInfo::decode(&name, &bytes);
        }
    }
}
