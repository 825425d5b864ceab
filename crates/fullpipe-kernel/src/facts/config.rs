//! Build configuration of a kernel.

use std::collections::BTreeMap;

/// Build configuration of a kernel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the source file.
    pub from: String,
    values: BTreeMap<String, String>,
}

/// Maximum size of a decompressed configuration: those of distributions have 300 KiB.
const MAX_SIZE: usize = 2 << 20;

impl Config {
    /// Candidate files for a kernel of this release, in order of preference: `/proc/config.gz`
    /// belongs to the running kernel.
    pub fn paths(release: &str) -> [String; 3] {
        [
            "/proc/config.gz".to_owned(),
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
        ]
    }

    /// Parses the contents of such a file, plain or gzip; `None` for damaged gzip data and for data that
    /// expands to more than 2 MiB.
    pub fn parse(from: &str, bytes: &[u8]) -> Option<Config> {
        let values = Config::decompress(bytes)?
            .lines()
            .filter_map(|line| {
                let unset = line.strip_prefix("# ").and_then(|l| l.strip_suffix(" is not set"));
                let (name, value) = unset.map(|n| (n, "n")).or_else(|| line.split_once('='))?;
                name.starts_with("CONFIG_").then(|| (name.to_owned(), value.to_owned()))
            })
            .collect();
        Some(Config { from: from.to_owned(), values })
    }

    /// The contents of such a file as text, decompressed if gzip.
    pub fn decompress(bytes: &[u8]) -> Option<String> {
        let plain = if bytes.starts_with(&[0x1f, 0x8b]) { gunzip(bytes)? } else { bytes.to_vec() };
        Some(String::from_utf8_lossy(&plain).into_owned())
    }

    /// The value of an option; `n` if not set.
    pub fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("n", String::as_str)
    }

    /// Number of options set to `y` or `m`.
    pub fn enabled_count(&self) -> usize {
        self.values.values().filter(|value| ["y", "m"].contains(&value.as_str())).count()
    }
}

/// Decompresses gzip data (RFC 1952) up to [`MAX_SIZE`], without checking the checksum.
fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let flags = *bytes.get(3).filter(|_| bytes.starts_with(&[0x1f, 0x8b, 8]))?;
    let mut at = 10;
    if flags & 4 != 0 {
        at += 2 + usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    }
    for name in [8, 16] {
        if flags & name != 0 {
            at += bytes.get(at..)?.iter().position(|&b| b == 0)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    miniz_oxide::inflate::decompress_to_vec_with_limit(bytes.get(at..)?, MAX_SIZE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_and_compressed_configurations_are_parsed() {
        let text = b"CONFIG_TCP_CONG_BBR=m\n# CONFIG_NET_SCH_FQ is not set\nCONFIG_HZ=250\n";
        let mut gz = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];
        gz.extend_from_slice(b"config\0");
        // One stored block (RFC 1951 §3.2.4).
        gz.push(1);
        gz.extend_from_slice(&(text.len() as u16).to_le_bytes());
        gz.extend_from_slice(&(!(text.len() as u16)).to_le_bytes());
        gz.extend_from_slice(text);
        for bytes in [&gz[..], text] {
            let config = Config::parse("config", bytes).unwrap();
            assert_eq!(config.get("CONFIG_TCP_CONG_BBR"), "m");
            assert_eq!((config.get("CONFIG_NET_SCH_FQ"), config.get("CONFIG_NET")), ("n", "n"));
            assert_eq!(config.get("CONFIG_HZ"), "250");
        }
        assert!(Config::parse("config", &gz[..20]).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            framed in any::<bool>(),
        ) {
            if framed && bytes.len() > 3 {
                bytes[..3].copy_from_slice(&[0x1f, 0x8b, 8]);
            }
            let _ = Config::parse("config", &bytes);
        }
    }
}
