//! The page of `GET /` in a browser: downloads by one controller and another in turn, and round trips under load.
//!
//! It is the same for everyone and says nothing of the server. All it does it does by requests that anybody may make, within the same
//! limits and with the same secret, so strangers can do nothing by it that they could not do without. Where a secret is wanted it is
//! the body of the 401, for someone has to ask for the secret; what is typed stays in the page's memory and goes nowhere but here.

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

/// Nothing from elsewhere, requests to this server alone, and in no other page's frame, where a click might be another's wish.
const FIELDS: &str = "Content-Type: text/html; charset=utf-8\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\nVary: Accept\r\n";

/// Whether a request is a browser's that was led to this server.
pub(super) fn is_asked_for(request: &RequestHead) -> bool {
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
