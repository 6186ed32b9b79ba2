//! The file with the admins.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Context, Result, ensure};
use order::{Admin, Scope, TokenHash};
use serde::Deserialize;

/// Names of the journal's other actors, which no admin may have.
const RESERVED: [&str; 7] = [
    "admin",
    "cli",
    "payment",
    "publisher",
    "reconciler",
    "stockade",
    "up",
];
const NAME_MAX: usize = 64;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    admins: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    token_sha256: String,
    scopes: Vec<String>,
}

/// Reads the admins. An error names the entry and what was expected.
pub(super) fn read(path: &Path) -> Result<Vec<Admin>> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("STOCKADE_ADMINS_FILE: cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("STOCKADE_ADMINS_FILE: {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Admin>> {
    let File { admins } = toml::from_str(text)?;
    ensure!(!admins.is_empty(), "expected at least one [[admins]]");
    let (mut names, mut hashes) = (HashSet::new(), HashSet::new());
    for Entry {
        name, token_sha256, ..
    } in &admins
    {
        ensure!(names.insert(name), "the name {name:?} occurs twice");
        ensure!(
            hashes.insert(token_sha256.to_ascii_lowercase()),
            "{name}: another admin has the same token"
        );
    }
    admins.iter().map(Entry::admin).collect()
}

impl Entry {
    fn admin(&self) -> Result<Admin> {
        let Self {
            name,
            token_sha256,
            scopes,
        } = self;
        let is_name =
            |character: char| character.is_ascii_alphanumeric() || "-_.@".contains(character);
        ensure!(
            (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_name),
            "name: expected 1 to {NAME_MAX} of a-z, A-Z, 0-9, - _ . @, found {name:?}"
        );
        ensure!(
            !RESERVED.contains(&name.as_str()),
            "name: {name:?} is reserved"
        );
        let hash = sha256(token_sha256)
            .with_context(|| format!("{name}: token_sha256: expected 64 hexadecimal digits"))?;
        ensure!(!scopes.is_empty(), "{name}: scopes: expected at least one");
        let scope = |text: &String| -> Result<Scope> {
            text.parse()
                .with_context(|| format!("{name}: scopes: {text:?}"))
        };
        let scopes: Result<Vec<Scope>> = scopes.iter().map(scope).collect();
        Ok(Admin::new(name, hash, scopes?))
    }
}

fn sha256(text: &str) -> Result<TokenHash> {
    let mut hash = TokenHash::default();
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    ensure!(
        text.len() == 2 * hash.len() && text.bytes().all(is_digit),
        "found {text:?}"
    );
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits)?, 16)?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn file(name: &str, hash: &str, scopes: &str) -> String {
        format!("[[admins]]\nname = \"{name}\"\ntoken_sha256 = \"{hash}\"\nscopes = [{scopes}]\n")
    }

    #[test]
    fn every_admin_has_a_name_a_token_and_scopes() {
        let (ann, bob) = (
            file("ann", &"0a".repeat(32), "\"read\", \"stock:write\""),
            file("bob@shop", &"0B".repeat(32), "\"read\""),
        );
        assert_eq!(parse(&format!("{ann}{bob}")).unwrap().len(), 2);
        let good = "0a".repeat(32);
        for (text, expected) in [
            (String::new(), "at least one"),
            (format!("{ann}{ann}"), "occurs twice"),
            (
                format!("{ann}{}", file("eve", &good, "\"read\"")),
                "same token",
            ),
            (file("", &good, "\"read\""), "name"),
            (file("payment", &good, "\"read\""), "reserved"),
            (file("ann", "0a", "\"read\""), "64 hexadecimal"),
            (file("ann", &"zz".repeat(32), "\"read\""), "64 hexadecimal"),
            (file("ann", &"+a".repeat(32), "\"read\""), "64 hexadecimal"),
            (file("ann", &good, ""), "at least one"),
            (file("ann", &good, "\"write\""), "\"write\""),
            (format!("{ann}token = \"x\"\n"), "token"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
