//! Fenced writes: a row is claimed with a fencing token and written with token and version, on
//! PostgreSQL, MySQL or MariaDB, and SQLite.
//!
//! A lock on other servers ends by time, so two clients can both consider themselves its holder for
//! a moment. Only the row that the lock protects can tell them apart. It needs two columns for
//! that: the `fence` is the highest token that has claimed the row, and every claim and every write
//! raises the `version`. What gets past a store that checks less:
//!
//! | check at the store | what still gets through |
//! |---|---|
//! | none | everything |
//! | fence only | two delayed writes that arrive in order: both pass, and the second was decided without the first |
//! | version only | a stale holder that reads again, gets the current version and writes |
//! | claim by fence, then write with fence and version | nothing |
//!
//! So: **claim, then read, then decide, then write** with the version that the claim returned.
//!
//! ```
//! # #[cfg(feature = "postgres")]
//! # mod shop {
//! use lock::{
//!     FencingToken,
//!     store::{Assignments, Claim, FencedTable, StoreError, Write},
//! };
//! use sqlx::PgPool;
//!
//! /// Returns whether the recount was written.
//! async fn recount(
//!     pool: &PgPool,
//!     items: &FencedTable,
//!     item: i64,
//!     token: FencingToken,
//! ) -> Result<bool, StoreError> {
//!     let Claim::Claimed { version } = items.claim(pool, item, token).await? else {
//!         return Ok(false); // A later holder has claimed the row, or there is no such item.
//!     };
//!     let sold: i64 = sqlx::query_scalar("SELECT count(*) FROM sales WHERE item = $1")
//!         .bind(item)
//!         .fetch_one(pool)
//!         .await?;
//!     let recounted = Assignments::new().set("sold", sold).set("recounted_by", "nightly");
//!     let write = items.write(pool, item, token, version, recounted).await?;
//!     Ok(matches!(write, Write::Applied { .. }))
//! }
//!
//! fn items() -> Result<FencedTable, StoreError> {
//!     FencedTable::builder("items").key_column("id").build()
//! }
//! # }
//! ```
//!
//! Each call takes a pool, a connection or a transaction (`&mut *transaction`), and is correct with
//! each: one statement changes the row and checks it at the same time. If the statement matched no
//! row, the row is read afterwards on the same connection, to report why. Outside a transaction the
//! row may change in between; the outcome then reports the later state, and still no success.
//!
//! # Rules for callers
//!
//! * **Read after the claim.** A version that was read before the claim is refused, because the
//!   claim has raised it. The version of the claim together with a state that was read earlier is
//!   the one mistake that the store cannot detect.
//! * **Take the version from the claim or from the last write**, never from a `SELECT` of your own.
//!   The next section says why.
//! * **Every program that writes the row must raise the version**, also without a lock: `SET ...,
//!   version = version + 1`.
//! * **Write values that the caller has decided.** There is no `stock = stock - 1` here: a single
//!   statement without any lock does that.
//! * **After an error the outcome is unknown.** A claim may be repeated immediately. So may a
//!   write: it is never applied twice, but a write that was applied and whose answer was lost then
//!   returns [`Conflict`](Write::Conflict). Claim again and read.
//!
//! # Repeated and falling tokens
//!
//! A lock whose nodes have forgotten too much can break its guarantee and give a token twice, or a
//! lower one than before.
//!
//! A claim succeeds if its token equals the fence. A holder whose answer was lost must be able to
//! repeat the claim, and a holder that does several things under one lock claims for each of them.
//! The claim raises the version, so **only the last claim can write**, whatever the tokens are. A
//! write in flight is refused with `Conflict` when another client of the same token claims, and
//! with `Superseded` when a higher token claims. Two holders of the same token that both continue
//! take turns, each claiming and reading what the other has written. No update is lost, but the row
//! cannot know which of the two should have stopped.
//!
//! A token below the fence is `Superseded`, even if its holder is the rightful one. Pass `current`
//! to [`Lock::observe`](crate::Lock::observe) and acquire the lock again.
//!
//! # Columns
//!
//! [`FencedTable::schema`] returns the statements for a table:
//!
//! ```sql
//! ALTER TABLE items ADD COLUMN fence BIGINT NOT NULL DEFAULT 0 CHECK (fence >= 0);
//! ALTER TABLE items ADD COLUMN version BIGINT NOT NULL DEFAULT 0 CHECK (version >= 0);
//! ```
//!
//! Zero is below every token. Only signed 64-bit integers are read. The key column must be unique.
//! A fence that was lowered by hand, or by a restored backup, admits earlier holders again: let the
//! lock observe the highest known token before you continue.

mod dialect;
mod error;
mod name;
mod outcome;
mod source;
mod statement;
mod table;

pub use dialect::Dialect;
pub(crate) use dialect::Sql;
pub use error::StoreError;
pub(crate) use error::{is_of_wrong_server, is_transient};
pub(crate) use name::Table;
pub use outcome::{Check, Claim, Write};
pub use source::Source;
pub use statement::Assignments;
pub use table::{FencedTable, FencedTableBuilder};
