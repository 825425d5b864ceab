//! The controllers and their settings.

use crate::memory::{Status, check_null, get, status, write};
use crate::types::*;
use ::fullpipe_cc::CONTROLLERS;
use ::fullpipe_cc::registry::ControllerInfo;

fn described(info: &ControllerInfo) -> fullpipe_cc_info {
    fullpipe_cc_info {
        name: info.name.into(),
        about: info.about.into(),
        kernel: info.kernel.unwrap_or("").into(),
        settings: info.settings.len(),
    }
}

/// The number of controllers.
#[unsafe(no_mangle)]
pub extern "C" fn fullpipe_cc_controllers() -> usize {
    CONTROLLERS.len()
}

/// Describes controller `index`, from 0 to fullpipe_cc_controllers() - 1 (FULLPIPE_CC_ERR_VALUE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_get_controller(
    index: usize,
    info: *mut fullpipe_cc_info,
) -> fullpipe_cc_status {
    status(|| {
        let found = CONTROLLERS.get(index).ok_or(Status::FULLPIPE_CC_ERR_VALUE)?;
        // SAFETY: `info` is null or may be written, by the interface.
        unsafe { write(info, described(found)) }
    })
}

/// Describes setting `setting` of controller `controller`, both from 0 (FULLPIPE_CC_ERR_VALUE).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_get_setting(
    controller: usize,
    setting: usize,
    to: *mut fullpipe_cc_setting,
) -> fullpipe_cc_status {
    status(|| {
        let found = CONTROLLERS.get(controller).and_then(|info| info.settings.get(setting));
        let found = found.ok_or(Status::FULLPIPE_CC_ERR_VALUE)?;
        let described = fullpipe_cc_setting {
            key: found.key.into(),
            values: found.values.into(),
            default_value: found.default.into(),
            about: found.about.into(),
        };
        // SAFETY: `to` is null or may be written, by the interface.
        unsafe { write(to, described) }
    })
}

/// Describes the controller of a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_get_info(
    cc: *const fullpipe_cc,
    info: *mut fullpipe_cc_info,
) -> fullpipe_cc_status {
    status(|| {
        check_null(info)?;
        // SAFETY: `cc` is a controller, by the interface.
        let found = unsafe { get(cc) }?.control.controller().info();
        // SAFETY: `info` may be written, by the interface.
        unsafe { write(info, described(found)) }
    })
}
