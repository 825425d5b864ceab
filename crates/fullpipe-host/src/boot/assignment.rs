//! One line of a sysctl file, in the dialects of the programs that read it.

use super::Program;
use crate::names::{normalise, swap, swapped};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A setting of a sysctl, and where it is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The key with slashes (`net/ipv4/tcp_rmem`), possibly a glob.
    pub key: String,
    /// The value as it would be written to the kernel.
    pub value: String,
    /// Its file, links resolved.
    pub file: String,
    /// Its line, from 1; 0 if it is not from a line of a file.
    pub line: usize,
    /// Whether a failure is tolerated (`-key = value`).
    pub tolerant: bool,
    /// The program that sets it.
    pub program: Program,
}

impl Assignment {
    /// Whether it sets `key` (in the form of [`normalise`]).
    pub fn sets(&self, key: &str) -> bool {
        self.key == key || (is_glob(&self.key) && glob_matches(&self.key, key))
    }

    /// Whether a shell or tuned computes the value at boot.
    pub fn is_unresolved(&self) -> bool {
        self.value.contains(['$', '`'])
    }

    /// `file:line`.
    pub fn place(&self) -> String {
        if self.line == 0 { self.file.clone() } else { format!("{}:{}", self.file, self.line) }
    }
}

/// Syntax of a sysctl file, by the program that reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// systemd-sysctl: a carriage return or a zero byte ends a line, too (`read_line`).
    Systemd,
    /// procps' sysctl (`parse_setting_line`).
    Procps,
    /// busybox' sysctl: a backslash continues a line, and `-` belongs to the key (`config_read`).
    Busybox,
    /// TuneD's own reader (plugin_sysctl.py): Unicode blanks are stripped.
    Tuned,
}

impl Dialect {
    /// Blanks that it strips. A no-break space belongs to the key or the value, except in TuneD.
    fn trim(self, text: &str) -> &str {
        match self {
            Dialect::Systemd => text.trim_matches([' ', '\t', '\r', '\n']),
            Dialect::Procps | Dialect::Busybox => text.trim_matches(BLANKS),
            Dialect::Tuned => text.trim(),
        }
    }

    /// The key as a path below /proc/sys. That of busybox depends on the existing paths:
    /// [`busybox_path`].
    fn path(self, key: &str) -> Option<String> {
        match self {
            Dialect::Systemd => Some(normalise(key)),
            Dialect::Procps => proc_path(&swapped(key.strip_prefix('-').unwrap_or(key))),
            Dialect::Tuned => proc_path(&swapped(key)),
            Dialect::Busybox => Some(key.to_owned()),
        }
    }
}

/// A parsed line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// Sets `key` to `value`. `skipped` by globs, unless procps reads a spelling as
    /// `net//ipv4/…`, which it does not compare (`settinglist_findpath`).
    Set { key: String, value: String, tolerant: bool, skipped: bool },
    /// `-key`: globs do not set it.
    Exclude { key: String },
    /// A comment, an empty line, or one that the program ignores with a warning.
    Nothing,
}

