//! The structures of `bpf/split.h`, and its C code compiled for tests.

use bytemuck::{Pod, Zeroable};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// `FP_SPLIT_ARMS`.
pub const MAX_ARMS: usize = 8;
/// `FP_SPLIT_PORTS`.
pub const MAX_PORTS: usize = 8;

/// `struct fp_split_end`: an IPv6 or IPv4-mapped address in network byte order, and a port in host
/// byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct End {
    address: [u64; 2],
    port: u16,
    spare: [u16; 3],
}

impl From<SocketAddr> for End {
    fn from(end: SocketAddr) -> End {
        let ip = match end.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        End { address: bytemuck::cast(ip.octets()), port: end.port(), spare: [0; 3] }
    }
}

impl From<End> for SocketAddr {
    fn from(end: End) -> SocketAddr {
        let bytes: [u8; 16] = bytemuck::cast(end.address);
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(), end.port)
    }
}

/// `struct fp_split_setup`: parameters fixed while a split runs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Setup {
    /// Key of the hash.
    pub key: [u64; 2],
    /// Mask for IPv4-mapped addresses.
    pub mask4: [u64; 2],
    /// Mask for IPv6 addresses.
    pub mask6: [u64; 2],
    /// Assignment by 0: connection, 1: prefix, 2: whole host over time.
    pub by: u32,
    ports: u32,
    port: [u16; MAX_PORTS],
}

impl Setup {
    /// A setup for the given local ports, or all ports if empty; uses at most [`MAX_PORTS`].
    pub fn new(key: [u64; 2], (mask4, mask6): ([u64; 2], [u64; 2]), by: u32, ports: &[u16]) -> Self {
        let mut port = [0; MAX_PORTS];
        port.iter_mut().zip(ports).for_each(|(to, from)| *to = *from);
        Setup { key, mask4, mask6, by, ports: ports.len().min(MAX_PORTS) as u32, port }
    }
}

/// `struct fp_split_table`: the shares.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Table {
    /// Generation of the shares.
    pub generation: u64,
    /// Cumulative shares of 2³².
    pub cut: [u64; MAX_ARMS],
    name: [[u8; 16]; MAX_ARMS],
    arms: u32,
    spare: u32,
}

impl Table {
    /// A table of arms with cumulative cuts and controllers; `None` leaves the controller
    /// unchanged. Uses at most [`MAX_ARMS`].
    pub fn new(generation: u64, arms: &[(u64, Option<&str>)]) -> Self {
        let mut table = Table { generation, arms: arms.len().min(MAX_ARMS) as u32, ..Table::zeroed() };
        for (place, (cut, controller)) in arms.iter().take(MAX_ARMS).enumerate() {
            table.cut[place] = *cut;
            crate::libbpf::write_name(&mut table.name[place], controller.unwrap_or(""));
        }
        table
    }
}

/// `struct fp_split_about`: information about a split for other processes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SplitInfo {
    owner: u32,
    arms: u32,
    seed: u64,
    began_unix_ns: u64,
    pid_namespace: u64,
    owner_started: u64,
    label: [[u8; 32]; MAX_ARMS],
    out: [u8; 256],
}

fn write(field: &mut [u8], text: &str) {
    let length = text.len().min(field.len() - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
}

fn read(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// The process that owns a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitOwner {
    /// Its ID in its PID namespace.
    pub id: u32,
    /// Its start time, in clock ticks since boot.
    pub started: u64,
    /// Inode of its PID namespace; 0 if unknown.
    pub pid_namespace: u64,
}

impl SplitInfo {
    /// Information of a process: the labels of its arms and its output file.
    pub fn new(owner: SplitOwner, labels: &[&str], seed: u64, began_unix_ns: u64, out: &str) -> Self {
        let mut about = SplitInfo {
            owner: owner.id,
            owner_started: owner.started,
            pid_namespace: owner.pid_namespace,
            arms: labels.len().min(MAX_ARMS) as u32,
            seed,
            began_unix_ns,
            ..SplitInfo::zeroed()
        };
        about.label.iter_mut().zip(labels).for_each(|(field, label)| write(field, label));
        write(&mut about.out, out);
        about
    }

    /// The owner. Any program may claim to belong to any process.
    pub fn owner(&self) -> SplitOwner {
        SplitOwner { id: self.owner, started: self.owner_started, pid_namespace: self.pid_namespace }
    }

    /// Seed of the assignment.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Start time, ns since 1970.
    pub fn began_unix_ns(&self) -> u64 {
        self.began_unix_ns
    }

    /// The arms' labels.
    pub fn labels(&self) -> Vec<String> {
        self.label.iter().take(self.arms as usize).map(|label| read(label)).collect()
    }

    /// The owner's output file.
    pub fn out(&self) -> String {
        read(&self.out)
    }
}

/// `struct fp_split_closed`: results of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)] // bpf/split.h comments them.
pub struct Closed {
    pub cookie: u64,
    pub opened_ns: u64,
    pub closed_ns: u64,
    pub generation: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub rtt_sum_us: u64,
    pub rtt_samples: u32,
    pub srtt_us: u32,
    pub min_rtt_us: u32,
    pub total_retrans: u32,
    pub data_segs_out: u32,
    pub busy_ticks: u32,
    pub reached_us: [u32; 3],
    pub mss: u32,
    pub local: End,
    pub remote: End,
    controller: [u8; 16],
    pub arm: u8,
    pub active: u8,
    pub state: u8,
    pub failed: u8,
    spare: u32,
}

impl Closed {
    /// The controller when it closed.
    pub fn controller(&self) -> String {
        read(&self.controller)
    }
}

/// `struct fp_split_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[allow(missing_docs)] // bpf/split.h comments them.
pub struct Counts {
    pub opened: [u64; MAX_ARMS],
    pub closed: [u64; MAX_ARMS],
    pub bytes_acked: [u64; MAX_ARMS],
    pub bytes_retrans: [u64; MAX_ARMS],
    pub total_retrans: [u64; MAX_ARMS],
    pub refused: [u64; MAX_ARMS],
    pub program: u64,
    pub route: u64,
    pub outside: u64,
    pub elsewhere: u64,
    pub lapsed: u64,
    pub lost: u64,
}

/// `struct fp_split_wanted`: requests of another process: shares, in billionths, and the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Wanted {
    pub(crate) number: u64,
    pub(crate) end: u64,
    pub(crate) share: [u32; MAX_ARMS],
}

