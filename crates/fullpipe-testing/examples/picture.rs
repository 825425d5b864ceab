//! A picture of a page as a browser shows it: `picture URL WIDTH light|dark FILE.png [SCRIPT]`. SCRIPT is an expression, which may be a
//! promise, that is waited for first.

use fullpipe_testing::{View, visit};
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, width, ground, file, script @ ..] = &args[..] else {
        eprintln!("picture URL WIDTH light|dark FILE.png [SCRIPT]");
        std::process::exit(2);
    };
    let width = width.parse().expect("WIDTH is a number of points");
    let view = View { width, height: 900, dark: ground == "dark", picture: Some(Path::new(file)) };
    // Fonts and plots that wait for the page's first frame.
    let wait = "new Promise((done) => setTimeout(done, 1000))";
    let visited = visit(url, script.first().map_or(wait, String::as_str), view);
    let Some(visited) = visited else { std::process::exit(3) };
    eprintln!("{file}: {}", visited.value);
    for complaint in visited.complaints {
        eprintln!("{complaint}");
    }
}
