//! The names by which a browser reaches a server on the same machine.

/// Whether the value of a `Host` field (RFC 9110 section 7.2) is an address, `localhost`, or this
/// machine's host name. Any other name, if it leads to a loopback address, may be one that another
/// site made resolve to it, so that its page can read answers of this machine (DNS rebinding).
pub fn is_local(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            return address.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port.strip_prefix(':'), port);
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_own = || {
        let own = nix::sys::utsname::uname().ok();
        own.and_then(|own| own.nodename().to_str().map(str::to_ascii_lowercase))
            .is_some_and(|own| own == name)
    };
    let is_named = name == "localhost" || name.ends_with(".localhost");
    is_port(port, "") && (is_named || name.parse::<std::net::Ipv4Addr>().is_ok() || is_own())
}

/// Whether the text after a name is a port or nothing.
fn is_port(port: Option<&str>, all: &str) -> bool {
    match port {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => all.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_the_own_name_are_local() {
        for host in ["127.0.0.1", "127.0.0.1:9411", "192.0.2.1:1", "[::1]", "[::1]:80", "localhost:5201"] {
            assert!(is_local(host), "{host}");
        }
        assert!(is_local("LOCALHOST") && is_local("localhost.") && is_local("mesh.localhost:80"));
        let own = nix::sys::utsname::uname().unwrap().nodename().to_string_lossy().into_owned();
        assert!(is_local(&own) && is_local(&format!("{own}:5201")));
    }

    #[test]
    fn other_names_are_not_local() {
        for host in [
            "",
            "evil.example",
            "evil.example:9411",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "[evil]:80",
            "localhost:x",
            "127.1",
            "xlocalhost",
            "127.0.0.1:80:80",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
