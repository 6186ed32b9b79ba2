//! Inserting a cart, on SQLite.

use domain::Cart;

use super::{SqliteLedger, Transaction, hex, json, sql::new_carts as sql};
use crate::{
    LedgerError,
    convert::{column, signed},
    transaction::end,
};

/// `false`: there is a cart with this id.
pub(super) async fn insert(store: &SqliteLedger, cart: &Cart) -> Result<bool, LedgerError> {
    let mut transaction = store.write().await?;
    let created = insert_in(&mut transaction, cart).await;
    end(transaction, created).await
}

async fn insert_in(transaction: &mut Transaction, cart: &Cart) -> Result<bool, LedgerError> {
    let created = sqlx::query(sql::INSERT)
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
    sqlx::query(sql::INSERT_LINES)
        .bind(cart.id.as_uuid())
        .bind(json(&lines)?)
        .execute(&mut **transaction)
        .await?;
    Ok(true)
}
