//! GRUB: the entries of its menu (`grub.cfg`) and its variables (`grubenv`).

use std::collections::BTreeMap;

/// Entry of a trial boot.
pub const TRIAL: &str = "fullpipe-trial";

/// Commands that load a kernel.
const KERNEL: [&str; 3] = ["linux", "linux16", "linuxefi"];

/// An entry of a menu.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Its path: enclosing submenus and itself, by identifier where available.
    pub id: String,
    /// The same path by titles and by numbers, which a default may also use.
    names: [String; 2],
    /// The kernel's file, as GRUB finds it.
    pub image: String,
    /// Kernel arguments.
    pub arguments: String,
    /// Its lines.
    body: Vec<String>,
    /// Whether it is in no submenu.
    pub is_top: bool,
}

/// A menu.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Menu {
    /// The entries that boot Linux, in their order.
    pub entries: Vec<Entry>,
    /// The default unless `next_entry` is set: an entry, or `${saved_entry}`.
    pub default: String,
    /// Whether it supports `next_entry`.
    pub takes_next: bool,
    /// Whether it sources `custom.cfg`.
    pub takes_custom: bool,
    /// Whether its entries are files in `loader/entries` (blscfg).
    pub is_bls: bool,
    /// What it has too much of; then entries are missing.
    pub excess: Option<&'static str>,
}

/// The words of a line as GRUB's shell splits it.
fn split_words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (c, None) if c.is_whitespace() => all.extend(word.take()),
            ('#', None) if word.is_none() => break,
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

/// Identifier and title of an entry or a submenu.
fn named(words: &[String]) -> (String, String) {
    let title = words.get(1).cloned().unwrap_or_default();
    let option = words.iter().position(|word| word == "--id" || word.ends_with("menuentry_id_option"));
    let id = option.and_then(|at| words.get(at + 1)).cloned();
    (id.unwrap_or_else(|| title.clone()), title)
}

/// Deepest submenu that is read: the names of its entries grow with the depth.
const MAX_DEPTH: usize = 32;
/// Longest title or identifier with those of the enclosing submenus. Each entry has all of them.
const MAX_NAME: usize = 4096;
/// Most entries.
const MAX_ENTRIES: usize = 4096;

/// An open submenu, or the menu itself.
#[derive(Default)]
struct Level {
    id: Vec<String>,
    title: Vec<String>,
    number: Vec<String>,
    count: usize,
}

impl Level {
    /// Names of the next item in it; `None` if they are too long.
    fn next(&mut self, id: String, title: String) -> Option<Level> {
        let is_long = |path: &[String], name: &str| {
            path.iter().map(|part| part.len() + 1).sum::<usize>() + name.len() > MAX_NAME
        };
        if is_long(&self.id, &id) || is_long(&self.title, &title) {
            self.count += 1;
            return None;
        }
        let with = |path: &[String], name: String| [path, &[name]].concat();
        let number = with(&self.number, self.count.to_string());
        self.count += 1;
        Some(Level { id: with(&self.id, id), title: with(&self.title, title), number, count: 0 })
    }
}

