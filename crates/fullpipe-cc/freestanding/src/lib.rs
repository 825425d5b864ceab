//! A transport without an operating system: every controller, the sampler and the pacer, for one ACK.
#![no_std]

use core::panic::PanicInfo;
use fullpipe_cc::{
    Ack, CONTROLLERS, Config, CongestionControl, Controller, Pacer, Sampler, Sent, Span, Time,
};

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// The window of each controller after its first packet, summed.
pub extern "C" fn first_ack() -> u64 {
    let (now, bytes) = (Time::ZERO + Span::from_millis(1), 1448);
    let mut sum = 0u64;
    for about in CONTROLLERS {
        let Ok(mut cc) = Controller::new(about.name, &Config::default(), &[]) else { return 0 };
        let (mut sampler, mut pacer) = (Sampler::new(), Pacer::new());
        cc.on_send(&Sent { now, bytes, inflight: 0, app_limited: false, delivered: 0, retransmit: false });
        let stamp = sampler.on_sent(now, bytes, 0);
        pacer.on_sent(now, bytes, 1, cc.pacing_rate());
        let now = now + Span::from_millis(10);
        sampler.begin_ack();
        sampler.on_acked(now, bytes, &stamp);
        cc.on_ack(&Ack {
            sample: sampler.finish_ack(now, None),
            newly_acked: bytes,
            delivered: bytes,
            ..Ack::at(now)
        });
        sum = sum.saturating_add(cc.cwnd());
    }
    sum
}
