//! `stockade webhooks`.

use anyhow::Result;
use clap::Subcommand;
use client::Request;
use uuid::Uuid;

use super::service::Service;

#[derive(Subcommand)]
pub enum WebhooksCommand {
    /// Lists the webhooks.
    List,
    /// Creates a webhook, which gets the events from then on, and prints its secret.
    Add {
        /// Where events are sent.
        #[arg(value_name = "RECEIVER_URL")]
        receiver: String,
        /// A kind of events to send, such as order.held; repeat it for several. Default: all.
        #[arg(long = "kind", value_name = "KIND")]
        kinds: Vec<String>,
    },
    /// Sends a test event to a webhook, and says whether the receiver accepted it.
    Test {
        /// Id of the webhook.
        webhook: Uuid,
    },
    /// Enables a webhook that was disabled. It goes on where it stopped.
    Enable {
        /// Id of the webhook.
        webhook: Uuid,
    },
    /// Removes a webhook.
    Remove {
        /// Id of the webhook.
        webhook: Uuid,
    },
}

impl WebhooksCommand {
    pub async fn run(self, service: &Service) -> Result<()> {
        let token = &service.token;
        match self {
            Self::List => service.show(&Request::webhooks(token)).await,
            Self::Add { receiver, kinds } => {
                let request = Request::create_webhook(token, &receiver, &kinds);
                service.show_once(&request).await
            }
            Self::Test { webhook } => {
                service
                    .show_once(&Request::test_webhook(token, webhook))
                    .await
            }
            Self::Enable { webhook } => service
                .call(&Request::enable_webhook(token, webhook))
                .await
                .map(drop),
            Self::Remove { webhook } => service
                .call(&Request::remove_webhook(token, webhook))
                .await
                .map(drop),
        }
    }
}
