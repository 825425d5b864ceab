//! Kernel version.

use std::fmt;

/// A kernel version: major and minor number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// Parses a release string (`5.10.0-28-amd64`).
    pub fn parse(release: &str) -> Option<Version> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// The version of the running kernel.
    pub fn running() -> Option<Version> {
        Version::parse(nix::sys::utsname::uname().ok()?.release().to_str()?)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        let old = Version::parse("4.9.0-13-amd64").unwrap();
        assert!(old < Version(4, 20) && Version::parse("5.10.0").unwrap() > Version(4, 20));
        assert_eq!(Version::parse("unknown"), None);
    }

    #[test]
    fn the_running_kernel_is_one_that_rust_supports() {
        assert!(Version::running().unwrap() >= Version(3, 2));
    }
}