impl Menu {
    /// Reads a `grub.cfg`.
    pub fn parse(text: &str) -> Menu {
        let mut menu = Menu::default();
        let mut levels = vec![Level::default()];
        // Statement of each open brace.
        let mut open: Vec<&str> = Vec::new();
        let mut entry: Option<Entry> = None;
        for line in text.lines() {
            let words = split_words(line);
            let first = words.first().map_or("", String::as_str);
            let opens = words.last().is_some_and(|word| word == "{");
            match (first, &mut entry) {
                ("}", now) => match open.pop() {
                    Some("menuentry") => {
                        menu.entries.extend(now.take().filter(|entry: &Entry| !entry.image.is_empty()));
                    }
                    Some("submenu") if levels.len() > 1 => {
                        levels.pop();
                    }
                    _ => {}
                },
                ("menuentry", None) if opens => {
                    let (id, title) = named(&words);
                    let is_top = levels.len() == 1;
                    open.push("menuentry");
                    let Some(place) = levels.last_mut().and_then(|level| level.next(id, title)) else {
                        menu.excess = Some("an entry with a title of more than 4096 bytes");
                        continue;
                    };
                    if menu.entries.len() >= MAX_ENTRIES {
                        menu.excess = Some("more than 4096 entries");
                        continue;
                    }
                    let names = [place.title.join(">"), place.number.join(">")];
                    entry = Some(Entry { id: place.id.join(">"), names, is_top, ..Entry::default() });
                }
                ("submenu", None) if opens && levels.len() > MAX_DEPTH => open.push("other"),
                ("submenu", None) if opens => {
                    let (id, title) = named(&words);
                    match levels.last_mut().and_then(|level| level.next(id, title)) {
                        Some(level) => {
                            levels.push(level);
                            open.push("submenu");
                        }
                        None => {
                            menu.excess = Some("a submenu with a title of more than 4096 bytes");
                            open.push("other");
                        }
                    }
                }
                (word, Some(entry)) => {
                    if opens {
                        open.push("other");
                    }
                    if KERNEL.contains(&word) {
                        entry.image = words.get(1).cloned().unwrap_or_default();
                        entry.arguments = words.get(2..).unwrap_or_default().join(" ");
                    }
                    entry.body.push(line.to_owned());
                }
                (_, None) if opens => open.push("other"),
                ("set", None) => match words.get(1).and_then(|set| set.split_once('=')) {
                    Some(("default", "${next_entry}")) => menu.takes_next = true,
                    Some(("default", value)) => value.clone_into(&mut menu.default),
                    _ => {}
                },
                ("source", None) => {
                    menu.takes_custom |= words.get(1).is_some_and(|file| file.ends_with("/custom.cfg"));
                }
                ("blscfg", None) => menu.is_bls = true,
                _ => {}
            }
        }
        menu
    }

    /// The entry of a default, by identifier, title or number; the first if not found, as in GRUB.
    pub fn named(&self, name: &str) -> Option<&Entry> {
        let is_it = |entry: &&Entry| entry.id == name || entry.names.iter().any(|other| other == name);
        // A submenu selects its first entry.
        let begin = format!("{name}>");
        let is_in = |entry: &&Entry| {
            entry.id.starts_with(&begin) || entry.names.iter().any(|other| other.starts_with(&begin))
        };
        let found = self.entries.iter().find(is_it).or_else(|| self.entries.iter().find(is_in));
        found.or_else(|| self.entries.first())
    }

    /// The entry that boots a kernel file in normal mode. One named after the release is preferred
    /// to the one for
    /// the newest kernel.
    pub fn booting(&self, image: &str) -> Option<&Entry> {
        let name = image.rsplit('/').next().unwrap_or(image);
        let release = name.split_once('-').map_or(name, |(_, release)| release);
        let rescue = |entry: &Entry| {
            entry.id.contains("recovery")
                || entry.arguments.split(' ').any(|word| ["single", "recovery", "rescue"].contains(&word))
        };
        let boots = |entry: &&Entry| {
            entry.image.rsplit('/').next() == Some(name) && !rescue(entry) && entry.id != TRIAL
        };
        let mut all = self.entries.iter().filter(boots);
        let first = all.clone().next();
        all.find(|entry| !entry.is_top && entry.id.contains(release)).or(first)
    }
}

impl Entry {
    /// Its path by titles.
    pub fn title(&self) -> &str {
        &self.names[0]
    }

    /// A copy of the entry with more kernel arguments; `None` if text after the kernel line would
    /// not be passed:
    /// a comment, an open quotation, a continued line.
    pub fn once(&self, title: &str, more: &str) -> Option<String> {
        let mut text = format!("menuentry '{}' --id {TRIAL} {{\n", title.replace('\'', ""));
        for line in &self.body {
            let line = line.trim();
            let before = split_words(line);
            let is_kernel = before.first().is_some_and(|word| KERNEL.contains(&word.as_str()));
            if !is_kernel {
                text += &format!("\t{line}\n");
                continue;
            }
            let longer = format!("{line} {more}");
            let added = more.split(' ').map(str::to_owned);
            if split_words(&longer) != before.into_iter().chain(added).collect::<Vec<_>>() {
                return None;
            }
            text += &format!("\t{longer}\n");
        }
        Some(text + "}\n")
    }
}

/// Parses GRUB's environment block.
pub fn variables(bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.strip_prefix("# GRUB Environment Block\n")?.lines();
    Some(
        lines
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let (name, value) = line.split_once('=')?;
                Some((name.to_owned(), value.replace("\\\\", "\\")))
            })
            .collect(),
    )
}

