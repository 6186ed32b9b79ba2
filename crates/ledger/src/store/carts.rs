//! Carts: their statements, for either database.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use domain::{BuyerId, Cart, CartId, CartState, ItemId, Order, OrderId, SessionId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Pool, Store, Transaction, begin, id_list, lend, list, new_carts, sql::carts as sql, step_reads,
};
use crate::{
    CartStep, Carts, CreatedCart, ExpiredCarts, LedgerError, Page, ReturnedLine, SteppedCart,
    carts::{self, Statements},
    columns::{self, CartColumns, CartLineColumns, OrderColumns},
    convert::{column, parsed, signed, unsigned},
};

#[async_trait]
impl Carts for Store {
    async fn create_cart(&self, cart: &Cart) -> Result<CreatedCart, LedgerError> {
        if new_carts::insert(self, cart).await? {
            return Ok(CreatedCart::New(cart.clone()));
        }
        let known = self.cart(cart.id).await?;
        known
            .map(CreatedCart::Known)
            .ok_or(LedgerError::CartSuperseded(cart.id))
    }

    async fn cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        cart(step_reads(self), id).await
    }

    async fn look_up_cart(&self, id: CartId) -> Result<Option<Cart>, LedgerError> {
        cart(&self.reads, id).await
    }

    async fn list_carts(&self, ids: &[CartId]) -> Result<Vec<Cart>, LedgerError> {
        let rows = sqlx::query_as::<_, CartColumns>(sql::CARTS);
        let rows = rows.bind(id_list(column(ids, |id| id.as_uuid()))?);
        let rows = rows.fetch_all(&self.lists).await?;
        with_lines(&self.lists, rows).await
    }

    async fn known_carts(&self, ids: &[CartId]) -> Result<Vec<CartId>, LedgerError> {
        let known = sqlx::query_scalar::<_, Uuid>(sql::KNOWN);
        let known = known.bind(id_list(column(ids, |id| id.as_uuid()))?);
        let known = known.fetch_all(&self.reads).await?;
        Ok(column(known, CartId::from))
    }

    async fn cart_of_line(&self, order: OrderId) -> Result<Option<CartId>, LedgerError> {
        let cart = sqlx::query_scalar::<_, Uuid>(sql::OF_LINE).bind(order.as_uuid());
        Ok(cart
            .fetch_optional(step_reads(self))
            .await?
            .map(CartId::from))
    }

    async fn take_over_cart(&self, id: CartId) -> Result<bool, LedgerError> {
        let taken = sqlx::query(sql::TAKE_OVER)
            .bind(id.as_uuid())
            .execute(&mut *lend(self).await?)
            .await?;
        Ok(taken.rows_affected() == 1)
    }

    async fn step_cart(&self, step: &CartStep) -> Result<Option<SteppedCart>, LedgerError> {
        carts::step(begin(self).await?, step).await
    }

    async fn expire_carts(&self, carts: &[Cart]) -> Result<ExpiredCarts, LedgerError> {
        if carts.is_empty() {
            return Ok(ExpiredCarts::default());
        }
        carts::expiry::expire(begin(self).await?, carts).await
    }

    async fn return_cart_line(
        &self,
        cart: &Cart,
        line: OrderId,
        actor: &Arc<str>,
    ) -> Result<Option<ReturnedLine>, LedgerError> {
        carts::line::return_line(begin(self).await?, cart, line, actor).await
    }

    async fn extend_cart_by(
        &self,
        cart: &Cart,
        hold: Option<Duration>,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Cart>, LedgerError> {
        carts::extension::extend(begin(self).await?, cart, hold, session, actor).await
    }

    async fn due_carts(
        &self,
        except: &[ItemId],
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Cart>, LedgerError> {
        due(self, sql::DUE, except, now, at_most).await
    }

    async fn abandoned_carts(
        &self,
        except: &[ItemId],
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Cart>, LedgerError> {
        due(self, sql::ABANDONED, except, now, at_most).await
    }

    async fn list_buyer_carts(
        &self,
        buyer: &BuyerId,
        after: Option<CartId>,
        at_most: usize,
    ) -> Result<Page<Cart, CartId>, LedgerError> {
        let [first, last] = CartId::range_of(buyer);
        let rows = sqlx::query_as::<_, CartColumns>(sql::OF_BUYER)
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

async fn due(
    store: &Store,
    statement: &'static str,
    except: &[ItemId],
    now: Timestamp,
    at_most: usize,
) -> Result<Vec<Cart>, LedgerError> {
    let rows = sqlx::query_as::<_, CartColumns>(statement)
        .bind(now.as_millisecond())
        .bind(signed(at_most as u64))
        .bind(list(except.iter().map(ItemId::as_str))?)
        .fetch_all(step_reads(store))
        .await?;
    with_lines(step_reads(store), rows).await
}

/// A cart's lines never change, so a second statement reads the same as one with the cart.
async fn cart(pool: &Pool, id: CartId) -> Result<Option<Cart>, LedgerError> {
    let row = sqlx::query_as::<_, CartColumns>(sql::CART);
    let row = row.bind(id.as_uuid()).fetch_all(pool).await?;
    Ok(with_lines(pool, row).await?.pop())
}

async fn with_lines(pool: &Pool, rows: Vec<CartColumns>) -> Result<Vec<Cart>, LedgerError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let lines = sqlx::query_as::<_, CartLineColumns>(sql::LINES)
        .bind(id_list(column(&rows, |row| row.id))?)
        .fetch_all(pool)
        .await?;
    columns::carts(rows, lines)
}

fn state_and_version((state, version): (String, i64)) -> Result<(CartState, u64), LedgerError> {
    Ok((
        parsed("carts.state", &state)?,
        unsigned("carts.version", version)?,
    ))
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_cart(&mut self, id: CartId) -> Result<Option<(CartState, u64)>, LedgerError> {
        let row = sqlx::query_as::<_, (String, i64)>(sql::LOCK_CART);
        let row = row.bind(id.as_uuid()).fetch_optional(&mut **self);
        row.await?.map(state_and_version).transpose()
    }

    async fn lock_free_carts(
        &mut self,
        ids: &[CartId],
    ) -> Result<Vec<(CartId, (CartState, u64))>, LedgerError> {
        let rows = sqlx::query_as::<_, (Uuid, String, i64)>(sql::LOCK_FREE_CARTS);
        let rows = rows.bind(id_list(column(ids, |id| id.as_uuid()))?);
        let rows = rows.fetch_all(&mut **self).await?.into_iter();
        rows.map(|(id, state, version)| {
            Ok((CartId::from(id), state_and_version((state, version))?))
        })
        .collect()
    }

    async fn lines_of(&mut self, ids: &[CartId]) -> Result<Vec<Order>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(sql::ORDERS);
        let rows = rows.bind(id_list(column(ids, |id| id.as_uuid()))?);
        let rows = rows.fetch_all(&mut **self).await?;
        rows.into_iter().map(Order::try_from).collect()
    }

    async fn dropped_lines(&mut self, id: CartId) -> Result<usize, LedgerError> {
        let dropped = sqlx::query_scalar::<_, i64>(sql::DROPPED_LINES);
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
        sqlx::query(sql::WRITE_CART)
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

    async fn expire_carts(&mut self, ids: &[CartId]) -> Result<(), LedgerError> {
        sqlx::query(sql::EXPIRE)
            .bind(id_list(column(ids, |id| id.as_uuid()))?)
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}
