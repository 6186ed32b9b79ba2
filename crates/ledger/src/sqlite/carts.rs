//! Carts, on SQLite.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{BuyerId, Cart, CartId, CartState, Order, OrderId, SessionId};
use jiff::Timestamp;
use sqlx::SqlitePool;
use uuid::Uuid;

use super::{SqliteLedger, Transaction, cart_columns, hex, json, order_columns};
use crate::{
    CartStep, Carts, CreatedCart, LedgerError, Page, ReturnedLine, SteppedCart,
    carts::{self, Statements},
    columns::{self, CartColumns, CartLineColumns, OrderColumns},
    convert::{column, parsed, signed, unsigned},
    transaction::end,
};

#[async_trait]
impl Carts for SqliteLedger {
    async fn create_cart(&self, cart: &Cart) -> Result<CreatedCart, LedgerError> {
        let mut transaction = self.write().await?;
        let created = insert(&mut transaction, cart).await;
        if end(transaction, created).await? {
            return Ok(CreatedCart::New(cart.clone()));
        }
        let known = self.cart(cart.id).await?;
        known
            .map(CreatedCart::Known)
            .ok_or(LedgerError::CartSuperseded(cart.id))
    }

    async fn cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        cart(&self.readers, id).await
    }

    async fn look_up_cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        cart(&self.reads, id).await
    }

    async fn list_carts(&self, ids: &[CartId]) -> Result<Vec<Cart>, LedgerError> {
        let rows = sqlx::query_as::<_, CartColumns>(concat!(
            "SELECT ",
            cart_columns!(),
            " FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?))"
        ));
        let rows = rows.bind(json(&column(ids, |id| hex(id.as_uuid())))?);
        let rows = rows.fetch_all(&self.lists).await?;
        with_lines(&self.lists, rows).await
    }

    async fn known_carts(&self, ids: &[CartId]) -> Result<Vec<CartId>, LedgerError> {
        let known = sqlx::query_scalar::<_, Uuid>(
            "SELECT id FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        );
        let known = known.bind(json(&column(ids, |id| hex(id.as_uuid())))?);
        let known = known.fetch_all(&self.reads).await?;
        Ok(column(known, CartId::from))
    }

    async fn cart_of_line(&self, order: OrderId) -> Result<Option<CartId>, LedgerError> {
        let cart = sqlx::query_scalar::<_, Uuid>("SELECT cart FROM cart_lines WHERE order_id = ?");
        let cart = cart.bind(order.as_uuid());
        Ok(cart.fetch_optional(&self.readers).await?.map(CartId::from))
    }

    async fn take_over_cart(&self, id: CartId) -> Result<bool, LedgerError> {
        let taken = sqlx::query(
            "UPDATE carts SET version = version + 1 WHERE id = ? AND state = 'placing'",
        );
        let taken = taken.bind(id.as_uuid()).execute(&self.writer).await?;
        Ok(taken.rows_affected() == 1)
    }

    async fn step_cart(&self, step: &CartStep) -> Result<Option<SteppedCart>, LedgerError> {
        carts::step(self.write().await?, step).await
    }

    async fn return_cart_line(
        &self,
        cart: &Cart,
        line: OrderId,
        actor: &Arc<str>,
    ) -> Result<Option<ReturnedLine>, LedgerError> {
        carts::line::return_line(self.write().await?, cart, line, actor).await
    }

    async fn extend_cart_by(
        &self,
        cart: &Cart,
        hold: Option<Duration>,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Cart>, LedgerError> {
        carts::extension::extend(self.write().await?, cart, hold, session, actor).await
    }

    async fn due_carts(&self, now: Timestamp, at_most: usize) -> Result<Vec<Cart>, LedgerError> {
        let rows = sqlx::query_as::<_, CartColumns>(concat!(
            "SELECT ",
            cart_columns!(),
            " FROM carts WHERE due_at <= ? ORDER BY due_at LIMIT ?"
        ));
        let rows = rows
            .bind(now.as_millisecond())
            .bind(signed(at_most as u64))
            .fetch_all(&self.readers)
            .await?;
        with_lines(&self.readers, rows).await
    }

    async fn list_buyer_carts(
        &self,
        buyer: &BuyerId,
        after: Option<CartId>,
        at_most: usize,
    ) -> Result<Page<Cart, CartId>, LedgerError> {
        let [first, last] = CartId::range_of(buyer);
        let rows = sqlx::query_as::<_, CartColumns>(concat!(
            "SELECT ",
            cart_columns!(),
            " FROM carts WHERE id > ? AND id <= ? AND buyer = ? ORDER BY id LIMIT ?"
        ));
        let rows = rows
            .bind(after.map_or(first, |after| after.max(first)).as_uuid())
            .bind(last.as_uuid())
            .bind(buyer.as_str())
            .bind(signed(at_most as u64 + 1))
            .fetch_all(&self.lists)
            .await?;
        let carts = with_lines(&self.lists, rows).await?;
        Ok(Page::cut(carts, at_most, |cart| cart.id))
    }
}

/// `false`: there is a cart with this id.
async fn insert(transaction: &mut Transaction, cart: &Cart) -> Result<bool, LedgerError> {
    let created = sqlx::query(
        "INSERT INTO carts (id, buyer, state, amount, currency, deadline, expires_at, due_at, is_checked, price) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?6, ?8, ?9) ON CONFLICT (id) DO NOTHING",
    );
    let created = created
        .bind(cart.id.as_uuid())
        .bind(cart.buyer.as_str())
        .bind(cart.state.as_str())
        .bind(signed(cart.amount))
        .bind(&cart.currency)
        .bind(cart.deadline.as_millisecond())
        .bind(cart.expires_at.as_millisecond())
        .bind(cart.is_checked)
        .bind(cart.price.map(signed))
        .execute(&mut **transaction)
        .await?;
    if created.rows_affected() == 0 {
        return Ok(false);
    }
    let lines = column(cart.lines.iter().enumerate(), |(place, line)| {
        (
            hex(line.order.as_uuid()),
            place,
            line.item.as_str(),
            line.quantity.get(),
        )
    });
    sqlx::query(
        "INSERT INTO cart_lines (order_id, cart, place, item, quantity) \
         SELECT unhex(value ->> 0), ?1, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?2)",
    )
    .bind(cart.id.as_uuid())
    .bind(json(&lines)?)
    .execute(&mut **transaction)
    .await?;
    Ok(true)
}

/// A cart's lines never change, so a second statement reads the same as one with the cart.
async fn cart(pool: &SqlitePool, id: CartId) -> Result<Option<Cart>, LedgerError> {
    let row = sqlx::query_as::<_, CartColumns>(concat!(
        "SELECT ",
        cart_columns!(),
        " FROM carts WHERE id = ?"
    ));
    let row = row.bind(id.as_uuid()).fetch_all(pool).await?;
    Ok(with_lines(pool, row).await?.pop())
}

async fn with_lines(pool: &SqlitePool, rows: Vec<CartColumns>) -> Result<Vec<Cart>, LedgerError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let lines = sqlx::query_as::<_, CartLineColumns>(
        "SELECT cart, order_id, item, quantity FROM cart_lines \
         WHERE cart IN (SELECT unhex(value) FROM json_each(?)) ORDER BY cart, place",
    );
    let lines = lines
        .bind(json(&column(&rows, |row| hex(row.id)))?)
        .fetch_all(pool)
        .await?;
    columns::carts(rows, lines)
}

