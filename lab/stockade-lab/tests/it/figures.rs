//! The figures of speed that documents state: each is one of the run in `docs/figures/bench.json`.

use std::collections::HashSet;

use reporting::number::grouped;
use serde_json::Value;

const RUN: &str = include_str!("../../../../docs/figures/bench.json");

/// The parts of documents that tell the run, with the headings or marks that they stand between.
const PARTS: [(&str, &str, &str, &str); 3] = [
    (
        "README.md",
        include_str!("../../../../README.md"),
        "\n## Figures\n",
        "\n## ",
    ),
    (
        "README.zh-CN.md",
        include_str!("../../../../README.zh-CN.md"),
        "\n## 性能数字\n",
        "\n## ",
    ),
    (
        "docs/performance.md",
        include_str!("../../../../docs/performance.md"),
        "<!-- BEGIN figures of one run",
        "<!-- END figures of one run",
    ),
];

/// What is promised, and no figure.
const PROMISED: [&str; 1] = ["200,000/s"];

/// Every figure and baseline of the run, and how long its disk took, as documents write them.
fn figures_of(run: &Value) -> HashSet<String> {
    let goals = run.as_object().unwrap().values();
    let lines = goals.flat_map(|goal| {
        let lines = goal["lines"].as_array().into_iter().flatten();
        std::iter::once(goal).chain(lines)
    });
    let figures = lines.flat_map(|line| {
        let is_in_us = line["unit"]
            .as_str()
            .is_some_and(|unit| unit.starts_with("us"));
        let of_unit = if is_in_us { 1000.0 } else { 1.0 };
        let figures = [&line["figure"], &line["baseline"], &line["fdatasync_ms"]];
        let numbers = figures.into_iter().filter_map(Value::as_f64);
        numbers.map(move |number| number / of_unit)
    });
    figures.flat_map(written).collect()
}

/// A rate, or milliseconds, of which small ones have more digits.
fn written(figure: f64) -> [String; 4] {
    [
        format!("{}/s", grouped(figure)),
        format!("{figure:.0} ms"),
        format!("{figure:.1} ms"),
        format!("{figure:.2} ms"),
    ]
}

/// The numbers of a text that have one of these units.
fn stated(text: &str) -> Vec<String> {
    let is_digit = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '.');
    let of_unit = |unit: &'static str| {
        text.match_indices(unit).filter_map(move |(place, _)| {
            let number = text[..place].rsplit(|letter| !is_digit(letter)).next()?;
            (!number.is_empty()).then(|| format!("{number}{unit}"))
        })
    };
    ["/s", " ms"].into_iter().flat_map(of_unit).collect()
}

#[test]
fn documents_state_the_figures_of_one_run() {
    let run: Value = serde_json::from_str(RUN).unwrap();
    let figures = figures_of(&run);
    for (document, text, from, to) in PARTS {
        let (_, part) = text.split_once(from).unwrap();
        let (part, _) = part.split_once(to).unwrap();
        let stated = stated(part);
        assert!(stated.len() >= 8, "{document}: {stated:?}");
        for figure in stated {
            let is_known = figures.contains(&figure) || PROMISED.contains(&&*figure);
            assert!(
                is_known,
                "{document} states {figure}, which is not of the run"
            );
        }
    }
}

#[test]
fn the_picture_shows_figures_of_the_run() {
    const PICTURE: &str = include_str!("../../../../docs/pictures/recorded-orders.svg");
    let run: Value = serde_json::from_str(RUN).unwrap();
    let figures = figures_of(&run);
    let texts = PICTURE
        .split('>')
        .filter_map(|part| part.split_once("</text"));
    let shown: Vec<_> = texts
        .map(|(text, _)| text)
        .filter(|text| {
            text.contains(',') && text.starts_with(|letter: char| letter.is_ascii_digit())
        })
        .collect();
    assert_eq!(shown.len(), 6, "{shown:?}");
    for figure in shown {
        assert!(figures.contains(&format!("{figure}/s")), "{figure}");
    }
}

#[test]
fn no_figure_of_another_run_passes() {
    let run = serde_json::json!({ "P1": { "figure": 35_709.4, "lines": [{ "baseline": 1.26 }, { "figure": 942, "unit": "us" }] } });
    let figures = figures_of(&run);
    for (text, is_known) in [
        ("35,709/s", true),
        ("35,710/s", false),
        ("p50：1.26 ms", true),
        ("1.3 ms", true),
        ("1.24 ms", false),
        ("0.94 ms", true),
    ] {
        let [figure] = stated(text).try_into().unwrap();
        assert_eq!(figures.contains(&figure), is_known, "{text}");
    }
}
