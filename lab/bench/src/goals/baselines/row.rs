//! Stock as one row of PostgreSQL, and a row for each order, written in one transaction: with
//! one of several protections of the row.

use anyhow::{Result, bail};
use async_trait::async_trait;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{
    patience::Doors,
    test_env::{TestEnv, audit_tables},
    variant::Variant,
};
use crate::goals::crowd::Reply;

/// How the row is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    ForUpdate,
    Advisory,
    CompareAndSet,
    Conditional,
    Statement,
}

const ORDER: &str = "INSERT INTO orders (id, item, buyer, quantity) VALUES ($1, 1, $2, 1)";
const TAKE: &str = "UPDATE items SET stock = stock - 1 WHERE id = 1 AND stock >= 1";
const TAKE_AND_ORDER: &str = "WITH taken AS (UPDATE items SET stock = stock - 1 WHERE id = 1 AND stock >= 1 RETURNING id) \
    INSERT INTO orders (id, item, buyer, quantity) SELECT $1, id, $2, 1 FROM taken";

/// The row and its connections.
pub struct Rows {
    pool: PgPool,
    step: Step,
    doors: Doors,
}

impl Rows {
    pub async fn open(env: &TestEnv, step: Step, connections: u64, stock: u64) -> Result<Self> {
        Ok(Self {
            pool: env.tables(connections, stock).await?,
            step,
            doors: Doors::default(),
        })
    }

    /// Reads and writes the row under a lock.
    async fn read_and_write(&self, lock_and_read: &'static str, buyer: &str) -> Result<Reply> {
        let mut transaction = self.pool.begin().await?;
        if self.step == Step::Advisory {
            sqlx::query("SELECT pg_advisory_xact_lock(1)")
                .execute(&mut *transaction)
                .await?;
        }
        let stock: i64 = sqlx::query_scalar(lock_and_read)
            .fetch_one(&mut *transaction)
            .await?;
        if stock < 1 {
            transaction.rollback().await?;
            return Ok(Reply::Refused);
        }
        sqlx::query("UPDATE items SET stock = $1 WHERE id = 1")
            .bind(stock - 1)
            .execute(&mut *transaction)
            .await?;
        order(&mut transaction, buyer).await?;
        transaction.commit().await?;
        Ok(Reply::Sold)
    }

    async fn conditional(&self, buyer: &str) -> Result<Reply> {
        let mut transaction = self.pool.begin().await?;
        if sqlx::query(TAKE)
            .execute(&mut *transaction)
            .await?
            .rows_affected()
            == 0
        {
            transaction.rollback().await?;
            return Ok(Reply::Refused);
        }
        order(&mut transaction, buyer).await?;
        transaction.commit().await?;
        Ok(Reply::Sold)
    }

    async fn statement(&self, buyer: &str) -> Result<Reply> {
        let written = sqlx::query(TAKE_AND_ORDER)
            .bind(Uuid::new_v4())
            .bind(buyer)
            .execute(&self.pool)
            .await?;
        Ok(if written.rows_affected() == 1 {
            Reply::Sold
        } else {
            Reply::Refused
        })
    }

    /// Reads, and writes if the version is unchanged. Otherwise it reads again.
    async fn compare_and_set(&self, buyer: &str) -> Result<Reply> {
        let mut connection = self.pool.acquire().await?;
        while !self.doors.are_closed() {
            let (stock, version): (i64, i64) =
                sqlx::query_as("SELECT stock, version FROM items WHERE id = 1")
                    .fetch_one(&mut *connection)
                    .await?;
            if stock < 1 {
                return Ok(Reply::Refused);
            }
            if write_if(&mut connection, stock, version, buyer).await? {
                return Ok(Reply::Sold);
            }
        }
        Ok(Reply::Refused)
    }
}

async fn write_if(
    connection: &mut PgConnection,
    stock: i64,
    version: i64,
    buyer: &str,
) -> Result<bool> {
    use sqlx::Connection;
    let mut transaction = connection.begin().await?;
    let written = sqlx::query(
        "UPDATE items SET stock = $1, version = version + 1 WHERE id = 1 AND version = $2",
    )
    .bind(stock - 1)
    .bind(version)
    .execute(&mut *transaction)
    .await?;
    if written.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(false);
    }
    order(&mut transaction, buyer).await?;
    transaction.commit().await?;
    Ok(true)
}

async fn order(connection: &mut PgConnection, buyer: &str) -> Result<()> {
    let written = sqlx::query(ORDER)
        .bind(Uuid::new_v4())
        .bind(buyer)
        .execute(connection)
        .await?;
    if written.rows_affected() != 1 {
        bail!("an order was not written");
    }
    Ok(())
}

#[async_trait]
impl Variant for Rows {
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        let buyer = format!("buyer-{buyer}");
        match self.step {
            Step::ForUpdate => {
                self.read_and_write("SELECT stock FROM items WHERE id = 1 FOR UPDATE", &buyer)
                    .await
            }
            Step::Advisory => {
                self.read_and_write("SELECT stock FROM items WHERE id = 1", &buyer)
                    .await
            }
            Step::CompareAndSet => self.compare_and_set(&buyer).await,
            Step::Conditional => self.conditional(&buyer).await,
            Step::Statement => self.statement(&buyer).await,
        }
    }

    fn close(&self) {
        self.doors.close();
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        audit_tables(&self.pool, stock, accepted).await
    }

    async fn end(&self) -> Result<()> {
        self.pool.close().await;
        Ok(())
    }
}
