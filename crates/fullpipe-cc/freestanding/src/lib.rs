//! A transport without an operating system: every controller with all of a control, for one ACK.
#![no_std]

use core::panic::PanicInfo;
use fullpipe_cc::{
    AckReport, CONTROLLERS, Config, CongestionControl, ControllerSpec, SendController, Span, Time,
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
        let Ok(spec) = ControllerSpec::new(about.name, &[]) else { return 0 };
        let mut control = SendController::new(spec.build(&Config::default()), bytes as u32);
        let stamp = control.on_sent(now, bytes, 0, false);
        control.on_batch_sent(now, bytes, 1);
        let now = now + Span::from_millis(10);
        let mut event = control.begin_ack(bytes);
        control.on_acked(&mut event, now, bytes, &stamp);
        control.finish_ack(event, &AckReport::at(now, 0));
        sum = sum.saturating_add(control.controller().cwnd());
    }
    sum
}
