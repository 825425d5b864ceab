//! Specs, and the life of a controller.

use crate::memory::{Connection, Status, Storage, check_null, get, get_mut, put, read, status, used, write};
use crate::types::*;
use ::fullpipe_cc::{Config, ControllerSpec, SendController, Span, Time};
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};

/// The version of the library, in the form of FULLPIPE_CC_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn fullpipe_cc_version() -> u32 {
    FULLPIPE_CC_VERSION
}

/// Bytes of memory that a controller needs: at most FULLPIPE_CC_SIZE.
#[unsafe(no_mangle)]
pub extern "C" fn fullpipe_cc_size() -> usize {
    used::<fullpipe_cc>()
}

/// Alignment of memory for a controller: that of a fullpipe_cc.
#[unsafe(no_mangle)]
pub extern "C" fn fullpipe_cc_align() -> usize {
    align_of::<fullpipe_cc>()
}

/// Bytes of memory that a spec needs: at most FULLPIPE_CC_SPEC_SIZE.
#[unsafe(no_mangle)]
pub extern "C" fn fullpipe_cc_spec_size() -> usize {
    used::<fullpipe_cc_spec>()
}

/// Bytes of a stamp: FULLPIPE_CC_STAMP_SIZE.
#[unsafe(no_mangle)]
pub extern "C" fn fullpipe_cc_stamp_size() -> usize {
    size_of::<fullpipe_cc_stamp>()
}

/// Writes a NUL-terminated text to a caller's memory, and cuts it where that ends.
struct Text {
    data: *mut c_char,
    size: usize,
    /// Bytes of the whole text so far.
    length: usize,
    cut: bool,
}

impl Text {
    /// # Safety
    /// `data` is null or valid for writes of `size` bytes while the text is written.
    unsafe fn new(data: *mut c_char, size: usize) -> Self {
        let mut text = Text { data, size: if data.is_null() { 0 } else { size }, length: 0, cut: false };
        text.terminate(0);
        text
    }

    fn terminate(&mut self, at: usize) {
        if at < self.size {
            // SAFETY: `at` is within the memory that `new` got.
            unsafe { self.data.add(at).write(0) };
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if !self.cut {
            // Room before the NUL; no character is cut in two.
            let room = self.size.saturating_sub(1).saturating_sub(self.length);
            let mut fits = part.len().min(room);
            while !part.is_char_boundary(fits) {
                fits -= 1;
            }
            for (i, &byte) in part.as_bytes()[..fits].iter().enumerate() {
                // SAFETY: less than `room` bytes after `length`, within the memory that `new` got.
                unsafe { self.data.add(self.length + i).write(byte as c_char) };
            }
            self.terminate(self.length + fits);
            self.cut = fits < part.len();
        }
        self.length = self.length.saturating_add(part.len());
        Ok(())
    }
}

/// Parses `name` or `name:key=value,key=value`, for example `bbr3:beta_percent=50`, of `length`
/// bytes (FULLPIPE_CC_TO_NUL: up to the first NUL), into `spec`.
///
/// `error` may be null. Otherwise a NUL-terminated text in UTF-8, at most `error_size` bytes with its
/// NUL, is written there: why parsing failed, or an empty one. 200 bytes are enough unless names in
/// the text are long.
///
/// FULLPIPE_CC_ERR_SPEC: an unknown controller or setting, an invalid value, or invalid UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_spec_parse(
    text: *const c_char,
    length: usize,
    spec: *mut fullpipe_cc_spec,
    error: *mut c_char,
    error_size: usize,
) -> fullpipe_cc_status {
    // SAFETY: `error` is null or has `error_size` bytes, by the interface.
    let mut error = unsafe { Text::new(error, error_size) };
    status(|| {
        check_null(text)?;
        check_null(spec)?;
        let text = if length == FULLPIPE_CC_TO_NUL {
            // SAFETY: it is not null and ends with a NUL, by the interface.
            unsafe { CStr::from_ptr(text) }.to_bytes()
        } else if length > isize::MAX as usize {
            return Err(Status::FULLPIPE_CC_ERR_SIZE);
        } else {
            // SAFETY: it is not null and has `length` bytes, by the interface.
            unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length) }
        };
        let Ok(text) = core::str::from_utf8(text) else {
            let _ = error.write_str("the name of a controller must be UTF-8");
            return Err(Status::FULLPIPE_CC_ERR_SPEC);
        };
        match ControllerSpec::parse(text) {
            // SAFETY: `spec` is memory for a spec, by the interface.
            Ok(parsed) => unsafe { put(spec, parsed) },
            Err(reason) => {
                let _ = write!(error, "{reason}");
                Err(Status::FULLPIPE_CC_ERR_SPEC)
            }
        }
    })
}

