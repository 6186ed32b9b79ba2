//! The Chinese document against the English one: the same cases and variants, the same counts, the
//! same sources.

use postmortem::catalogue;

const ENGLISH: &str = include_str!("../../../../docs/postmortems.md");
const CHINESE: &str = include_str!("../../../../docs/postmortems.zh-CN.md");

/// Columns of counts, from units sold to seconds stuck.
const COUNTS: std::ops::Range<usize> = 2..7;

/// Column of the result.
const RESULT: usize = 7;

/// Returns the cases of a document: each heading, and the text below it.
fn cases(document: &'static str) -> Vec<(&'static str, &'static str)> {
    document
        .split("\n## ")
        .skip(1)
        .map(|part| part.split_once('\n').unwrap())
        .collect()
}

fn names(document: &'static str) -> Vec<&'static str> {
    cases(document).into_iter().map(|(name, _)| name).collect()
}

/// Returns the rows of a case's table without its header, cell by cell.
fn rows(case: &str) -> Vec<Vec<&str>> {
    let lines = case.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines
        .map(|line| {
            line.trim_start_matches("| ")
                .trim_end_matches(" |")
                .split(" | ")
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the name of a variant as the command prints it, and whether it is faulty.
fn english_variant(cell: &str) -> (&str, bool) {
    cell.strip_suffix(" (faulty)")
        .map_or((cell, false), |name| (name, true))
}

/// Returns the same in Chinese: the name as code, a mark, and the name in Chinese.
fn chinese_variant(cell: &str) -> (&str, bool) {
    let (name, rest) = cell
        .strip_prefix('`')
        .and_then(|cell| cell.split_once('`'))
        .unwrap_or_else(|| panic!("no name: {cell}"));
    (name, rest.starts_with("（出事的写法）"))
}

fn numbers(text: &str) -> Vec<&str> {
    let parts = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    parts
        .filter(|part| part.contains(|letter: char| letter.is_ascii_digit()))
        .collect()
}

fn addresses(document: &str) -> Vec<&str> {
    let links = document
        .split("](")
        .skip(1)
        .map(|rest| rest.split_once(')').unwrap().0);
    links.filter(|link| link.starts_with("http")).collect()
}

fn commands(document: &str) -> Vec<&str> {
    document.split("```").skip(1).step_by(2).collect()
}

#[test]
fn each_document_links_to_the_other() {
    assert!(ENGLISH.contains("](postmortems.zh-CN.md)"));
    assert!(CHINESE.contains("](postmortems.md)"));
}

#[test]
fn both_have_the_cases_of_the_catalogue_in_its_order() {
    let names_in_catalogue: Vec<_> = catalogue::all()
        .iter()
        .map(|case| case.name.to_owned())
        .collect();
    for document in [ENGLISH, CHINESE] {
        assert_eq!(names(document), names_in_catalogue);
        let index: Vec<_> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| [`")?.split_once('`'))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(index, names_in_catalogue, "in the index");
    }
}

#[test]
fn both_have_the_same_variants_with_the_same_counts_and_verdicts() {
    for ((case, english), (_, chinese)) in cases(ENGLISH).into_iter().zip(cases(CHINESE)) {
        let (english, chinese) = (rows(english), rows(chinese));
        assert!(!english.is_empty(), "{case}");
        assert_eq!(english.len(), chinese.len(), "{case}");
        for (english, chinese) in english.iter().zip(&chinese) {
            let (variant, faulty) = english_variant(english[0]);
            assert_eq!((english.len(), chinese.len()), (9, 9), "{case}: {variant}");
            assert_eq!(chinese_variant(chinese[0]), (variant, faulty), "{case}");
            assert_eq!(chinese[COUNTS], english[COUNTS], "{case}: {variant}");
            assert_eq!(
                numbers(chinese[RESULT]),
                numbers(english[RESULT]),
                "{case}: {variant}"
            );
            assert_eq!(
                chinese[RESULT] == "**守住了**",
                english[RESULT] == "**holds**",
                "{case}: {variant}"
            );
        }
    }
}

#[test]
fn both_name_the_same_sources_and_commands() {
    for ((case, english), (_, chinese)) in cases(ENGLISH).into_iter().zip(cases(CHINESE)) {
        assert_eq!(addresses(chinese), addresses(english), "{case}");
    }
    assert_eq!(commands(CHINESE), commands(ENGLISH));
}
