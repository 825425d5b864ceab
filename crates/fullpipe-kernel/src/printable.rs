//! Escapes untrusted text (from peers, names of processes) for terminals, logs and files.
//!
//! Terminals interpret control characters: C0 (start of escape sequences), DEL and C1 (the same
//! sequences in one character; ECMA-48 section 5.3), and bidirectional controls reorder text (UAX
//! #9 section 2). Zero-width characters and line separators make different texts look alike. All of
//! these are escaped.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal would interpret or hide this character instead of displaying it.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes one line of untrusted text: control characters are written as `\u{1b}`.
///
/// ```
/// use fullpipe_kernel::printable::line;
/// assert_eq!(line("cubic"), "cubic");
/// assert_eq!(line("\x1b[2Jcubic\n"), "\\u{1b}[2Jcubic\\n");
/// assert_eq!(line("a\u{9b}31mb\u{202e}c"), "a\\u{9b}31mb\\u{202e}c");
/// ```
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Escapes multi-line untrusted text: as [`line()`], but line feeds and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Wraps text to lines of at most `width` characters, unless a word is longer; continuation lines
/// of a paragraph are indented by `indent` spaces.
///
/// ```
/// use fullpipe_kernel::printable::wrap;
/// assert_eq!(wrap("bbr 5 connections\nnone", 13, 2), ["bbr 5", "  connections", "none"]);
/// ```
pub fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        let mut is_empty = true;
        for word in paragraph.split(' ') {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line += word;
            is_empty = false;
        }
        lines.push(line);
    }
    lines
}

/// Escapes our own text that may quote untrusted text: as [`lines()`], but colours and weights
/// stay.
///
/// ```
/// use fullpipe_kernel::printable::coloured;
/// assert_eq!(coloured("\x1b[1;31mFAIL\x1b[0m \x1b[8mhidden"), "\x1b[1;31mFAIL\x1b[0m \\u{1b}[8mhidden");
/// ```
pub fn coloured(text: &str) -> Cow<'_, str> {
    let mut pieces = text.split('\x1b');
    let first = lines(pieces.next().unwrap_or_default());
    let mut out = String::new();
    let mut more = false;
    for piece in pieces {
        if !more {
            out.push_str(&first);
            more = true;
        }
        let colour = piece
            .strip_prefix('[')
            .and_then(|rest| rest.split_once('m'))
            .is_some_and(|(code, _)| is_colour(code));
        out.push_str(if colour { "\x1b" } else { "\\u{1b}" });
        out.push_str(&lines(piece));
    }
    if more { Cow::Owned(out) } else { first }
}

/// Whether these are parameters of SELECT GRAPHIC RENDITION (ECMA-48 section 8.3.117) for weight
/// and foreground.
fn is_colour(code: &str) -> bool {
    let known = |n: u8| matches!(n, 0..=2 | 22 | 30..=37 | 39 | 90..=97);
    match code.strip_prefix("38;5;") {
        Some(of_256) => of_256.parse::<u8>().is_ok(),
        None => code.split(';').all(|n| n.parse().is_ok_and(known)),
    }
}

/// Escapes JSON for terminals: control characters in strings become `\u001b`, which keeps the JSON
/// equivalent.
pub fn json(text: &str) -> Cow<'_, str> {
    // Line feeds separate fields; inside strings, JSON escapes them already.
    let harmful = |c| is_harmful(c) && c != '\n';
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn escaped(text: &str, is_kept: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(|c| is_harmful(c) && !is_kept(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_harmful(c) || is_kept(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_unchanged() {
        for text in ["bbr", "10 Gbit/s → Zürich", "日本語", ""] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
        assert_eq!(lines("a\n\tb\r"), "a\n\tb\\r");
    }

    #[test]
    fn only_colour_sequences_are_kept() {
        for text in ["plain", "\x1b[1mbold\x1b[0m", "\x1b[38;5;208mbbr\x1b[39m\n", "\x1b[1;33mWARN\x1b[0m"] {
            assert_eq!(coloured(text), text);
        }
        for text in [
            "\x1b[2J",
            "\x1b]0;title\x07",
            "\x1b",
            "\x1b[",
            "\x1b[m",
            "\x1b[7m",
            "\x1b[38;2;1;2;3m",
            "\x1b[1;5m",
            "\u{9b}31m",
        ] {
            assert!(!coloured(text).contains(is_harmful), "{:?}", coloured(text));
        }
    }

    #[test]
    fn escaped_json_is_equivalent() {
        let value = serde_json::json!({"text": "x\u{9b}31m\u{202e}\u{e0041}\x1b[0m"});
        let text = json(&value.to_string()).into_owned();
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    proptest! {
        #[test]
        fn no_control_characters_remain(text in "\\PC{0,20}[\u{0}-\u{a0}]{0,20}[\u{2000}-\u{2070}]{0,10}") {
            prop_assert!(!line(&text).contains(is_harmful));
            prop_assert!(!lines(&text).contains(|c| is_harmful(c) && c != '\n' && c != '\t'));
            let without_colours = coloured(&text).replace("\x1b[", "");
            prop_assert!(!without_colours.contains(|c| is_harmful(c) && c != '\n' && c != '\t'));
            let value = serde_json::Value::from(text);
            let printed = json(&value.to_string()).into_owned();
            prop_assert!(!printed.contains(is_harmful));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), value);
        }
    }
}