/// Writes a spec as the text that fullpipe_cc_spec_parse accepts, with its NUL, to `size` bytes at
/// `text`. `length` gets the bytes of the text without its NUL; it may be null.
///
/// FULLPIPE_CC_ERR_SIZE: the text was cut; `length` is that of the whole text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_spec_text(
    spec: *const fullpipe_cc_spec,
    text: *mut c_char,
    size: usize,
    length: *mut usize,
) -> fullpipe_cc_status {
    status(|| {
        check_null(text)?;
        // SAFETY: `spec` is a spec, by the interface.
        let spec = unsafe { get(spec) }?;
        // SAFETY: `text` has `size` bytes, by the interface.
        let mut text = unsafe { Text::new(text, size) };
        let _ = write!(text, "{spec}");
        if !length.is_null() {
            // SAFETY: it may be written, by the interface.
            unsafe { write(length, text.length) }?;
        }
        if text.length < size { Ok(()) } else { Err(Status::FULLPIPE_CC_ERR_SIZE) }
    })
}

/// The configuration at `config`; the default if that is null.
///
/// # Safety
/// `config` is null or valid for reads.
unsafe fn configuration(config: *const fullpipe_cc_config) -> Result<Config, Status> {
    let config = if config.is_null() {
        fullpipe_cc_config::default()
    } else {
        // SAFETY: as the caller promises.
        unsafe { read(config) }?
    };
    config.checked()
}

fn check_size<S: Storage>(size: usize) -> Result<(), Status> {
    if size < used::<S>() { Err(Status::FULLPIPE_CC_ERR_SIZE) } else { Ok(()) }
}

/// Initialises the congestion control of a new connection in `size` bytes at `memory`: pass
/// sizeof(fullpipe_cc), or at least fullpipe_cc_size(). `config` may be null: the defaults.
///
/// FULLPIPE_CC_ERR_SIZE or FULLPIPE_CC_ERR_ALIGN: the memory does not suit. FULLPIPE_CC_ERR_VALUE: a
/// reserved field of `config` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_init(
    memory: *mut fullpipe_cc,
    size: usize,
    spec: *const fullpipe_cc_spec,
    config: *const fullpipe_cc_config,
) -> fullpipe_cc_status {
    status(|| {
        check_null(memory)?;
        check_size::<fullpipe_cc>(size)?;
        // SAFETY: `spec` is a spec, by the interface.
        let spec = unsafe { get(spec) }?;
        // SAFETY: `config` is null or a configuration, by the interface.
        let config = unsafe { configuration(config) }?;
        let mut control = SendController::new(spec.build(&config), config.smss);
        if config.paced {
            control = control.paced_by_window();
        }
        let new = Connection { control, paced_by_window: config.paced, serial: 0, open: None };
        // SAFETY: `memory` has at least the bytes used, by the interface and the check of its size.
        unsafe { put(memory, new) }
    })
}

/// Copies a controller to `size` bytes at `memory`, for example to try what would happen. No event
/// may be open (FULLPIPE_CC_ERR_EVENT). Stamps serve both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_copy(
    memory: *mut fullpipe_cc,
    size: usize,
    from: *const fullpipe_cc,
) -> fullpipe_cc_status {
    status(|| {
        check_null(memory)?;
        check_size::<fullpipe_cc>(size)?;
        // SAFETY: `from` is a controller, by the interface.
        let from = unsafe { get(from) }?;
        from.check_closed()?;
        let copy = Connection { control: from.control.clone(), open: None, ..*from };
        // SAFETY: `memory` has at least the bytes used, by the interface and the check of its size.
        unsafe { put(memory, copy) }
    })
}

/// The connection moved to another path at `now`: a new controller of `spec` and `config` (null: the
/// defaults) replaces the old one, and the counts of fullpipe_cc_delivered and fullpipe_cc_lost start
/// at 0. Packets sent before are ignored when they are acknowledged or lost; report as in flight only
/// what is sent on the new path. `paced_by_window` stays as it was. No event may be open
/// (FULLPIPE_CC_ERR_EVENT).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_path_change(
    cc: *mut fullpipe_cc,
    now: u64,
    spec: *const fullpipe_cc_spec,
    config: *const fullpipe_cc_config,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `spec` is a spec, by the interface.
        let spec = unsafe { get(spec) }?;
        // SAFETY: `config` is null or a configuration, by the interface.
        let config = unsafe { configuration(config) }?;
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.check_closed()?;
        let config = Config { paced: cc.paced_by_window, ..config };
        cc.control.on_path_change(Time::from_nanos(now), spec.build(&config), config.smss);
        Ok(())
    })
}

/// The handshake measured a first round-trip time. Call at most once, before the first packet, or not
/// at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_handshake(
    cc: *mut fullpipe_cc,
    now: u64,
    rtt: u64,
) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        cc.control.on_handshake(Time::from_nanos(now), Span::from_nanos(rtt));
        Ok(())
    })
}

/// The largest packet is `smss` bytes from this call on, at least 1 (FULLPIPE_CC_ERR_VALUE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_on_mtu(cc: *mut fullpipe_cc, smss: u32) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: `cc` is a controller, by the interface.
        let cc = unsafe { get_mut(cc) }?;
        if smss == 0 {
            return Err(Status::FULLPIPE_CC_ERR_VALUE);
        }
        cc.control.on_mtu(smss);
        Ok(())
    })
}
