//! Whatever a transport says, no controller panics or closes its window for good; and whatever
//! bytes a recording holds, they are a kernel's state or refused.
#![no_main]

use fullpipe_cc::bbr::v1::{Bbr, KERNEL_SIZE, Params};
use fullpipe_cc::{
    Ack, CONTROLLERS, Config, CongestionControl, Controller, ControllerSpec, Lost, Rate, RateSample,
    Recovery, RecoveryContext, RecoveryState, Sent, Span, Time,
};
use libfuzzer_sys::fuzz_target;

/// Numbers of every size out of bytes.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
        let (shift, low) = (self.byte()?, u64::from(self.byte()?));
        Some(if shift & 0x80 == 0 { low << (shift & 0x3f) } else { u64::MAX - (low << (shift & 0x3f)) })
    }

    fn time(&mut self) -> Option<Time> {
        self.number().map(Time::from_nanos)
    }

    fn span(&mut self) -> Option<Span> {
        self.number().map(Span::from_nanos)
    }

    fn context(&mut self) -> Option<RecoveryContext> {
        Some(RecoveryContext {
            now: self.time()?,
            inflight: self.number()?,
            delivered: self.number()?,
            lost: self.number()?,
        })
    }

    fn ack(&mut self) -> Option<Ack> {
        let flags = self.byte()?;
        let flag = |bit: u8| flags >> bit & 1 != 0;
        let sample = RateSample {
            rate: self.number().filter(|_| flag(0)).map(Rate::from_bytes_per_sec),
            delivered: self.number()?,
            interval: self.span()?,
            prior_delivered: self.number()?,
            prior_delivered_at: self.time()?,
            tx_in_flight: self.number()?,
            lost: self.number()?,
            app_limited: flag(1),
            has_packet: flag(2),
        };
        Some(Ack {
            sample,
            rtt: self.span().filter(|_| flag(3)),
            srtt: self.span().filter(|_| flag(4)),
            newly_acked: self.number()?,
            newly_lost: self.number()?,
            lost_ranges: self.number()? as u32,
            inflight_before: self.number()?,
            inflight: self.number()?,
            delivered: self.number()?,
            lost: self.number()?,
            cwnd_limited: flag(5),
            ce_count: u32::from(flag(6)),
            delayed: flag(7),
            recovery: match self.byte()? % 4 {
                0 => RecoveryState::Open,
                1 => RecoveryState::Disorder,
                2 => RecoveryState::Recovery,
                _ => RecoveryState::Loss,
            },
            next_departure: self.time()?,
            ..Ack::at(self.time()?)
        })
    }

    fn lost(&mut self) -> Option<Lost> {
        Some(Lost {
            now: self.time()?,
            bytes: self.number()?,
            tx_in_flight: self.number()?,
            delivered_at_send: self.number()?,
            lost_at_send: self.number()?,
            lost: self.number()?,
            delivered: self.number()?,
            app_limited: self.byte()? & 1 != 0,
        })
    }

    fn sent(&mut self) -> Option<Sent> {
        let flags = self.byte()?;
        Some(Sent {
            now: self.time()?,
            bytes: self.number()?,
            inflight: self.number()?,
            app_limited: flags & 1 != 0,
            delivered: self.number()?,
            retransmit: flags & 2 != 0,
        })
    }

    /// Makes one call; `None` when the bytes are used up.
    fn call(&mut self, c: &mut Controller, smss: &mut u32) -> Option<()> {
        match self.byte()? % 16 {
            0 => c.on_handshake(self.time()?, self.span()?),
            1 => {
                *smss = self.number()? as u32;
                c.on_mtu(*smss);
            }
            2 => c.on_recovery(Recovery::EnterFast, &self.context()?),
            3 => c.on_recovery(Recovery::EnterRto, &self.context()?),
            4 => c.on_recovery(Recovery::Exit, &self.context()?),
            5 => c.on_recovery(Recovery::Spurious, &self.context()?),
            6 => c.on_lost(&self.lost()?),
            7..=9 => c.on_send(&self.sent()?),
            _ => c.on_ack(&self.ack()?),
        }
        Some(())
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(bytes) = <&[u8; KERNEL_SIZE]>::try_from(data)
        && let Some(state) = Bbr::from_kernel(bytes, Params::LINUX)
    {
        let again = Bbr::from_kernel(&state.to_kernel(), Params::LINUX);
        assert_eq!(again, Some(state));
    }
    let mut input = Input(data);
    let (Some(which), Some(smss), Some(initial_cwnd)) = (input.byte(), input.number(), input.number()) else {
        return;
    };
    let mut smss = smss as u32;
    let config =
        Config { smss, initial_cwnd, seed: 1, selective_acks: which & 0x80 == 0, paced: which & 0x40 != 0 };
    let name = CONTROLLERS[usize::from(which) % CONTROLLERS.len()].name;
    let mut c = ControllerSpec::new(name, &[]).expect("a registered name").build(&config);
    while input.call(&mut c, &mut smss).is_some() {
        assert!(c.cwnd() >= u64::from(smss.max(1)), "{name}: {}", c.cwnd());
        let _ = (c.pacing_rate(), c.ssthresh(), c.send_quantum(), c.snapshot());
    }
});
