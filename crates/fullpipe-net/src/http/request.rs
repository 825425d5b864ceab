//! Requests (RFC 9112 section 3).

use super::fields::Fields;
use super::{Framing, MessageError};
use url::{Url, form_urlencoded};

/// Maximum number of fields.
const MAX_FIELDS: usize = 64;

/// The head of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestHead {
    /// Method, as sent.
    pub method: String,
    /// Path, as sent, without the query.
    pub path: String,
    /// Query parameters, decoded.
    pub query: Vec<(String, String)>,
    /// Framing of the body; [`Framing::Length`] of 0 without a body.
    pub framing: Framing,
    /// Whether the request has explicit framing.
    pub framed: bool,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
    /// `Range`.
    pub range: Option<String>,
    /// `If-Range`.
    pub if_range: Option<String>,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// Whether `Accept` names `text/html`, as browsers do and programs do not.
    pub wants_page: bool,
    /// Whether a page of another site makes the request.
    pub cross_site: bool,
    /// `Host`.
    pub host: Option<String>,
    /// Whether the connection closes after the response.
    pub close: bool,
}

impl RequestHead {
    /// Parses a complete head and returns it with its length; `None` if incomplete.
    ///
    /// # Errors
    /// If it is not HTTP/1.1 or is ambiguous.
    pub fn parse(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, MessageError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Request::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(MessageError::Fields(MAX_FIELDS)),
            Err(e) => return Err(MessageError::malformed(format!("not HTTP/1.1: {e}"))),
        };
        // The parser accepts a lone LF as line end, as permitted (RFC 9112 section 2.2); others do
        // not.
        let mut before = 0;
        for &byte in &bytes[..length] {
            if byte == b'\n' && before != b'\r' {
                return Err(MessageError::malformed("line without CR LF"));
            }
            before = byte;
        }
        let version = head.version.unwrap_or(0);
        let fields = Fields::read(head.headers);
        let method = head.method.unwrap_or("").to_owned();
        if version >= 1 && fields.only("host")?.is_none() {
            return Err(MessageError::malformed("missing `Host` field"));
        }
        let framing = fields.framing(version)?;
        // A body of these methods has no defined meaning (RFC 9110 section 9.3.1), and a reader
        // that ignores it takes it for the next request.
        let bodiless = matches!(method.as_str(), "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE");
        if bodiless && !matches!(framing, None | Some(Framing::Length(0))) {
            return Err(MessageError::malformed(format!("{method} with a body")));
        }
        let (path, query) = target(head.path.unwrap_or(""), &method)?;
        let expects_continue = match fields.only("expect")? {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("100-continue") => true,
            Some(text) => return Err(MessageError::Expectation(text.to_owned())),
        };
        let text = |name| fields.only(name).map(|v| v.map(str::to_owned));
        let request = RequestHead {
            path: path.to_owned(),
            query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            framing: framing.unwrap_or(Framing::Length(0)),
            framed: framing.is_some(),
            expects_continue: expects_continue && version >= 1,
            host: text("host")?,
            range: text("range")?,
            if_range: text("if-range")?,
            authorization: text("authorization")?,
            wants_page: fields.list("accept").any(|kind| {
                kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("text/html"))
            }),
            cross_site: cross_site(&fields)?,
            close: fields.list_contains("connection", "close")
                || (version == 0 && !fields.list_contains("connection", "keep-alive")),
            method,
        };
        Ok(Some((request, length)))
    }

    /// The first query parameter with this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
}

/// Whether a browser says that a page of another site makes the request: by `Sec-Fetch-Site`, which
/// browsers send to HTTPS and loopback addresses only (Fetch Metadata section 3), and otherwise by an
/// `Origin` or `Referer` that differs from `Host`. Pages cannot set these fields.
pub(super) fn cross_site(fields: &Fields) -> Result<bool, MessageError> {
    let mut sites = fields.list("sec-fetch-site").peekable();
    if sites.peek().is_some() {
        return Ok(
            sites.any(|site| !site.eq_ignore_ascii_case("same-origin") && !site.eq_ignore_ascii_case("none"))
        );
    }
    let host = fields.only("host")?.and_then(|host| Url::parse(&format!("http://{host}/")).ok());
    let differs = |source: &str| {
        // `null`, an opaque origin, does not parse.
        let source = Url::parse(source).ok();
        let authority =
            |url: &Option<Url>| url.as_ref().and_then(|u| Some((u.host_str()?.to_owned(), u.port())));
        authority(&source).is_none() || authority(&source) != authority(&host)
    };
    // A client without a referrer may send an empty one or `about:blank` (RFC 9110 section 10.1.3).
    let referer = fields.only("referer")?.filter(|text| !matches!(text.trim(), "" | "about:blank"));
    let sources = [fields.only("origin")?, referer];
    Ok(sources.into_iter().flatten().any(differs))
}

