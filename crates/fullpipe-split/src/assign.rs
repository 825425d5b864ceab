//! Assignment to arms: a keyed hash compared with cumulative shares. `split.h` in fullpipe-ebpf
//! does the same in the kernel.

use crate::AssignBy;
use fullpipe_units::Fraction;
use std::net::{IpAddr, SocketAddr};

/// Computes the hash of a connection.
///
/// SipHash-2-4 (Aumasson and Bernstein, *SipHash: a fast short-input PRF*, INDOCRYPT 2012): without
/// the seed, a client cannot choose a port to get into a particular arm.
#[derive(Clone, Copy, Debug)]
pub struct Assigner {
    key: [u64; 2],
    by: AssignBy,
}

impl Assigner {
    /// An assigner with a key derived from `seed`.
    pub fn new(seed: u64, by: AssignBy) -> Self {
        let mut state = seed;
        Assigner { key: [next(&mut state), next(&mut state)], by }
    }

    /// The key, for the eBPF program.
    pub fn key(&self) -> [u64; 2] {
        self.key
    }

    /// Address masks for IPv4 (as IPv4-mapped IPv6) and IPv6, as words for the eBPF program.
    pub fn masks(&self) -> ([u64; 2], [u64; 2]) {
        let (v4, v6) = match self.by {
            AssignBy::ClientPrefix { v4, v6 } => (u32::from(v4), u32::from(v6)),
            AssignBy::Connection | AssignBy::Time { .. } => (32, 128),
        };
        (to_words(mask(96 + v4)), to_words(mask(v6)))
    }

    /// The hash of a connection or its client prefix. With assignment by time, it is the
    /// connection's hash, which does not determine the arm.
    pub fn hash(&self, local: SocketAddr, remote: SocketAddr) -> u64 {
        let [r0, r1] = address(remote.ip());
        if let AssignBy::ClientPrefix { .. } = self.by {
            let (v4, v6) = self.masks();
            let mask = if remote.ip().to_canonical().is_ipv4() { v4 } else { v6 };
            return siphash(self.key, &[r0 & mask[0], r1 & mask[1]]);
        }
        let [l0, l1] = address(local.ip());
        let ports = u64::from(local.port()) << 16 | u64::from(remote.port());
        siphash(self.key, &[l0, l1, r0, r1, ports])
    }

    /// The hash of a period, numbered from the start.
    pub fn hash_period(&self, number: u64) -> u64 {
        siphash(self.key, &[number])
    }
}

/// The next value of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// An address as (IPv4-mapped) IPv6, in two words.
fn address(ip: IpAddr) -> [u64; 2] {
    let bytes = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    to_words(bytes)
}

fn mask(bits: u32) -> [u8; 16] {
    (u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0)).to_be_bytes()
}

fn to_words(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

/// SipHash-2-4 of whole words.
fn siphash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    };
    let last = (words.len() as u64 * 8) << 56;
    for word in words.iter().copied().chain([last]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// Cumulative shares scaled to 2³², for [`pick`]. 100 % is exactly 2³².
pub fn cuts(shares: &[Fraction]) -> Vec<u64> {
    const BILLION: u128 = 1_000_000_000;
    let mut sum = 0u128;
    let cut = |share: &Fraction| {
        sum += u128::from(share.as_billionths());
        ((sum.min(BILLION) << 32) / BILLION) as u64
    };
    shares.iter().map(cut).collect()
}

/// The arm of a hash; `None` if outside the experiment.
pub fn pick(cuts: &[u64], hash: u64) -> Option<usize> {
    cuts.iter().position(|cut| hash >> 32 < *cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_standard_librarys_siphash() {
        use std::hash::Hasher;
        for words in [&[][..], &[0], &[1, 2], &[u64::MAX, 7, 0x0706_0504_0302_0100, 4, 5]] {
            for key in [[0, 0], [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]] {
                #[allow(deprecated, reason = "the only SipHash-2-4 in the standard library")]
                let mut reference = std::hash::SipHasher::new_with_keys(key[0], key[1]);
                words.iter().for_each(|word| reference.write(&word.to_le_bytes()));
                assert_eq!(siphash(key, words), reference.finish(), "{words:?}");
            }
        }
    }

    #[test]
    fn connections_are_assigned_by_share() {
        let assigner = Assigner::new(1, AssignBy::Connection);
        let cuts = cuts(&["10%".parse().unwrap(), "30%".parse().unwrap()]);
        let mut counts = [0u32; 3];
        for port in 0..50_000u16 {
            let remote = SocketAddr::new([10, 0, 0, 1].into(), port);
            counts[pick(&cuts, assigner.hash("10.0.0.2:443".parse().unwrap(), remote)).unwrap_or(2)] += 1;
        }
        // Three standard deviations of a binomial of 50 000 are 1.3 % and less of these shares.
        for (count, share) in counts.into_iter().zip([0.1, 0.3, 0.6]) {
            assert!((f64::from(count) / 5e4 - share).abs() < 0.007, "{counts:?}");
        }
    }

    #[test]
    fn prefixes_stay_together_and_mapped_addresses_are_equal() {
        let assigner = Assigner::new(9, "client-prefix/24,/56".parse().unwrap());
        let hash = |remote: &str| assigner.hash("[::1]:1".parse().unwrap(), remote.parse().unwrap());
        assert_eq!(hash("10.1.2.3:4"), hash("10.1.2.250:9"));
        assert_eq!(hash("10.1.2.3:4"), hash("[::ffff:10.1.2.77]:4"));
        assert_ne!(hash("10.1.2.3:4"), hash("10.1.3.3:4"));
        assert_eq!(hash("[2001:db8:0:100::1]:4"), hash("[2001:db8:0:1ff:1::]:9"));
        assert_ne!(hash("[2001:db8:0:100::1]:4"), hash("[2001:db8:0:200::1]:4"));
        assert_ne!(
            hash("10.1.2.3:4"),
            Assigner::new(10, assigner.by).hash("[::1]:1".parse().unwrap(), "10.1.2.3:4".parse().unwrap())
        );
    }

    #[test]
    fn shares_of_zero_and_all_are_exact() {
        let half = "50%".parse().unwrap();
        let all = cuts(&[half, half]);
        assert_eq!(all, [1 << 31, 1 << 32]);
        assert_eq!((pick(&all, 0), pick(&all, u64::MAX)), (Some(0), Some(1)));
        assert_eq!(pick(&cuts(&[Fraction::ZERO, half]), 0), Some(1));
        assert_eq!(pick(&cuts(&[half]), u64::MAX), None);
    }
}
