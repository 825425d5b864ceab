//! The configuration object of a server (draft section 5.1).

use crate::printable::line;
use serde::Deserialize;
use url::Url;

/// The addresses of a server's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Data without end.
    pub large: Url,
    /// One byte.
    pub small: Url,
    /// Where to send.
    pub upload: Url,
    /// The host to connect to instead of that in the URLs.
    pub test_endpoint: Option<String>,
}

/// Why a configuration object is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// Not the object of the draft; fields that are missing or occur twice count as that.
    #[error("{0}")]
    Malformed(String),
    /// A version of later drafts.
    #[error("version {0} is not supported, only version 1")]
    Version(u64),
    /// A URL that no test can use.
    #[error("{name} is not an https:// URL: {url}")]
    Url {
        /// The field.
        name: &'static str,
        /// Its value.
        url: String,
    },
    /// Probes must be multiplexed with the load.
    #[error("its URLs are of different hosts or ports")]
    Hosts,
}

/// Other fields are ignored, as the draft demands.
#[derive(Deserialize)]
struct Object {
    version: u64,
    urls: Urls,
    test_endpoint: Option<String>,
}

#[derive(Deserialize)]
struct Urls {
    large_download_url: String,
    small_download_url: String,
    upload_url: String,
}

impl Configuration {
    /// Parses the body of a response.
    ///
    /// # Errors
    /// If the draft requires to ignore the object, or if it has URLs without TLS.
    pub fn parse(body: &[u8]) -> Result<Configuration, ConfigurationError> {
        let object: Object = serde_json::from_slice(body)
            .map_err(|e| ConfigurationError::Malformed(line(&e.to_string()).into_owned()))?;
        if object.version != 1 {
            return Err(ConfigurationError::Version(object.version));
        }
        let url = |name, text: String| match Url::parse(&text) {
            Ok(url) if url.scheme() == "https" && url.has_host() => Ok(url),
            _ => Err(ConfigurationError::Url { name, url: line(&text).into_owned() }),
        };
        let large = url("large_download_url", object.urls.large_download_url)?;
        let small = url("small_download_url", object.urls.small_download_url)?;
        let upload = url("upload_url", object.urls.upload_url)?;
        if large.origin() != small.origin() || large.origin() != upload.origin() {
            return Err(ConfigurationError::Hosts);
        }
        Ok(Configuration { large, small, upload, test_endpoint: object.test_endpoint })
    }

    /// Whether the URLs choose a congestion controller, as those of `fullpipe serve` do on request.
    pub fn chooses(&self, controller: &str) -> bool {
        [&self.large, &self.small, &self.upload]
            .iter()
            .all(|url| url.query_pairs().any(|(name, value)| name == "cc" && value == controller))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: &str = r#""urls": {"large_download_url": "https://h:1/l",
        "small_download_url": "https://h:1/s", "upload_url": "https://h:1/u"}"#;

    fn parse(text: &str) -> Result<Configuration, String> {
        Configuration::parse(text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn unknown_names_are_ignored_and_the_endpoint_is_optional() {
        let found = parse(&format!(r#"{{"version": 1, "x": [], {URLS}, "test_endpoint": "e"}}"#)).unwrap();
        assert_eq!((found.small.as_str(), found.test_endpoint.as_deref()), ("https://h:1/s", Some("e")));
        assert_eq!(parse(&format!(r#"{{"version": 1, {URLS}}}"#)).unwrap().test_endpoint, None);
    }

    #[test]
    fn what_the_draft_ignores_is_refused() {
        for text in [
            String::new(),
            "[]".to_owned(),
            format!("{{{URLS}}}"),
            r#"{"version": 1}"#.to_owned(),
            format!(r#"{{"version": 1, {URLS}, {URLS}}}"#),
            format!(r#"{{"version": 1, "version": 1, {URLS}}}"#),
            format!(r#"{{"version": 1, {URLS}, "test_endpoint": "a", "test_endpoint": "b"}}"#),
            format!(r#"{{"version": "1", {URLS}}}"#),
        ] {
            assert!(parse(&text).is_err(), "{text}");
        }
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            error(&format!(r#"{{"version": 2, {URLS}}}"#)),
            "version 2 is not supported, only version 1"
        );
        let other = URLS.replace("https://h:1/u", "https://i:1/u");
        assert_eq!(
            error(&format!(r#"{{"version": 1, {other}}}"#)),
            "its URLs are of different hosts or ports"
        );
        let escape = URLS.replace("https://h:1/s", "\\u001b[2J");
        assert_eq!(
            error(&format!(r#"{{"version": 1, {escape}}}"#)),
            r"small_download_url is not an https:// URL: \u{1b}[2J"
        );
        let plain = URLS.replace("https://h:1/s", "http://h:1/s");
        assert_eq!(
            error(&format!(r#"{{"version": 1, {plain}}}"#)),
            "small_download_url is not an https:// URL: http://h:1/s"
        );
    }
}
