//! Addresses of downloads (RFC 3986), as far as HTTP needs them.

use std::fmt;

/// How to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    fn port(self) -> u16 {
        if self == Scheme::Http { 80 } else { 443 }
    }
}

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// How to speak.
    pub scheme: Scheme,
    /// Name or address, without the brackets of IPv6.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, as sent.
    pub target: String,
}

impl Url {
    /// Reads `http://host:port/path?query`; without a scheme, `http` is meant, as wget does.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Url, String> {
        let wrong = |why: &str| format!("`{text}`: {why}");
        if text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
            return Err(wrong("spaces and control characters must be written as %20 and so on"));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some((scheme, _)) if !scheme.contains(['/', '?']) => {
                return Err(wrong("only http and https are known"));
            }
            _ => (Scheme::Http, text),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let target = target.split('#').next().unwrap_or("");
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| wrong("a `[` without its `]`"))?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("there is no host in it"));
        }
        if host.contains(['[', ']']) {
            return Err(wrong("brackets belong around the whole of an IPv6 address"));
        }
        let port = match port {
            None | Some("") => scheme.port(),
            Some(port) => port.parse().map_err(|_| wrong("the port must be a number up to 65535"))?,
        };
        Ok(Url { scheme, host: host.to_owned(), port, target })
    }

    /// Where `location` leads from here (RFC 3986 section 5).
    ///
    /// # Errors
    /// When it leads nowhere.
    pub fn join(&self, location: &str) -> Result<Url, String> {
        if location.is_empty() {
            return Err(format!("{self}: a redirect to nowhere"));
        }
        if location.contains("://") && !location.starts_with(['/', '?']) {
            return Url::parse(location);
        }
        let scheme = if self.scheme == Scheme::Http { "http" } else { "https" };
        if location.starts_with("//") {
            return Url::parse(&format!("{scheme}:{location}"));
        }
        let path = self.target.split('?').next().unwrap_or("/");
        let target = match location.as_bytes()[0] {
            b'/' => location.to_owned(),
            b'?' => format!("{path}{location}"),
            _ => format!("{}/{location}", path.rsplit_once('/').map_or("", |(directory, _)| directory)),
        };
        Url::parse(&format!("{scheme}://{}{target}", self.authority()))
    }

    /// `host:port` as the `Host` header wants it.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }

    /// The last part of the path: what a file would be called.
    pub fn file_name(&self) -> Option<&str> {
        let path = self.target.split('?').next().unwrap_or("");
        path.rsplit('/').next().filter(|name| !name.is_empty() && *name != "." && *name != "..")
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.scheme == Scheme::Http { "http" } else { "https" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_as_written() {
        let url = Url::parse("http://[::1]:5201/download?size=1g#top").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.target.as_str()), ("::1", 5201, "/download?size=1g"));
        assert_eq!(url.to_string(), "http://[::1]:5201/download?size=1g");
        assert_eq!(Url::parse("example.org").unwrap().to_string(), "http://example.org/");
        assert_eq!(Url::parse("https://u:p@h?x").unwrap().authority(), "h");
        assert_eq!(Url::parse("http://h/a/b.iso?c").unwrap().file_name(), Some("b.iso"));
        assert_eq!(Url::parse("http://h/").unwrap().file_name(), None);
        assert_eq!(Url::parse("http://h/..").unwrap().file_name(), None);
    }

    #[test]
    fn bad_addresses_are_explained() {
        for text in [
            "ftp://h/",
            "http://",
            "http://h:99999/",
            "http://[::1/",
            "http://[[h]/",
            "http://h/a b",
            "http://h/\r\nX: y",
        ] {
            assert!(Url::parse(text).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn redirects_lead_where_they_say() {
        let url = Url::parse("http://h:81/a/b?c").unwrap();
        let to = |l| url.join(l).map(|u| u.to_string());
        assert_eq!(to("https://x/y").as_deref(), Ok("https://x/y"));
        assert_eq!(to("//x/y").as_deref(), Ok("http://x/y"));
        assert_eq!(to("/y").as_deref(), Ok("http://h:81/y"));
        assert_eq!(to("y").as_deref(), Ok("http://h:81/a/y"));
        assert_eq!(to("?z").as_deref(), Ok("http://h:81/a/b?z"));
        assert!(to("").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}", location in "\\PC{0,20}") {
            if let Ok(url) = Url::parse(&text) {
                let _ = (url.join(&location), url.file_name(), url.authority());
            }
        }
    }
}
