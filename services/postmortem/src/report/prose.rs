//! What a case tells, as it is set.

use maud::{Markup, html};

/// Text in which `code` is marked as in Markdown. A lone mark is a mark.
pub(crate) fn prose(text: &str) -> Markup {
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

/// Where a story is told. What has no address of the web is named and not linked.
pub(super) fn sources(sources: &[(&str, &str)]) -> Markup {
    html! {
        @if !sources.is_empty() {
            p.sources {
                span.label { @if sources.len() == 1 { "Source" } @else { "Sources" } } " "
                @for (n, (name, address)) in sources.iter().enumerate() {
                    @if n > 0 { "; " }
                    @if is_of_the_web(address) { a href=(address) rel="noreferrer" { (name) } } @else { (name) }
                }
            }
        }
    }
}

fn is_of_the_web(address: &str) -> bool {
    address.starts_with("https://") || address.starts_with("http://")
}

/// The first letter as a sentence begins.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// The same, with a full stop if it has none.
pub(super) fn stopped(text: &str) -> String {
    let ends = text.ends_with(['.', '!', '?', ':', '\u{3002}']);
    format!("{}{}", sentence(text), if ends { "" } else { "." })
}

#[cfg(test)]
mod tests {
    use super::{prose, sources};

    #[test]
    fn code_is_marked_and_everything_is_escaped() {
        assert_eq!(
            prose("its `a < b` is").into_string(),
            "its <code>a &lt; b</code> is"
        );
        assert_eq!(prose("a lone ` <").into_string(), "a lone ` &lt;");
    }

    #[test]
    fn only_an_address_of_the_web_is_linked() {
        let set = sources(&[
            ("A book", ""),
            ("A trap", "javascript:alert(1)"),
            ("A post", "https://example.org/?a&b"),
        ])
        .into_string();
        assert_eq!(set.matches("<a ").count(), 1, "{set}");
        assert!(
            set.contains(r#"href="https://example.org/?a&amp;b""#),
            "{set}"
        );
    }
}
