//! Congestion control (BBR v1 and v3, CUBIC, NewReno, Hybla) for transports written in C.
//!
//! The library allocates nothing, keeps no global state, reads no clock, and calls nothing but
//! memcpy, memmove, memset, memcmp, bcmp and strlen. It never calls back. A transport owns packets,
//! timers and loss detection, reports events, and obeys three values: window, pacing rate and send
//! quantum. examples/sender.c is a whole sender.
//!
//! Order of calls: fullpipe_cc_spec_parse once per program, fullpipe_cc_init per connection; then
//!
//! - Sending: while fullpipe_cc_ready and the bytes in flight plus the packet are at most
//!   fullpipe_cc_window, up to fullpipe_cc_send_quantum bytes leave together:
//!   fullpipe_cc_on_sent for each packet, whose stamp is kept with it, then
//!   fullpipe_cc_on_batch_sent once.
//! - An ACK: fullpipe_cc_begin_ack; in any order fullpipe_cc_on_acked for each packet newly
//!   acknowledged, fullpipe_cc_on_lost for each packet that it shows to be lost,
//!   fullpipe_cc_exit_recovery, fullpipe_cc_undo or fullpipe_cc_enter_recovery if recovery ends or
//!   begins; then fullpipe_cc_finish_ack.
//! - A loss timer: fullpipe_cc_begin_losses; fullpipe_cc_on_lost for each packet; then one of
//!   fullpipe_cc_enter_recovery_on_timer, fullpipe_cc_enter_loss and fullpipe_cc_finish_losses.
//!
//! Units: times are nanoseconds since an origin of the caller's choice, sizes are bytes as the
//! window counts them (TCP: payload; QUIC: UDP payload), rates are bytes per second, gains are in
//! 1/256. The same calls give the same results on every machine.
//!
//! Pointers: each points to an object of its type that the caller owns, or is null, which is an
//! error unless the function says otherwise. Objects passed to one call do not overlap. Plain
//! structs may be unaligned. The contents of fullpipe_cc, fullpipe_cc_spec, fullpipe_cc_rtt,
//! fullpipe_cc_episode and fullpipe_cc_window_limited are the library's: an object that no init or
//! parse function has written is reported as FULLPIPE_CC_ERR_STATE. They need no destructor: to
//! dispose of one, free or reuse its memory. They contain no pointers into themselves, so they may
//! be moved.
//!
//! Threads: at most one thread at a time uses an object. Different objects are independent. A spec
//! is only read after it is parsed, so that threads may share it.
//!
//! Errors: a call that returns an error changes nothing, except texts: that of
//! fullpipe_cc_spec_parse explains the error, that of fullpipe_cc_spec_text is cut. No number passed
//! is invalid unless the function says so; wrong numbers make the controller's results wrong, not its
//! memory.
#![no_std]
#![allow(non_camel_case_types, reason = "the names of the C interface")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules for pointers are the same for every function: above"
)]

mod controller;
mod events;
mod helpers;
mod memory;
mod queries;
mod registry;
mod types;

pub use controller::*;
pub use events::*;
pub use helpers::*;
pub use queries::*;
pub use registry::*;
pub use types::*;
