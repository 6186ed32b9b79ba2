//! A table whose rows are claimed and written with fencing tokens.

use sqlx::{Encode, Type};

use super::{
    Assignments, Check, Claim, Dialect, Source, StoreError, Write,
    dialect::Sql,
    is_of_wrong_server,
    name::{Column, Table, refused},
    outcome::RowState,
    statement::Statement,
};
use crate::{sequencer::Sequencer, token::FencingToken};

/// A claim is repeated once if the row was inserted between the claim and the read that looks for
/// the reason.
const CLAIM_ATTEMPTS: usize = 2;

/// A table whose rows are claimed by token and then written with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedTable {
    table: Table,
    key: Column,
    fence: Column,
    version: Column,
}

/// Builds a [`FencedTable`]. Names are case-sensitive, also where a database would fold their case.
#[derive(Debug, Clone)]
pub struct FencedTableBuilder {
    table: String,
    key: String,
    fence: String,
    version: String,
}

impl FencedTableBuilder {
    /// The column that identifies a row: a primary key, or a column with a unique index. Default:
    /// `id`. Pass keys in the column's own type: MySQL compares a text with a number by converting
    /// every text into a number, which could match many rows.
    pub fn key_column(mut self, column: &str) -> Self {
        self.key = column.into();
        self
    }

    /// The highest token that has claimed the row: a signed 64-bit integer, zero for none. Default:
    /// `fence`.
    pub fn fence_column(mut self, column: &str) -> Self {
        self.fence = column.into();
        self
    }

    /// The column that every claim and every write raises: a signed 64-bit integer. Default:
    /// `version`.
    pub fn version_column(mut self, column: &str) -> Self {
        self.version = column.into();
        self
    }

    /// Validates the names. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`StoreError::Name`] for an invalid name, or for one column in two roles.
    pub fn build(self) -> Result<FencedTable, StoreError> {
        let table = Table::new("table", &self.table)?;
        let key = Column::new("key_column", &self.key)?;
        let fence = Column::new("fence_column", &self.fence)?;
        let version = Column::new("version_column", &self.version)?;
        if fence.is_like(&key) {
            return Err(refused(
                "fence_column",
                fence.as_str(),
                "a column that is not the key_column",
            ));
        }
        if version.is_like(&key) || version.is_like(&fence) {
            return Err(refused(
                "version_column",
                version.as_str(),
                "a column that is neither the key_column nor the fence_column",
            ));
        }
        Ok(FencedTable {
            table,
            key,
            fence,
            version,
        })
    }
}

impl FencedTable {
    /// `TABLE` or `SCHEMA.TABLE`.
    pub fn builder(table: &str) -> FencedTableBuilder {
        FencedTableBuilder {
            table: table.into(),
            key: "id".into(),
            fence: "fence".into(),
            version: "version".into(),
        }
    }

    /// The statements that add the two columns. They differ between databases only in their quotes.
    pub fn schema<DB: Dialect>(&self) -> [String; 2] {
        let table = self.table.quoted(DB::QUOTE);
        [&self.fence, &self.version].map(|column| {
            let column = column.quoted(DB::QUOTE);
            format!("ALTER TABLE {table} ADD COLUMN {column} BIGINT NOT NULL DEFAULT 0 CHECK ({column} >= 0)")
        })
    }

