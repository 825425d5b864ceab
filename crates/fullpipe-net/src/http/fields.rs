//! Header fields (RFC 9110 section 5).

use super::{Framing, MessageError};

/// Lower-case names with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn read(headers: &[httparse::Header<'_>]) -> Fields {
        let value = |bytes| String::from_utf8_lossy(bytes).trim_matches([' ', '\t']).to_owned();
        Fields(headers.iter().map(|h| (h.name.to_ascii_lowercase(), value(h.value))).collect())
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first field with this name.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The field with this name, which may occur only once.
    pub fn only(&self, name: &str) -> Result<Option<&str>, MessageError> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (value, None) => Ok(value),
            _ => Err(MessageError::malformed(format!("duplicate field `{name}`"))),
        }
    }

    /// The elements of a list over all fields with this name (RFC 9110 section 5.6.1).
    pub fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.all(name)
            .flat_map(|v| v.split(','))
            .map(|e| e.trim_matches([' ', '\t']))
            .filter(|e| !e.is_empty())
    }

    /// Whether a list contains an element, ignoring case.
    pub fn list_contains(&self, name: &str, element: &str) -> bool {
        self.list(name).any(|e| e.eq_ignore_ascii_case(element))
    }

    /// The body's framing according to the fields (RFC 9112 section 6.3).
    pub fn framing(&self, version: u8) -> Result<Option<Framing>, MessageError> {
        let length = self.only("content-length")?;
        let coded = self.first("transfer-encoding").is_some();
        let mut codings = self.list("transfer-encoding");
        match (length, coded) {
            (None, false) => Ok(None),
            (Some(text), false) => number(text)
                .map(|n| Some(Framing::Length(n)))
                .ok_or_else(|| MessageError::malformed("Content-Length is not a number")),
            (Some(_), true) => Err(MessageError::malformed("Content-Length together with Transfer-Encoding")),
            // RFC 9112 section 6.1: such a message is faulty.
            (None, true) if version == 0 => Err(MessageError::malformed("Transfer-Encoding in HTTP/1.0")),
            (None, true) => match (codings.next(), codings.next()) {
                (Some(one), None) if one.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
                (Some(one), None) => Err(MessageError::Coding(one.to_owned())),
                _ => Err(MessageError::malformed("Transfer-Encoding is not one coding")),
            },
        }
    }
}

/// Decimal digits only: no sign, space or second value.
pub(super) fn number(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}