/// `text` in single quotes for a POSIX shell, which expands nothing in them (POSIX.1-2017, 2.2.2).
pub fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// GRUB's settings (`/etc/default/grub`, shell assignments) with another default.
pub fn with_default(settings: &str, default: &str) -> String {
    // grub-mkconfig sources this file as root.
    let plain = |c: char| c.is_ascii_alphanumeric() || " .,:;=+@%()[]{}<>/_-".contains(c);
    let value = if default.chars().all(plain) { format!("\"{default}\"") } else { shell_quoted(default) };
    let ours = format!("GRUB_DEFAULT={value}");
    let is_it = |line: &&str| line.trim_start().starts_with("GRUB_DEFAULT=");
    if !settings.lines().any(|line| is_it(&line)) {
        let end = if settings.is_empty() || settings.ends_with('\n') { "" } else { "\n" };
        return format!("{settings}{end}{ours}\n");
    }
    let lines: Vec<&str> =
        settings.split('\n').map(|line| if is_it(&line) { ours.as_str() } else { line }).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Output of Debian 11's grub-mkconfig, shortened: R5 and R6 are releases, ID is
    /// `$menuentry_id_option`.
    const TEMPLATE: &str = r#"
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="0"
fi
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry
  fi
}
menuentry 'Debian GNU/Linux' --class debian ID 'gnulinux-simple-77' {
	load_video
	echo	'Loading Linux R6 ...'
	linux	/boot/vmlinuz-R6 root=UUID=77 ro  console=ttyS0
	initrd	/boot/initrd.img-R6
}
submenu 'Advanced options for Debian GNU/Linux' ID 'gnulinux-advanced-77' {
	menuentry 'Debian GNU/Linux, with Linux R6' --class debian ID 'gnulinux-R6-advanced-77' {
		linux	/boot/vmlinuz-R6 root=UUID=77 ro  console=ttyS0
		initrd	/boot/initrd.img-R6
	}
	menuentry 'Debian GNU/Linux, with Linux R6 (recovery mode)' --class debian ID 'gnulinux-R6-recovery-77' {
		linux	/boot/vmlinuz-R6 root=UUID=77 ro single
	}
	menuentry 'Debian GNU/Linux, with Linux R5' --class debian ID 'gnulinux-R5-advanced-77' {
		if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
		linux	/boot/vmlinuz-R5 root=UUID=77 ro  console=ttyS0
		initrd	/boot/initrd.img-R5
	}
}
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
fi
"#;

    fn debian() -> String {
        let text = TEMPLATE.replace("R6", "6.1.0-56-cloud-amd64").replace("R5", "5.10.0-46-cloud-amd64");
        text.replace(" ID '", " $menuentry_id_option '")
    }

    #[test]
    fn menu_is_parsed_with_submenus() {
        let menu = Menu::parse(&debian());
        assert!(menu.takes_next && menu.takes_custom && !menu.is_bls);
        assert_eq!((menu.default.as_str(), menu.entries.len()), ("0", 4));
        assert_eq!(menu.named(&menu.default).unwrap().image, "/boot/vmlinuz-6.1.0-56-cloud-amd64");
        let old = menu.booting("/boot/vmlinuz-5.10.0-46-cloud-amd64").unwrap();
        assert_eq!(old.id, "gnulinux-advanced-77>gnulinux-5.10.0-46-cloud-amd64-advanced-77");
        let by_title =
            "Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 5.10.0-46-cloud-amd64";
        for name in [by_title, "1>2", &old.id] {
            assert_eq!(menu.named(name), Some(old), "{name}");
        }
        assert_eq!(menu.named("1").unwrap().image, "/boot/vmlinuz-6.1.0-56-cloud-amd64");
        assert_eq!(menu.named("gone"), menu.entries.first());
        let new = menu.booting("vmlinuz-6.1.0-56-cloud-amd64").unwrap();
        assert_eq!(new.id, "gnulinux-advanced-77>gnulinux-6.1.0-56-cloud-amd64-advanced-77");
        assert!(menu.booting("vmlinuz-6.1").is_none());
    }

    #[test]
    fn one_time_entry_copies_the_kernels_entry() {
        let menu = Menu::parse(&debian());
        let text = menu
            .booting("vmlinuz-5.10.0-46-cloud-amd64")
            .unwrap()
            .once("Linux 5.10, once", "panic=10")
            .unwrap();
        let once = Menu::parse(&text);
        assert_eq!(once.entries.len(), 1);
        assert_eq!(once.entries[0].id, TRIAL);
        assert_eq!(once.entries[0].arguments, "root=UUID=77 ro console=ttyS0 panic=10");
        assert!(text.contains("\tinitrd\t/boot/initrd.img-5.10.0-46-cloud-amd64\n"), "{text}");
        for line in ["# ours", "'quiet", "quiet \\"] {
            let text = format!("menuentry 'x' {{\nlinux /boot/vmlinuz-1 {line}\n}}\n");
            assert_eq!(Menu::parse(&text).entries[0].once("x", "panic=10"), None, "{line}");
        }
        let both = Menu::parse(&format!("{}{text}", debian()));
        assert_ne!(both.booting("vmlinuz-5.10.0-46-cloud-amd64").unwrap().id, TRIAL);
    }

    #[test]
    fn environment_block_is_parsed() {
        let block = format!("{:#<1024}", "# GRUB Environment Block\nsaved_entry=a>b\nnext_entry=\n");
        let variables = variables(block.as_bytes()).unwrap();
        assert_eq!(variables["saved_entry"], "a>b");
        assert_eq!(variables["next_entry"], "");
        assert_eq!(super::variables(b"saved_entry=a\n"), None);
    }

    #[test]
    fn a_shell_runs_nothing_in_a_default() {
        for odd in ["a$(touch X)", "`touch X`", "a\"; touch X; \"", "it's", "a\\", "a>b $x"] {
            let text = with_default("", odd) + "printf %s \"$GRUB_DEFAULT\"";
            let run = std::process::Command::new("sh").args(["-c", &text]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&run.stdout), odd, "{text}");
            assert!(run.stderr.is_empty(), "{text}");
        }
    }

    #[test]
    fn nested_submenus_take_bounded_memory() {
        let text = "submenu 'a' {\n".repeat(20_000)
            + "menuentry 'b' {\nlinux /vmlinuz-1\n}\n"
            + &"}\n".repeat(20_000);
        let menu = Menu::parse(&(text + "menuentry 'c' {\nlinux /vmlinuz-2\n}\n"));
        assert!(menu.entries.iter().all(|entry| entry.id.len() < 100), "paths are short");
        assert_eq!(menu.entries.last().unwrap().id, "c", "braces are still matched");
    }

    #[test]
    fn long_titles_and_many_entries_take_bounded_memory_and_are_reported() {
        let entry = "menuentry 'b' {\nlinux /vmlinuz-1\n}\n";
        let long = format!("submenu '{}' {{\n{}}}\n{entry}", "a".repeat(1 << 20), entry.repeat(2000));
        let menu = Menu::parse(&long);
        let names = |entry: &Entry| entry.id.len() + entry.names.iter().map(String::len).sum::<usize>();
        assert!(menu.entries.iter().map(names).sum::<usize>() < 1 << 20, "paths are short");
        assert!(menu.excess.is_some_and(|excess| excess.contains("title")), "{:?}", menu.excess);
        let menu = Menu::parse(&entry.repeat(MAX_ENTRIES + 1));
        assert_eq!((menu.entries.len(), menu.excess), (MAX_ENTRIES, Some("more than 4096 entries")));
        assert_eq!(Menu::parse(&entry.repeat(MAX_ENTRIES)).excess, None);
    }

    #[test]
    fn default_is_replaced_or_appended() {
        assert_eq!(with_default("GRUB_TIMEOUT=5\n", "a>b"), "GRUB_TIMEOUT=5\nGRUB_DEFAULT=\"a>b\"\n");
        assert_eq!(
            with_default("# mine\nGRUB_DEFAULT=0\nGRUB_TIMEOUT=5\n", "a"),
            "# mine\nGRUB_DEFAULT=\"a\"\nGRUB_TIMEOUT=5\n"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z{}'\"\\\\ \n=$>#]{0,200}") {
            let menu = Menu::parse(&text);
            for entry in &menu.entries {
                if let Some(text) = entry.once("t", "panic=1") {
                    prop_assert!(Menu::parse(&text).entries.iter().all(|again| again.image == entry.image));
                }
            }
            let _ = variables(text.as_bytes());
        }
    }
}
