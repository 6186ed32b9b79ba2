//! A statement as it grows: its text, of checked names and placeholders only, and the values that go with it.

use sqlx::{Arguments, Encode, Type};

use super::{
    Dialect, StoreError,
    name::{Column, refused},
};

const ASSIGNED: &str = "an assigned column";

/// Text and values, in the same order.
pub(crate) struct Statement<DB: Dialect> {
    sql: String,
    arguments: DB::Arguments,
}

impl<DB: Dialect> Statement<DB> {
    pub(crate) fn new(sql: String) -> Self {
        Self {
            sql,
            arguments: DB::Arguments::default(),
        }
    }

    /// What comes before everything else: text without a value.
    pub(crate) fn begin_with(&mut self, sql: &str) {
        self.sql.insert_str(0, sql);
    }

    pub(crate) fn push(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    pub(crate) fn push_column(&mut self, column: &Column) {
        self.sql.push_str(&column.quoted(DB::QUOTE));
    }

    pub(crate) fn push_value<'q, T>(&mut self, column: &Column, value: T) -> Result<(), StoreError>
    where
        T: Encode<'q, DB> + Type<DB>,
    {
        let added = self.arguments.add(value);
        self.push_placeholder(column, added)
    }

    pub(crate) fn push_number(&mut self, column: &Column, number: i64) -> Result<(), StoreError> {
        let added = DB::bind_number(&mut self.arguments, number);
        self.push_placeholder(column, added)
    }

    /// Of the value that was added just now: PostgreSQL's placeholder is its number.
    fn push_placeholder(
        &mut self,
        column: &Column,
        added: Result<(), sqlx::error::BoxDynError>,
    ) -> Result<(), StoreError> {
        let placed = added.and_then(|()| Ok(self.arguments.format_placeholder(&mut self.sql)?));
        placed.map_err(|source| StoreError::Value {
            column: column.as_str().into(),
            source,
        })
    }

    pub(crate) fn into_parts(self) -> (String, DB::Arguments) {
        (self.sql, self.arguments)
    }
}

/// What a write sets: columns, each with a value that is bound and never part of the text.
///
/// A column or a value that cannot be used is reported by the write, before anything is sent.
#[must_use = "they are for a write"]
pub struct Assignments<DB: Dialect> {
    /// `COLUMN = PLACEHOLDER, ` for each column.
    statement: Statement<DB>,
    columns: Vec<Column>,
    refused: Option<StoreError>,
}

impl<DB: Dialect> Assignments<DB> {
    /// None yet. A write with none just raises the version.
    pub fn new() -> Self {
        Self {
            statement: Statement::new(String::new()),
            columns: Vec::new(),
            refused: None,
        }
    }

    /// One more. Of several that cannot be used, the first is reported.
    pub fn set<'q, T>(mut self, column: &str, value: T) -> Self
    where
        T: Encode<'q, DB> + Type<DB>,
    {
        if self.refused.is_none() {
            self.refused = self.add(column, value).err();
        }
        self
    }

    fn add<'q, T>(&mut self, column: &str, value: T) -> Result<(), StoreError>
    where
        T: Encode<'q, DB> + Type<DB>,
    {
        let column = Column::new(ASSIGNED, column)?;
        if self.columns.iter().any(|earlier| earlier.is_like(&column)) {
            return Err(refused(ASSIGNED, column.as_str(), "each column once"));
        }
        self.statement.push_column(&column);
        self.statement.push(" = ");
        self.statement.push_value(&column, value)?;
        self.statement.push(", ");
        self.columns.push(column);
        Ok(())
    }

    /// The beginning of the write, unless it would set what is not the caller's to set.
    pub(crate) fn into_statement(
        self,
        reserved: [&Column; 3],
    ) -> Result<Statement<DB>, StoreError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let taken = self
            .columns
            .iter()
            .find(|column| reserved.iter().any(|reserved| reserved.is_like(column)));
        match taken {
            Some(column) => Err(refused(
                ASSIGNED,
                column.as_str(),
                "a column that is not the key, the fence or the version",
            )),
            None => Ok(self.statement),
        }
    }
}

impl<DB: Dialect> Default for Assignments<DB> {
    fn default() -> Self {
        Self::new()
    }
}

/// Without the values, which may be anybody's secrets.
impl<DB: Dialect> std::fmt::Debug for Assignments<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assignments")
            .field("columns", &self.columns)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
