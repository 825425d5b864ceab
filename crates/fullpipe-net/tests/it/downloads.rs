//! `get` against the server's HTTP side: complete, resumed, verified and refused.

use crate::common::{NEVER, PATIENCE, Running};
use fullpipe_net::get::{self, Download, GetError, Request, Target};
use fullpipe_net::server::{self, Limits};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn fetch(request: &Request) -> Result<Download, GetError> {
    get::get(request, &AtomicBool::new(false), &mut |_| {})
}

fn url(server: &Running, what: &str) -> String {
    format!("http://127.0.0.1:{}{what}", server.address.port())
}

#[test]
fn an_interrupted_download_is_resumed_with_the_right_checksum() {
    let server = Running::start(server::Config::default());
    let whole =
        Request { target: Target::Memory, ..Request::new(url(&server, "/download?size=3000001&cc=reno")) };
    let whole = fetch(&whole).unwrap();
    let content = whole.content.unwrap();
    assert_eq!((content.len(), whole.controller.as_deref()), (3_000_001, Some("reno")));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
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
    assert_eq!(std::fs::read(&path).unwrap(), content);
    let again = Request { sha256: Some("0".repeat(64)), ..rest };
    assert_eq!(fetch(&again).unwrap().matches, Some(false), "nothing more to get, and not what was expected");
    assert_eq!(names(folder.path()), ["file"]);
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A server that sends these responses, one per connection, and keeps the requests.
fn scripted(answers: Vec<Vec<u8>>) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    std::thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && socket.read(&mut byte).unwrap_or(0) > 0 {
                request.push(byte[0]);
            }
            kept.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            let _ = socket.write_all(&answer);
        }
    });
    (port, requests)
}

fn to_file(port: u16, path: &std::path::Path) -> Request {
    let target = Target::File(path.to_path_buf());
    Request { target, timeout: PATIENCE, ..Request::new(format!("http://127.0.0.1:{port}/x")) }
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat()
}

