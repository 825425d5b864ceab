//! Names of settings and units, which all parts of the crate share.

/// The sysctl of the default controller.
pub(crate) const CONTROLLER: &str = "net.ipv4.tcp_congestion_control";
/// The sysctl of the controllers that every user may select.
pub(crate) const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
/// The unit of an apply.
pub(crate) const UNIT: &str = "fullpipe-controller.service";

/// A key in its form with slashes. The first separator decides: after a dot, dots become slashes
/// and slashes dots (`net.ipv4.conf.eth0/1.rp_filter`); after a slash nothing changes.
pub fn normalise(key: &str) -> String {
    let swapped = swapped(key);
    let parts: Vec<&str> = swapped.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    parts.join("/")
}

pub(crate) fn swapped(key: &str) -> String {
    match key.find(['.', '/']) {
        Some(i) if key.as_bytes()[i] == b'.' => swap(key),
        _ => key.to_owned(),
    }
}

pub(crate) fn swap(key: &str) -> String {
    let other = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    key.chars().map(other).collect()
}

/// The controller that a line of a unit for a loaded controller makes the default.
pub(crate) fn default_of(line: &str) -> Option<String> {
    let (_, words) = line.strip_prefix("ExecStart=")?.split_once(" cc load ")?;
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    if !words.contains(&"--default") {
        return None;
    }
    let named = words.iter().position(|word| *word == "--name").and_then(|at| words.get(at + 1));
    Some(match named {
        Some(name) => (*name).to_owned(),
        None => format!("fp_{}", words.first()?.trim_start_matches("fp_")),
    })
}