/// A path below /proc/sys as the kernel resolves it. No key has a slash at its end.
fn proc_path(path: &str) -> Option<String> {
    if path.ends_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The path of a key in busybox (`sysctl_dots_to_slashes`): from the end, a dot becomes a slash
/// where the part before it exists, so that `net.ipv4.conf.eth0.1.forwarding` finds `eth0.1`.
pub(super) fn busybox_path(key: &str, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    if is_swapped(key) {
        return busybox_relative(&swap(key));
    }
    if key.len() > MAX_KEY_LENGTH {
        return None;
    }
    let mut name = format!("{key}.").into_bytes();
    let end = name.len() - 1;
    // Each round replaces a dot behind the last one, so that this ends.
    let (mut after, mut at) = (0, end);
    loop {
        if name[at] == b'.' && std::str::from_utf8(&name[..at]).is_ok_and(exists) {
            name[at] = b'/';
            if at == end {
                break;
            }
            (after, at) = (at + 1, end);
        } else if at > after {
            at -= 1;
        } else {
            break;
        }
    }
    name.truncate(end);
    busybox_relative(&String::from_utf8(name).ok()?)
}

/// As [`busybox_path`] on an image, where no path exists yet: every dot is a separator.
pub(super) fn busybox_image_path(key: &str) -> Option<String> {
    busybox_relative(&if is_swapped(key) { swap(key) } else { key.replace('.', "/") })
}

/// Whether a dot precedes the first slash of a key with both.
fn is_swapped(key: &str) -> bool {
    matches!((key.find('.'), key.find('/')), (Some(dot), Some(slash)) if dot < slash)
}

/// busybox opens the path in /proc/sys, so that one with a leading slash is absolute.
fn busybox_relative(path: &str) -> Option<String> {
    match path.strip_prefix('/') {
        Some(absolute) => proc_path(absolute)?.strip_prefix("proc/sys/").map(str::to_owned),
        None => proc_path(path),
    }
}

/// What isspace(3) calls blank.
pub(super) const BLANKS: [char; 6] = [' ', '\t', '\r', '\n', '\x0b', '\x0c'];

/// Whether the key contains glob characters.
pub fn is_glob(key: &str) -> bool {
    // A search for one ASCII character is memchr, which is fast in tests that are not optimised, too.
    key.contains('*') || key.contains('?') || key.contains('[')
}

/// Longest key or pattern that is compared (`PATH_MAX`).
const MAX_KEY_LENGTH: usize = 4096;

/// Whether the glob matches the key; no wildcard matches a slash, as in glob(3). Only the last star
/// is retried, so the time is at most proportional to the product of both lengths.
pub fn glob_matches(pattern: &str, key: &str) -> bool {
    if pattern.len() > MAX_KEY_LENGTH || key.len() > MAX_KEY_LENGTH {
        return false;
    }
    let (pattern, key) = (pattern.as_bytes(), key.as_bytes());
    let (mut p, mut k) = (0, 0);
    // Where to resume if the text after the last star does not match.
    let mut again: Option<(usize, usize)> = None;
    loop {
        let next = match (pattern.get(p), key.get(k)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                again = Some((p + 1, k));
                Some((p + 1, k))
            }
            (Some(_), Some(&c)) => matches_one(&pattern[p..], c).map(|width| (p + width, k + 1)),
            _ => None,
        };
        (p, k) = match (next, again) {
            (Some(next), _) => next,
            (None, Some((after, start))) if key.get(start).is_some_and(|&c| c != b'/') => {
                again = Some((after, start + 1));
                (after, start + 1)
            }
            _ => return false,
        };
    }
}

/// The length of the pattern's first element if that matches the byte.
fn matches_one(pattern: &[u8], c: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => (c != b'/').then_some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == c).then_some(2),
        b'[' if c != b'/' => match pattern.iter().position(|&b| b == b']') {
            Some(end) if end > 1 => {
                let (negated, set) = match pattern[1] {
                    b'!' | b'^' => (true, &pattern[2..end]),
                    _ => (false, &pattern[1..end]),
                };
                (in_set(set, c) != negated).then_some(end + 1)
            }
            _ => (c == b'[').then_some(1),
        },
        letter => (letter == c).then_some(1),
    }
}

fn in_set(set: &[u8], c: u8) -> bool {
    let mut i = 0;
    while i < set.len() {
        if i + 2 < set.len() && set[i + 1] == b'-' {
            if (set[i]..=set[i + 2]).contains(&c) {
                return true;
            }
            i += 3;
        } else {
            if set[i] == c {
                return true;
            }
            i += 1;
        }
    }
    false
}

/// Reads one line.
pub fn parse_line(line: &str, dialect: Dialect) -> Line {
    let line = dialect.trim(line);
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Line::Nothing;
    }
    if dialect == Dialect::Busybox {
        // A value that begins with `#` directly after the sign ends the list of tokens.
        return match line.split_once('=').map(|(key, value)| (key, dialect.trim(value), value)) {
            Some((key, value, raw)) if !value.is_empty() && !raw.starts_with('#') => {
                let key = dialect.trim(key).to_owned();
                Line::Set { key, value: value.to_owned(), tolerant: false, skipped: false }
            }
            _ => Line::Nothing,
        };
    }
    let (tolerant, rest) = match line.strip_prefix('-').filter(|_| dialect != Dialect::Tuned) {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    // procps strips the blanks behind a key only.
    let stripped = |key: &str| match dialect {
        Dialect::Procps => key.trim_end_matches(BLANKS).to_owned(),
        _ => dialect.trim(key).to_owned(),
    };
    let is_plain = |key: &str, path: &str| {
        dialect != Dialect::Procps || swapped(key.strip_prefix('-').unwrap_or(key)) == path
    };
    match rest.split_once('=') {
        None if tolerant => {
            let key = stripped(rest);
            let path = dialect.path(&key).filter(|path| is_plain(&key, path));
            path.map_or(Line::Nothing, |key| Line::Exclude { key })
        }
        None => Line::Nothing,
        Some((key, value)) => {
            let (key, value) = (stripped(key), dialect.trim(value));
            match dialect.path(&key).filter(|path| !path.is_empty()) {
                Some(_) if value.is_empty() && dialect == Dialect::Tuned => Line::Nothing,
                Some(path) => {
                    let skipped = is_plain(&key, &path);
                    Line::Set { key: path, value: value.to_owned(), tolerant, skipped }
                }
                None => Line::Nothing,
            }
        }
    }
}

