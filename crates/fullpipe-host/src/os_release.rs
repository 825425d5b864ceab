//! The distribution.

use crate::host::View;

/// A value of os-release(5): `ID`, `VERSION_ID`, `PRETTY_NAME`, …
pub fn distribution(view: &dyn View, key: &str) -> Option<String> {
    let text = view.content("/etc/os-release")?;
    let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.trim_matches('"').to_owned());
    text.lines().find_map(value)
}