/// Path and query of a request target (RFC 9112 section 3.2).
fn target<'a>(target: &'a str, method: &str) -> Result<(&'a str, &'a str), MessageError> {
    let scheme = target.get(..7).filter(|s| s.eq_ignore_ascii_case("http://"));
    let local = match scheme {
        // The absolute form, which every server must accept.
        Some(_) => target[7..].find(['/', '?']).map_or("/", |at| &target[7 + at..]),
        None if target.starts_with('/') || (target == "*" && method == "OPTIONS") => target,
        None => return Err(MessageError::malformed("the request target is not a path")),
    };
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    Ok((if path.is_empty() { "/" } else { path }, query))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<RequestHead, MessageError> {
        RequestHead::parse(text.as_bytes()).map(|parsed| parsed.expect("a whole head").0)
    }

    #[test]
    fn requests_are_parsed() {
        let head = b"GET /download?size=1g&cc=bbr&x=%41+b HTTP/1.1\r\nHost: h\r\nRange: \
            bytes=5-\r\nConnection: x, Close\r\n\r\nrest";
        let Ok(Some((request, length))) = RequestHead::parse(head) else { panic!("not understood") };
        assert_eq!(&head[length..], b"rest");
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/download"));
        assert_eq!(request.parameter("size"), Some("1g"));
        assert_eq!(request.parameter("x"), Some("A b"));
        assert!(request.close && !request.framed && !request.wants_page);
        let accepting =
            |kinds| parse(&format!("GET / HTTP/1.1\r\nHost: h\r\nAccept: {kinds}\r\n\r\n")).unwrap();
        assert!(accepting("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8").wants_page);
        assert!(accepting("text/css, Text/HTML;q=0.9").wants_page);
        assert!(!accepting("*/*").wants_page && !accepting("text/*, application/json").wants_page);
        assert_eq!(RequestHead::parse(b"GET / HTTP/1.1\r\n"), Ok(None));
        assert_eq!(parse("GET http://h:5201?a=b HTTP/1.1\r\nHost: h\r\n\r\n").unwrap().path, "/");
        assert!(parse("GET / HTTP/1.0\r\n\r\n").unwrap().close);
        let chunked = parse("PUT /upload HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap();
        assert_eq!(chunked.framing, Framing::Chunked);
    }

    /// As Chromium and Firefox send them to plain-HTTP addresses other than loopback, where
    /// `Sec-Fetch-Site` is missing.
    #[test]
    fn requests_of_other_sites_are_recognised_without_fetch_metadata() {
        let from = |fields: &str| {
            let head =
                format!("POST /upload HTTP/1.1\r\nHost: 192.0.2.2:5201\r\n{fields}Content-Length: 0\r\n\r\n");
            parse(&head).unwrap().cross_site
        };
        for other in [
            "Origin: http://192.0.2.1:5201\r\nReferer: http://192.0.2.1:5201/\r\n",
            "Origin: http://192.0.2.2\r\n",
            "Origin: http://192.0.2.2:15201\r\n",
            "Origin: https://evil.example\r\n",
            "Referer: http://evil.example/\r\n",
            // A sandboxed page, a file or `Referrer-Policy: no-referrer`.
            "Origin: null\r\n",
            "Origin: http://192.0.2.2:5201\r\nSec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: same-site\r\n",
        ] {
            assert!(from(other), "{other}");
        }
        for own in [
            "",
            "Referer: \r\n",
            "Referer: about:blank\r\n",
            "Origin: http://192.0.2.2:5201\r\nReferer: http://192.0.2.2:5201/\r\n",
            // A reverse proxy that changes `Host`.
            "Origin: https://speed.example\r\nSec-Fetch-Site: same-origin\r\n",
        ] {
            assert!(!from(own), "{own}");
        }
        let named =
            parse("GET /x HTTP/1.1\r\nHost: Speed.example:80\r\nReferer: http://speed.example/a\r\n\r\n");
        assert!(!named.unwrap().cross_site);
    }

    /// RFC 9112 sections 2.2, 3.2, 5.1, 5.2, 6.1 and 6.3.
    #[test]
    fn ambiguous_requests_are_refused() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: -1",
            "Content-Length: 0x5",
            "Content-Length: 5 5",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding:",
            "Transfer-Encoding : chunked",
            "Host: other",
            "Range: bytes=0-\r\nRange: bytes=1-",
            "X: a\r\n b",
            "X: a\nY: b",
            "X: a\rb",
            "X\0: a",
        ] {
            let error = parse(&format!("PUT /upload HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n")).unwrap_err();
            assert!(matches!(error, MessageError::Malformed(_)), "{fields:?}: {error:?}");
        }
        assert!(parse("PUT /upload HTTP/1.1\r\nContent-Length: 5\r\n\r\n").is_err(), "no host");
        assert!(parse("PUT /upload HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(parse("GET upload HTTP/1.1\r\nHost: h\r\n\r\n").is_err());
    }

    #[test]
    fn bodies_of_bodiless_methods_are_refused() {
        for method in ["GET", "HEAD", "DELETE"] {
            let with = |field| parse(&format!("{method} / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n"));
            assert!(with("Content-Length: 5").is_err() && with("Transfer-Encoding: chunked").is_err());
            assert!(with("Content-Length: 0").is_ok());
        }
    }

    #[test]
    fn unsupported_features_are_named() {
        let with = |field| parse(&format!("PUT / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n")).unwrap_err();
        assert_eq!(with("Transfer-Encoding: gzip"), MessageError::Coding("gzip".into()));
        assert_eq!(with("Expect: money"), MessageError::Expectation("money".into()));
        assert_eq!(with(&"a: b\r\n".repeat(70)), MessageError::Fields(64));
    }

    proptest! {
        #[test]
        fn arbitrary_heads_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            text in "(GET|PUT) /[ -~]{0,40} HTTP/1\\.[01]\r\n([a-zA-Z-]{1,20}: ?[ -~]{0,20}\r\n){0,5}\r\n") {
            let _ = RequestHead::parse(&bytes);
            let _ = RequestHead::parse(text.as_bytes());
        }
    }
}
