//! What a transport reports.

use crate::memory::{Connection, Open, Status, check_null, get_mut, read, status, write};
use crate::types::*;
use ::fullpipe_cc::{AckEvent, AckReport, Event, LossEvent, Stamp, Time};
use core::ffi::c_int;

const ACK: u32 = 1;
const LOSSES: u32 = 2;
const CLOSED: u32 = 3;

impl Connection {
    /// Fails if an event is open.
    pub(crate) fn check_closed(&self) -> Result<(), Status> {
        if self.open.is_some() { Err(Status::FULLPIPE_CC_ERR_EVENT) } else { Ok(()) }
    }

    /// The open event, if `token` is its token.
    fn is_open(&self, token: &fullpipe_cc_event) -> Result<(), Status> {
        let kind = match self.open {
            Some(Open::Ack(_)) => ACK,
            Some(Open::Losses(_)) => LOSSES,
            None => return Err(Status::FULLPIPE_CC_ERR_EVENT),
        };
        if token.kind == kind && token.serial == self.serial {
            Ok(())
        } else {
            Err(Status::FULLPIPE_CC_ERR_EVENT)
        }
    }

    fn opened(&mut self, event: Open) -> fullpipe_cc_event {
        let kind = if matches!(event, Open::Ack(_)) { ACK } else { LOSSES };
        self.serial = self.serial.wrapping_add(1);
        self.open = Some(event);
        fullpipe_cc_event { serial: self.serial, kind, ..Default::default() }
    }

    fn take_ack(&mut self, token: &fullpipe_cc_event) -> Result<AckEvent, Status> {
        self.is_open(token)?;
        match self.open.take() {
            Some(Open::Ack(event)) => Ok(event),
            other => {
                self.open = other;
                Err(Status::FULLPIPE_CC_ERR_EVENT)
            }
        }
    }

    fn take_losses(&mut self, token: &fullpipe_cc_event) -> Result<LossEvent, Status> {
        self.is_open(token)?;
        match self.open.take() {
            Some(Open::Losses(event)) => Ok(event),
            other => {
                self.open = other;
                Err(Status::FULLPIPE_CC_ERR_EVENT)
            }
        }
    }
}

/// Closes losses.
///
/// # Safety
/// The pointers are those of the interface.
unsafe fn close_losses(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    report: impl FnOnce(&mut Connection, LossEvent),
) -> Status {
    status(|| {
        // SAFETY: `event` is null or an event, by the interface.
        let mut token = unsafe { read(event) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        let losses = cc.take_losses(&token)?;
        report(cc, losses);
        token.kind = CLOSED;
        // SAFETY: `event` may be written, by the interface.
        unsafe { write(event, token) }
    })
}

/// A packet of `bytes` is sent at `now` with `inflight` bytes in flight before it. `retransmit` is not
/// 0 for a retransmission, which needs a new stamp. Keep `stamp` with the packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_sent(
    cc: *mut fullpipe_cc,
    now: u64,
    bytes: u64,
    inflight: u64,
    retransmit: c_int,
    stamp: *mut fullpipe_cc_stamp,
) -> fullpipe_cc_status {
    status(|| {
        check_null(stamp)?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        let sent = cc.control.on_sent(Time::from_nanos(now), bytes, inflight, retransmit != 0);
        // SAFETY: `stamp` may be written, by the interface.
        unsafe { write(stamp, sent.into()) }
    })
}

/// The packets reported by fullpipe_cc_on_sent since the last burst, `bytes` in `packets`, were sent
/// together: the pacer sets the next departure. Not for probes and retransmissions by a timer, which
/// are not paced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_batch_sent(
    cc: *mut fullpipe_cc,
    now: u64,
    bytes: u64,
    packets: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.control.on_batch_sent(Time::from_nanos(now), bytes, packets);
        Ok(())
    })
}

/// The application has no more data while `inflight` bytes in flight leave the window open. Without
/// this call BBR underestimates the path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_mark_app_limited(
    cc: *mut fullpipe_cc,
    inflight: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        unsafe { get_mut(cc) }?.control.mark_app_limited(inflight);
        Ok(())
    })
}

