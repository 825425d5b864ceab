//! One line of a sysctl file, in the two dialects that exist.

use super::Program;
use serde::{Deserialize, Serialize};

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
    /// systemd-sysctl: an empty value is a value.
    Systemd,
    /// procps: an empty value is an error.
    Procps,
}

/// A parsed line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// Sets `key` to `value`.
    Set { key: String, value: String, tolerant: bool },
    /// `-key`: globs do not set it.
    Exclude { key: String },
    /// A comment, an empty line, or one that the program ignores with a warning.
    Nothing,
}

/// A key in its form with slashes. The first separator decides: after a dot, dots become slashes
/// and slashes dots (`net.ipv4.conf.eth0/1.rp_filter`); after a slash nothing changes.
pub fn normalise(key: &str) -> String {
    let swapped: String = match key.find(['.', '/']) {
        Some(i) if key.as_bytes()[i] == b'.' => key
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                c => c,
            })
            .collect(),
        _ => key.to_owned(),
    };
    let parts: Vec<&str> = swapped.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    parts.join("/")
}

/// The blanks that systemd-sysctl, procps and busybox strip. A no-break space belongs to the key or
/// the value.
pub(super) const BLANKS: [char; 6] = [' ', '\t', '\r', '\n', '\x0b', '\x0c'];

/// Whether the key contains glob characters.
pub fn is_glob(key: &str) -> bool {
    key.contains(['*', '?', '['])
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
    let line = line.trim_matches(BLANKS);
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Line::Nothing;
    }
    let (tolerant, rest) = match line.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    match rest.split_once('=') {
        None if tolerant => Line::Exclude { key: normalise(rest.trim_matches(BLANKS)) },
        None => Line::Nothing,
        Some((key, value)) => {
            let (key, value) = (normalise(key.trim_matches(BLANKS)), value.trim_matches(BLANKS));
            if key.is_empty() || (value.is_empty() && dialect == Dialect::Procps) {
                return Line::Nothing;
            }
            Line::Set { key, value: value.to_owned(), tolerant }
        }
    }
}

/// The lines of a file that are not comments, with their numbers from 1.
pub fn parse(text: &[u8], dialect: Dialect) -> Vec<(usize, Line)> {
    String::from_utf8_lossy(text)
        .split('\n')
        .enumerate()
        .map(|(i, line)| (i + 1, parse_line(line, dialect)))
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
        assert_eq!(parse_line("a.b =", Dialect::Procps), Line::Nothing);
        assert_ne!(parse_line("a.b =", Dialect::Systemd), Line::Nothing);
    }

    #[test]
    fn only_ascii_blanks_are_stripped() {
        for blank in ['\u{a0}', '\u{3000}'] {
            let line = format!("a.b{blank}={blank}1");
            let set = Line::Set { key: format!("a/b{blank}"), value: format!("{blank}1"), tolerant: false };
            assert_eq!(parse_line(&line, Dialect::Systemd), set);
        }
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
            let _ = parse(&bytes, Dialect::Systemd);
            let _ = parse(&bytes, Dialect::Procps);
            let _ = glob_matches(&p, &k);
            let _ = normalise(&p);
        }
    }
}
