//! The page as text: it is complete, and nothing in it is superfluous.

use postmortem::{
    report::{html::page, table::table},
    run::CaseRun,
    timeline::Event,
};

use crate::sample::{TRAP, runs};

/// HTML elements without an end tag.
const VOID: [&str; 6] = ["meta", "link", "br", "hr", "img", "input"];

/// Returns the tags in order: name, and whether it is a start tag. Text and the style sheet are
/// skipped.
fn tags(page: &str) -> Vec<(&str, bool)> {
    let mut tags = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part
            .split_once('>')
            .unwrap_or_else(|| panic!("a tag without an end: <{part}"));
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n'])
            .next()
            .unwrap();
        if !name.starts_with('!') {
            tags.push((name, !tag.starts_with('/')));
        }
    }
    tags
}

/// Returns the article of a variant.
fn article<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!("<article class=\"variant\" id=\"{id}\">"))
        .unwrap_or_else(|| panic!("no variant {id}"));
    rest.split_once("</article>").unwrap().0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[test]
fn every_start_tag_has_its_end_tag() {
    is_well_formed(&page(&runs()));
}

/// Checks that every start tag has its end tag within the same parent.
pub fn is_well_formed(page: &str) {
    let mut open = Vec::new();
    for (name, begins) in tags(page) {
        if begins && !VOID.contains(&name) {
            open.push(name);
        } else if !begins {
            assert_eq!(open.pop(), Some(name), "within {open:?}");
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn ids_are_unique_and_every_internal_link_has_a_target() {
    let page = page(&runs());
    let values = |attribute: &str| -> Vec<String> {
        page.split(&format!(" {attribute}=\""))
            .skip(1)
            .map(|rest| rest.split_once('"').unwrap().0.to_owned())
            .collect()
    };
    let mut ids = values("id");
    let number = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), number, "an id occurs twice");
    let links = values("href");
    for link in links.iter().filter_map(|link| link.strip_prefix('#')) {
        assert!(ids.iter().any(|id| id == link), "#{link} has no target");
    }
    for described in values("aria-labelledby") {
        assert!(
            described
                .split(' ')
                .all(|id| ids.iter().any(|other| other == id)),
            "{described}"
        );
    }
}

#[test]
fn the_page_loads_nothing() {
    let page = page(&runs());
    for loads in [
        "src=",
        "@import",
        "url(http",
        "url(//",
        "<script",
        "<iframe",
        "<object",
        "<embed",
        "<base",
        "rel=\"stylesheet\"",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
    // Sources are links; no other address occurs.
    let addresses = page.matches("http://").count() + page.matches("https://").count();
    assert_eq!(
        addresses,
        page.matches("<a href=\"https://example.org/").count(),
        "an address outside a link"
    );
    assert!(!page.contains("href=\"javascript:"));
}

#[test]
fn every_case_and_every_variant_is_on_the_page() {
    let runs = runs();
    let page = page(&runs);
    for case in &runs {
        assert!(
            page.contains(&format!("<section class=\"case\" id=\"{}\">", case.case)),
            "{}",
            case.case
        );
        for (n, variant) in case.variants.iter().enumerate() {
            let article = article(&page, &format!("{}-{}", case.case, n + 1));
            assert!(
                article.contains(&escaped(&variant.variant.name)),
                "{}",
                variant.variant.name
            );
            assert_eq!(article.matches("<svg class=\"timeline\"").count(), 1);
        }
    }
    let variants: usize = runs.iter().map(|case| case.variants.len()).sum();
    assert_eq!(page.matches("<article ").count(), variants);
    assert_eq!(
        page.matches("<th scope=\"row\">").count(),
        variants,
        "each variant has a row of the table"
    );
    assert_eq!(
        page.matches("class=\"sign ").count(),
        variants,
        "each variant has a sign in the index"
    );
}

#[test]
fn texts_and_labels_are_escaped() {
    let page = page(&runs());
    assert!(!page.contains(TRAP));
    assert!(!page.contains("<b>Everything"));
    assert!(!page.contains("\"onclick=\""));
    for place in ["h2", "h4", "text", "title", "desc", "td", "th", "p", "li"] {
        let (begin, end) = (format!("<{place}"), format!("</{place}>"));
        let mut places = page
            .split(&begin)
            .skip(1)
            .map(|rest| rest.split(&end).next().unwrap());
        assert!(
            places.any(|text| text.contains("&lt;script&gt;")),
            "the trap does not occur in a {place}"
        );
    }
}

#[test]
fn the_page_says_in_words_whether_the_verdicts_are_as_expected() {
    let runs = runs();
    let page = page(&runs);
    assert!(page.contains("1 case not as expected"));
    assert!(article(&page, "hard-2").contains("not as expected"));
    assert!(!article(&page, "plain-1").contains("not as expected"));
    assert!(article(&page, "plain-1").contains("fails: 2 units oversold"));
    assert!(article(&page, "hard-2").contains("fails: 6 units stranded, 12 zombie writes"));
    assert!(article(&page, "hard-3").contains("holds (retried at speed 5)"));
    assert!(article(&page, "plain-3").contains("holds"));
}

#[test]
fn a_figure_has_a_lane_for_each_actor_and_a_line_for_each_harm() {
    let page = page(&runs());
    let article = |id| article(&page, id);
    let lanes = |id| article(id).matches("<text class=\"lane\"").count();
    // The units below the lanes have a label as well.
    assert_eq!(
        (
            lanes("plain-1"),
            lanes("plain-4"),
            lanes("hard-2"),
            lanes("hard-3")
        ),
        (3 + 1, 0, 8 + 1, 1 + 1)
    );
    let harms = |id| article(id).matches("<line class=\"harm\"").count();
    assert_eq!(
        (harms("plain-1"), harms("plain-3"), harms("plain-4")),
        (1, 0, 0),
        "the two are too close to distinguish"
    );
    assert!(
        article("plain-1").contains(&format!("oversold \u{d7}2: {}", escaped(&TRAP[..8]))),
        "the label describes the harm"
    );
    assert!(
        article("plain-1").contains("Harm occurred at 39.0\u{2013}39.2"),
        "so does the description"
    );
}

#[test]
fn a_lock_is_hatched_after_its_lease_has_expired() {
    let page = page(&runs());
    let first = article(&page, "plain-1");
    let drawing = first.split_once("</svg>").unwrap().0;
    assert_eq!(
        drawing.matches("<rect class=\"over\"").count(),
        2,
        "both leases expired; the second lock is never released"
    );
    assert!(first.contains("inside: buyer-1; its lease expired at 15.0"));
    assert!(
        first.contains("still inside, but its lease has expired"),
        "the legend explains the hatching"
    );
}

#[test]
fn hundreds_of_events_are_thinned_in_the_drawing_and_complete_in_the_list() {
    let page = page(&runs());
    let crowd = article(&page, "hard-2");
    let (drawing, list) = crowd.split_once("<details").unwrap();
    let marks = drawing.matches("class=\"moment\"").count();
    assert!(marks < 500, "{marks} marks of 1000 moments");
    assert!(drawing.len() < 300_000, "{}", drawing.len());
    let sales = |line: &str| {
        line.split_once("sells ")
            .map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap_or(1))
            .unwrap_or(0)
    };
    let listed: usize = list
        .split("<td>")
        .map(|line| {
            if line.starts_with("sells") {
                sales(line).max(1)
            } else {
                0
            }
        })
        .sum();
    let recorded = runs()[1].variants[1]
        .picture
        .moments
        .iter()
        .filter(|moment| moment.event == Event::Sale)
        .count();
    assert_eq!(listed, recorded);
}

#[test]
fn units_sold_are_drawn_only_if_the_recorded_sales_are_the_counted_ones() {
    let page = page(&runs());
    let sold = |id| article(&page, id).contains("<path class=\"sold\"");
    let beyond = |id| article(&page, id).contains("<path class=\"beyond\"");
    assert!(
        sold("plain-1") && beyond("plain-1"),
        "ten sales and two harms are twelve units"
    );
    assert!(
        sold("plain-3") && !beyond("plain-3"),
        "a refusal is not a sale"
    );
    assert!(
        !sold("hard-2"),
        "hundreds of sales were recorded, and four units were counted"
    );
    assert!(
        article(&page, "hard-2").contains("<path class=\"stock\""),
        "readings of the stock are always drawn"
    );
}

#[test]
fn the_printed_page_is_never_dark() {
    let page = page(&runs());
    for (before, _) in page.match_indices("prefers-color-scheme: dark") {
        assert!(
            page[..before].ends_with("@media screen and ("),
            "dark would be printed"
        );
    }
    assert_eq!(page.matches("prefers-color-scheme: dark").count(), 1);
}

#[test]
fn the_table_fits_a_terminal_of_a_hundred_columns() {
    for case in runs() {
        for line in table(&case).lines().skip(1) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn the_json_has_the_published_fields() {
    let runs = runs();
    let one: serde_json::Value =
        serde_json::from_str(&postmortem::report::json::json(&runs[..1]).unwrap()).unwrap();
    assert_eq!(one["case"], "plain");
    for field in [
        "name",
        "faulty",
        "units_sold",
        "oversold",
        "stranded",
        "holders_at_once",
        "holds",
    ] {
        assert!(
            one["ways"]
                .as_array()
                .unwrap()
                .iter()
                .all(|variant| variant.get(field).is_some()),
            "{field}"
        );
    }
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&postmortem::report::json::json(&runs).unwrap()).unwrap();
    assert_eq!(
        all.iter()
            .map(|case| case["case"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["plain", "hard"]
    );
}

#[test]
fn a_case_that_was_skipped_says_why_in_every_report() {
    let mut runs = runs();
    runs[0].variants.clear();
    runs[0].skipped = Some("no <packages>".into());
    let page = page(&runs);
    is_well_formed(&page);
    assert!(page.contains("no &lt;packages&gt;"));
    assert!(page.contains("<span>1 case skipped</span>"));
    let json = postmortem::report::json::json(&runs).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["skipped"], "no <packages>");
    assert!(json[1].get("skipped").is_none());
    let document = postmortem::report::markdown::document(&runs, "a command");
    assert!(document.contains("\nSkipped: no <packages>.\n"));
}

#[test]
fn a_page_without_cases_is_complete() {
    let none: [CaseRun; 0] = [];
    assert!(page(&none).ends_with("</html>"));
}
