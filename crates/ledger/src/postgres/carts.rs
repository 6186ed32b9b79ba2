//! Carts, on PostgreSQL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{BuyerId, Cart, CartId, CartState, Order, OrderId, SessionId};
use jiff::Timestamp;
use sqlx::PgPool;
use uuid::Uuid;

use super::{PostgresLedger, Transaction, cart_columns, connections, order_columns};
use crate::{
    CartStep, Carts, CreatedCart, LedgerError, Page, ReturnedLine, SteppedCart,
    carts::{self, Statements},
    columns::{self, CartColumns, CartLineColumns, OrderColumns},
    convert::{column, parsed, signed, unsigned},
};

const LINES: &str = "SELECT cart, order_id, item, quantity FROM cart_lines WHERE cart = ANY($1) ORDER BY cart, place";

const DUE: &str = concat!(
    "SELECT ",
    cart_columns!(),
    " FROM carts WHERE due_at <= to_timestamp($1::double precision / 1000) ORDER BY due_at LIMIT $2"
);

const OF_BUYER: &str = concat!(
    "SELECT ",
    cart_columns!(),
    " FROM carts WHERE id > $1 AND id <= $2 AND buyer = $3 ORDER BY id LIMIT $4"
);

#[async_trait]
impl Carts for PostgresLedger {
    async fn create_cart(&self, cart: &Cart) -> Result<CreatedCart, LedgerError> {
        let created = sqlx::query(
            "WITH new AS (INSERT INTO carts (id, buyer, state, amount, currency, deadline, expires_at, due_at, is_checked, price) \
                          VALUES ($1, $2, $3, $4, $5, to_timestamp($6::double precision / 1000), to_timestamp($7::double precision / 1000), \
                                  to_timestamp($6::double precision / 1000), $11, $12) \
                          ON CONFLICT (id) DO NOTHING RETURNING id) \
             INSERT INTO cart_lines (order_id, cart, place, item, quantity) \
             SELECT order_id, new.id, place, item, quantity \
             FROM new, UNNEST($8::uuid[], $9::text[], $10::bigint[]) WITH ORDINALITY AS line (order_id, item, quantity, place)",
        );
        let created = created
            .bind(cart.id.as_uuid())
            .bind(cart.buyer.as_str())
            .bind(cart.state.as_str())
            .bind(signed(cart.amount))
            .bind(&cart.currency)
            .bind(cart.deadline.as_millisecond())
            .bind(cart.expires_at.as_millisecond())
            .bind(column(&cart.lines, |line| line.order.as_uuid()))
            .bind(column(&cart.lines, |line| line.item.to_string()))
            .bind(column(&cart.lines, |line| i64::from(line.quantity.get())))
            .bind(cart.is_checked)
            .bind(cart.price.map(signed))
            .execute(&mut *connections::lend(&self.pool).await?)
            .await?;
        if created.rows_affected() > 0 {
            return Ok(CreatedCart::New(cart.clone()));
        }
        let known = self.cart(cart.id).await?;
        known
            .map(CreatedCart::Known)
            .ok_or(LedgerError::CartSuperseded(cart.id))
    }

