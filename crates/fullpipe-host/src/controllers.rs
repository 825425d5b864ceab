//! eBPF controllers and the kernel controllers they replace.

use crate::host::View;
use fullpipe_kernel::tcp_info::EBPF_CONTROLLERS;

/// The eBPF controller that stands in for a kernel's own.
pub(crate) fn ebpf_twin(controller: &str) -> Option<&'static str> {
    EBPF_CONTROLLERS.iter().find(|(_, linux)| *linux == controller).map(|(name, _)| *name)
}

pub(crate) fn is_ebpf(controller: &str) -> bool {
    controller.starts_with("fp_")
}

/// Whether `fullpipe cc load` loaded a controller under this name; `false` also where the caller may
/// not see the pins (only root may).
pub(crate) fn is_loaded_program(view: &dyn View, name: &str) -> bool {
    view.exists(&format!("/sys/fs/bpf/fullpipe/{name}"))
}
