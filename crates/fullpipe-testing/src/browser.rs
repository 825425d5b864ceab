use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A page after its scripts ran.
pub struct BrowserOutput {
    /// The document after all scripts.
    pub dom: String,
    /// The browser's log, including errors of the page.
    pub log: String,
}

impl BrowserOutput {
    /// The note `data-t-NAME` that the test script left at the root element.
    ///
    /// # Panics
    /// If it is missing.
    pub fn note(&self, name: &str) -> &str {
        let start = format!("data-t-{name}=\"");
        let from = self.dom.find(&start).unwrap_or_else(|| panic!("no note `{name}` in {}", self.excerpt()));
        self.dom[from + start.len()..].split('"').next().unwrap_or_default()
    }

    /// The first 600 characters, where pages show their errors.
    pub fn excerpt(&self) -> String {
        self.dom.chars().take(600).collect()
    }
}

/// The name of the installed browser; otherwise prints that the test is skipped.
pub(crate) fn chromium() -> Option<&'static str> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|s| s.success())
    });
    if browser.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no Chromium: see ci/packages.txt");
        println!("SKIPPED: no Chromium to open the page with");
    }
    browser
}

/// Opens `page` in Chromium, in a window of `size` points, with `script` as its last script, which
/// operates the page as a user would and leaves notes at the root element. `None` without Chromium,
/// except in CI.
///
/// # Panics
/// When the browser times out, or in CI without Chromium.
pub fn browse(page: &str, script: &str, size: (u32, u32)) -> Option<BrowserOutput> {
    let browser = chromium()?;
    let (before, after) = page.rsplit_once("</body>").expect("a page has a body");
    let dir = tempfile::tempdir().unwrap();
    let [file, dom, log] = ["page.html", "dom", "log"].map(|name| dir.path().join(name));
    std::fs::write(&file, format!("{before}<script>{script}</script></body>{after}")).unwrap();
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=20000"])
        .arg(format!("--window-size={},{}", size.0, size.1))
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", file.display()))
        // Its own files, which it can leave behind.
        .env("TMPDIR", dir.path())
        .stdout(File::create(&dom).unwrap())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(300) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the browser did not finish: {}", read(&log));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(BrowserOutput { dom: read(&dom), log: read(&log) })
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}
