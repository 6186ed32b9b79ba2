//! `stockade refunds`.

use anyhow::Result;
use clap::Subcommand;
use client::Request;

use super::service::Service;

const COLUMNS: [&str; 8] = [
    "id",
    "reason",
    "order",
    "item",
    "payment",
    "amount",
    "currency",
    "idempotency_key",
];

#[derive(Subcommand)]
pub enum RefundsCommand {
    /// Lists the money that must be returned, with the key for the refund at the payment provider.
    List,
    /// Records that the money of a row was returned. A repeat answers the same.
    Done {
        /// Id of the row.
        refund: String,
    },
}

impl RefundsCommand {
    pub async fn run(self, service: &Service) -> Result<()> {
        let token = &service.token;
        match self {
            Self::List => {
                let request = |page: &_| Request::list_refunds_due(token, page);
                service.list(&COLUMNS, request).await
            }
            Self::Done { refund } => service.show(&Request::refund_done(token, &refund)).await,
        }
    }
}
