//! The header of each `lua/lock_*.lua` says what the file does.

use std::collections::BTreeSet;

const SCRIPTS: [(&str, &str); 15] = [
    (
        "lock_acquire",
        include_str!("../../../../lua/lock_acquire.lua"),
    ),
    (
        "lock_acquire_shared",
        include_str!("../../../../lua/lock_acquire_shared.lua"),
    ),
    (
        "lock_acquire_single",
        include_str!("../../../../lua/lock_acquire_single.lua"),
    ),
    ("lock_admit", include_str!("../../../../lua/lock_admit.lua")),
    ("lock_enter", include_str!("../../../../lua/lock_enter.lua")),
    ("lock_exit", include_str!("../../../../lua/lock_exit.lua")),
    (
        "lock_extend",
        include_str!("../../../../lua/lock_extend.lua"),
    ),
    (
        "lock_extend_entered",
        include_str!("../../../../lua/lock_extend_entered.lua"),
    ),
    (
        "lock_extend_shared",
        include_str!("../../../../lua/lock_extend_shared.lua"),
    ),
    (
        "lock_extend_single",
        include_str!("../../../../lua/lock_extend_single.lua"),
    ),
    ("lock_leave", include_str!("../../../../lua/lock_leave.lua")),
    ("lock_queue", include_str!("../../../../lua/lock_queue.lua")),
    (
        "lock_release",
        include_str!("../../../../lua/lock_release.lua"),
    ),
    (
        "lock_release_shared",
        include_str!("../../../../lua/lock_release_shared.lua"),
    ),
    ("lock_watch", include_str!("../../../../lua/lock_watch.lua")),
];

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
    for (name, text) in SCRIPTS {
        let (header, _) = parts(text);
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
    for (name, text) in SCRIPTS {
        let (header, code) = parts(text);
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
    for (name, text) in SCRIPTS {
        let (header, code) = parts(text);
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
        include_str!("../../src/single/entry.rs"),
    ];
    let readers = files.concat();
    for (name, text) in SCRIPTS {
        for status in quoted_after(parts(text).1, "return {'") {
            assert!(
                readers.contains(&format!("\"{status}\"")),
                "{name}: nobody reads {status:?}"
            );
        }
    }
}
