//! The BPF objects that this program carries, which `build.rs` has packed.

use flate2::read::ZlibDecoder;
use std::io::Read;

/// The object `bpf/objects/<name>.bpf.o`, unpacked when it is first asked for.
macro_rules! object {
    ($name:literal) => {{
        static OBJECT: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            $crate::object::unpacked(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")))
        });
        OBJECT.as_slice()
    }};
}

/// What `build.rs` packed. Were a byte of the program not as it was built, this would be empty, or not whole, and no object.
pub(crate) fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut object = Vec::new();
    if ZlibDecoder::new(packed).read_to_end(&mut object).is_err() {
        object.clear();
    }
    object
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_is_what_is_checked_in() {
        let checked_in = |name: &str| std::fs::read(format!("bpf/objects/{name}.bpf.o")).unwrap();
        assert_eq!(object!("bbr3"), checked_in("bbr3"));
        assert_eq!(object!("probes"), checked_in("probes"));
    }

    #[test]
    fn what_was_spoilt_is_no_object() {
        let mut packed = include_bytes!(concat!(env!("OUT_DIR"), "/bbr1.bpf.o")).to_vec();
        let middle = packed.len() / 2;
        packed[middle] ^= 1;
        assert!(crate::loader::open(&super::unpacked(&packed)).is_err());
    }
}
