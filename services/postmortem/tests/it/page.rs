//! The page as text: that it is whole, and that nothing in it is more than it should be.

use postmortem::{
    report::{html::page, table::table},
    run::Played,
    timeline::Event,
};

use crate::sample::{TRAP, played};

/// The elements of HTML that have no end.
const VOID: [&str; 6] = ["meta", "link", "br", "hr", "img", "input"];

/// The tags in order: name, and whether it begins. Text and the style sheet are passed over.
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

/// What the page has for a way, from its heading to the next.
fn article<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!("<article class=\"way\" id=\"{id}\">"))
        .unwrap_or_else(|| panic!("no way {id}"));
    rest.split_once("</article>").unwrap().0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[test]
fn every_element_that_begins_ends() {
    is_well_formed(&page(&played()));
}

/// Every element that begins ends, and within the one that it began in.
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
fn every_name_in_the_page_is_there_once_and_every_link_within_it_leads_somewhere() {
    let page = page(&played());
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
    assert_eq!(ids.len(), number, "a name is there twice");
    let links = values("href");
    for link in links.iter().filter_map(|link| link.strip_prefix('#')) {
        assert!(ids.iter().any(|id| id == link), "#{link} leads nowhere");
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
fn nothing_is_loaded_from_anywhere() {
    let page = page(&played());
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
    // Sources are linked; nothing else has an address.
    let addresses = page.matches("http://").count() + page.matches("https://").count();
    assert_eq!(
        addresses,
        page.matches("<a href=\"https://example.org/").count(),
        "an address that is no link"
    );
    assert!(!page.contains("href=\"javascript:"));
}

#[test]
fn every_case_and_every_way_is_there() {
    let played = played();
    let page = page(&played);
    for case in &played {
        assert!(
            page.contains(&format!("<section class=\"case\" id=\"{}\">", case.case)),
            "{}",
            case.case
        );
        for (n, way) in case.ways.iter().enumerate() {
            let article = article(&page, &format!("{}-{}", case.case, n + 1));
            assert!(article.contains(&escaped(way.way.name)), "{}", way.way.name);
            assert_eq!(article.matches("<svg class=\"timeline\"").count(), 1);
        }
    }
    let ways: usize = played.iter().map(|case| case.ways.len()).sum();
    assert_eq!(page.matches("<article ").count(), ways);
    assert_eq!(
        page.matches("<th scope=\"row\">").count(),
        ways,
        "each has a row of the table"
    );
    assert_eq!(
        page.matches("class=\"sign ").count(),
        ways,
        "and a sign in the index"
    );
}

#[test]
fn what_a_story_or_a_label_says_is_text() {
    let page = page(&played());
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
            places.any(|said| said.contains("&lt;script&gt;")),
            "the trap is not told in a {place}"
        );
    }
}

#[test]
fn a_page_says_by_words_whether_a_case_went_as_told() {
    let played = played();
    let page = page(&played);
    assert!(page.contains("1 case did not go as told"));
    assert!(article(&page, "hard-2").contains("not as told"));
    assert!(!article(&page, "told-1").contains("not as told"));
    assert!(article(&page, "told-1").contains("fails: 2 units oversold"));
    assert!(article(&page, "hard-2").contains("fails: 6 units stranded, 12 zombie writes"));
    assert!(article(&page, "hard-3").contains("holds (told again, at speed 5)"));
    assert!(article(&page, "told-3").contains("holds"));
}

#[test]
fn a_picture_has_a_lane_for_each_actor_and_a_line_for_each_harm() {
    let page = page(&played());
    let article = |id| article(&page, id);
    let lanes = |id| article(id).matches("<text class=\"lane\"").count();
    // The units under the lanes have a name, too.
    assert_eq!(
        (
            lanes("told-1"),
            lanes("told-4"),
            lanes("hard-2"),
            lanes("hard-3")
        ),
        (3 + 1, 0, 8 + 1, 1 + 1)
    );
    let harms = |id| article(id).matches("<line class=\"harm\"").count();
    assert_eq!(
        (harms("told-1"), harms("told-3"), harms("told-4")),
        (1, 0, 0),
        "the two are nearer than one can see"
    );
    assert!(
        article("told-1").contains(&format!("oversold \u{d7}2: {}", escaped(&TRAP[..8]))),
        "it says what was done"
    );
    assert!(
        article("told-1").contains("Harm was done at 39.0\u{2013}39.2"),
        "so does its description"
    );
}

#[test]
fn a_lock_is_hatched_when_its_lease_has_run_out() {
    let page = page(&played());
    let told = article(&page, "told-1");
    let drawing = told.split_once("</svg>").unwrap().0;
    assert_eq!(
        drawing.matches("<rect class=\"over\"").count(),
        2,
        "both locks ran out; the second never ends"
    );
    assert!(told.contains("inside: buyer-1; its lease ran out at 15.0"));
    assert!(
        told.contains("still inside, but its lease has run out"),
        "and the legend says what that means"
    );
}

#[test]
fn hundreds_of_moments_are_thinned_in_the_drawing_and_all_told_in_the_list() {
    let page = page(&played());
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
    let told: usize = list
        .split("<td>")
        .map(|line| {
            if line.starts_with("sells") {
                sales(line).max(1)
            } else {
                0
            }
        })
        .sum();
    let noted = played()[1].ways[1]
        .picture
        .moments
        .iter()
        .filter(|moment| moment.event == Event::Sale)
        .count();
    assert_eq!(told, noted);
}

#[test]
fn units_sold_are_drawn_only_if_the_sales_that_were_noted_are_those_that_were_counted() {
    let page = page(&played());
    let sold = |id| article(&page, id).contains("<path class=\"sold\"");
    let beyond = |id| article(&page, id).contains("<path class=\"beyond\"");
    assert!(
        sold("told-1") && beyond("told-1"),
        "ten sales and two harms are twelve units"
    );
    assert!(sold("told-3") && !beyond("told-3"), "refusals are no sales");
    assert!(
        !sold("hard-2"),
        "hundreds of sales were noted, and four units were counted"
    );
    assert!(
        article(&page, "hard-2").contains("<path class=\"stock\""),
        "what was read is drawn in any case"
    );
}

#[test]
fn dark_is_for_screens_alone() {
    let page = page(&played());
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
    for case in played() {
        for line in table(&case).lines().skip(1) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn json_has_what_machines_were_promised() {
    let played = played();
    let one: serde_json::Value =
        serde_json::from_str(&postmortem::report::json::json(&played[..1]).unwrap()).unwrap();
    assert_eq!(one["case"], "told");
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
                .all(|way| way.get(field).is_some()),
            "{field}"
        );
    }
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&postmortem::report::json::json(&played).unwrap()).unwrap();
    assert_eq!(
        all.iter()
            .map(|case| case["case"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["told", "hard"]
    );
}

#[test]
fn a_page_without_a_case_is_a_page() {
    let none: [Played; 0] = [];
    assert!(page(&none).ends_with("</html>"));
}