/// Longest line that systemd reads; it ignores the rest of the file (`LONG_LINE_MAX`).
const MAX_LINE: usize = 1 << 20;

/// The lines of a file that `may` concern the caller, with their numbers from 1 (counting line
/// feeds).
fn lines<'a>(
    text: &'a str,
    dialect: Dialect,
    may: &'a dyn Fn(&str) -> bool,
) -> Box<dyn Iterator<Item = (usize, Cow<'a, str>)> + 'a> {
    let physical = text.split('\n').enumerate().map(|(i, line)| (i + 1, line));
    match dialect {
        Dialect::Systemd => Box::new(
            physical
                .take_while(|(_, line)| line.len() < MAX_LINE)
                .filter(|(_, line)| may(line))
                .flat_map(|(number, line)| line.split(['\r', '\0']).map(move |part| (number, part.into()))),
        ),
        // C strings end at a zero byte.
        Dialect::Procps | Dialect::Tuned => Box::new(
            physical.filter(|(_, line)| may(line)).map(|(number, line)| (number, before_zero(line).into())),
        ),
        Dialect::Busybox => {
            let mut all: Vec<(usize, String)> = Vec::new();
            let mut continues = false;
            for (number, line) in physical {
                let (part, more) = match line.strip_suffix('\\') {
                    Some(part) => (part, true),
                    None => (line, false),
                };
                match all.last_mut().filter(|_| continues) {
                    Some((_, before)) => before.push_str(part),
                    None => all.push((number, part.to_owned())),
                }
                continues = more;
            }
            let joined = all.into_iter().filter(|(_, line)| may(line));
            Box::new(joined.map(|(number, line)| (number, before_zero(&line).to_owned().into())))
        }
    }
}

fn before_zero(line: &str) -> &str {
    line.split('\0').next().unwrap_or_default()
}

/// The lines of a file that are not comments, with their numbers from 1.
pub fn parse(text: &[u8], dialect: Dialect) -> Vec<(usize, Line)> {
    parse_some(text, dialect, &|_| true)
}

/// As [`parse`], of the lines that `may` concern the caller.
pub(super) fn parse_some(text: &[u8], dialect: Dialect, may: &dyn Fn(&str) -> bool) -> Vec<(usize, Line)> {
    lines(&String::from_utf8_lossy(text), dialect, may)
        .map(|(number, line)| (number, parse_line(&line, dialect)))
        .filter(|(_, line)| *line != Line::Nothing)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_separator_decides_the_meaning_of_dots() {
        assert_eq!(normalise("net.ipv4.tcp_rmem"), "net/ipv4/tcp_rmem");
        assert_eq!(normalise("net/ipv4/conf/eth0.1/rp_filter"), "net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(normalise("net.ipv4.conf.eth0/1.rp_filter"), "net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(normalise("/net//ipv4/x"), "net/ipv4/x");
    }

    #[test]
    fn comment_after_a_value_is_part_of_the_value() {
        let Line::Set { value, .. } = parse_line("net.core.default_qdisc = fq # pacing", Dialect::Systemd)
        else {
            panic!("not a setting");
        };
        assert_eq!(value, "fq # pacing");
    }

    #[test]
    fn line_without_a_value_sets_nothing() {
        assert_eq!(parse_line("net.ipv4.tcp_sack 1", Dialect::Systemd), Line::Nothing);
        assert_eq!(parse_line("  ; remark = 1", Dialect::Procps), Line::Nothing);
        assert_eq!(
            parse_line("-net.ipv4.tcp_sack", Dialect::Systemd),
            Line::Exclude { key: "net/ipv4/tcp_sack".into() }
        );
        assert_eq!(parse_line("a.b =", Dialect::Busybox), Line::Nothing);
        // The kernel refuses the empty value; globs skip the key.
        assert_ne!(parse_line("a.b =", Dialect::Procps), Line::Nothing);
        assert_ne!(parse_line("a.b =", Dialect::Systemd), Line::Nothing);
    }

    #[test]
    fn only_ascii_blanks_are_stripped() {
        for blank in ['\u{a0}', '\u{3000}'] {
            let line = format!("a.b{blank}={blank}1");
            let (key, value) = (format!("a/b{blank}"), format!("{blank}1"));
            let set = Line::Set { key, value, tolerant: false, skipped: true };
            assert_eq!(parse_line(&line, Dialect::Systemd), set);
        }
    }

    #[test]
    fn dialects_differ_in_line_ends_and_prefixes() {
        let text = b"a.b = 1\rc.d = 2\n-e.f = 3\ng.h = \\\n4\0x\n";
        let keys = |dialect| -> Vec<(usize, String, String)> {
            let set = |(number, line)| match line {
                Line::Set { key, value, .. } => Some((number, key, value)),
                _ => None,
            };
            parse(text, dialect).into_iter().filter_map(set).collect()
        };
        let of = |number, key: &str, value: &str| (number, key.to_owned(), value.to_owned());
        assert_eq!(
            keys(Dialect::Systemd),
            [of(1, "a/b", "1"), of(1, "c/d", "2"), of(2, "e/f", "3"), of(3, "g/h", "\\")]
        );
        assert_eq!(
            keys(Dialect::Procps),
            [of(1, "a/b", "1\rc.d = 2"), of(2, "e/f", "3"), of(3, "g/h", "\\")]
        );
        assert_eq!(
            keys(Dialect::Busybox),
            [of(1, "a.b", "1\rc.d = 2"), of(2, "-e.f", "3"), of(3, "g.h", "4")]
        );
    }

    #[test]
    fn busybox_replaces_dots_before_existing_paths() {
        let exists = |path: &str| {
            ["net", "net/ipv4", "net/ipv4/conf", "net/ipv4/conf/eth0", "net/ipv4/conf/eth0.1"].contains(&path)
        };
        let path = |key: &str| busybox_path(key, &exists);
        assert_eq!(path("net.ipv4.conf.eth0.1.x").as_deref(), Some("net/ipv4/conf/eth0.1/x"));
        assert_eq!(path("net/ipv4.x").as_deref(), Some("net/ipv4/x"));
        assert_eq!(path("net.ipv4/x").as_deref(), Some("net/ipv4.x"));
        assert_eq!(path("none.x").as_deref(), Some("none.x"));
    }

    #[test]
    fn wildcards_stay_inside_one_directory() {
        assert!(glob_matches("net/ipv4/tcp_*", "net/ipv4/tcp_rmem"));
        assert!(glob_matches("net/*/tcp_[rw]mem", "net/ipv4/tcp_wmem"));
        assert!(!glob_matches("net/ipv4/tcp_[!r]mem", "net/ipv4/tcp_rmem"));
        assert!(!glob_matches("net/*", "net/ipv4/tcp_rmem"));
        assert!(glob_matches("net/ipv?/x", "net/ipv4/x"));
    }

    #[test]
    fn long_patterns_match_in_bounded_time() {
        let key = "net/ipv4/".to_owned() + &"a".repeat(200);
        assert!(!glob_matches(&"*".repeat(1_000_000), &key));
        assert!(!glob_matches(&("net/ipv4/".to_owned() + &"a*".repeat(40) + "b"), &key));
        assert!(glob_matches(&("net/ipv4/".to_owned() + &"a*".repeat(40)), &key));
        assert!(!glob_matches(&"[".repeat(4096), &"[".repeat(4095)));
        assert!(glob_matches(&("*/*/".to_owned() + &"*".repeat(4000)), &key));
    }

    /// Reference implementation with full backtracking.
    fn by_trying(pattern: &[u8], key: &[u8]) -> bool {
        match (pattern.first(), key.first()) {
            (None, None) => true,
            (Some(b'*'), c) => {
                by_trying(&pattern[1..], key)
                    || (c.is_some_and(|&c| c != b'/') && by_trying(pattern, &key[1..]))
            }
            (Some(_), Some(&c)) => {
                matches_one(pattern, c).is_some_and(|width| by_trying(&pattern[width..], &key[1..]))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_full_backtracking(p in "[ab*?/]{0,9}", k in "[ab/]{0,9}") {
            prop_assert_eq!(glob_matches(&p, &k), by_trying(p.as_bytes(), k.as_bytes()));
        }

        #[test]
        fn parsing_and_matching_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            p in "[a-z*?\\[\\]!\\-/é]{0,8}",
            k in "[a-z/é]{0,8}",
        ) {
            for dialect in [Dialect::Systemd, Dialect::Procps, Dialect::Busybox, Dialect::Tuned] {
                let _ = parse(&bytes, dialect);
            }
            let _ = busybox_path(&String::from_utf8_lossy(&bytes), &|path| path.len() % 2 == 0);
            let _ = glob_matches(&p, &k);
            let _ = normalise(&p);
        }
    }
}