/// All failures before the first byte, and an interrupted body.
#[test]
fn a_failed_download_does_not_touch_an_existing_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "precious").unwrap();
    let failing = [
        answer("404 Not Found\r\nContent-Length: 0", b""),
        answer("200 OK\r\nContent-Length: 10", b"abc"),
        answer("206 Partial Content\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 3", b"abc"),
        b"SSH-2.0\r\n\r\n".to_vec(),
        Vec::new(),
    ];
    for (resume, force) in [(false, true), (true, false), (true, true), (false, false)] {
        let count = failing.len();
        let (port, _) = scripted(failing.to_vec());
        for n in 0..count {
            let request = Request { resume, force, ..to_file(port, &path) };
            let error = fetch(&request).map(|d| d.bytes).unwrap_err();
            assert_eq!(std::fs::read(&path).unwrap(), b"precious", "{n}: {error}");
            let _ = std::fs::remove_file(folder.path().join("file.part"));
            let _ = std::fs::remove_file(folder.path().join("file.part.json"));
            if !resume && !force {
                assert!(matches!(error, GetError::Exists { .. }), "{error}");
                break;
            }
        }
        for host in ["127.0.0.1:1", "no-such-host.invalid"] {
            let request = Request { resume, force, url: format!("http://{host}/"), ..to_file(1, &path) };
            assert!(fetch(&request).is_err());
            assert_eq!(names(folder.path()), ["file"]);
        }
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_file_appears_when_complete_and_replaces_another_only_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let whole = answer("200 OK\r\nContent-Length: 5", b"whole");
    let (port, _) =
        scripted(vec![answer("200 OK\r\nContent-Length: 10", b"abc"), whole.clone(), whole.clone(), whole]);
    assert!(matches!(fetch(&to_file(port, &path)), Err(GetError::Broken { bytes: 3, .. })));
    assert_eq!(names(folder.path()), ["file.part", "file.part.json"]);
    assert!(matches!(fetch(&to_file(port, &path)), Err(GetError::Exists { .. })), "the part is kept");
    let forced = Request { force: true, ..to_file(port, &path) };
    assert_eq!(fetch(&forced).unwrap().file.as_deref(), Some(path.as_path()));
    assert_eq!(
        (names(folder.path()), std::fs::read(&path).unwrap()),
        (vec!["file".to_owned()], b"whole".to_vec())
    );
    std::fs::write(&path, "another").unwrap();
    assert!(matches!(fetch(&to_file(port, &path)), Err(GetError::Exists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"another");
    fetch(&forced).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    let mismatch = Request { sha256: Some("0".repeat(64)), ..to_file(port, &folder.path().join("other")) };
    let kept = fetch(&mismatch).unwrap();
    assert_eq!((kept.matches, kept.file), (Some(false), Some(folder.path().join("other.part"))));
}

#[test]
fn a_download_is_resumed_only_with_the_same_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let resume = |port| Request { resume: true, ..to_file(port, &path) };
    let first = answer("200 OK\r\nETag: \"one\"\r\nContent-Length: 10", b"01234");
    let rest = answer("206 P\r\nETag: \"one\"\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5", b"56789");
    let (port, requests) = scripted(vec![first.clone(), rest]);
    fetch(&to_file(port, &path)).unwrap_err();
    assert_eq!(fetch(&resume(port)).unwrap().resumed_at, 5);
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
    let asked = requests.lock().unwrap()[1].clone();
    assert!(asked.contains("Range: bytes=5-\r\nIf-Range: \"one\"\r\n"), "{asked}");

    // Another version: in full, or as a part despite If-Range.
    let new = answer("200 OK\r\nETag: \"two\"\r\nContent-Length: 4", b"NEW!");
    let part = answer("206 P\r\nETag: \"two\"\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5", b"56789");
    let longer = answer("206 P\r\nContent-Range: bytes 5-10/11\r\nContent-Length: 6", b"56789A");
    let shorter = answer("416 R\r\nContent-Range: bytes */4\r\nContent-Length: 0", b"");
    for answers in [vec![], vec![part], vec![longer], vec![shorter]] {
        std::fs::remove_file(&path).unwrap();
        let (port, _) = scripted([vec![first.clone()], answers, vec![new.clone()]].concat());
        fetch(&to_file(port, &path)).unwrap_err();
        assert_eq!(fetch(&resume(port)).unwrap().resumed_at, 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"NEW!");
        assert_eq!(names(folder.path()), ["file"]);
    }

    // A file of another program is resumed only if unchanged since, and never overwritten.
    std::fs::write(&path, "01234").unwrap();
    let (port, requests) =
        scripted(vec![new.clone(), answer("412 P\r\nContent-Length: 0", b""), new.clone()]);
    assert!(matches!(fetch(&resume(port)), Err(GetError::Changed { .. })));
    assert!(matches!(fetch(&resume(port)), Err(GetError::Changed { .. })));
    assert!(requests.lock().unwrap()[0].contains("If-Unmodified-Since: "));
    assert_eq!(std::fs::read(&path).unwrap(), b"01234");
    assert_eq!(fetch(&Request { force: true, ..resume(port) }).unwrap().bytes, 4);
}

#[test]
fn unexpected_or_invalid_ranges_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for wrong in [
        "Content-Range: bytes 4-9/10\r\nContent-Length: 6",
        "Content-Range: bytes 5-8/10\r\nContent-Length: 4",
        "Content-Range: bytes 5-9/10\r\nContent-Length: 6",
        "Content-Range: bytes 9-5/10\r\nContent-Length: 5",
        "Content-Range: bytes */10\r\nContent-Length: 5",
        "Content-Type: multipart/byteranges; boundary=x\r\nContent-Length: 5",
    ] {
        std::fs::write(&path, "01234").unwrap();
        let (port, _) = scripted(vec![answer(&format!("206 P\r\n{wrong}"), b"56789X")]);
        let error = fetch(&Request { resume: true, ..to_file(port, &path) }).unwrap_err();
        assert!(matches!(error, GetError::NotHttp(_)), "{wrong}: {error}");
        assert_eq!(
            (std::fs::read(&path).unwrap(), names(folder.path())),
            (b"01234".to_vec(), vec!["file".to_owned()])
        );
    }
    std::fs::remove_file(&path).unwrap();
    let (port, _) =
        scripted(vec![answer("206 P\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5", b"01234")]);
    assert!(fetch(&to_file(port, &path)).unwrap_err().to_string().contains("206"));
    assert!(names(folder.path()).is_empty());
    // More and fewer bytes than the range.
    for body in ["5\r\n56789\r\n1\r\nX\r\n0\r\n\r\n", "4\r\n5678\r\n0\r\n\r\n"] {
        std::fs::write(&path, "01234").unwrap();
        let head = "206 P\r\nContent-Range: bytes 5-9/10\r\nTransfer-Encoding: chunked";
        let (port, _) = scripted(vec![answer(head, body.as_bytes())]);
        let error = fetch(&Request { resume: true, ..to_file(port, &path) }).unwrap_err();
        assert!(matches!(error, GetError::Broken { .. }), "{error}");
        std::fs::remove_file(folder.path().join("file.part")).unwrap();
    }
}

