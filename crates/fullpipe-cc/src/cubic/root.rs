//! The kernel's integer cube root (`cubic_root` in `tcp_cubic.c`): six leading bits from a
//! table, then one Newton–Raphson step. Within 0.2 % on average. It must equal the
//! kernel's result rather than the exact root, because the window depends on it.

/// v\[x\] with ∛x ≈ (v\[x\] + 10) / 64 for x in 0..64.
const TABLE: [u8; 64] = [
    0, 54, 54, 54, 118, 118, 118, 118, 123, 129, 134, 138, 143, 147, 151, 156, 157, 161, 164, 168, 170, 173,
    176, 179, 181, 185, 187, 190, 192, 194, 197, 199, 200, 202, 204, 206, 209, 211, 213, 215, 217, 219, 221,
    222, 224, 225, 227, 229, 231, 232, 234, 236, 237, 239, 240, 242, 244, 245, 246, 248, 250, 251, 252, 254,
];

/// ∛`a`, approximately.
pub(super) fn cube_root(a: u64) -> u32 {
    let bits = 64 - a.leading_zeros();
    if bits < 7 {
        return (u32::from(TABLE[a as usize]) + 35) >> 6;
    }
    // ⌊bits / 3⌋ − 1 for the bits of a u64: what is left of `a` after 3·shift bits is below 64.
    let shift = ((bits * 84) >> 8) - 1;
    let estimate = ((u64::from(TABLE[(a >> (shift * 3)) as usize]) + 10) << shift) >> 6;
    let refined = 2 * estimate + a / (estimate * (estimate - 1));
    // 341/1024 for a third.
    ((refined * 341) >> 10) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_cubes_are_exact() {
        for root in [1u64, 2, 3] {
            assert_eq!(u64::from(cube_root(root * root * root)), root);
        }
        assert_eq!(cube_root(0), 0);
    }

    proptest! {
        #[test]
        fn the_root_is_within_one_percent(a in 1_000_000u64..1 << 60) {
            let exact = (a as f64).cbrt();
            prop_assert!(
                (f64::from(cube_root(a)) / exact - 1.0).abs() < 0.01,
                "{} for {}",
                cube_root(a),
                exact
            );
        }

        #[test]
        fn no_argument_panics(a in any::<u64>(), shift in 0u32..64) {
            cube_root(a >> shift);
        }
    }
}
