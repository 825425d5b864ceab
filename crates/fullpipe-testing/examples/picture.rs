//! Screenshot of a page in a browser: `picture URL WIDTH light|dark FILE.png [SCRIPT]`. SCRIPT is
//! an expression that is evaluated first; it may be a promise.

use fullpipe_testing::View;
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, width, scheme, file, script @ ..] = &args[..] else {
        eprintln!("picture URL WIDTH light|dark FILE.png [SCRIPT]");
        std::process::exit(2);
    };
    let width = width.parse().expect("WIDTH is a number of points");
    let view = View { width, height: 900, dark: scheme == "dark", picture: Some(Path::new(file)) };
    // Wait for fonts and plots.
    let wait = "new Promise((done) => setTimeout(done, 1000))";
    let visit = fullpipe_testing::visit(url, script.first().map_or(wait, String::as_str), view);
    let Some(visit) = visit else { std::process::exit(3) };
    eprintln!("{file}: {}", visit.value);
    for error in visit.errors {
        eprintln!("{error}");
    }
}
