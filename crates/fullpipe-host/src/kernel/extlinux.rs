//! EXTLINUX: the labels of `extlinux.conf`, and the one-time label stored at the end of
//! `ldlinux.sys`.

/// Label of a trial boot.
pub const TRIAL: &str = "fullpipe-trial";

/// A label.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// The kernel's file.
    pub image: String,
    /// Its lines; the first has the name.
    lines: Vec<String>,
}

/// A menu.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Menu {
    /// Its labels, in order.
    pub labels: Vec<Label>,
    /// The default label; the first if unset.
    pub default: Option<String>,
}

/// The first word of a line in lower case, and the rest.
fn keyed(line: &str) -> (String, &str) {
    let (key, value) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    (key.to_ascii_lowercase(), value.trim())
}

impl Menu {
    /// Reads an `extlinux.conf`.
    pub fn parse(text: &str) -> Menu {
        let mut menu = Menu::default();
        let mut default_of_menu = None;
        for line in text.lines() {
            let (key, value) = keyed(line);
            match (key.as_str(), menu.labels.last_mut()) {
                ("label", _) => {
                    menu.labels.push(Label {
                        name: value.to_owned(),
                        lines: vec![line.to_owned()],
                        ..Label::default()
                    });
                }
                ("default", None) => menu.default = Some(value.to_owned()),
                ("menu", Some(label)) if value.eq_ignore_ascii_case("default") => {
                    default_of_menu = Some(label.name.clone())
                }
                (key, Some(label)) => {
                    if ["linux", "kernel"].contains(&key) {
                        value.clone_into(&mut label.image);
                    }
                    if !line.trim().is_empty() {
                        label.lines.push(line.to_owned());
                    }
                }
                _ => {}
            }
        }
        // The default of the file may be a program that shows the menu.
        if !menu.labels.iter().any(|label| Some(&label.name) == menu.default.as_ref()) {
            menu.default = None;
        }
        menu.default = menu.default.or(default_of_menu);
        menu
    }

    /// The label booted by default.
    pub fn default_entry(&self) -> Option<&Label> {
        let named = self.labels.iter().find(|label| Some(&label.name) == self.default.as_ref());
        named.or_else(|| self.labels.first())
    }

    /// The label that boots a kernel file.
    pub fn booting(&self, image: &str) -> Option<&Label> {
        let name = image.rsplit('/').next();
        self.labels.iter().find(|label| label.image.rsplit('/').next() == name && label.name != TRIAL)
    }
}

impl Label {
    /// A copy of the label with more kernel arguments.
    pub fn once(&self, title: &str, more: &str) -> String {
        let mut text = format!("\nLABEL {TRIAL}\n\tMENU LABEL {title}\n");
        let mut has_append = false;
        for line in self.lines.iter().skip(1) {
            let (key, value) = keyed(line);
            match key.as_str() {
                "menu" | "text" => {}
                "append" => {
                    has_append = true;
                    text += &format!("\tAPPEND {value} {more}\n");
                }
                _ => text += &format!("\t{}\n", line.trim()),
            }
        }
        if has_append { text } else { format!("{text}\tAPPEND {more}\n") }
    }
}

/// The one-time label in the auxiliary data vector of syslinux, which is stored twice at the end of
/// `ldlinux.sys`.
pub fn boot_once_label(ldlinux: &[u8]) -> Option<String> {
    const SIZE: usize = 512;
    const MAGIC: [u8; 4] = 0x5a2d_2fa5_u32.to_le_bytes();
    const BOOT_ONCE: u8 = 1;
    let start = ldlinux.len().checked_sub(2 * SIZE)?;
    let vector = ldlinux[start..].chunks_exact(SIZE).find(|vector| vector.starts_with(&MAGIC))?;
    // Magic number and checksum, then entries of type, length and data.
    let mut rest = &vector[8..SIZE - 4];
    while let [kind, length, after @ ..] = rest {
        let value = after.get(..usize::from(*length))?;
        match *kind {
            0 => break,
            BOOT_ONCE => return Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()),
            _ => rest = &after[value.len()..],
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "default lts\ntimeout 30\n\nLABEL lts\n  MENU LABEL Linux lts\n  LINUX \
                        vmlinuz-lts\n  INITRD initramfs-lts\n  \
        APPEND root=UUID=1 quiet\n\nLABEL virt\n  KERNEL vmlinuz-virt\n  APPEND root=UUID=1\n";

    #[test]
    fn labels_are_parsed_and_copied() {
        let menu = Menu::parse(TEXT);
        assert_eq!(menu.default_entry().unwrap().name, "lts");
        let virt = menu.booting("/boot/vmlinuz-virt").unwrap();
        assert_eq!(virt.name, "virt");
        let once = menu.booting("vmlinuz-lts").unwrap().once("Once", "panic=10");
        let with = Menu::parse(&format!("{TEXT}{once}"));
        assert_eq!(with.labels[2].image, "vmlinuz-lts");
        assert!(
            once.contains("APPEND root=UUID=1 quiet panic=10\n") && once.contains("INITRD initramfs-lts\n"),
            "{once}"
        );
        assert_eq!(with.booting("vmlinuz-lts").unwrap().name, "lts");
        let shown = Menu::parse("default menu.c32\nlabel a\nlinux /a\nlabel b\nmenu default\nlinux /b\n");
        assert_eq!(shown.default_entry().unwrap().name, "b");
    }

    #[test]
    fn one_time_label_is_found() {
        let mut file = vec![7; 3000];
        let mut vector = vec![0; 512];
        vector[..4].copy_from_slice(&0x5a2d_2fa5_u32.to_le_bytes());
        vector[8..13].copy_from_slice(&[9, 1, 0, 1, 4]);
        vector[13..17].copy_from_slice(b"virt");
        file.extend([&vector[..], &vector[..]].concat());
        assert_eq!(boot_once_label(&file).as_deref(), Some("virt"));
        assert_eq!(boot_once_label(&file[..3000]), None);
        assert_eq!(boot_once_label(b"short"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 1000..1100)) {
            let _ = boot_once_label(&bytes);
            let menu = Menu::parse(&String::from_utf8_lossy(&bytes));
            let _: Vec<String> = menu.labels.iter().map(|label| label.once("t", "panic=1")).collect();
        }
    }
}
