//! Makes the items and the orders of the past, through the API: so Redis, ledger and events have
//! what a sale would have left. Only payments are made in the ledger, many at a time.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use client::{BuyerOrder, CartState, Durability, IdempotencyKey, ItemState, NewCart, NewItem};
use futures::{StreamExt, TryStreamExt, stream};

use super::env::GrowthEnv;
use crate::{
    sale::PLENTY,
    test_env::{LIMIT, SEGMENTS},
};

/// Longer than any run: holds expire only where expiry is measured.
const HOLD_SECONDS: u32 = 86_400;
/// Orders of a request. A body of 16 KiB, the service's limit, has room for them.
const BATCH: u64 = 128;
const BATCH_CONCURRENCY: usize = 16;
const ITEM_CONCURRENCY: usize = 32;
const CART_CONCURRENCY: usize = 64;
/// Orders after which all are paid, so that a ledger reuses the room of the rows that it replaces.
const SLICE: u64 = 200_000;

/// Creates and opens an item with plenty of stock, in one segment.
pub async fn open(env: &GrowthEnv, item: &str) -> Result<()> {
    let item = NewItem {
        segments: Some(SEGMENTS),
        limit_per_buyer: Some(LIMIT),
        hold_seconds: Some(HOLD_SECONDS),
        durability: Some(Durability::Recorded),
        ..NewItem::new(item, PLENTY)
    };
    env.patient.create_item(&item).await?;
    Ok(())
}

/// Makes items with these numbers, each with one paid order, and leaves them in this state.
pub async fn items(env: &GrowthEnv, numbers: Range<u64>, state: ItemState) -> Result<()> {
    each_item(numbers.clone(), async |item| {
        open(env, &item).await?;
        place(env, &item, 0..1).await
    })
    .await?;
    env.database.pay_all().await?;
    if state == ItemState::Open {
        return Ok(());
    }
    each_item(numbers, async |item| {
        env.patient.set_state(&item, state, None).await?;
        Ok(())
    })
    .await
}

/// Does the same for items with these numbers.
pub async fn each_item(
    numbers: Range<u64>,
    make: impl AsyncFn(String) -> Result<()>,
) -> Result<()> {
    each(numbers, ITEM_CONCURRENCY, async |number| {
        make(name(number)).await
    })
    .await
}

/// Id of an item.
pub fn name(number: u64) -> String {
    format!("item-{number:07}")
}

/// Places orders for buyers with these numbers, and pays them.
pub async fn paid_orders(env: &GrowthEnv, item: &str, numbers: Range<u64>) -> Result<()> {
    for first in numbers.clone().step_by(usize::try_from(SLICE)?) {
        held_orders(env, item, first..numbers.end.min(first + SLICE)).await?;
        env.database.pay_all().await?;
    }
    Ok(())
}

/// Places orders for buyers with these numbers.
pub async fn held_orders(env: &GrowthEnv, item: &str, numbers: Range<u64>) -> Result<()> {
    let batches = 0..(numbers.end - numbers.start).div_ceil(BATCH);
    each(batches, BATCH_CONCURRENCY, async |batch| {
        let first = numbers.start + batch * BATCH;
        place(env, item, first..numbers.end.min(first + BATCH)).await
    })
    .await
}

/// Places carts of one line for buyers with these numbers.
pub async fn held_carts(env: &GrowthEnv, item: &str, numbers: Range<u64>) -> Result<()> {
    each(numbers, CART_CONCURRENCY, async |number| {
        let cart = NewCart::new()
            .with(item, 1)
            .with_key(IdempotencyKey::new("past")?);
        let placed = env.patient.place_cart(&buyer(number), &cart).await?;
        ensure!(
            placed.cart.state == CartState::Held,
            "a past cart of {item} was answered {placed:?}"
        );
        Ok(())
    })
    .await
}

async fn place(env: &GrowthEnv, item: &str, numbers: Range<u64>) -> Result<()> {
    let orders: Vec<_> = numbers.map(order).collect::<Result<_>>()?;
    for placed in env.patient.place_batch(item, &orders).await? {
        let placed = placed.with_context(|| format!("a past order of {item}"))?;
        ensure!(
            placed.order.state.has_units(),
            "a past order of {item} was answered {placed:?}"
        );
    }
    Ok(())
}

fn buyer(number: u64) -> String {
    format!("past-{number}")
}

/// One unit, for a buyer of its own.
fn order(number: u64) -> Result<BuyerOrder> {
    Ok(BuyerOrder {
        buyer: buyer(number),
        quantity: 1,
        key: IdempotencyKey::new("past")?,
        amount: None,
    })
}

async fn each(
    numbers: Range<u64>,
    concurrency: usize,
    make: impl AsyncFn(u64) -> Result<()>,
) -> Result<()> {
    let make = &make;
    stream::iter(numbers)
        .map(move |number| make(number))
        .buffer_unordered(concurrency)
        .try_collect()
        .await
}