#[async_trait]
impl Statements for Transaction {
    /// The transaction already holds the write lock, which covers all rows.
    async fn lock_cart(&mut self, id: CartId) -> Result<Option<(CartState, u64)>, LedgerError> {
        let row =
            sqlx::query_as::<_, (String, i64)>("SELECT state, version FROM carts WHERE id = ?");
        let row = row.bind(id.as_uuid()).fetch_optional(&mut **self);
        row.await?
            .map(|(state, version)| {
                Ok((
                    parsed("carts.state", &state)?,
                    unsigned("carts.version", version)?,
                ))
            })
            .transpose()
    }

    async fn lines_of(&mut self, id: CartId) -> Result<Vec<Order>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders WHERE id IN (SELECT order_id FROM cart_lines WHERE cart = ?)"
        ));
        let rows = rows.bind(id.as_uuid()).fetch_all(&mut **self).await?;
        rows.into_iter().map(Order::try_from).collect()
    }

    async fn dropped_lines(&mut self, id: CartId) -> Result<usize, LedgerError> {
        let dropped = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM cart_lines AS line JOIN items ON items.id = line.item WHERE line.cart = ? AND items.drop_by IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = line.order_id)",
        );
        let dropped = dropped.bind(id.as_uuid()).fetch_one(&mut **self).await?;
        unsigned("cart_lines", dropped)
    }

    async fn write_cart(
        &mut self,
        cart: &Cart,
        due_at: Option<Timestamp>,
    ) -> Result<(), LedgerError> {
        let refusal = cart.refusal.as_ref();
        let item = refusal.and_then(|refusal| refusal.item.as_ref());
        sqlx::query(
            "UPDATE carts SET state = ?2, expires_at = ?3, due_at = ?4, payment = ?5, refusal = ?6, refused_item = ?7, version = ?8, amount = ?9 \
             WHERE id = ?1",
        )
        .bind(cart.id.as_uuid())
        .bind(cart.state.as_str())
        .bind(cart.expires_at.as_millisecond())
        .bind(due_at.map(Timestamp::as_millisecond))
        .bind(cart.payment.as_ref().map(ToString::to_string))
        .bind(refusal.map(|refusal| refusal.reason.as_str()))
        .bind(item.map(ToString::to_string))
        .bind(signed(cart.version))
        .bind(signed(cart.amount))
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}
