//! A chapter as HTML: what of Markdown the chapters use, and no more.

use fullpipe_report::escaped;

/// The prose of a chapter, from its second heading on. Its picture, commands and tables are left out: the page has them itself. Links to the
/// chapter of another figure lead to where `on_page` says it is on the same page; where they would leave the page for a file, their text stays.
pub(crate) fn html(markdown: &str, on_page: &dyn Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut in_code = false;
    let mut started = false;
    for line in markdown.lines() {
        let text = line.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        started |= text.starts_with("## ");
        if in_code || !started || text.starts_with('|') || text.starts_with("![") {
            continue;
        }
        if let Some(heading) = text.strip_prefix("## ") {
            // A heading under which only a table stood has nothing left.
            blocks.pop_if(|block| block.0 == "h3");
            blocks.push(("h3", heading.to_owned()));
        } else if let Some(item) = text.strip_prefix("- ") {
            blocks.push(("li", item.to_owned()));
        } else if text.is_empty() {
            blocks.push(("", String::new()));
        } else {
            match blocks.last_mut() {
                Some((kind @ ("li" | "p"), before)) if !kind.is_empty() => {
                    before.push(' ');
                    before.push_str(text);
                }
                _ => blocks.push(("p", text.to_owned())),
            }
        }
    }
    blocks.retain(|block| !block.0.is_empty());
    blocks.pop_if(|block| block.0 == "h3");
    for (i, (kind, text)) in blocks.iter().enumerate() {
        let is_item =
            |at: Option<usize>| at.and_then(|at| blocks.get(at)).is_some_and(|block| block.0 == "li");
        if *kind == "li" && !is_item(i.checked_sub(1)) {
            out += "<ul>";
        }
        out += &format!("<{kind}>{}</{kind}>", inline(text, on_page));
        if *kind == "li" && !is_item(Some(i + 1)) {
            out += "</ul>";
        }
    }
    out
}

/// Code, links, bold and italics.
fn inline(text: &str, on_page: &dyn Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '[', '*']) {
        let (before, from) = rest.split_at(at);
        out += &escaped(before);
        let span = |mark: &str| {
            let inside = from.strip_prefix(mark)?;
            let end = inside.find(mark).filter(|end| *end > 0)?;
            Some((&inside[..end], &inside[end + mark.len()..]))
        };
        let link = || {
            let (words, target) = from[1..].split_once("](")?;
            let (target, after) = target.split_once(')')?;
            (!words.contains('[')).then_some((words, target, after))
        };
        if let Some((code, after)) = span("`") {
            out += &format!("<code>{}</code>", escaped(code));
            rest = after;
        } else if let Some((words, after)) = span("**") {
            out += &format!("<b>{}</b>", inline(words, on_page));
            rest = after;
        } else if let Some((words, after)) = span("*") {
            out += &format!("<i>{}</i>", inline(words, on_page));
            rest = after;
        } else if let Some((words, target, after)) = (from.starts_with('[')).then(link).flatten() {
            let words = inline(words, on_page);
            let other = target.strip_suffix(".md").filter(|id| on_page(id));
            out += &match other {
                Some(id) => format!("<a href=\"#{}\">{words}</a>", escaped(id)),
                None if target.starts_with("https://") => {
                    format!("<a href=\"{}\">{words}</a>", escaped(target))
                }
                None => words,
            };
            rest = after;
        } else {
            out += &escaped(&from[..1]);
            rest = &from[1..];
        }
    }
    out + &escaped(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIGURES;

    #[test]
    fn prose_lists_and_marks_become_markup_and_nothing_else_does() {
        let text = "# x: y\n\nintro\n\n## What\n- one <a>\n  more `x*y`\n- **two** of *three*\n\n## Why\nA 2 * 3, see [fig8](fig8.md),\n\
                    [there](../there.md) and [web](https://example.org/?a&b).\n\n## Table\n| a |\n|---|\n";
        assert_eq!(
            html(text, &|id| id == "fig8"),
            "<h3>What</h3><ul><li>one &lt;a&gt; more <code>x*y</code></li><li><b>two</b> of <i>three</i></li></ul><h3>Why</h3>\
             <p>A 2 * 3, see <a href=\"#fig8\">fig8</a>, there and <a href=\"https://example.org/?a&amp;b\">web</a>.</p>"
        );
    }

    #[test]
    fn no_chapter_has_markdown_that_is_shown_as_it_is_written() {
        for figure in FIGURES {
            let html = html(figure.chapter, &|_| false);
            assert!(html.contains("<h3>What to look at</h3><ul>") && html.contains("<h3>Why</h3>"), "{html}");
            for raw in ["**", "](", "`", "|--", "## "] {
                assert!(!html.contains(raw), "{}: {raw}: {html}", figure.id);
            }
        }
    }
}
