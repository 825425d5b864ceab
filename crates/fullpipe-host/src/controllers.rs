//! What controllers are called in the kernel.

pub use fullpipe_kernel::tcp_info::LOADABLE as EBPF;

/// Controllers that exist for Linux, whether or not a kernel at hand has them.
pub const LINUX: [&str; 18] = [
    "reno",
    "cubic",
    "bbr",
    "bic",
    "cdg",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
    "bbr3",
];

/// The eBPF controller that stands in for a kernel's own.
pub(crate) fn ebpf_twin(controller: &str) -> Option<&'static str> {
    EBPF.iter().find(|(_, linux)| *linux == controller).map(|(name, _)| *name)
}

pub(crate) fn is_ebpf(controller: &str) -> bool {
    controller.starts_with("fp_")
}
