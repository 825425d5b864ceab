//! Keys of a mesh.
//!
//! A mesh has one key, from which a key for each pair of sites is derived; sites authenticate each
//! other with pair keys only. A site may hold the mesh key, or a ring with the keys of its own
//! pairs ([`Keys::ring`]): a stolen ring cannot impersonate other sites to each other.

use fullpipe_experiment::regular_file;
use fullpipe_files::Location;
use fullpipe_files::attributes::{self, ACCESS_LIST};
use hmac::{Hmac, KeyInit, Mac};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The mesh key, or the ring of one site.
#[derive(Clone)]
pub struct Keys(Material);

#[derive(Clone)]
enum Material {
    Mesh(Secret),
    Pairs { of: String, with: BTreeMap<String, Secret> },
}

type Secret = [u8; 32];

/// The key of a pair of sites.
#[derive(Clone)]
pub struct PairKey(Secret);

/// Why a key is not available.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other users than the owner can read the file.
    #[error("{} is readable by other users (mode {mode:o}); run: chmod 600 \
        {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The file's mode.
        mode: u32,
    },
    /// The file contains no key.
    #[error("{}: {reason}; create one with `fullpipe probe key --out FILE`", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The ring belongs to another site, or lacks a site.
    #[error("{0}")]
    Pair(String),
    /// The system's random source failed.
    #[error("the system's random source failed: {0}")]
    Random(String),
}

/// Maximum size of a key file.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// First word of a ring file.
const RING: &str = "fullpipe-pairs";

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl fmt::Debug for PairKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairKey")
    }
}

/// Cryptographically random bytes.
///
/// # Errors
/// If the system's random source fails.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| KeyError::Random(e.to_string()))?;
    Ok(bytes)
}

/// HMAC-SHA256 (RFC 2104) over the length-prefixed parts.
pub(crate) fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // A block is 64 bytes: a key of 32 bytes is padded, never refused.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl PairKey {
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        mac(&self.0, parts)
    }

    /// Derives a key for one purpose.
    pub(crate) fn derive(&self, purpose: &str, context: &[u8]) -> [u8; 32] {
        self.mac(&[purpose.as_bytes(), context])
    }
}

impl Keys {
    /// Generates a mesh key.
    ///
    /// # Errors
    /// If the system's random source fails.
    pub fn generate() -> Result<Keys, KeyError> {
        random().map(Material::Mesh).map(Keys)
    }

    /// Reads a key or ring file, which must be readable only by its owner and the current user.
    ///
    /// # Errors
    /// [`KeyError`] says what is wrong with the file.
    pub fn read(path: &Path) -> Result<Keys, KeyError> {
        let failed = |source| KeyError::File { path: path.to_owned(), source };
        let file = regular_file::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 && (mode & 0o007 != 0 || is_readable_by_others(&file)) {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
        let bytes = regular_file::read_bounded(file, MAX_FILE_BYTES).map_err(failed)?;
        let content = |reason| KeyError::Content { path: path.to_owned(), reason };
        let text = String::from_utf8(bytes).map_err(|_| content("is not text".to_owned()))?;
        Keys::parse(&text).map_err(content)
    }

    /// Parses the contents of a key file.
    ///
    /// # Errors
    /// What is wrong; never contains the secret.
    pub fn parse(text: &str) -> Result<Keys, String> {
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let first = lines.next().ok_or("contains no key")?;
        let Some(of) = first.strip_prefix(RING) else {
            let key = from_hex(first).ok_or("the first line is not a key of 64 hexadecimal digits")?;
            return match lines.next() {
                None => Ok(Keys(Material::Mesh(key))),
                Some(_) => Err("contains more than one key".to_owned()),
            };
        };
        let mut with = BTreeMap::new();
        for line in lines {
            let pair = line.split_once(' ').and_then(|(name, hex)| Some((name, from_hex(hex.trim())?)));
            let (name, key) = pair.ok_or("a line of a ring is not `NAME KEY`")?;
            if with.insert(name.to_owned(), key).is_some() {
                return Err(format!("has two keys for {name}"));
            }
        }
        Ok(Keys(Material::Pairs { of: of.trim().to_owned(), with }))
    }

    /// The key between site `own` and site `other`.
    ///
    /// # Errors
    /// If this is a ring and lacks the pair.
    pub fn pair(&self, mesh: &str, own: &str, other: &str) -> Result<PairKey, KeyError> {
        match &self.0 {
            Material::Mesh(key) => {
                let (first, second) = if own < other { (own, other) } else { (other, own) };
                Ok(PairKey(mac(key, &[b"pair", mesh.as_bytes(), first.as_bytes(), second.as_bytes()])))
            }
            Material::Pairs { of, .. } if of != own => {
                Err(KeyError::Pair(format!("the keys belong to site {of}, not {own}")))
            }
            Material::Pairs { with, .. } => with.get(other).copied().map(PairKey).ok_or_else(|| {
                KeyError::Pair(format!(
                    "the keys of {own} lack one for {other}; recreate them with `fullpipe probe key \
                        --site {own}`"
                ))
            }),
        }
    }

    /// The ring of site `own` in a mesh with these sites.
    ///
    /// # Errors
    /// If this is a ring itself.
    pub fn ring<'a>(
        &self,
        mesh: &str,
        own: &str,
        sites: impl IntoIterator<Item = &'a str>,
    ) -> Result<Keys, KeyError> {
        if let Material::Pairs { of, .. } = &self.0 {
            let said =
                format!("these are the keys of {of} alone; derive the keys of other sites from the mesh key");
            return Err(KeyError::Pair(said));
        }
        let others = sites.into_iter().filter(|s| *s != own);
        let with = others.map(|s| Ok((s.to_owned(), self.pair(mesh, own, s)?.0)));
        let with = with.collect::<Result<_, KeyError>>()?;
        Ok(Keys(Material::Pairs { of: own.to_owned(), with }))
    }

