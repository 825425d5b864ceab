//! Boot Loader Specification entries (`loader/entries/*.conf`), as used by systemd-boot and some
//! GRUBs, and systemd-boot's EFI variables.

use crate::host::View;

/// Directory of EFI variables.
const VARIABLES: &str = "/sys/firmware/efi/efivars";
/// Vendor GUID of systemd-boot's variables.
const VENDOR: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// A boot entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// File name without `.conf`.
    pub id: String,
    /// Path of the file.
    pub path: String,
    /// Its title; may be empty.
    pub title: String,
    /// Kernel release, if given.
    pub version: String,
    /// The kernel's file.
    pub image: String,
    /// Its text.
    pub text: String,
}

impl Entry {
    /// Parses an entry; `None` if it does not boot Linux.
    pub fn parse(path: &str, text: &str) -> Option<Entry> {
        let value = |key: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.trim().split_once(char::is_whitespace)?;
                (name == key).then(|| value.trim().to_owned())
            })
        };
        let id = path.rsplit('/').next()?.strip_suffix(".conf")?.to_owned();
        let image = value("linux").or_else(|| value("efi"))?;
        Some(Entry {
            id,
            path: path.to_owned(),
            title: value("title").unwrap_or_default(),
            version: value("version").unwrap_or_default(),
            image,
            text: text.to_owned(),
        })
    }

    /// A copy of the entry with more kernel arguments.
    pub fn once(&self, title: &str, more: &str) -> String {
        let mut has_options = false;
        let mut text = String::new();
        for line in self.text.lines() {
            let key = line.split_whitespace().next().unwrap_or_default();
            match key {
                "title" => text += &format!("title {title}\n"),
                "options" => {
                    has_options = true;
                    text += &format!("{} {more}\n", line.trim_end());
                }
                // The copy is identified by its file name, and sorts last.
                "id" | "sort-key" => {}
                _ => text += &format!("{line}\n"),
            }
        }
        if has_options { text } else { format!("{text}options {more}\n") }
    }

    /// Whether it boots this release.
    pub fn boots(&self, release: &str) -> bool {
        let file = self.image.rsplit('/').next().unwrap_or_default();
        self.version == release
            || file.strip_prefix("vmlinuz-") == Some(release)
            || self.image.split('/').any(|part| part == release)
    }
}

/// The entries in a directory, sorted by name.
pub fn all(view: &dyn View, directory: &str) -> Vec<Entry> {
    let names = view.list(directory).unwrap_or_default();
    names
        .iter()
        .filter_map(|name| {
            let path = format!("{directory}/{name}");
            Entry::parse(&path, &view.content(&path)?)
        })
        .collect()
}

/// Value of a systemd-boot EFI variable: four bytes of attributes, then UTF-16.
pub fn variable(view: &dyn View, name: &str) -> Option<String> {
    let bytes = view.read(&format!("{VARIABLES}/{name}-{VENDOR}")).ok()?;
    let units: Vec<u16> =
        bytes.get(4..)?.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    let text = String::from_utf16_lossy(&units);
    let text = text.trim_end_matches('\0');
    (!text.is_empty()).then(|| text.trim_end_matches(".conf").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FEDORA: &str = "title Fedora Linux (6.8.5-301.fc40.x86_64) 40\nversion 6.8.5-301.fc40.x86_64\n\
        linux /vmlinuz-6.8.5-301.fc40.x86_64\ninitrd /initramfs-6.8.5-301.fc40.x86_64.img\noptions \
        root=UUID=1 ro $tuned_params\n\
        grub_class fedora\n";

    #[test]
    fn one_time_entry_copies_the_kernels_entry() {
        let entry = Entry::parse("/boot/loader/entries/m-6.8.5.conf", FEDORA).unwrap();
        assert_eq!(entry.id, "m-6.8.5");
        assert!(entry.boots("6.8.5-301.fc40.x86_64") && !entry.boots("6.8.5"));
        let once = entry.once("Once", "panic=10");
        assert!(
            once.starts_with("title Once\n")
                && once.contains("\noptions root=UUID=1 ro $tuned_params panic=10\n"),
            "{once}"
        );
        let bare = Entry::parse("/e/a.conf", "linux /machine/6.1.0/linux\n").unwrap();
        assert!(bare.boots("6.1.0"));
        assert_eq!(bare.once("T", "panic=1"), "linux /machine/6.1.0/linux\noptions panic=1\n");
        assert_eq!(Entry::parse("/e/a.conf", "title memtest\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(title|options|linux|version| |\n|[a-z/.-]){0,60}") {
            if let Some(entry) = Entry::parse("/e/a.conf", &text) {
                let _ = (entry.once("t", "panic=1"), entry.boots("6.1"));
            }
        }
    }
}
