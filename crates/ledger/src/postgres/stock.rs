//! Transfers, on PostgreSQL.

use async_trait::async_trait;
use domain::{ItemId, TransferId};
use sqlx::PgPool;

use super::{Transaction, transfer_columns};
use crate::{
    LedgerError, Transfer,
    changes::stock::Statements,
    columns::TransferColumns,
    convert::{column, signed, unsigned},
};

pub(super) async fn open_transfers(
    pool: &PgPool,
    item: Option<&ItemId>,
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE state <> 'done' AND ($1 IS NULL OR item = $1) ORDER BY since, id",
    ));
    rows.bind(item.map(ItemId::as_str))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Transfer::try_from)
        .collect()
}

pub(super) async fn transfers(
    pool: &PgPool,
    ids: &[TransferId],
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE id = ANY($1) ORDER BY id"
    ));
    rows.bind(column(ids, TransferId::as_uuid))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Transfer::try_from)
        .collect()
}

#[async_trait]
impl Statements for Transaction {
    async fn add_transfers(
        &mut self,
        transfers: &[Transfer],
        token: Option<u64>,
        wished: Option<u64>,
    ) -> Result<usize, LedgerError> {
        let added = sqlx::query(
            "INSERT INTO transfers (id, item, from_segment, to_segment, asked, moved, state, token, since, wished) \
             SELECT id, item, from_segment, to_segment, asked, moved, state, $8, to_timestamp(since_ms::double precision / 1000), $10 \
             FROM UNNEST($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $9::bigint[]) \
                 AS new (id, item, from_segment, to_segment, asked, moved, state, since_ms) \
             ORDER BY id ON CONFLICT (id) DO NOTHING",
        )
        .bind(column(transfers, |transfer| transfer.id.as_uuid()))
        .bind(column(transfers, |transfer| transfer.item.to_string()))
        .bind(column(transfers, |transfer| transfer.from.map(i32::from)))
        .bind(column(transfers, |transfer| transfer.to.map(i32::from)))
        .bind(column(transfers, |transfer| signed(transfer.asked)))
        .bind(column(transfers, |transfer| signed(transfer.moved)))
        .bind(column(transfers, |transfer| transfer.state.as_str()))
        .bind(token.map(signed))
        .bind(column(transfers, |transfer| transfer.since.as_millisecond()))
        .bind(wished.map(signed))
        .execute(&mut **self)
        .await?;
        Ok(usize::try_from(added.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn are_of_another(
        &mut self,
        transfers: &[Transfer],
        wished: u64,
    ) -> Result<bool, LedgerError> {
        let another = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM transfers JOIN UNNEST($1::uuid[], $2::boolean[]) AS this (id, is_new) USING (id) \
                            WHERE wished <> $3 OR (from_segment IS NULL) <> is_new)",
        );
        let another = another
            .bind(column(transfers, |transfer| transfer.id.as_uuid()))
            .bind(column(transfers, |transfer| transfer.from.is_none()))
            .bind(signed(wished));
        Ok(another.fetch_one(&mut **self).await?)
    }

    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError> {
        let moved = sqlx::query_scalar::<_, i64>(
            "UPDATE transfers SET state = 'done' WHERE id = $1 AND item = $2 AND to_segment IS NULL AND state = 'out' RETURNING moved",
        );
        let moved = moved
            .bind(transfer.id.as_uuid())
            .bind(transfer.item.as_str());
        moved
            .fetch_optional(&mut **self)
            .await?
            .map(|moved| unsigned("moved", moved))
            .transpose()
    }
}