/// A packet of `bytes` left the flight neither acknowledged nor lost: its keys were discarded, or it
/// probed the MTU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_packet_discarded(
    cc: *mut fullpipe_cc,
    bytes: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        unsafe { get_mut(cc) }?.control.on_packet_discarded(bytes);
        Ok(())
    })
}

/// Opens an ACK, with `inflight` bytes in flight before it. Close it with fullpipe_cc_finish_ack.
/// FULLPIPE_CC_ERR_EVENT: an event is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_begin_ack(
    cc: *mut fullpipe_cc,
    inflight: u64,
    event: *mut fullpipe_cc_event,
) -> fullpipe_cc_status {
    status(|| {
        check_null(event)?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.check_closed()?;
        let ack = cc.control.begin_ack(inflight);
        // SAFETY: `event` may be written, by the interface.
        unsafe { write(event, cc.opened(Open::Ack(ack))) }
    })
}

/// The packet of `bytes` sent with `stamp` is newly acknowledged, cumulatively or selectively.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_acked(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    now: u64,
    bytes: u64,
    stamp: *const fullpipe_cc_stamp,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `stamp` is null or a stamp, by the interface.
        let stamp = Stamp::from(unsafe { read(stamp) }?);
        // SAFETY: `event` is null or an event, by the interface.
        let mut token = unsafe { read(event) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.is_open(&token)?;
        let Some(Open::Ack(ack)) = &mut cc.open else { return Err(Status::FULLPIPE_CC_ERR_EVENT) };
        cc.control.on_acked(ack, Time::from_nanos(now), bytes, &stamp);
        token.newly_acked = ack.newly_acked();
        // SAFETY: `event` may be written, by the interface.
        unsafe { write(event, token) }
    })
}

/// The packet of `bytes` sent with `stamp` is newly marked lost, by an ACK or by a timer. `new_range`
/// is not 0 if it starts a range of lost packets: 0 if the packet sent before it is marked lost in
/// the same event. A transport that does not know passes 1 for the first packet of an event only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_lost(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    now: u64,
    bytes: u64,
    stamp: *const fullpipe_cc_stamp,
    new_range: c_int,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `stamp` is null or a stamp, by the interface.
        let stamp = Stamp::from(unsafe { read(stamp) }?);
        // SAFETY: `event` is null or an event, by the interface.
        let mut token = unsafe { read(event) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.is_open(&token)?;
        let (now, new_range) = (Time::from_nanos(now), new_range != 0);
        token.newly_lost = match &mut cc.open {
            Some(Open::Ack(ack)) => {
                cc.control.on_lost(ack, now, bytes, &stamp, new_range);
                ack.newly_lost()
            }
            Some(Open::Losses(losses)) => {
                cc.control.on_lost(losses, now, bytes, &stamp, new_range);
                losses.newly_lost()
            }
            None => return Err(Status::FULLPIPE_CC_ERR_EVENT),
        };
        // SAFETY: `event` may be written, by the interface.
        unsafe { write(event, token) }
    })
}

/// The losses of an ACK start fast recovery: after them, before fullpipe_cc_finish_ack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_enter_recovery(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    now: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `event` is null or an event, by the interface.
        let token = unsafe { read(event) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.is_open(&token)?;
        let Some(Open::Ack(ack)) = &mut cc.open else { return Err(Status::FULLPIPE_CC_ERR_EVENT) };
        cc.control.enter_recovery(ack, Time::from_nanos(now));
        Ok(())
    })
}

/// The losses of the open event, an ACK or of a timer, establish persistent congestion (RFC 9002
/// section 7.6): `inflight` bytes remain, and the controller starts over. Not for QUIC's probe
/// timeout, which is not a loss. The event stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_persistent_congestion(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `event` is null or an event, by the interface.
        let token = unsafe { read(event) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.is_open(&token)?;
        let now = Time::from_nanos(now);
        match &mut cc.open {
            Some(Open::Ack(ack)) => cc.control.on_persistent_congestion(ack, now, inflight),
            Some(Open::Losses(losses)) => cc.control.on_persistent_congestion(losses, now, inflight),
            None => return Err(Status::FULLPIPE_CC_ERR_EVENT),
        }
        Ok(())
    })
}

