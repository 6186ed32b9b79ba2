//! One transaction for each order, on one row of stock. The insert comes first, so that the row is
//! locked for no longer than update and commit take.

use anyhow::Result;
use sqlx::PgPool;

use super::{
    http::{OrderRequest, OrderStore, Verdict},
    sql,
};

/// Measured with 1, 16 and 64: the row is as fast with 16 as with 1, and slower with 64. All other
/// work is faster with more connections.
const CONNECTIONS: u32 = 16;

/// Connections to the database of the orders.
pub struct Transactions {
    pool: PgPool,
}

impl Transactions {
    /// Connects to this database.
    pub async fn open(url: &str) -> Result<Self> {
        Ok(Self {
            pool: sql::connect(url, CONNECTIONS).await?,
        })
    }
}

impl OrderStore for Transactions {
    async fn place(&self, request: OrderRequest) -> Result<Verdict> {
        let OrderRequest {
            id,
            item,
            buyer,
            quantity,
            expires_ms,
        } = request;
        let mut transaction = self.pool.begin().await?;
        let insert = "INSERT INTO orders VALUES ($1, $2, $3, $4, 'held', to_timestamp($5 / 1000.0)) ON CONFLICT (id) DO NOTHING";
        let insert = sqlx::query(insert)
            .bind(id)
            .bind(&item)
            .bind(buyer.as_str())
            .bind(quantity)
            .bind(expires_ms);
        if insert.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Ok(Verdict::Held { expires_ms });
        }
        let update =
            "UPDATE items SET available = available - $2 WHERE id = $1 AND available >= $2";
        let covered = sqlx::query(update)
            .bind(&item)
            .bind(quantity)
            .execute(&mut *transaction)
            .await?
            .rows_affected()
            == 1;
        if !covered {
            transaction.rollback().await?;
            return Ok(Verdict::SoldOut);
        }
        transaction.commit().await?;
        Ok(Verdict::Held { expires_ms })
    }
}
