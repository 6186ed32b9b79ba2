//! A statement under construction: its text, which consists of validated names and placeholders,
//! and the bound values.

use sqlx::{Arguments, Encode, Type};

use super::{
    Dialect, StoreError,
    name::{Column, refused},
};

const ASSIGNED: &str = "an assigned column";

/// Placeholders and values are in the same order.
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

    /// Inserts text without a value at the beginning.
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

    /// Adds the placeholder of the last value. On PostgreSQL it is the number of the value.
    fn push_placeholder(
        &mut self,
        column: &Column,
        added: Result<(), sqlx::error::BoxDynError>,
    ) -> Result<(), StoreError> {
        let pushed = added.and_then(|()| Ok(self.arguments.format_placeholder(&mut self.sql)?));
        pushed.map_err(|source| StoreError::Value {
            column: column.as_str().into(),
            source,
        })
    }

    pub(crate) fn into_parts(self) -> (String, DB::Arguments) {
        (self.sql, self.arguments)
    }
}

/// The columns that a write sets. Each value is bound and never part of the text.
///
/// The write reports an invalid column or value before anything is sent.
#[must_use = "assignments take effect only in a write"]
pub struct Assignments<DB: Dialect> {
    /// `COLUMN = PLACEHOLDER, ` for each column.
    statement: Statement<DB>,
    columns: Vec<Column>,
    refused: Option<StoreError>,
}

impl<DB: Dialect> Assignments<DB> {
    /// No assignments yet. A write without assignments only raises the version.
    pub fn new() -> Self {
        Self {
            statement: Statement::new(String::new()),
            columns: Vec::new(),
            refused: None,
        }
    }

    /// Adds an assignment. If several are invalid, the first is reported.
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

    /// The assignments as SQL. The reserved columns cannot be assigned.
    pub(crate) fn into_statement(
        self,
        reserved: [&Column; 3],
    ) -> Result<Statement<DB>, StoreError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let conflict = self
            .columns
            .iter()
            .find(|column| reserved.iter().any(|reserved| reserved.is_like(column)));
        match conflict {
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

/// Without the values, which may be confidential.
impl<DB: Dialect> std::fmt::Debug for Assignments<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assignments")
            .field("columns", &self.columns)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
