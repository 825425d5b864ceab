//! The speed test page of `GET /` in a browser: alternating downloads with two controllers, and RTT
//! under load.
//!
//! The page is static and reveals nothing about the server. It only makes requests that any client
//! may make, within the same limits and with the same secret. If a secret is required, the page is
//! the body of the 401 response, since it has to ask for the secret, which stays in the page's
//! memory and is sent to this server only.

use super::Next;
use super::connection::Connection;
use crate::http::RequestHead;
use std::io;
use std::sync::LazyLock;

static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page.html")
        .replace("{{style}}", include_str!("page.css"))
        .replace("{{script}}", include_str!("page.js"))
});

/// No external resources, requests to this server only, and no framing by other pages
/// (clickjacking).
const FIELDS: &str = "Content-Type: text/html; charset=utf-8\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    img-src data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\nVary: \
    Accept\r\n";

/// Whether a request comes from a browser's address bar.
pub(super) fn is_requested(request: &RequestHead) -> bool {
    request.wants_page && request.path == "/" && matches!(request.method.as_str(), "GET" | "HEAD")
}

pub(super) fn serve(
    connection: &Connection<'_>,
    request: &RequestHead,
    status: &str,
    field: &str,
) -> io::Result<Next> {
    connection.answer(request, status, &format!("{field}{FIELDS}"), &PAGE)
}
