//! Inserting a cart, on PostgreSQL.

use domain::Cart;

use super::{PostgresLedger, connections, sql::new_carts as sql};
use crate::{
    LedgerError,
    convert::{column, signed},
};

/// `false`: there is a cart with this id.
pub(super) async fn insert(store: &PostgresLedger, cart: &Cart) -> Result<bool, LedgerError> {
    let created = sqlx::query(sql::INSERT)
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
        .execute(&mut *connections::lend(&store.pool).await?)
        .await?;
    Ok(created.rows_affected() > 0)
}
