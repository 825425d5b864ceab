//! The caller's memory: all that the interface reads and writes of it.

use crate::types::*;
use ::fullpipe_cc::{AckEvent, Controller, ControllerSpec, LossEvent, SendController};
use ::fullpipe_cc::{RecoveryEpisode, RttEstimator, WindowLimited};

pub(crate) use crate::types::fullpipe_cc_status as Status;

/// What a controller's memory contains.
pub struct Connection {
    pub(crate) control: SendController<Controller>,
    pub(crate) paced_by_window: bool,
    /// Number of the last event: that of a token that is still open, if an event is.
    pub(crate) serial: u64,
    pub(crate) open: Option<Open>,
}

/// The event that is open. It stays here and the caller gets a token, so that a copy of a token
/// cannot close it twice.
pub(crate) enum Open {
    Ack(AckEvent),
    Losses(LossEvent),
}

/// A type of the interface whose memory contains a value of the library.
pub trait Storage: Sized {
    type Value;
    /// Distinguishes initialised memory of this type.
    const MAGIC: u64;
}

#[repr(C)]
struct Slot<T> {
    magic: u64,
    value: T,
}

macro_rules! storage {
    ($($type:ty: $value:ty, $magic:literal;)+) => {$(
        impl Storage for $type {
            type Value = $value;
            const MAGIC: u64 = u64::from_le_bytes(*$magic);
        }
        const _: () = {
            assert!(size_of::<Slot<$value>>() <= size_of::<$type>());
            assert!(align_of::<Slot<$value>>() <= align_of::<$type>());
            assert!(!core::mem::needs_drop::<$value>(), "the interface has no destructors");
        };
    )+};
}

storage! {
    fullpipe_cc: Connection, b"fp-cc\xf1\xa5\x01";
    fullpipe_cc_spec: ControllerSpec, b"fp-spec\x81";
    fullpipe_cc_rtt: RttEstimator, b"fp-rtt\xe2\x91";
    fullpipe_cc_episode: RecoveryEpisode, b"fp-epi\xd3\xa1";
    fullpipe_cc_window_limited: WindowLimited, b"fp-wlim\xb1";
}

/// Bytes that an object of `S` uses.
pub(crate) const fn used<S: Storage>() -> usize {
    size_of::<Slot<S::Value>>()
}

fn check<S>(object: *const S) -> Result<(), Status> {
    match object {
        _ if object.is_null() => Err(Status::FULLPIPE_CC_ERR_NULL),
        _ if !object.is_aligned() => Err(Status::FULLPIPE_CC_ERR_ALIGN),
        _ => Ok(()),
    }
}

/// Puts `value` into memory for an `S`.
///
/// # Safety
/// `object` is null, not aligned, or valid for writes.
pub(crate) unsafe fn put<S: Storage>(object: *mut S, value: S::Value) -> Result<(), Status> {
    check(object)?;
    // SAFETY: it is valid for writes, aligned, and the assertions of `storage!` hold for size and
    // alignment. What was there has no destructor.
    unsafe { object.cast::<Slot<S::Value>>().write(Slot { magic: S::MAGIC, value }) };
    Ok(())
}

/// # Safety
/// `object` is null, not aligned, or valid for reads.
unsafe fn check_magic<S: Storage>(object: *const S) -> Result<(), Status> {
    check(object)?;
    // SAFETY: it is valid for reads and aligned; every bit pattern is a number. Volatile, because the
    // compiler must not assume anything about memory that may never have been written.
    let magic = unsafe { object.cast::<u64>().read_volatile() };
    if magic == S::MAGIC { Ok(()) } else { Err(Status::FULLPIPE_CC_ERR_STATE) }
}

/// The value in an object.
///
/// # Safety
/// `object` is null, not aligned, or valid for reads, and written by nothing but [`put`] since its
/// magic number was. No other thread writes it, and the reference ends before it is next written.
pub(crate) unsafe fn get<'a, S: Storage>(object: *const S) -> Result<&'a S::Value, Status> {
    // SAFETY: as the caller promises.
    unsafe { check_magic(object) }?;
    // SAFETY: `put` was here, so that it contains a value.
    Ok(unsafe { &(*object.cast::<Slot<S::Value>>()).value })
}

/// The value in an object, mutable.
///
/// # Safety
/// As for [`get`], valid for writes, and no other reference exists.
pub(crate) unsafe fn get_mut<'a, S: Storage>(object: *mut S) -> Result<&'a mut S::Value, Status> {
    // SAFETY: as the caller promises.
    unsafe { check_magic(object) }?;
    // SAFETY: `put` was here, so that it contains a value.
    Ok(unsafe { &mut (*object.cast::<Slot<S::Value>>()).value })
}

/// A struct that the caller may read and write: numbers and nothing else.
///
/// # Safety
/// Every bit pattern is a value.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty)+) => {$(
        // SAFETY: a `repr(C)` struct of integers.
        unsafe impl Plain for $type {}
    )+};
}

plain!(fullpipe_cc_config fullpipe_cc_stamp fullpipe_cc_event fullpipe_cc_ack_report);

/// A struct of the caller.
///
/// # Safety
/// `from` is null or valid for reads.
pub(crate) unsafe fn read<T: Plain>(from: *const T) -> Result<T, Status> {
    check_null(from)?;
    // SAFETY: valid for reads, not null; alignment is not required, and every bit pattern is a value.
    Ok(unsafe { from.read_unaligned() })
}

/// Writes a struct of the caller.
///
/// # Safety
/// `to` is null or valid for writes.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, value: T) -> Result<(), Status> {
    check_null(to)?;
    // SAFETY: valid for writes, not null; alignment is not required.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Fails for a null pointer: before a call that writes there changes anything.
pub(crate) fn check_null<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_null() { Err(Status::FULLPIPE_CC_ERR_NULL) } else { Ok(()) }
}

/// Runs the body of a function.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Status>) -> Status {
    match body() {
        Ok(()) => Status::FULLPIPE_CC_OK,
        Err(error) => error,
    }
}