    /// Writes the keys into a new file with mode 0600.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let mut text = String::new();
        match &self.0 {
            Material::Mesh(key) => text = to_hex(key) + "\n",
            Material::Pairs { of, with } => {
                let _ = writeln!(text, "{RING} {of}");
                for (name, key) in with {
                    let _ = writeln!(text, "{name} {}", to_hex(key));
                }
            }
        }
        let file = Location::resolve(path).and_then(|location| location.create_new(0o600));
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|source| KeyError::File { path: path.to_owned(), source })
    }
}

/// Whether users other than the owner and the current user can read the file. With an access list,
/// the group bits of the mode are the mask for named users: systemd passes credentials to a
/// non-root service this way.
fn is_readable_by_others(file: &File) -> bool {
    let list = attributes::get(file, ACCESS_LIST).ok().flatten();
    list.and_then(|list| acl_grants_others(&list, geteuid().as_raw())).unwrap_or(true)
}

/// The same for an access list as the kernel encodes it; `None` if malformed.
fn acl_grants_others(list: &[u8], own: u32) -> Option<bool> {
    const USER: u16 = 0x02;
    const GROUP_OWNER: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    let entries = list.strip_prefix(&2_u32.to_le_bytes())?;
    if !entries.len().is_multiple_of(8) {
        return None;
    }
    let entries = entries.chunks_exact(8).map(|entry| {
        let (tag, allowed) =
            (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]));
        (tag, allowed, u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]))
    });
    let mask = entries.clone().find(|(tag, ..)| *tag == MASK).map_or(7, |(_, allowed, _)| allowed);
    Some(entries.clone().any(|(tag, allowed, id)| {
        allowed & mask != 0 && (tag == GROUP_OWNER || tag == GROUP || tag == USER && id != own)
    }))
}

fn to_hex(key: &Secret) -> String {
    key.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Secret> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, two) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_derive_the_same_key_and_each_pair_another() {
        let keys = Keys::generate().unwrap();
        let key = |a, b| keys.pair("m", a, b).unwrap().0;
        assert_eq!(key("lab", "sea"), key("sea", "lab"));
        assert_ne!(key("lab", "sea"), key("lab", "sky"));
        assert_ne!(key("lab", "sea"), keys.pair("n", "lab", "sea").unwrap().0);
    }

    #[test]
    fn a_ring_has_the_keys_of_its_own_pairs_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.key");
        let keys = Keys::generate().unwrap();
        keys.ring("m", "lab", ["lab", "sea", "sky"]).unwrap().write_new(&path).unwrap();
        let ring = Keys::read(&path).unwrap();
        assert_eq!(ring.pair("m", "lab", "sea").unwrap().0, keys.pair("m", "sea", "lab").unwrap().0);
        assert!(ring.pair("m", "sea", "sky").unwrap_err().to_string().contains("belong to site lab"));
        assert!(ring.pair("m", "lab", "ice").unwrap_err().to_string().contains("lack one for ice"));
        assert!(ring.ring("m", "sea", ["lab"]).is_err());
        assert!(ring.write_new(&path).is_err(), "a key is never overwritten");
    }

    #[test]
    fn a_systemd_credential_is_private_and_other_access_lists_are_not() {
        const ME: u32 = 64_001;
        let list = |entries: &[(u16, u16, u32)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, allowed, id) in entries {
                bytes.extend(tag.to_le_bytes().iter().chain(&allowed.to_le_bytes()).chain(&id.to_le_bytes()));
            }
            bytes
        };
        // systemd 257 gives a service a credential owned by root, mode 440, readable for the
        // service's user by name.
        let credential = [
            (0x01, 4, u32::MAX),
            (0x02, 4, ME),
            (0x04, 0, u32::MAX),
            (0x10, 4, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        assert_eq!(acl_grants_others(&list(&credential), ME), Some(false));
        assert_eq!(acl_grants_others(&list(&credential), ME + 1), Some(true));
        let with = |at: usize, entry| {
            let mut entries = credential;
            entries[at] = entry;
            acl_grants_others(&list(&entries), ME)
        };
        assert_eq!(with(2, (0x04, 4, u32::MAX)), Some(true), "its group");
        assert_eq!(with(4, (0x08, 4, 100)), Some(true), "another group");
        assert_eq!(with(4, (0x08, 2, 100)), Some(false), "masked");
        for no_list in [&[][..], &list(&credential)[..7], &[2, 0, 0, 0, 1]] {
            assert_eq!(acl_grants_others(no_list, ME), None);
        }
    }

    #[test]
    fn a_readable_key_file_is_refused_and_secrets_are_never_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mesh.key");
        let keys = Keys::generate().unwrap();
        keys.write_new(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = Keys::read(&path).unwrap_err().to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
        assert_eq!(format!("{keys:?} {:?}", keys.pair("m", "a", "b").unwrap()), "Keys PairKey");
        for device in ["/dev/zero", "/dev"] {
            let error = Keys::read(Path::new(device)).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        for wrong in ["", "abc", &"0g".repeat(32), &"ä".repeat(32), "fullpipe-pairs lab\nsea 12"] {
            let error = Keys::parse(wrong).unwrap_err();
            assert!(!error.contains("12") && !error.contains("0g"), "{error}");
        }
    }
}
