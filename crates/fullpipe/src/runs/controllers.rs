//! The loader of eBPF controllers of this build.

#[cfg(not(feature = "ebpf"))]
use fullpipe_experiment::scenario::policy_file;
use fullpipe_run::ControllerLoader;

/// Loads the controllers of this build into the kernel.
#[cfg(feature = "ebpf")]
pub static EBPF_CONTROLLERS: &dyn ControllerLoader = &fullpipe_run::ebpf::EbpfLoader;
/// Loads the controllers of this build into the kernel.
#[cfg(not(feature = "ebpf"))]
pub static EBPF_CONTROLLERS: &dyn ControllerLoader = &NotBuiltIn;

/// Whether the kernel has a controller, or this process can load it.
pub fn kernel_offers(cc: &str) -> bool {
    fullpipe_run::kernel_offers(cc, EBPF_CONTROLLERS)
}

/// Rejects controllers that only a build with the feature `ebpf` can load.
#[cfg(not(feature = "ebpf"))]
struct NotBuiltIn;

#[cfg(not(feature = "ebpf"))]
impl ControllerLoader for NotBuiltIn {
    fn load(&self, cc: &str) -> Result<(), String> {
        if policy_file(cc).is_some() {
            return Err(
                "this fullpipe was built without the feature `ebpf`, which trained controllers need".into()
            );
        }
        if cc.starts_with("fp_") && !fullpipe_lab::has_controller(cc) {
            return Err(
                "this fullpipe was built without the feature `ebpf`, which loads this controller".into()
            );
        }
        Ok(())
    }
}

/// Continues as the lab's own process, if this process was started as that. Call it first in
/// `main`.
#[cfg(not(feature = "ebpf"))]
pub fn reenter() {
    fullpipe_lab::reenter();
}

/// Unloads the controllers that this process has loaded. Call it last in `main`.
#[cfg(not(feature = "ebpf"))]
pub fn unload_all() {}

#[cfg(feature = "ebpf")]
pub use fullpipe_run::ebpf::{reenter, unload_all};