unsafe extern "C" {
    fn fp_native_split(
        setup: *const Setup,
        local: *const End,
        remote: *const End,
        table: *const Table,
        hash: *mut u64,
    ) -> u32;
    #[cfg(test)]
    fn fp_native_size_of_split(which: u32) -> u32;
}

/// The hash and arm of a connection, from the same C code as in the kernel; no arm: outside the
/// split.
pub fn arm_for(setup: &Setup, local: SocketAddr, remote: SocketAddr, table: &Table) -> (u64, Option<usize>) {
    let (local, remote) = (End::from(local), End::from(remote));
    let mut hash = 0;
    // SAFETY: all five are alive and of the sizes that the C side has (a test compares them).
    let arm = unsafe {
        fp_native_split(
            &raw const *setup,
            &raw const local,
            &raw const remote,
            &raw const *table,
            &raw mut hash,
        )
    };
    (hash, (arm as usize).lt(&MAX_ARMS).then_some(arm as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::filter::Step;
    use fullpipe_split::{AssignBy, Assigner, cuts, pick};
    use proptest::prelude::*;

    #[test]
    fn structures_match_in_both_languages() {
        let sizes = [
            size_of::<Setup>(),
            size_of::<Table>(),
            size_of::<Closed>(),
            size_of::<Step>(),
            size_of::<Counts>(),
        ];
        for (which, size) in sizes.into_iter().enumerate() {
            // SAFETY: takes and returns a number.
            assert_eq!(unsafe { fp_native_size_of_split(which as u32) } as usize, size, "{which}");
        }
    }

    fn both(seed: u64, by: AssignBy, local: SocketAddr, remote: SocketAddr, shares: [u32; 3]) {
        let assigner = Assigner::new(seed, by);
        let number = match by {
            AssignBy::Connection => 0,
            AssignBy::ClientPrefix { .. } => 1,
            AssignBy::Time { .. } => 2,
        };
        let setup = Setup::new(assigner.key(), assigner.masks(), number, &[]);
        let cuts = cuts(&shares.map(fullpipe_units::Fraction::from_billionths));
        let arms: Vec<_> = cuts.iter().map(|cut| (*cut, Some("reno"))).collect();
        let (hash, arm) = arm_for(&setup, local, remote, &Table::new(0, &arms));
        if !matches!(by, AssignBy::Time { .. }) {
            assert_eq!(hash, assigner.hash(local, remote));
        }
        assert_eq!(arm, pick(&cuts, hash));
        assert_eq!(
            SocketAddr::from(End::from(remote)),
            SocketAddr::new(remote.ip().to_canonical(), remote.port())
        );
    }

    /// Fixed vectors keep assignments the same in every version: computed in Python from the
    /// specification of SipHash-2-4.
    #[test]
    fn known_connections_have_known_hashes() {
        let assigner = Assigner::new(7, AssignBy::Connection);
        let of = |by: &str, remote: &str| {
            let by: AssignBy = by.parse().unwrap();
            both(7, by, "192.0.2.1:443".parse().unwrap(), remote.parse().unwrap(), [300_000_000; 3]);
            Assigner::new(7, by).hash("192.0.2.1:443".parse().unwrap(), remote.parse().unwrap())
        };
        assert_eq!(assigner.key(), VECTORS_KEY);
        for (by, remote, hash) in VECTORS {
            assert_eq!(of(by, remote), hash, "{by} {remote}");
        }
    }

    const VECTORS_KEY: [u64; 2] = [0x63cb_e1e4_5932_0dd7, 0x044c_3cd7_f43c_661c];
    const VECTORS: [(&str, &str, u64); 5] = [
        ("connection", "198.51.100.7:40000", 0xfb1f_c986_626c_c067),
        ("connection", "[2001:db8::7]:40000", 0xab47_3fad_87c1_ffc4),
        ("client-prefix/24,/56", "198.51.100.7:40000", 0xbc94_ac2b_24c1_761f),
        ("client-prefix/24,/56", "[2001:db8:0:1ff::7]:1", 0x18df_4f4e_b9e4_07b8),
        ("client-prefix/9,/33", "198.251.100.7:1", 0x6101_92ff_00e6_f5da),
    ];

    proptest! {
        #[test]
        fn c_and_rust_give_every_connection_the_same_arm(
            seed: u64, v4: bool, local: u128, remote: u128, ports: [u16; 2],
            bits in (1u8..=32, 1u8..=128), by in 0..2,
            shares in [0u32..500_000_000, 0u32..400_000_000, 0u32..100_000_000],
        ) {
            let ip = |n: u128| if v4 { IpAddr::V4((n as u32).into()) } else { IpAddr::V6(n.into()) };
            let by = match by {
                0 => AssignBy::Connection,
                _ => AssignBy::ClientPrefix { v4: bits.0, v6: bits.1 },
            };
            let (local, remote) =
                (SocketAddr::new(ip(local), ports[0]), SocketAddr::new(ip(remote), ports[1]));
            both(seed, by, local, remote, shares);
        }
    }
}