/// Closes an ACK: the controller processes it. `sample`, its delivery-rate sample, may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_finish_ack(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    report: *const fullpipe_cc_ack_report,
    sample: *mut fullpipe_cc_rate_sample,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `report` is null or a report, by the interface.
        let report = AckReport::from(unsafe { read(report) }?);
        // SAFETY: `event` is null or an event, by the interface.
        let mut token = unsafe { read(event) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        let ack = cc.take_ack(&token)?;
        let result = cc.control.finish_ack(ack, &report);
        token.kind = CLOSED;
        // SAFETY: `event` may be written, by the interface.
        unsafe { write(event, token) }?;
        if !sample.is_null() {
            // SAFETY: `sample` may be written, by the interface.
            unsafe { write(sample, result.into()) }?;
        }
        Ok(())
    })
}

/// Sets all fields of a report: at `now`, with `inflight` bytes outstanding and in flight, and
/// nothing else known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_ack_report_init(
    report: *mut fullpipe_cc_ack_report,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    let new = fullpipe_cc_ack_report { now, inflight, outstanding: inflight, ..Default::default() };
    // SAFETY: `report` is null or may be written, by the interface.
    status(|| unsafe { write(report, new) })
}

/// Opens losses that a timer found, with `inflight` bytes in flight before them. Close them with
/// fullpipe_cc_enter_recovery_on_timer, fullpipe_cc_enter_loss or fullpipe_cc_finish_losses.
/// FULLPIPE_CC_ERR_EVENT: an event is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_begin_losses(
    cc: *mut fullpipe_cc,
    inflight: u64,
    event: *mut fullpipe_cc_event,
) -> fullpipe_cc_status {
    status(|| {
        check_null(event)?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.check_closed()?;
        let losses = cc.control.begin_losses(inflight);
        // SAFETY: `event` may be written, by the interface.
        unsafe { write(event, cc.opened(Open::Losses(losses))) }
    })
}

/// Closes losses of a timer that start fast recovery; they leave `inflight` bytes in flight, and one
/// packet may be sent immediately.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_enter_recovery_on_timer(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    // SAFETY: the pointers are those of the interface.
    unsafe {
        close_losses(cc, event, |cc, losses| {
            cc.control.enter_recovery_on_timer(losses, Time::from_nanos(now), inflight);
        })
    }
}

/// Closes losses of a retransmission timeout; `inflight` bytes remain after everything presumed lost
/// is reported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_enter_loss(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    // SAFETY: the pointers are those of the interface.
    unsafe {
        close_losses(cc, event, |cc, losses| {
            cc.control.enter_loss(losses, Time::from_nanos(now), inflight);
        })
    }
}

/// Closes losses of a timer that change no state: the connection recovers already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_finish_losses(
    cc: *mut fullpipe_cc,
    event: *mut fullpipe_cc_event,
) -> fullpipe_cc_status {
    // SAFETY: the pointers are those of the interface.
    unsafe { close_losses(cc, event, |cc, losses| cc.control.finish_losses(losses)) }
}

/// Closes the open event, if any, without passing its end to the controller, for a transport that
/// gave up in the middle of an ACK. Its token becomes invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_cancel_event(cc: *mut fullpipe_cc) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        unsafe { get_mut(cc) }?.open = None;
        Ok(())
    })
}

/// Everything outstanding when recovery started is acknowledged. Before
/// fullpipe_cc_enter_recovery if an ACK ends one recovery and starts another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_exit_recovery(
    cc: *mut fullpipe_cc,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        unsafe { get_mut(cc) }?.control.exit_recovery(Time::from_nanos(now), inflight);
        Ok(())
    })
}

/// The losses were spurious: undoes their effects and ends a recovery in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_undo(
    cc: *mut fullpipe_cc,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        unsafe { get_mut(cc) }?.control.undo(Time::from_nanos(now), inflight);
        Ok(())
    })
}

/// A tail loss probe repaired a loss before it was detected: reduces the window without a recovery.
/// Has no effect on controllers that set their own window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_reduce_for_repaired_loss(
    cc: *mut fullpipe_cc,
    now: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        unsafe { get_mut(cc) }?.control.reduce_for_repaired_loss(Time::from_nanos(now), inflight);
        Ok(())
    })
}
