use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a browser made of a page.
pub struct Browsed {
    /// The document after all scripts.
    pub dom: String,
    /// What the browser logged, the page's own complaints among it.
    pub log: String,
}

impl Browsed {
    /// The note that the reader left as `data-t-NAME` at the root element.
    ///
    /// # Panics
    /// When there is none.
    pub fn note(&self, name: &str) -> &str {
        let start = format!("data-t-{name}=\"");
        let from =
            self.dom.find(&start).unwrap_or_else(|| panic!("no note `{name}` in {}", self.beginning()));
        self.dom[from + start.len()..].split('"').next().unwrap_or_default()
    }

    /// The first few hundred characters: where a page writes down its errors.
    pub fn beginning(&self) -> String {
        self.dom.chars().take(600).collect()
    }
}

/// The browser that there is, or that the test is skipped.
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

/// Opens `page` in Chromium, in a window of `size` points, with `reader` as its last script: one that works the page as a reader
/// would and leaves notes at the root element. `None` where there is no Chromium, outside CI.
///
/// # Panics
/// When the browser does not come to an end, or in CI is not there.
pub fn browse(page: &str, reader: &str, size: (u32, u32)) -> Option<Browsed> {
    let browser = chromium()?;
    let (before, after) = page.rsplit_once("</body>").expect("a page has a body");
    let dir = tempfile::tempdir().unwrap();
    let [file, dom, log] = ["page.html", "dom", "log"].map(|name| dir.path().join(name));
    std::fs::write(&file, format!("{before}<script>{reader}</script></body>{after}")).unwrap();
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=20000"])
        .arg(format!("--window-size={},{}", size.0, size.1))
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", file.display()))
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
    Some(Browsed { dom: read(&dom), log: read(&log) })
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}
