//! Converts a chapter to HTML.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html::push_html};

/// The prose of a chapter from its second heading on, without pictures, commands and tables. Links
/// to the chapter of another figure become links within the page if `on_page` has it; of links to
/// other files only the text remains.
pub(crate) fn html(markdown: &str, on_page: &dyn Fn(&str) -> bool) -> String {
    let mut prose: Vec<Event> = Vec::new();
    let mut omitted = 0;
    let mut links = Vec::new();
    let is_second =
        |event: &Event| matches!(event, Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }));
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES).skip_while(|event| !is_second(event)) {
        match event {
            Event::Start(Tag::Table(_) | Tag::CodeBlock(_) | Tag::Image { .. }) => omitted += 1,
            Event::End(TagEnd::Table | TagEnd::CodeBlock | TagEnd::Image) => omitted -= 1,
            _ if omitted > 0 => {}
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let other = dest_url.strip_suffix(".md").filter(|id| on_page(id)).map(|id| format!("#{id}"));
                let target = match other {
                    Some(anchor) => Some(CowStr::from(anchor)),
                    None => dest_url.starts_with("https://").then_some(dest_url),
                };
                links.push(target.is_some());
                prose.extend(
                    target.map(|dest_url| Event::Start(Tag::Link { link_type, dest_url, title, id })),
                );
            }
            Event::End(TagEnd::Link) => prose.extend(links.pop().filter(|kept| *kept).map(|_| event)),
            Event::Start(Tag::Heading { id, classes, attrs, .. }) => {
                remove_empty_heading(&mut prose);
                prose.push(Event::Start(Tag::Heading { level: HeadingLevel::H3, id, classes, attrs }));
            }
            Event::End(TagEnd::Heading(_)) => prose.push(Event::End(TagEnd::Heading(HeadingLevel::H3))),
            Event::Start(Tag::Strong) => prose.push(Event::InlineHtml("<b>".into())),
            Event::End(TagEnd::Strong) => prose.push(Event::InlineHtml("</b>".into())),
            Event::Start(Tag::Emphasis) => prose.push(Event::InlineHtml("<i>".into())),
            Event::End(TagEnd::Emphasis) => prose.push(Event::InlineHtml("</i>".into())),
            Event::SoftBreak | Event::HardBreak => prose.push(Event::Text(" ".into())),
            // Markup in a chapter is shown as text.
            Event::Html(text) | Event::InlineHtml(text) => prose.push(Event::Text(text)),
            other => prose.push(other),
        }
    }
    remove_empty_heading(&mut prose);
    let mut out = String::new();
    push_html(&mut out, prose.into_iter());
    out.retain(|c| c != '\n');
    out
}

/// Removes a heading without text below it.
fn remove_empty_heading(prose: &mut Vec<Event>) {
    if matches!(prose.last(), Some(Event::End(TagEnd::Heading(_)))) {
        let begins = prose.iter().rposition(|event| matches!(event, Event::Start(Tag::Heading { .. })));
        prose.truncate(begins.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIGURES;

    #[test]
    fn only_prose_lists_and_emphasis_become_markup() {
        let text = "# x: y\n\nintro\n\n## What\n- one <a>\n  more `x*y`\n- **two** of *three*\n\n\
                    ## Why\nA 2 * 3, see [fig8](fig8.md),\n\
                    [there](../there.md) and [web](https://example.org/?a&b).\n\n## Table\n| a |\n|---|\n";
        assert_eq!(
            html(text, &|id| id == "fig8"),
            "<h3>What</h3><ul><li>one &lt;a&gt; more <code>x*y</code></li><li><b>two</b> of <i>three</i>\
             </li></ul><h3>Why</h3>\
             <p>A 2 * 3, see <a href=\"#fig8\">fig8</a>, there and <a \
             href=\"https://example.org/?a&amp;b\">web</a>.</p>"
        );
    }

    #[test]
    fn chapters_leave_no_markdown_in_the_html() {
        for figure in FIGURES {
            let html = html(figure.chapter, &|_| false);
            assert!(html.contains("<h3>What to look at</h3><ul>") && html.contains("<h3>Why</h3>"), "{html}");
            for raw in ["**", "](", "`", "|--", "## "] {
                assert!(!html.contains(raw), "{}: {raw}: {html}", figure.id);
            }
        }
    }
}
