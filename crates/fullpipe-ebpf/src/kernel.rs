//! What the running kernel supports, read from its BTF and /proc, never from its version number.

use crate::error::{Error, Result};
use libbpf_rs::ReferencesType;
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfKind};
use std::collections::BTreeSet;
use std::path::Path;

/// Kernel properties that loading a controller depends on.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Parameters of `tcp_congestion_ops::cong_control`: 2 before Linux 6.10, 4 since.
    pub cong_control_args: u32,
    /// The members of `struct tcp_congestion_ops`.
    pub operations: BTreeSet<String>,
    /// Functions of the kernel's own BBR that programs may call; empty when it is neither built in
    /// nor loaded.
    pub bbr_functions: BTreeSet<String>,
    /// Whether controllers are registered by links, which allow atomic replacement and end with
    /// their owner: since Linux 6.4. Otherwise the controller's map is the registration.
    pub links: bool,
}

/// If set, controllers are registered as on a kernel without links, for tests.
const WITHOUT_LINKS: &str = "FULLPIPE_TEST_WITHOUT_LINKS";
/// The type information of the kernel's BBR where it is a module.
const BBR_MODULE: &str = "/sys/kernel/btf/tcp_bbr";

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

impl Kernel {
    /// Inspects the running kernel.
    ///
    /// # Errors
    /// Names the missing requirement: BTF, the BPF JIT, or struct_ops for TCP congestion control.
    pub fn detect() -> Result<Self> {
        if !Path::new(VMLINUX).exists() {
            return Err(Error::impossible(
                format!("the kernel has no type information (no {VMLINUX})"),
                "a kernel built with CONFIG_DEBUG_INFO_BTF=y: every distribution's kernel since about 2021",
            ));
        }
        let btf = Btf::from_vmlinux().map_err(|error| {
            Error::impossible(
                format!("the kernel's type information at {VMLINUX} cannot be read: {error}"),
                "run as root; check that /sys is the host's",
            )
        })?;
        let operations: Struct<'_> = btf.type_by_name("tcp_congestion_ops").ok_or_else(too_old)?;
        let mut names = BTreeSet::new();
        let mut cong_control_args = None;
        for member in operations.iter() {
            let Some(name) = member.name.map(|name| name.to_string_lossy().into_owned()) else { continue };
            if name == "cong_control" {
                cong_control_args = btf
                    .type_by_id::<Ptr<'_>>(member.ty)
                    .map(|pointer| pointer.referenced_type())
                    .filter(|target| target.kind() == BtfKind::FuncProto)
                    .and_then(|target| FuncProto::try_from(target).ok())
                    .map(|prototype| prototype.iter().count() as u32);
            }
            names.insert(name);
        }
        let cong_control_args = match cong_control_args {
            Some(args @ (2 | 4)) => args,
            Some(args) => {
                return Err(Error::impossible(
                    format!(
                        "this kernel calls cong_control with {args} arguments; only 2 and 4 are supported"
                    ),
                    "update fullpipe",
                ));
            }
            None => return Err(too_old()),
        };
        // struct_ops wraps tcp_congestion_ops in its own value type, since Linux 5.6.
        if btf.type_by_name::<Struct<'_>>("bpf_struct_ops_tcp_congestion_ops").is_none() {
            return Err(too_old());
        }
        let has = |function: &str| btf.type_by_name::<libbpf_rs::btf::types::Func<'_>>(function).is_some();
        let links = has("bpf_struct_ops_link_create") && std::env::var_os(WITHOUT_LINKS).is_none();
        // A module's BTF extends the kernel's: looking up names in it is enough.
        let module = std::fs::read(BBR_MODULE).unwrap_or_default();
        let names_in_module: BTreeSet<&[u8]> = module.split(|byte| *byte == 0).collect();
        let has_function = |name: &&str| has(name) || names_in_module.contains(name.as_bytes());
        let bbr_functions = BBR_FUNCTIONS.into_iter().filter(has_function).map(str::to_owned).collect();
        Ok(Kernel { cong_control_args, operations: names, bbr_functions, links })
    }
}

impl Kernel {
    /// The kernel BBR functions that the recorder needs and this kernel lacks.
    pub fn missing_bbr_functions(&self) -> Vec<&'static str> {
        let is_split = self.operations.contains("cwnd_event_tx_start");
        let other = if is_split { "bbr_cwnd_event" } else { "bbr_cwnd_event_tx_start" };
        let needed = BBR_FUNCTIONS.into_iter().filter(|name| *name != other);
        needed.filter(|name| !self.bbr_functions.contains(*name)).collect()
    }
}

/// The callbacks of the kernel's BBR that the recorder wraps; a kernel has one of the two for
/// events.
const BBR_FUNCTIONS: [&str; 9] = [
    "bbr_init",
    "bbr_main",
    "bbr_cwnd_event",
    "bbr_cwnd_event_tx_start",
    "bbr_set_state",
    "bbr_undo_cwnd",
    "bbr_ssthresh",
    "bbr_min_tso_segs",
    "bbr_sndbuf_expand",
];

fn too_old() -> Error {
    Error::impossible(
        "this kernel does not support TCP congestion control in BPF (struct_ops)",
        "Linux 5.10 or newer (6.0 for BBR) with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF",
    )
}

/// The controllers available to `setsockopt(TCP_CONGESTION)` now.
///
/// # Errors
/// If /proc is not available.
pub fn available() -> Result<Vec<String>> {
    fullpipe_kernel::facts::available_controllers()
        .map_err(Error::io("cannot list the controllers of", "the running kernel"))
}
