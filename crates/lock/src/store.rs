//! The store decides: claiming a row by fence, and writing to it with fence and version, on PostgreSQL, MySQL or MariaDB, and SQLite.
//!
//! A lock on servers elsewhere ends by time, so there are moments with two who think that they hold it. The row that the lock protects
//! is the only one that can tell them apart. It needs two columns for that: the `fence`, the highest token that has claimed the row, and
//! the `version`, which every claim and every write raises. What a store has to check, and what gets past a store that checks less:
//!
//! | check at the store | what still gets through |
//! |---|---|
//! | none | everything |
//! | fence only | two pauses that arrive late but in order: both pass, the second decided on a state without the first one's write |
//! | version only | a stale holder that reads again, gets the current version and writes |
//! | claim by fence, then write with fence and version | nothing |
//!
//! So: **claim, then read, then decide, then write** with the version that the claim gave.
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
//! /// Whether the item was ours to change, and was changed.
//! async fn recount(pool: &PgPool, items: &FencedTable, item: i64, token: FencingToken) -> Result<bool, StoreError> {
//!     let Claim::Claimed { version } = items.claim(pool, item, token).await? else {
//!         return Ok(false); // Somebody came after us, or there is no such item.
//!     };
//!     let sold: i64 = sqlx::query_scalar("SELECT count(*) FROM sales WHERE item = $1").bind(item).fetch_one(pool).await?;
//!     let recounted = Assignments::new().set("sold", sold).set("recounted_by", "nightly");
//!     Ok(matches!(items.write(pool, item, token, version, recounted).await?, Write::Applied { .. }))
//! }
//!
//! fn items() -> Result<FencedTable, StoreError> {
//!     FencedTable::builder("items").key_column("id").build()
//! }
//! # }
//! ```
//!
//! Each call takes a pool, a connection, or a transaction (`&mut *transaction`), and is correct in each: what changes the row is one
//! statement, which checks as it writes. If it hit no row, the row is read after it on the same connection, for the outcome to say why.
//! Outside a transaction somebody may change the row in between; the outcome is then the later truth, and still no success.
//!
//! # What a reader could get wrong
//!
//! * **What was read before the claim is not covered by it.** A version that was read before the claim is refused, because the claim has
//!   raised it. The version of the claim with a state that was read earlier is the one mistake that the store cannot see.
//! * **The version comes from the claim or from the last write**, never from a `SELECT` of one's own. See the next section.
//! * **Everybody who writes the row must raise the version**, also without a lock: `SET ..., version = version + 1`.
//! * **Values are decided by the caller.** There is no `stock = stock - 1` here: for that a single statement without any lock will do.
//! * **An error leaves the outcome open.** A claim may be repeated at once. A write may too: it is never applied twice, but one that was
//!   applied, and whose answer was lost, then says [`Conflict`](Write::Conflict). Claim again and read.
//!
//! # The same token twice, and tokens that went back
//!
//! A lock whose nodes have forgotten too much can break its promise, and give a token twice or one that is lower than an earlier one.
//!
//! A claim by the token that has the fence already succeeds, because a holder that has not heard the answer must be able to repeat it, and
//! one that does several things under one lock claims for each. It raises the version, and with that **the last claim is the only one that
//! can write**, whatever the numbers: a write that was under way when another of the same token claimed is refused with `Conflict`, as a
//! write of a lower token is with `Superseded`. Two holders of one token who both go on can take turns, each claiming and reading what the
//! other has written. No update is lost, but the row cannot know which of the two should have stopped.
//!
//! A token below the fence is `Superseded`, however rightful. Tell the lock about `current` (`Redlock::observe`) and acquire anew.
//!
//! # The columns
//!
//! [`FencedTable::schema`] gives the statements for a table:
//!
//! ```sql
//! ALTER TABLE items ADD COLUMN fence BIGINT NOT NULL DEFAULT 0 CHECK (fence >= 0);
//! ALTER TABLE items ADD COLUMN version BIGINT NOT NULL DEFAULT 0 CHECK (version >= 0);
//! ```
//!
//! Zero is below every token. Other types than a signed 64-bit integer are not read. The key column must be unique. A fence that was set
//! back by hand, or by a restored backup, forgets who came: let the lock observe the highest token that is known before going on.

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
pub(crate) use error::is_passing;
pub(crate) use name::Table;
pub use outcome::{Check, Claim, Write};
pub use source::Source;
pub use statement::Assignments;
pub use table::{FencedTable, FencedTableBuilder};
