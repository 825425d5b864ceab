//! The BPF objects embedded in this program, compressed by `build.rs`.

use flate2::read::ZlibDecoder;
use std::io::Read;

/// The object `bpf/objects/<name>.bpf.o`, decompressed on first use.
macro_rules! object {
    ($name:literal) => {{
        static OBJECT: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            $crate::object::unpacked(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")))
        });
        OBJECT.as_slice()
    }};
}

/// Decompresses an object. If the program file is corrupt, the result is empty or truncated and
/// does not load.
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
    fn embedded_objects_match_the_repository() {
        let checked_in = |name: &str| std::fs::read(format!("bpf/objects/{name}.bpf.o")).unwrap();
        assert_eq!(object!("bbr3"), checked_in("bbr3"));
        assert_eq!(object!("probes"), checked_in("probes"));
    }

    #[test]
    fn corrupt_object_does_not_open() {
        let mut packed = include_bytes!(concat!(env!("OUT_DIR"), "/bbr1.bpf.o")).to_vec();
        let middle = packed.len() / 2;
        packed[middle] ^= 1;
        assert!(crate::libbpf::open(&super::unpacked(&packed)).is_err());
    }
}
