//! `stockade journal`.

use anyhow::Result;
use clap::Args;
use client::Request;

use super::service::{Service, ServiceArguments};

const COLUMNS: [&str; 6] = ["id", "at", "actor", "action", "before", "after"];
const SERVICE_COLUMNS: [&str; 6] = ["id", "at", "actor", "action", "subject", "after"];

#[derive(Args)]
pub struct JournalArguments {
    #[command(flatten)]
    pub service: ServiceArguments,
    /// Id of an item. Default: what belongs to no item, such as webhooks and erasures.
    item: Option<String>,
}

impl JournalArguments {
    pub async fn run(self, service: &Service) -> Result<()> {
        let token = &service.token;
        match &self.item {
            Some(item) => {
                let request = |page: &_| Request::journal(token, item, page);
                service.list(&COLUMNS, request).await
            }
            None => {
                let request = |page: &_| Request::service_journal(token, page);
                service.list(&SERVICE_COLUMNS, request).await
            }
        }
    }
}
