//! The header of each `lua/*.lua` says what the file does.

use std::{collections::BTreeSet, fs, path::Path};

/// Every script, by the stem of its file.
fn scripts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut scripts: Vec<_> = paths
        .map(|path| {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            (stem, fs::read_to_string(path).unwrap())
        })
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 15, "found only {} scripts", scripts.len());
    scripts
}

fn parts(text: &str) -> (&str, &str) {
    text.split_once("\n\n").unwrap()
}

fn section<'a>(header: &'a str, name: &str) -> Vec<&'a str> {
    const SECTIONS: [&str; 5] = ["KEYS", "ARGV", "Returns", "Keeps", "Cost"];
    let lines = header.lines().filter_map(|line| line.strip_prefix("-- "));
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let content = lines.skip_while(|line| first(line) != name).enumerate();
    content
        .take_while(|(index, line)| *index == 0 || !SECTIONS.contains(&first(line).as_str()))
        .map(|(_, line)| line)
        .collect()
}

/// The first word between apostrophes after each occurrence of `before`.
fn quoted_after<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    text.match_indices(before)
        .filter_map(|(at, found)| text[at + found.len()..].split('\'').next())
        .collect()
}

#[test]
fn every_header_has_every_section() {
    for (name, text) in scripts() {
        let (header, _) = parts(&text);
        assert!(header.starts_with("#!lua"), "{name}");
        assert!(
            header.lines().nth(1).unwrap().ends_with('.'),
            "{name}: the first line says what it does"
        );
        assert!(
            header.contains("\n-- Closes the race "),
            "{name}: which race does it close?"
        );
        for wanted in ["KEYS", "ARGV", "Returns", "Keeps", "Cost"] {
            assert!(!section(header, wanted).is_empty(), "{name}: {wanted}");
        }
        assert!(
            section(header, "Cost").concat().contains("O("),
            "{name}: Cost names no order of growth"
        );
    }
}

#[test]
fn the_keys_of_a_header_are_those_of_the_code() {
    for (name, text) in scripts() {
        let (header, code) = parts(&text);
        let keys = section(header, "KEYS");
        let locals: Vec<_> = keys
            .iter()
            .map(|line| {
                line.trim_start_matches("KEYS")
                    .split_whitespace()
                    .nth(1)
                    .unwrap()
            })
            .collect();
        let numbers: Vec<_> = (1..=keys.len())
            .map(|number| format!("KEYS[{number}]"))
            .collect();
        assert!(
            code.starts_with(&format!(
                "local {} = {}\n",
                locals.join(", "),
                numbers.join(", ")
            )),
            "{name}"
        );
        assert!(
            keys.iter().all(|line| ["string", "zset", "hash"]
                .iter()
                .any(|kind| line.contains(&format!(" {kind}  ")))),
            "{name}: types"
        );
    }
}

#[test]
fn every_status_that_the_code_returns_is_in_the_header() {
    for (name, text) in scripts() {
        let (header, code) = parts(&text);
        let documented = section(header, "Returns").join("\n");
        assert_eq!(
            quoted_after(&documented, "{'"),
            quoted_after(code, "return {'"),
            "{name}"
        );
    }
}

#[test]
fn every_status_is_read() {
    let files = [
        include_str!("../../src/redis_server/script.rs"),
        include_str!("../../src/redlock/node.rs"),
        include_str!("../../src/single/acquisition.rs"),
    ];
    let readers = files.concat();
    for (name, text) in scripts() {
        for status in quoted_after(parts(&text).1, "return {'") {
            assert!(
                readers.contains(&format!("\"{status}\"")),
                "{name}: no file reads {status:?}"
            );
        }
    }
}
