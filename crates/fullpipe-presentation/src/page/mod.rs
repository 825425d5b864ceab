//! The frame of a self-contained HTML page: head, styles, theme and scripts. It needs no network and
//! no server, and opens from a file.

use crate::picture::escape_html;
use serde_json::ser::{CompactFormatter, Formatter};
use std::io::{self, Write};

/// The styles of all pages, for light and dark themes.
pub const STYLE: &str = include_str!("page.css");
/// Common to the scripts of all pages: elements, data, theme and axes.
pub const PRELUDE: &str = include_str!("prelude.js");
/// The plots' library.
pub const UPLOT: &str = include_str!("vendor/uPlot.iife.min.js");
/// Its styles.
pub const UPLOT_STYLE: &str = include_str!("vendor/uPlot.min.css");
/// Its licence.
pub const UPLOT_LICENCE: &str = include_str!("vendor/LICENSE-uPlot");

/// Title and command of a report; all else comes from the results.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// Heading: the scenario's title.
    pub title: String,
    /// The command that reproduces the results; empty if there is none.
    pub command: String,
}

/// The command that reproduces the page, if there is one.
fn reproduce_section(about: &About) -> String {
    match about.command.is_empty() {
        true => String::new(),
        false => format!(
            "<section><h2>Reproduce</h2><pre class=\"command\">{}</pre></section>",
            escape_html(&about.command)
        ),
    }
}

/// Writes a page without interactive plots. `body` is markup, all else is text.
///
/// # Errors
/// `out` cannot be written.
pub fn write_page(about: &About, subtitle: &str, body: &str, out: &mut dyn Write) -> io::Result<()> {
    let (title, subtitle) = (escape_html(&about.title), escape_html(subtitle));
    let (command, dark) = (reproduce_section(about), dark_theme_media_query());
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>{STYLE}{dark}</style>\n</head>\n<body>\n<header><h1>{title}</h1>\
         <p class=\"path\">{subtitle}</p></header>\n<main>\n{body}\n{command}</main>\n</body>\n</html>\n"
    )
}

/// The rules of the dark theme as a media query, for pages without the script that switches themes.
fn dark_theme_media_query() -> String {
    let rules = STYLE.split_inclusive('}').filter_map(|rule| {
        let root = rule.find(":root.dark").map(|at| rule[at..].replacen(".dark", "", 1));
        root.or_else(|| rule.find("\n.dark ").map(|at| rule[at..].replacen(".dark ", "", 1)))
    });
    format!("@media (prefers-color-scheme: dark) {{\n{}\n}}\n", rules.collect::<String>())
}

/// Parts of a page with its own plots.
#[derive(Clone, Copy, Debug)]
pub struct PlottedPage<'a, T> {
    /// Markup.
    pub body: &'a str,
    /// Additional styles.
    pub style: &'a str,
    /// What the script finds as JSON in the element `data`.
    pub data: &'a T,
    /// The script. It can use `uPlot` and the object `fullpipe` of prelude.js; the theme button has
    /// the id `theme`.
    pub script: &'a str,
}

/// Writes a page with its own plots. All but `plotted` is text.
///
/// # Errors
/// `out` cannot be written.
pub fn write_plotted_page<T: serde::Serialize>(
    about: &About,
    subtitle: &str,
    plotted: &PlottedPage<'_, T>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (title, subtitle) = (escape_html(&about.title), escape_html(subtitle));
    let PlottedPage { body, style, data, script } = plotted;
    let command = reproduce_section(about);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <title>{title}</title>\n<style>{UPLOT_STYLE}</style>\n<style>{STYLE}{style}</style>\n</head>\n\
         <body>\n\
         <header><div class=\"top\"><h1>{title}</h1>\
         <button id=\"theme\" type=\"button\" title=\"light or dark\">◐</button></div>\
         <p class=\"path\">{subtitle}</p></header>\n<main>\n{body}\n{command}</main>\n\
         <footer><details><summary>Plots drawn with uPlot 1.6.32</summary><pre>{UPLOT_LICENCE}</pre>\
         </details></footer>\n\
         <script>{UPLOT}</script>\n<script type=\"application/json\" id=\"data\">"
    )?;
    // Written as it is made: the data of a large page is in memory once.
    data.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, ScriptFormatter))?;
    write!(out, "</script>\n<script>{PRELUDE}</script>\n<script>{script}</script>\n</body>\n</html>\n")
}

/// Escapes JSON for use inside `<script>`, where `</script` and `<!--` would end or change it. In
/// JSON, `<` occurs in strings only.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Writes JSON for use inside `<script>`, escaped as by [`escape_json`].
struct ScriptFormatter;

impl Formatter for ScriptFormatter {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '\u{2028}', '\u{2029}']) {
            let (plain, special) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut chars = special.chars();
            if let Some(one) = chars.next() {
                write!(out, "\\u{:04x}", u32::from(one))?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    /// Whole numbers need no decimal point.
    fn write_f32<W: io::Write + ?Sized>(&mut self, out: &mut W, value: f32) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < 1e7 {
            return self.write_i64(out, value as i64);
        }
        CompactFormatter.write_f32(out, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_without_script_follows_the_system_theme() {
        let mut out = Vec::new();
        write_page(&About::default(), "", "", &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        let (_, dark) = page.split_once("@media (prefers-color-scheme: dark) {").unwrap();
        let (dark, _) = dark.split_once("</style>").unwrap();
        for rule in [
            ":root {\n  color-scheme: dark;",
            "\n.swatch { background: var(--dark); }",
            "\nfigure svg { filter:",
        ] {
            assert!(dark.contains(rule), "{rule}: {dark}");
        }
        assert!(!dark.contains(".dark") && dark.matches('{').count() + 1 == dark.matches('}').count());
    }
}
