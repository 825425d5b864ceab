//! Pages of a server in a real browser, in real time: what a file in virtual time ([`crate::browse`]) cannot show.

use crate::browser::chromium;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a page may take for all that a test asks of it.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Points across.
    pub width: u32,
    /// Points down; a picture is as long as the page.
    pub height: u32,
    /// Whether the system prefers dark pages.
    pub dark: bool,
    /// Where to leave a picture (PNG) of it in the end.
    pub picture: Option<&'a Path>,
}

/// What came of a visit.
#[derive(Clone, Debug)]
pub struct Visited {
    /// What the reader's promise came to.
    pub value: Value,
    /// Errors that the page threw or the browser logged.
    pub complaints: Vec<String>,
}

/// Opens `url` in Chromium and waits for what `reader` comes to, an expression that may be a promise. `None` where there is no
/// Chromium, outside CI.
///
/// # Panics
/// When the browser or the page does not come to an end, or in CI is not there.
pub fn visit(url: &str, reader: &str, view: View<'_>) -> Option<Visited> {
    let mut browser = Browser::start(chromium()?);
    let target = browser.ask(None, "Target.createTarget", &json!({"url": "about:blank"}));
    let attach = json!({"targetId": target["targetId"], "flatten": true});
    let session = browser.ask(None, "Target.attachToTarget", &attach)["sessionId"].clone();
    let page = session.as_str().expect("a session");
    for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
        browser.ask(Some(page), domain, &json!({}));
    }
    let View { width, height, dark, picture } = view;
    let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
    browser.ask(Some(page), "Emulation.setDeviceMetricsOverride", &metrics);
    let scheme =
        json!({"features": [{"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }}]});
    browser.ask(Some(page), "Emulation.setEmulatedMedia", &scheme);
    browser.ask(Some(page), "Page.navigate", &json!({"url": url}));
    browser.wait("the page to load", |message| message["method"] == "Page.loadEventFired");
    let evaluate = json!({"expression": reader, "awaitPromise": true, "returnByValue": true});
    let answer = browser.ask(Some(page), "Runtime.evaluate", &evaluate);
    assert!(answer["exceptionDetails"].is_null(), "{answer:#}");
    if let Some(picture) = picture {
        let shot = json!({"format": "png", "captureBeyondViewport": true});
        let shot = browser.ask(Some(page), "Page.captureScreenshot", &shot);
        let png = base64(shot["data"].as_str().expect("a picture"));
        std::fs::write(picture, png).unwrap();
    }
    Some(Visited { value: answer["result"]["value"].clone(), complaints: browser.complaints.clone() })
}

/// Chromium with its protocol for tools on descriptors 3 and 4: messages in JSON, each ended by a zero byte.
struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    asked: u64,
    complaints: Vec<String>,
    deadline: Instant,
    /// Pipes and profile, for as long as it runs.
    _dir: tempfile::TempDir,
}

impl Browser {
    fn start(program: &str) -> Browser {
        let dir = tempfile::tempdir().unwrap();
        let [to, from, log] = ["to", "from", "log"].map(|name| dir.path().join(name));
        let open = |path: &Path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            // Opened both ways a pipe waits for nobody.
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (to_file, from_file) = (open(&to), open(&from));
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\"", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .env("TO", &to)
            .env("FROM", &from)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log).unwrap())
            .spawn()
            .unwrap();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut messages = BufReader::new(from_file);
            let mut message = Vec::new();
            while messages.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                message.clear();
                if tell.send(value).is_err() {
                    break;
                }
            }
        });
        Browser {
            child,
            to: to_file,
            from: told,
            asked: 0,
            complaints: Vec::new(),
            deadline: Instant::now() + PATIENCE,
            _dir: dir,
        }
    }

    /// Asks and waits for the answer.
    fn ask(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        let answer = self.wait(method, |message| message["id"] == id);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The next message that `is` it; complaints among the others are kept.
    fn wait(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let message =
                self.from.recv_timeout(left).unwrap_or_else(|_| panic!("the browser did not finish: {what}"));
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => {
                    self.complaints.push(message["params"]["exceptionDetails"].to_string());
                }
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.complaints.push(message["params"]["entry"].to_string());
                }
                _ => {}
            }
            if is(&message) {
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

/// The bytes of what the browser wrote (RFC 4648 section 4).
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
    fn pictures_are_read_from_base64() {
        for (text, bytes) in
            [("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar"), ("", "")]
        {
            assert_eq!(base64(text), bytes.as_bytes());
        }
        assert_eq!(base64("+/8="), [0xfb, 0xff]);
    }
}
