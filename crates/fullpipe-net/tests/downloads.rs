//! `get` against our server's HTTP side: whole, in pieces, checked, and refused.

mod common;

use common::Running;
use fullpipe_net::get::{self, Download, GetError, Request, Target};
use fullpipe_net::server::{self, Limits};
use sha2::{Digest, Sha256};
use std::sync::atomic::AtomicBool;

fn fetch(request: &Request) -> Result<Download, GetError> {
    get::get(request, &AtomicBool::new(false), &mut |_| {})
}

fn url(server: &Running, what: &str) -> String {
    format!("http://127.0.0.1:{}{what}", server.address.port())
}

#[test]
fn a_download_broken_off_is_resumed_and_has_the_checksum_of_the_whole() {
    let server = Running::start(server::Config::default());
    let whole =
        Request { target: Target::Memory, ..Request::new(url(&server, "/download?size=3000001&cc=reno")) };
    let whole = fetch(&whole).unwrap();
    let content = whole.content.unwrap();
    assert_eq!((content.len(), whole.controller.as_deref()), (3_000_001, Some("reno")));

    let path = std::env::temp_dir().join(format!("fullpipe-resume-{}", std::process::id()));
    std::fs::write(&path, &content[..1_234_567]).unwrap();
    let sha256: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
    let rest = Request {
        target: Target::File(path.clone()),
        resume: true,
        sha256: Some(sha256),
        ..Request::new(url(&server, "/download?size=3000001"))
    };
    let resumed = fetch(&rest).unwrap();
    assert_eq!((resumed.resumed_at, resumed.bytes, resumed.matches), (1_234_567, 1_765_434, Some(true)));
    let again = Request { sha256: Some("0".repeat(64)), ..rest };
    let complete = fetch(&again);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(complete.unwrap().matches, Some(false), "nothing more to get, and not what was expected");
}

#[test]
fn refusals_say_why() {
    let limits = Limits { bytes: Some(1000), ..Limits::default() };
    let server =
        Running::start(server::Config { limits, secret: Some("hunter2".into()), ..Default::default() });
    let said = |what: &str, token: Option<&str>| {
        let request = Request { token: token.map(str::to_owned), ..Request::new(url(&server, what)) };
        fetch(&request).map(|d| d.bytes).map_err(|e| e.to_string())
    };
    assert_eq!(said("/download?size=1000", Some("hunter2")), Ok(1000));
    for (what, token, why) in [
        ("/download?size=1000", None, "401"),
        ("/download?size=1000", Some("hunter3"), "401"),
        ("/download?size=1001", Some("hunter2"), "at most 1000 bytes"),
        ("/download?size=1&cc=nosuchcc", Some("hunter2"), "nosuchcc"),
        ("/nothing", Some("hunter2"), "404"),
    ] {
        let error = said(what, token).unwrap_err();
        assert!(error.contains(why), "{what}: {error}");
    }
}