    /// Claims the row unless a later token has claimed it. A repeated claim with the same token
    /// succeeds and withdraws the right to write from the earlier claim.
    ///
    /// # Errors
    ///
    /// After any error, a repeated claim is safe.
    pub async fn claim<'q, DB, S, K>(
        &self,
        source: S,
        key: K,
        token: FencingToken,
    ) -> Result<Claim, StoreError>
    where
        DB: Dialect,
        S: Source<Database = DB>,
        K: Encode<'q, DB> + Type<DB>,
    {
        let mut connection = source.connection().await?;
        for _ in 0..CLAIM_ATTEMPTS {
            let claim = self.claim_statement::<DB, _>(&key, token)?;
            if let Some(version) = update::<S>(&mut connection, claim).await? {
                return Ok(Claim::Claimed { version });
            }
            let read_row = self.read_statement::<DB, _>(&key, DB::READ_LATEST)?;
            match read::<S>(&mut connection, read_row).await? {
                None => return Ok(Claim::Missing),
                Some(row) => {
                    if let Some(current) = row.above(token) {
                        return Ok(Claim::Superseded { current });
                    }
                }
            }
        }
        Err(StoreError::NotUpdated)
    }

    /// Writes the row and raises its version. The write is applied if this token has claimed the
    /// row and the row was neither claimed nor written since `version`.
    ///
    /// # Errors
    ///
    /// After any error, a repeated write is safe: it is applied at most once.
    pub async fn write<'q, DB, S, K>(
        &self,
        source: S,
        key: K,
        token: FencingToken,
        version: i64,
        assignments: Assignments<DB>,
    ) -> Result<Write, StoreError>
    where
        DB: Dialect,
        S: Source<Database = DB>,
        K: Encode<'q, DB> + Type<DB>,
    {
        let write = self.write_statement(&key, token, version, assignments)?;
        let read_row = self.read_statement::<DB, _>(&key, DB::READ_LATEST)?;
        let mut connection = source.connection().await?;
        if let Some(version) = update::<S>(&mut connection, write).await? {
            return Ok(Write::Applied { version });
        }
        let Some(row) = read::<S>(&mut connection, read_row).await? else {
            return Ok(Write::Missing);
        };
        match row.above(token) {
            Some(current) => Ok(Write::Superseded { current }),
            None if row.is_below(token) => Ok(Write::Unclaimed),
            None if row.version != version => Ok(Write::Conflict {
                version: row.version,
            }),
            None => Err(StoreError::NotUpdated),
        }
    }

    /// Whether this token made the last claim of the row.
    ///
    /// Inside a transaction the answer stays true until its end, because no other client can claim
    /// the row before that (in SQLite the transaction then fails when it writes). So a transaction
    /// can change other rows on behalf of a holder. Outside of one the answer may be outdated
    /// already.
    ///
    /// # Errors
    ///
    /// After any error, a repeated check is safe.
    pub async fn check<'q, DB, S, K>(
        &self,
        source: S,
        key: K,
        token: FencingToken,
    ) -> Result<Check, StoreError>
    where
        DB: Dialect,
        S: Source<Database = DB>,
        K: Encode<'q, DB> + Type<DB>,
    {
        let read_row = self.read_statement::<DB, _>(&key, DB::READ_LOCKED)?;
        let mut connection = source.connection().await?;
        let Some(row) = read::<S>(&mut connection, read_row).await? else {
            return Ok(Check::Missing);
        };
        Ok(match row.above(token) {
            Some(current) => Check::Superseded { current },
            None if row.is_below(token) => Check::Unclaimed,
            None => Check::Current,
        })
    }

    /// What Chubby calls `CheckSequencer`, for a store that is handed a [`Sequencer`] with a
    /// request: [`check`](Self::check) with its token.
    ///
    /// The database does not know which lock protects which row. Derive the key from
    /// `sequencer.name` and not from the rest of the request: otherwise a caller could present the
    /// sequencer of another lock.
    ///
    /// # Errors
    ///
    /// After any error, a repeated check is safe.
    pub async fn check_sequencer<'q, DB, S, K>(
        &self,
        source: S,
        key: K,
        sequencer: &Sequencer,
    ) -> Result<Check, StoreError>
    where
        DB: Dialect,
        S: Source<Database = DB>,
        K: Encode<'q, DB> + Type<DB>,
    {
        self.check(source, key, sequencer.token).await
    }

    fn claim_statement<'q, DB, K>(
        &self,
        key: K,
        token: FencingToken,
    ) -> Result<Statement<DB>, StoreError>
    where
        DB: Dialect,
        K: Encode<'q, DB> + Type<DB>,
    {
        let mut statement = Statement::new(format!("UPDATE {} SET ", self.table.quoted(DB::QUOTE)));
        statement.push_column(&self.fence);
        statement.push(" = ");
        statement.push_number(&self.fence, token.get())?;
        statement.push(", ");
        self.push_next_version(&mut statement);
        self.push_key(&mut statement, key)?;
        // Equality as well: a holder whose answer was lost repeats its claim.
        self.push_condition(&mut statement, &self.fence, "<=", token.get())?;
        self.push_returning(&mut statement);
        Ok(statement)
    }

    fn write_statement<'q, DB, K>(
        &self,
        key: K,
        token: FencingToken,
        version: i64,
        assignments: Assignments<DB>,
    ) -> Result<Statement<DB>, StoreError>
    where
        DB: Dialect,
        K: Encode<'q, DB> + Type<DB>,
    {
        let mut statement = assignments.into_statement([&self.key, &self.fence, &self.version])?;
        statement.begin_with(&format!("UPDATE {} SET ", self.table.quoted(DB::QUOTE)));
        self.push_next_version(&mut statement);
        self.push_key(&mut statement, key)?;
        self.push_condition(&mut statement, &self.fence, "=", token.get())?;
        self.push_condition(&mut statement, &self.version, "=", version)?;
        self.push_returning(&mut statement);
        Ok(statement)
    }

    fn read_statement<'q, DB, K>(&self, key: K, ending: &str) -> Result<Statement<DB>, StoreError>
    where
        DB: Dialect,
        K: Encode<'q, DB> + Type<DB>,
    {
        let [table, fence, version] = [
            self.table.quoted(DB::QUOTE),
            self.fence.quoted(DB::QUOTE),
            self.version.quoted(DB::QUOTE),
        ];
        let mut statement = Statement::new(format!("SELECT {fence}, {version} FROM {table}"));
        self.push_key(&mut statement, key)?;
        statement.push(ending);
        Ok(statement)
    }

    fn push_next_version<DB: Dialect>(&self, statement: &mut Statement<DB>) {
        let [before, after] = DB::NEXT_VERSION;
        let version = self.version.quoted(DB::QUOTE);
        statement.push(&format!("{version} = {before}{version}{after}"));
    }

    fn push_key<'q, DB, K>(&self, statement: &mut Statement<DB>, key: K) -> Result<(), StoreError>
    where
        DB: Dialect,
        K: Encode<'q, DB> + Type<DB>,
    {
        statement.push(" WHERE ");
        statement.push_column(&self.key);
        statement.push(" = ");
        statement.push_value(&self.key, key)
    }

    fn push_condition<DB: Dialect>(
        &self,
        statement: &mut Statement<DB>,
        column: &Column,
        comparison: &str,
        number: i64,
    ) -> Result<(), StoreError> {
        statement.push(" AND ");
        statement.push_column(column);
        statement.push(&format!(" {comparison} "));
        statement.push_number(column, number)
    }

    fn push_returning<DB: Dialect>(&self, statement: &mut Statement<DB>) {
        if let Some(returning) = DB::RETURNING {
            statement.push(returning);
            statement.push_column(&self.version);
        }
    }
}

