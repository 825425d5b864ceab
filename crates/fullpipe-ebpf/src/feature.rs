//! The kernel features that controllers use.

/// A kernel feature that controllers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Congestion controllers as struct_ops programs.
    Controllers,
    /// Writing the pacing rate of a socket.
    Pacing,
    /// Writing the application-limited mark of a socket. Without it a controller keeps the mark in
    /// its own state.
    AppLimitedMark,
    /// Socket storage, for state that does not fit into the socket.
    Storage,
    /// Global functions with structure arguments, verified separately.
    StructFunctions,
    /// Reading kernel memory. Without it a controller does not look up which packets were lost.
    KernelReads,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 6] = [
        Feature::Controllers,
        Feature::Pacing,
        Feature::AppLimitedMark,
        Feature::Storage,
        Feature::StructFunctions,
        Feature::KernelReads,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Controllers => "controllers",
            Feature::Pacing => "pacing",
            Feature::AppLimitedMark => "app-limited mark",
            Feature::Storage => "socket storage",
            Feature::StructFunctions => "functions on structures",
            Feature::KernelReads => "kernel memory",
        }
    }

    /// A description with the kernel's identifiers.
    pub fn about(self) -> &'static str {
        match self {
            Feature::Controllers => "congestion controllers from BPF (struct_ops)",
            Feature::Pacing => {
                "controllers from BPF that set the pacing rate (sk_pacing_rate, sk_pacing_status)"
            }
            Feature::AppLimitedMark => {
                "controllers from BPF that mark a connection as application-limited (app_limited)"
            }
            Feature::Storage => "controllers from BPF that keep state beside a socket (bpf_sk_storage_get)",
            Feature::StructFunctions => "BPF programs of several functions that work on structures",
            Feature::KernelReads => {
                "BPF programs that read the kernel's memory (bpf_probe_read_kernel; not with \
                 lockdown=confidentiality)"
            }
        }
    }

    /// The Linux version that introduced it.
    pub fn since(self) -> &'static str {
        match self {
            Feature::Controllers => "5.6",
            Feature::KernelReads => "5.5",
            Feature::Storage => "5.7",
            Feature::StructFunctions => "5.12",
            Feature::Pacing => "6.0",
            Feature::AppLimitedMark => "6.4",
        }
    }
}
