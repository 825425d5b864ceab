//! Pages of a server in a real browser in real time, unlike files in virtual time
//! ([`crate::browse`]).

use crate::browser::chromium;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Timeout for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// Browser window and colour scheme.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Width in points.
    pub width: u32,
    /// Height in points; a picture contains the whole page.
    pub height: u32,
    /// Whether the system prefers dark pages.
    pub dark: bool,
    /// Path for a final screenshot (PNG).
    pub picture: Option<&'a Path>,
}

/// Result of a visit.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The value of the script.
    pub value: Value,
    /// Errors thrown by the page or logged by the browser.
    pub errors: Vec<String>,
}

/// Opens `url` in Chromium and evaluates `script`, an expression that may be a promise. `None`
/// without Chromium, except in CI.
///
/// # Panics
/// When the browser or page times out, or in CI without Chromium.
pub fn visit(url: &str, script: &str, view: View<'_>) -> Option<Visit> {
    let mut browser = Browser::start(chromium()?);
    let target = browser.call(None, "Target.createTarget", &json!({"url": "about:blank"}));
    let attach = json!({"targetId": target["targetId"], "flatten": true});
    let session = browser.call(None, "Target.attachToTarget", &attach)["sessionId"].clone();
    let page = session.as_str().expect("a session");
    for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
        browser.call(Some(page), domain, &json!({}));
    }
    let View { width, height, dark, picture } = view;
    let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
    browser.call(Some(page), "Emulation.setDeviceMetricsOverride", &metrics);
    let scheme =
        json!({"features": [{"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }}]});
    browser.call(Some(page), "Emulation.setEmulatedMedia", &scheme);
    browser.call(Some(page), "Page.navigate", &json!({"url": url}));
    browser.wait("the page to load", |message| message["method"] == "Page.loadEventFired");
    let evaluate = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
    let reply = browser.call(Some(page), "Runtime.evaluate", &evaluate);
    assert!(reply["exceptionDetails"].is_null(), "{reply:#}");
    if let Some(picture) = picture {
        let shot = json!({"format": "png", "captureBeyondViewport": true});
        let shot = browser.call(Some(page), "Page.captureScreenshot", &shot);
        let png = base64(shot["data"].as_str().expect("a picture"));
        std::fs::write(picture, png).unwrap();
    }
    Some(Visit { value: reply["result"]["value"].clone(), errors: browser.errors.clone() })
}

/// Chromium with the DevTools protocol on descriptors 3 and 4: JSON messages, each terminated by a
/// zero byte.
struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    requests: u64,
    errors: Vec<String>,
    deadline: Instant,
    /// Directory of pipes and profile.
    _dir: tempfile::TempDir,
}

impl Browser {
    fn start(program: &str) -> Browser {
        let dir = tempfile::tempdir().unwrap();
        let [to, from, log] = ["to", "from", "log"].map(|name| dir.path().join(name));
        let open = |path: &Path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            // Opened for reading and writing, a FIFO does not block.
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (to_file, from_file) = (open(&to), open(&from));
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\"", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            // Its own files, which it can leave behind.
            .env("TMPDIR", dir.path())
            .env("TO", &to)
            .env("FROM", &from)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log).unwrap())
            .spawn()
            .unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut messages = BufReader::new(from_file);
            let mut message = Vec::new();
            while messages.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                message.clear();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        Browser {
            child,
            to: to_file,
            from: receiver,
            requests: 0,
            errors: Vec::new(),
            deadline: Instant::now() + PAGE_TIMEOUT,
            _dir: dir,
        }
    }

    /// Sends a command and waits for its result.
    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        let reply = self.wait(method, |message| message["id"] == id);
        assert!(reply["error"].is_null(), "{method}: {reply}");
        reply["result"].clone()
    }

    /// The next message that matches; errors among the others are collected.
    fn wait(&mut self, description: &str, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let message = self
                .from
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("the browser did not finish: {description}"));
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => {
                    self.errors.push(message["params"]["exceptionDetails"].to_string());
                }
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.errors.push(message["params"]["entry"].to_string());
                }
                _ => {}
            }
            if matches(&message) {
                return message;
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes base64 (RFC 4648 section 4).
fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(value).collect();
    let group = |four: &[u8]| {
        let bits = four.iter().enumerate().fold(0_u32, |bits, (i, v)| bits | u32::from(*v) << (18 - 6 * i));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in
            [("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar"), ("", "")]
        {
            assert_eq!(base64(text), bytes.as_bytes());
        }
        assert_eq!(base64("+/8="), [0xfb, 0xff]);
    }
}