#[test]
fn links_are_not_followed_and_special_files_are_handled() {
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("file"), folder.path().join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    let part = folder.path().join("file.part");
    std::os::unix::fs::symlink(&victim, &part).unwrap();
    for (resume, force) in [(false, false), (true, false), (false, true)] {
        let rest = answer("206 P\r\nContent-Range: bytes 8-9/10\r\nContent-Length: 2", b"XX");
        let all = answer("200 OK\r\nContent-Length: 2", b"XX");
        let (port, _) = scripted(vec![if resume { rest } else { all }]);
        let result = fetch(&Request { resume, force, ..to_file(port, &path) });
        assert_eq!(result.is_ok(), force);
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }
    let (port, _) = scripted(vec![answer("200 OK\r\nContent-Length: 2", b"XX")]);
    let full = fetch(&to_file(port, &PathBuf::from("/dev/full"))).unwrap_err();
    assert!(full.to_string().contains("No space left"), "{full}");
    let (port, _) = scripted(vec![answer("200 OK\r\nContent-Length: 2", b"XX")]);
    assert_eq!(fetch(&to_file(port, &PathBuf::from("/dev/null"))).unwrap().bytes, 2);
    assert!(fetch(&to_file(port, folder.path())).is_err(), "a folder");
}

#[test]
fn a_token_is_sent_to_its_origin_only() {
    let (third, at_third) = scripted(vec![answer("200 OK\r\nContent-Length: 0", b"")]);
    let (second, at_second) =
        scripted(vec![answer(&format!("302 F\r\nLocation: http://127.0.0.1:{third}/back"), b"")]);
    let (first, at_first) = scripted(vec![
        answer("307 T\r\nLocation: /same", b""),
        answer(&format!("302 F\r\nLocation: http://127.0.0.1:{second}/"), b""),
    ]);
    let request =
        Request { token: Some("hunter2".into()), ..Request::new(format!("http://127.0.0.1:{first}/x")) };
    assert_eq!(fetch(&request).unwrap().bytes, 0);
    let has_token = |requests: &Mutex<Vec<String>>| -> Vec<bool> {
        requests.lock().unwrap().iter().map(|r| r.contains("hunter2")).collect()
    };
    assert_eq!(
        (has_token(&at_first), has_token(&at_second), has_token(&at_third)),
        (vec![true, true], vec![false], vec![false])
    );
}

#[test]
fn server_text_cannot_control_a_terminal() {
    let (port, _) = scripted(vec![
        answer(
            "500 \x1b[2J\u{9b}31m\r\nContent-Length: 30",
            "\x1b]0;owned\x07\u{9b}5m\u{202e}text".as_bytes(),
        ),
        answer("302 F\r\nLocation: gopher://\x1b[2J", b""),
        answer("200 OK\r\nTransfer-Encoding: \u{9b}2J", b""),
        answer("200 OK\r\nX-Fullpipe-Controller: \u{9b}2Jbbr\r\nContent-Length: 0", b""),
    ]);
    for _ in 0..3 {
        let error = fetch(&Request::new(format!("http://127.0.0.1:{port}/"))).unwrap_err().to_string();
        assert!(!error.contains(|c: char| c.is_control() || c == '\u{202e}'), "{error:?}");
    }
    let controller = fetch(&Request::new(format!("http://127.0.0.1:{port}/"))).unwrap().controller.unwrap();
    assert!(controller.ends_with("bbr") && !controller.contains('\u{9b}'), "{controller:?}");
}

#[test]
fn an_interrupt_ends_a_download_at_any_step() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // In turn: nothing after connecting, half a head, a head, a chunk size.
    let said: [&[u8]; 4] = [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n",
    ];
    for bytes in said {
        let interrupt = AtomicBool::new(false);
        let request = Request { timeout: NEVER, ..Request::new(format!("http://127.0.0.1:{port}/")) };
        std::thread::scope(|s| {
            let running = s.spawn(|| get::get(&request, &interrupt, &mut |_| {}));
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(bytes).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let began = Instant::now();
            interrupt.store(true, Ordering::Relaxed);
            let result = running.join().unwrap();
            assert!(matches!(result, Err(GetError::Interrupted { .. })), "{result:?}");
            assert!(began.elapsed() < PATIENCE, "of a time-out of {NEVER:?}");
        });
    }
}

#[test]
fn refusals_give_the_reason() {
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