    async fn cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        cart(&self.pool, id).await
    }

    async fn look_up_cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        cart(&self.reads, id).await
    }

    async fn list_carts(&self, ids: &[CartId]) -> Result<Vec<Cart>, LedgerError> {
        let rows = sqlx::query_as::<_, CartColumns>(concat!(
            "SELECT ",
            cart_columns!(),
            " FROM carts WHERE id = ANY($1)"
        ));
        let rows = rows.bind(column(ids, |id| id.as_uuid()));
        let rows = rows.fetch_all(&self.lists).await?;
        with_lines(&self.lists, rows).await
    }

    async fn known_carts(&self, ids: &[CartId]) -> Result<Vec<CartId>, LedgerError> {
        let known = sqlx::query_scalar::<_, Uuid>("SELECT id FROM carts WHERE id = ANY($1)");
        let known = known.bind(column(ids, |id| id.as_uuid()));
        let known = known.fetch_all(&self.reads).await?;
        Ok(column(known, CartId::from))
    }

    async fn cart_of_line(&self, order: OrderId) -> Result<Option<CartId>, LedgerError> {
        let cart = sqlx::query_scalar::<_, Uuid>("SELECT cart FROM cart_lines WHERE order_id = $1");
        let cart = cart
            .bind(order.as_uuid())
            .fetch_optional(&self.pool)
            .await?;
        Ok(cart.map(CartId::from))
    }

    async fn take_over_cart(&self, id: CartId) -> Result<bool, LedgerError> {
        let taken = sqlx::query(
            "UPDATE carts SET version = version + 1 WHERE id = $1 AND state = 'placing'",
        );
        let taken = taken
            .bind(id.as_uuid())
            .execute(&mut *connections::lend(&self.pool).await?)
            .await?;
        Ok(taken.rows_affected() == 1)
    }

    async fn step_cart(&self, step: &CartStep) -> Result<Option<SteppedCart>, LedgerError> {
        carts::step(connections::begin(&self.pool).await?, step).await
    }

    async fn return_cart_line(
        &self,
        cart: &Cart,
        line: OrderId,
        actor: &Arc<str>,
    ) -> Result<Option<ReturnedLine>, LedgerError> {
        carts::line::return_line(self.pool.begin().await?, cart, line, actor).await
    }

    async fn extend_cart_by(
        &self,
        cart: &Cart,
        hold: Option<Duration>,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Cart>, LedgerError> {
        carts::extension::extend(
            connections::begin(&self.pool).await?,
            cart,
            hold,
            session,
            actor,
        )
        .await
    }

    async fn due_carts(&self, now: Timestamp, at_most: usize) -> Result<Vec<Cart>, LedgerError> {
        let rows = sqlx::query_as::<_, CartColumns>(DUE)
            .bind(now.as_millisecond())
            .bind(signed(at_most as u64))
            .fetch_all(&self.pool)
            .await?;
        with_lines(&self.pool, rows).await
    }

    async fn list_buyer_carts(
        &self,
        buyer: &BuyerId,
        after: Option<CartId>,
        at_most: usize,
    ) -> Result<Page<Cart, CartId>, LedgerError> {
        let [first, last] = CartId::range_of(buyer);
        let rows = sqlx::query_as::<_, CartColumns>(OF_BUYER)
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

/// A cart's lines never change, so a second statement reads the same as one with the cart.
async fn cart(pool: &PgPool, id: CartId) -> Result<Option<Cart>, LedgerError> {
    let row = sqlx::query_as::<_, CartColumns>(concat!(
        "SELECT ",
        cart_columns!(),
        " FROM carts WHERE id = $1"
    ));
    let row = row.bind(id.as_uuid()).fetch_all(pool).await?;
    Ok(with_lines(pool, row).await?.pop())
}

async fn with_lines(pool: &PgPool, rows: Vec<CartColumns>) -> Result<Vec<Cart>, LedgerError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let lines = sqlx::query_as::<_, CartLineColumns>(LINES)
        .bind(column(&rows, |row| row.id))
        .fetch_all(pool)
        .await?;
    columns::carts(rows, lines)
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_cart(&mut self, id: CartId) -> Result<Option<(CartState, u64)>, LedgerError> {
        let row = sqlx::query_as::<_, (String, i64)>(
            "SELECT state, version FROM carts WHERE id = $1 FOR UPDATE",
        );
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
            " FROM orders WHERE id = ANY(ARRAY(SELECT order_id FROM cart_lines WHERE cart = $1))"
        ));
        let rows = rows.bind(id.as_uuid()).fetch_all(&mut **self).await?;
        rows.into_iter().map(Order::try_from).collect()
    }

    async fn dropped_lines(&mut self, id: CartId) -> Result<usize, LedgerError> {
        let dropped = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM cart_lines AS line JOIN items ON items.id = line.item WHERE line.cart = $1 AND items.drop_by IS NOT NULL \
             AND NOT EXISTS (SELECT FROM orders WHERE orders.id = line.order_id)",
        );
        let dropped = dropped.bind(id.as_uuid()).fetch_one(&mut **self).await?;
        unsigned("cart_lines", dropped)
    }

    async fn write_cart(
        &mut self,
        cart: &Cart,
        due_at: Option<Timestamp>,
    ) -> Result<(), LedgerError> {
        let written = sqlx::query(
            "UPDATE carts SET state = $2, expires_at = to_timestamp($3::double precision / 1000), due_at = to_timestamp($4::double precision / 1000), \
                    payment = $5, refusal = $6, refused_item = $7, version = $8, amount = $9 \
             WHERE id = $1",
        );
        let refusal = cart.refusal.as_ref();
        let item = refusal.and_then(|refusal| refusal.item.as_ref());
        written
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
