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
    /// The file that holds it, links resolved.
    pub file: String,
    /// Its line, from 1; 0 when it is not from a file's line.
    pub line: usize,
    /// Whether a failure is tolerated (`-key = value`).
    pub tolerant: bool,
    /// Who sets it.
    pub program: Program,
}

impl Assignment {
    /// Whether it sets `key` (in the form of [`normalise`]).
    pub fn sets(&self, key: &str) -> bool {
        self.key == key || (is_glob(&self.key) && glob_matches(&self.key, key))
    }

    /// `file:line`, as compilers write it.
    pub fn place(&self) -> String {
        if self.line == 0 { self.file.clone() } else { format!("{}:{}", self.file, self.line) }
    }
}

/// Who reads the file: the two differ in small things that decide whether a line counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// systemd-sysctl: an empty value is a value.
    Systemd,
    /// procps: an empty value is a mistake.
    Procps,
}

/// What a line is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// Sets `key` to `value`.
    Set { key: String, value: String, tolerant: bool },
    /// `-key`: globs do not set it.
    Exclude { key: String },
    /// A comment, an empty line, or one that the program warns about and ignores.
    Nothing,
}

/// A key in its form with slashes. The first separator decides: after a dot, dots become slashes and slashes
/// dots (`net.ipv4.conf.eth0/1.rp_filter`); after a slash nothing changes.
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

/// Whether the key holds characters of a glob.
pub fn is_glob(key: &str) -> bool {
    key.contains(['*', '?', '['])
}

/// Whether the glob matches the key; no wildcard matches a slash, as in glob(3).
pub fn glob_matches(pattern: &str, key: &str) -> bool {
    let (p, k) = (pattern.as_bytes(), key.as_bytes());
    match (p.first(), k.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            glob_matches(&pattern[1..], key)
                || k.first().is_some_and(|&c| c != b'/' && glob_matches(pattern, tail(key)))
        }
        (Some(b'?'), Some(&c)) if c != b'/' => glob_matches(&pattern[1..], tail(key)),
        (Some(b'['), Some(&c)) if c != b'/' => match pattern.find(']') {
            Some(end) if end > 1 => {
                let (negated, set) = match pattern[1..end].strip_prefix(['!', '^']) {
                    Some(rest) => (true, rest.as_bytes()),
                    None => (false, &pattern.as_bytes()[1..end]),
                };
                in_set(set, c) != negated && glob_matches(&pattern[end + 1..], tail(key))
            }
            _ => c == b'[' && glob_matches(&pattern[1..], tail(key)),
        },
        (Some(a), Some(b)) if a == b => glob_matches(tail(pattern), tail(key)),
        _ => false,
    }
}

fn tail(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    characters.as_str()
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
    let line = line.trim_matches([' ', '\t', '\r', '\n']);
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Line::Nothing;
    }
    let (tolerant, rest) = match line.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    match rest.split_once('=') {
        None if tolerant => Line::Exclude { key: normalise(rest.trim()) },
        None => Line::Nothing,
        Some((key, value)) => {
            let (key, value) = (normalise(key.trim()), value.trim());
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
    fn the_first_separator_decides_what_a_dot_means() {
        assert_eq!(normalise("net.ipv4.tcp_rmem"), "net/ipv4/tcp_rmem");
        assert_eq!(normalise("net/ipv4/conf/eth0.1/rp_filter"), "net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(normalise("net.ipv4.conf.eth0/1.rp_filter"), "net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(normalise("/net//ipv4/x"), "net/ipv4/x");
    }

    #[test]
    fn a_comment_after_a_value_belongs_to_the_value() {
        let Line::Set { value, .. } = parse_line("net.core.default_qdisc = fq # pacing", Dialect::Systemd)
        else {
            panic!("not a setting");
        };
        assert_eq!(value, "fq # pacing");
    }

    #[test]
    fn a_line_without_a_value_sets_nothing() {
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
    fn wildcards_stay_inside_one_directory() {
        assert!(glob_matches("net/ipv4/tcp_*", "net/ipv4/tcp_rmem"));
        assert!(glob_matches("net/*/tcp_[rw]mem", "net/ipv4/tcp_wmem"));
        assert!(!glob_matches("net/ipv4/tcp_[!r]mem", "net/ipv4/tcp_rmem"));
        assert!(!glob_matches("net/*", "net/ipv4/tcp_rmem"));
        assert!(glob_matches("net/ipv?/x", "net/ipv4/x"));
    }

    proptest! {
        #[test]
        fn no_file_and_no_pattern_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80), p in "[a-z*?\\[\\]!\\-/é]{0,8}", k in "[a-z/é]{0,8}") {
            let _ = parse(&bytes, Dialect::Systemd);
            let _ = parse(&bytes, Dialect::Procps);
            let _ = glob_matches(&p, &k);
            let _ = normalise(&p);
        }
    }
}
