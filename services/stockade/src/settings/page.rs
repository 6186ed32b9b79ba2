//! The tables of the settings page.

use std::{env, fs, path::Path};

use super::{GROUPS, Setting};

const HEAD: &str = "| variable | default | meaning |\n|---|---|---|\n";

/// The row of a setting.
fn row(setting: &Setting) -> String {
    let default = match setting.default {
        Some(number) if number.parse::<u64>().is_ok() => number.to_owned(),
        Some(text) => format!("`{text}`"),
        None => String::new(),
    };
    let (variable, text) = (setting.variable(), setting.text());
    format!("| `{variable}` | {default} | {text} |\n")
}

/// The page, with the table of each group in its section.
fn with_tables(page: &str) -> String {
    let (mut written, mut groups) = (String::new(), GROUPS.iter());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with("| variable |") {
            written += &format!("{line}\n");
            continue;
        }
        while lines.next_if(|line| line.starts_with('|')).is_some() {}
        let (title, group) = groups.next().expect("more tables than groups");
        assert!(
            written.contains(&format!("\n## {title}\n")),
            "the section {title:?} is not before the table of its group"
        );
        let rows: String = group().iter().map(row).collect();
        written += &format!("{HEAD}{rows}");
    }
    let missing: Vec<_> = groups.map(|(title, _)| title).collect();
    assert!(missing.is_empty(), "no tables of {missing:?}");
    written
}

/// The same tables as in `docs/settings.md`. With `STOCKADE_WRITE_SETTINGS=1` the test writes them
/// first (`make settings`).
#[test]
fn the_settings_page_has_every_setting_as_it_is_declared() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let page = fs::read_to_string(&file).unwrap();
    let written = with_tables(&page);
    if env::var("STOCKADE_WRITE_SETTINGS").is_ok_and(|write| write == "1") {
        fs::write(&file, &written).unwrap();
    } else {
        assert!(
            page == written,
            "docs/settings.md is old: run `make settings`"
        );
    }
}

#[test]
fn every_setting_has_a_key_of_its_own_and_a_short_description() {
    let mut keys = std::collections::HashSet::new();
    for setting in super::SETTINGS.iter() {
        assert!(keys.insert(setting.key), "{} occurs twice", setting.key);
        let text = setting.text();
        assert!(!text.is_empty() && !text.ends_with('.'), "{}", setting.key);
    }
}
