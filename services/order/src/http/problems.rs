//! The page of all problems: what each code means, and what to do. The `type` of a problem names
//! its place on the page.

use std::{fmt::Write as _, sync::LazyLock};

use axum::response::{Html, IntoResponse, Response};
use http::HeaderValue;

use super::{codes::Code, protection};

/// Path of the page.
pub(crate) const PATH: &str = "/docs/problems";

/// Shows all problems.
pub(crate) async fn page() -> Response {
    static PAGE: LazyLock<String> = LazyLock::new(write_page);
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| protection::with_style(STYLE));
    protection::protected(Html(PAGE.as_str()).into_response(), POLICY.clone())
}

/// The style of the page. The policy has its hash.
const STYLE: &str = "body{max-width:44rem;margin:2rem auto;padding:0 1rem;font:1rem/1.5 sans-serif}:target{background:#ff8}";

fn write_page() -> String {
    // Without an icon browsers ask for /favicon.ico.
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Stockade: problems</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <style>{STYLE}</style>\n\
         <h1>Problems</h1>\n",
    );
    for code in Code::ALL {
        // No text has a character that HTML would read as markup; a test checks it.
        let _ = writeln!(
            page,
            "<h2 id=\"{name}\">{name} ({status})</h2>\n<p>{meaning}</p>\n<p><b>What to do:</b> {remedy}</p>",
            name = code.as_str(),
            status = code.status().as_u16(),
            meaning = code.meaning(),
            remedy = code.remedy(),
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Code;

    #[test]
    fn the_page_needs_no_escaping_and_has_each_code_once() {
        let mut codes = BTreeSet::new();
        for code in Code::ALL {
            assert!(codes.insert(code.as_str()), "{code:?}");
            let texts = [code.as_str(), code.meaning(), code.remedy()];
            let marked = texts.map(|text| text.contains(['<', '>', '&', '"']));
            assert_eq!(marked, [false; 3], "{code:?}");
        }
    }

    #[test]
    fn the_table_of_the_api_page_has_the_same_codes() {
        let page = include_str!("../../../../docs/api.md");
        for code in Code::ALL {
            let status = code.status();
            let named = format!("`{}`", code.as_str());
            let mut rows = page.lines().filter(|line| {
                let mut cells = line.split('|');
                cells
                    .nth(1)
                    .is_some_and(|cell| cell.contains(status.as_str()))
            });
            assert!(rows.any(|row| row.contains(&named)), "{status} {named}");
        }
    }
}