async fn update<S: Source>(
    connection: &mut S::Connection,
    statement: Statement<S::Database>,
) -> Result<Option<i64>, StoreError> {
    let (sql, arguments) = statement.into_parts();
    let rows = S::Database::update(connection, sql, arguments).await;
    at_most_one(trusted::<S, _>(connection, rows)?)
}

async fn read<S: Source>(
    connection: &mut S::Connection,
    statement: Statement<S::Database>,
) -> Result<Option<RowState>, StoreError> {
    let (sql, arguments) = statement.into_parts();
    let rows = S::Database::read(connection, sql, arguments).await;
    let row = at_most_one(trusted::<S, _>(connection, rows)?)?;
    Ok(row.map(|(fence, version)| RowState { fence, version }))
}

/// The answer. A connection to a server that takes no writes is not used again.
fn trusted<S: Source, T>(
    connection: &mut S::Connection,
    answer: Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    answer.inspect_err(|error| {
        if is_of_wrong_server(error) {
            S::distrust(connection);
        }
    })
}

fn at_most_one<T>(rows: Vec<T>) -> Result<Option<T>, StoreError> {
    let count = rows.len();
    if count > 1 {
        Err(StoreError::KeyNotUnique { rows: count })
    } else {
        Ok(rows.into_iter().next())
    }
}
