//! The names of tables and columns: validated once, and quoted for each database.

use super::StoreError;

/// PostgreSQL silently truncates longer names.
const BYTES_MAX: usize = 63;
const PLAIN: &str = "1 to 63 ASCII letters, digits and underscores, and no digit first";
const QUALIFIED: &str = "TABLE or SCHEMA.TABLE, each of 1 to 63 ASCII letters, digits and underscores, and no digit first";

/// A validated column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column(String);

/// A validated table, with its schema if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table(Vec<String>);

impl Column {
    pub(crate) fn new(field: &'static str, name: &str) -> Result<Self, StoreError> {
        if is_identifier(name) {
            Ok(Self(name.into()))
        } else {
            Err(refused(field, name, PLAIN))
        }
    }

    /// Whether a database could confuse the two: MySQL and SQLite ignore the case of columns.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Validated names never contain a quote.
    pub(crate) fn quoted(&self, quote: char) -> String {
        format!("{quote}{}{quote}", self.0)
    }
}

impl Table {
    pub(crate) fn new(field: &'static str, name: &str) -> Result<Self, StoreError> {
        let parts: Vec<_> = name.split('.').map(String::from).collect();
        let is_table = parts.len() <= 2 && parts.iter().all(|part| is_identifier(part));
        if is_table {
            Ok(Self(parts))
        } else {
            Err(refused(field, name, QUALIFIED))
        }
    }

    pub(crate) fn quoted(&self, quote: char) -> String {
        self.0
            .iter()
            .map(|part| format!("{quote}{part}{quote}"))
            .collect::<Vec<_>>()
            .join(".")
    }
}

pub(crate) fn refused(field: &'static str, found: &str, expected: &'static str) -> StoreError {
    StoreError::Name {
        field,
        found: found.into(),
        expected,
    }
}

fn is_identifier(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::{Column, Table};

    #[test]
    fn only_names_that_every_database_keeps_unchanged_are_accepted() {
        for name in ["id", "_x", "Item2", "order", &"x".repeat(63)] {
            assert_eq!(
                Column::new("f", name).unwrap().quoted('"'),
                format!("\"{name}\"")
            );
        }
        for name in [
            "",
            "2nd",
            "a b",
            "a-b",
            "a\"b",
            "a`b",
            "a'b",
            "a;b",
            "a.b",
            "größe",
            "a\0",
            &"x".repeat(64),
        ] {
            assert!(Column::new("f", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_table_may_be_in_a_schema() {
        assert_eq!(Table::new("f", "items").unwrap().quoted('`'), "`items`");
        assert_eq!(
            Table::new("f", "shop.items").unwrap().quoted('`'),
            "`shop`.`items`"
        );
        for name in ["", ".", "a.", ".a", "a.b.c", "a.b;c"] {
            assert!(Table::new("f", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_field_and_the_expected_form() {
        let error = Column::new("fence_column", "the fence")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "fence_column is \"the fence\"; expected 1 to 63 ASCII letters, digits and underscores, and no digit first"
        );
    }
}
