//! Transfers, on SQLite.

use async_trait::async_trait;
use domain::{ItemId, TransferId};
use sqlx::SqlitePool;

use super::{Transaction, hex, json, transfer_columns};
use crate::{
    LedgerError, Transfer,
    changes::stock::Statements,
    columns::TransferColumns,
    convert::{column, signed, unsigned},
};

pub(super) async fn open_transfers(
    pool: &SqlitePool,
    item: Option<&ItemId>,
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE state <> 'done' AND (?1 IS NULL OR item = ?1) ORDER BY since, id",
    ));
    rows.bind(item.map(ItemId::as_str))
        .fetch_all(pool)
        .await?
        .into_iter()
        .map(Transfer::try_from)
        .collect()
}

pub(super) async fn transfers(
    pool: &SqlitePool,
    ids: &[TransferId],
) -> Result<Vec<Transfer>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?)) ORDER BY id",
    ));
    let ids = column(ids, |id| hex(id.as_uuid()));
    rows.bind(json(&ids)?)
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
        let rows = column(transfers, |transfer| {
            let Transfer {
                id,
                item,
                from,
                to,
                asked,
                moved,
                state,
                since,
            } = transfer;
            (
                hex(id.as_uuid()),
                item,
                from,
                to,
                asked,
                moved,
                state.as_str(),
                since.as_millisecond(),
            )
        });
        let added = sqlx::query(
            "INSERT INTO transfers (id, item, from_segment, to_segment, asked, moved, state, since, token, wished) \
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, ?2, ?3 \
             FROM json_each(?1) WHERE true ON CONFLICT (id) DO NOTHING",
        );
        let added = added
            .bind(json(&rows)?)
            .bind(token.map(signed))
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
        let rows = column(transfers, |transfer| {
            (hex(transfer.id.as_uuid()), transfer.from.is_none())
        });
        let another = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT 1 FROM json_each(?1) JOIN transfers ON transfers.id = unhex(value ->> 0) \
                            WHERE wished <> ?2 OR (from_segment IS NULL) <> (value ->> 1))",
        );
        Ok(another
            .bind(json(&rows)?)
            .bind(signed(wished))
            .fetch_one(&mut **self)
            .await?)
    }

    async fn finish(&mut self, transfer: &Transfer) -> Result<Option<u64>, LedgerError> {
        let moved = sqlx::query_scalar::<_, i64>(
            "UPDATE transfers SET state = 'done' WHERE id = ? AND item = ? AND to_segment IS NULL AND state = 'out' RETURNING moved",
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
