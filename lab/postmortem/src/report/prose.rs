//! Typesetting of the texts of a case.

use maud::{Markup, html};

use crate::case::Source;

/// Marks `code` as in Markdown. An unpaired backtick stays a backtick.
pub fn prose(text: &str) -> Markup {
    let parts: Vec<_> = text.split('`').collect();
    html! {
        @if parts.len().is_multiple_of(2) { (text) }
        @else {
            @for (n, part) in parts.iter().enumerate() {
                @if n % 2 == 1 { code { (part) } } @else { (part) }
            }
        }
    }
}

/// Lists the sources. Only web addresses are linked.
pub(super) fn sources(sources: &[Source]) -> Markup {
    html! {
        @if !sources.is_empty() {
            p.sources {
                span.label { @if sources.len() == 1 { "Source" } @else { "Sources" } } " "
                @for (n, source) in sources.iter().enumerate() {
                    @if n > 0 { "; " }
                    @if is_web_address(&source.url) {
                        a href=(source.url) rel="noreferrer" { (source.name) }
                    } @else { (source.name) }
                }
            }
        }
    }
}

fn is_web_address(address: &str) -> bool {
    address.starts_with("https://") || address.starts_with("http://")
}

/// Capitalizes the first letter.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Makes a sentence with a full stop.
pub(super) fn stopped(text: &str) -> String {
    let ends = text.ends_with(['.', '!', '?', ':', '\u{3002}']);
    format!("{}{}", sentence(text), if ends { "" } else { "." })
}

#[cfg(test)]
mod tests {
    use super::{prose, sources};
    use crate::case::Source;

    #[test]
    fn code_is_marked_and_all_text_is_escaped() {
        assert_eq!(
            prose("its `a < b` is").into_string(),
            "its <code>a &lt; b</code> is"
        );
        assert_eq!(prose("a lone ` <").into_string(), "a lone ` &lt;");
    }

    #[test]
    fn only_web_addresses_are_linked() {
        let source = |name: &str, url: &str| Source {
            name: name.into(),
            url: url.into(),
        };
        let set = sources(&[
            source("A book", ""),
            source("A trap", "javascript:alert(1)"),
            source("A post", "https://example.org/?a&b"),
        ])
        .into_string();
        assert_eq!(set.matches("<a ").count(), 1, "{set}");
        assert!(
            set.contains(r#"href="https://example.org/?a&amp;b""#),
            "{set}"
        );
    }
}
