//! A transport without an operating system: every controller with all of a connection, for one ACK.
#![no_std]

use core::panic::PanicInfo;
use fullpipe_cc::{
    AckReport, CONTROLLERS, Config, Connection, Controller, CongestionControl, Span, Time,
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
        let Ok(cc) = Controller::new(about.name, &Config::default(), &[]) else { return 0 };
        let mut connection = Connection::new(cc, bytes as u32);
        let stamp = connection.on_sent(now, bytes, 0, false);
        connection.on_batch_sent(now, bytes, 1);
        let now = now + Span::from_millis(10);
        connection.begin_ack(bytes);
        connection.on_acked(now, bytes, &stamp);
        connection.finish_ack(&AckReport::at(now, 0));
        sum = sum.saturating_add(connection.controller().cwnd());
    }
    sum
}
