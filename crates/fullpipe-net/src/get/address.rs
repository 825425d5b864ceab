//! Download URLs (WHATWG URL), and the origins a secret may be sent to.

use crate::printable;
use url::Url;

/// Parses `http://host:port/path?query`. Without a scheme, `http` is assumed, as wget does.
///
/// # Errors
/// What is wrong.
pub fn address(text: &str) -> Result<Url, String> {
    let wrong = |why: &str| format!("`{}`: {why}", printable::line(text));
    if text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return Err(wrong("spaces and control characters must be percent-encoded"));
    }
    let parsed = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    let url = parsed.map_err(|e| wrong(&e.to_string()))?;
    usable(&url).map_err(|why| wrong(&why))?;
    Ok(url)
}

/// Resolves a redirect from `from` to `location` (RFC 3986 section 5). A redirect from https to
/// http is refused.
///
/// # Errors
/// If the target is invalid or leaves https.
pub(super) fn redirected(from: &Url, location: &str) -> Result<Url, String> {
    let wrong = |why: &str| format!("{from} redirects to `{}`: {why}", printable::line(location));
    if location.is_empty() {
        return Err(wrong("the location is empty"));
    }
    let to = from.join(location).map_err(|e| wrong(&e.to_string()))?;
    usable(&to).map_err(|why| wrong(&why))?;
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err(wrong("refusing to leave https"));
    }
    Ok(to)
}

fn usable(url: &Url) -> Result<(), String> {
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(()),
        "http" | "https" => Err("the URL has no host".to_owned()),
        _ => Err("only http and https are supported".to_owned()),
    }
}

/// The last path segment: the default file name.
pub fn file_name(url: &Url) -> Option<&str> {
    url.path_segments()?.next_back().filter(|name| !name.is_empty())
}

/// Host name or address, without the brackets of IPv6, and port.
pub(super) fn host_and_port(url: &Url) -> (String, u16) {
    let host = match url.host() {
        Some(url::Host::Domain(name)) => name.to_owned(),
        Some(url::Host::Ipv4(ip)) => ip.to_string(),
        Some(url::Host::Ipv6(ip)) => ip.to_string(),
        None => String::new(),
    };
    (host, url.port_or_known_default().unwrap_or(80))
}

/// The value of the `Host` field (RFC 9110 section 7.2).
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The request target.
pub(super) fn target(url: &Url) -> String {
    url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
}

/// A bearer token for the origin (scheme, host and port; RFC 6454) it was given for.
///
/// After a redirect to another origin the token is dropped for good, because that origin controls
/// all further redirects.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    token: Option<String>,
    origin: url::Origin,
}

impl Credentials {
    pub fn new(token: Option<&str>, url: &Url) -> Result<Credentials, String> {
        // RFC 6750 section 2.1 allows less; what matters is that the token cannot end the line.
        if token.is_some_and(|t| t.is_empty() || !t.bytes().all(|b| b.is_ascii_graphic())) {
            return Err("the secret must consist of visible ASCII characters to be sent over HTTP".to_owned());
        }
        Ok(Credentials { token: token.map(str::to_owned), origin: url.origin() })
    }

    /// The token, if it may be sent to this URL.
    pub fn token_for(&mut self, url: &Url) -> Option<&str> {
        if url.origin() != self.origin {
            self.token = None;
        }
        self.token.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_as_written() {
        let url = address("http://[::1]:5201/download?size=1g#top").unwrap();
        assert_eq!(host_and_port(&url), ("::1".to_owned(), 5201));
        assert_eq!((authority(&url).as_str(), target(&url).as_str()), ("[::1]:5201", "/download?size=1g"));
        assert_eq!(address("example.org").unwrap().to_string(), "http://example.org/");
        assert_eq!(address("localhost:5201/x").unwrap().to_string(), "http://localhost:5201/x");
        assert_eq!(authority(&address("https://u:p@h?x").unwrap()), "h");
        assert_eq!(file_name(&address("http://h/a/b.iso?c").unwrap()), Some("b.iso"));
        assert_eq!(file_name(&address("http://h/").unwrap()), None);
        assert_eq!(file_name(&address("http://h/a/..").unwrap()), None);
        assert_eq!(
            file_name(&address("http://h/a%2fb").unwrap()),
            Some("a%2fb"),
            "cannot escape into a directory"
        );
    }

    #[test]
    fn bad_addresses_are_explained() {
        for text in ["ftp://h/", "http://", "http://h:99999/", "http://[::1/", "http://[[h]/", "http://h/a b"]
        {
            assert!(address(text).unwrap_err().contains(text), "{text}");
        }
        assert!(address("http://h/\r\nX: y").unwrap_err().contains("\\r\\n"));
    }

    #[test]
    fn redirects_are_resolved() {
        let url = address("http://h:81/a/b?c").unwrap();
        let to = |l| redirected(&url, l).map(|u| u.to_string());
        assert_eq!(to("https://x/y").as_deref(), Ok("https://x/y"));
        assert_eq!(to("//x/y").as_deref(), Ok("http://x/y"));
        assert_eq!(to("/y").as_deref(), Ok("http://h:81/y"));
        assert_eq!(to("y").as_deref(), Ok("http://h:81/a/y"));
        assert_eq!(to("?z").as_deref(), Ok("http://h:81/a/b?z"));
        assert!(to("").is_err() && to("file:///etc/passwd").is_err());
        let safe = address("https://h/").unwrap();
        assert!(redirected(&safe, "https://x/").is_ok());
        assert!(redirected(&safe, "http://h/").unwrap_err().contains("https"));
    }

    #[test]
    fn a_token_stays_with_its_origin() {
        let url = |text| address(text).unwrap();
        let start = url("http://h:81/a");
        let token = || Credentials::new(Some("hunter2"), &start).unwrap();
        assert_eq!(token().token_for(&url("http://h:81/b")), Some("hunter2"));
        for elsewhere in ["http://h:82/", "http://x:81/", "https://h:81/", "http://h/"] {
            let mut token = token();
            assert_eq!(token.token_for(&url(elsewhere)), None, "{elsewhere}");
            assert_eq!(token.token_for(&start), None, "back from {elsewhere}");
        }
        assert!(Credentials::new(Some("a\r\nX: b"), &start).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}", location in "\\PC{0,20}") {
            if let Ok(url) = address(&text) {
                let _ = (redirected(&url, &location), file_name(&url), authority(&url), target(&url));
            }
        }
    }
}
