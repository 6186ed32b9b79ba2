//! What the test does as an admin: opens the item, and asks for the audit.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::{Client, RequestBuilder};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use crate::{cli::Durability, target::Target};

/// An item to be sold.
#[derive(Debug, Serialize)]
pub struct NewItem {
    /// Its name.
    pub id: String,
    /// Units that exist.
    pub stock: u64,
    /// Units that one buyer may hold.
    pub limit_per_buyer: u32,
    /// Stock counters.
    pub segments: u16,
    /// Long enough that no hold ends while we count.
    pub hold_seconds: u32,
    /// When an order is acknowledged.
    pub durability: Durability,
}

#[derive(Debug, Deserialize)]
struct Created {
    stock: u64,
    available: u64,
}

/// What the service says about an item, from one look at Redis and one at the ledger.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Audit {
    /// Units that exist.
    pub stock: u64,
    /// Units that nobody has.
    #[serde(default)]
    pub available: u64,
    /// Units of orders that wait for payment, as the ledger has it.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    #[serde(default)]
    pub returning: u64,
    /// Units on their way to the ledger.
    pub in_flight: u64,
    /// Units that the identity does not explain.
    pub drift: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
    /// Each segment.
    #[serde(default)]
    pub segments: Vec<AuditedSegment>,
}

/// What the service says about a stock counter.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct AuditedSegment {
    /// Which one.
    pub segment: u16,
    /// What is wrong, if something is.
    pub finding: Option<String>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

/// An admin of the service.
pub struct Admin {
    client: Client,
    host: String,
    token: String,
}

impl Admin {
    /// The admin of this service.
    pub fn new(target: &Target) -> Result<Self> {
        let client = Client::builder().timeout(Duration::from_secs(60)).build()?;
        Ok(Self {
            client,
            host: target.host.clone(),
            token: target.admin_token.clone(),
        })
    }

    /// Opens an item that nobody has bought from.
    pub async fn create(&self, item: &NewItem) -> Result<()> {
        let created: Created = self
            .answer(self.client.post(format!("{}/items", self.host)).json(item))
            .await
            .context("POST /items")?;
        // A repeat with the same body is answered with the item as it is now.
        ensure!(
            created.available == created.stock,
            "the item {} has been sold from before; expected --item to name a new one",
            item.id
        );
        Ok(())
    }

    /// The audit, as soon as nothing is on its way to the ledger or back, or `patience` is over.
    pub async fn audit(&self, item: &str, patience: Duration) -> Result<Audit> {
        self.audit_when(item, patience, |_| true).await
    }

    /// The audit, as soon as nothing is under way and it is as it should be, or `patience` is over.
    pub async fn audit_when(
        &self,
        item: &str,
        patience: Duration,
        as_it_should: impl Fn(&Audit) -> bool,
    ) -> Result<Audit> {
        let until = Instant::now() + patience;
        loop {
            let request = self.client.get(format!("{}/items/{item}/audit", self.host));
            let audit: Audit = self
                .answer(request)
                .await
                .context("GET /items/{item}/audit")?;
            let at_rest = audit.in_flight == 0 && audit.returning == 0;
            if at_rest && as_it_should(&audit) || Instant::now() > until {
                return Ok(audit);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        let response = request.bearer_auth(&self.token).send().await;
        let response = response
            .with_context(|| format!("{} does not answer; is `stockade up` running?", self.host))?;
        let status = response.status();
        let body = response.bytes().await?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .context("the answer is not what the API promises");
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if problem.code == "unauthorized" => {
                bail!(
                    "{}: the admin token is not this service's; is it of another --dir, or is STOCKADE_ADMIN_TOKEN set?",
                    self.host
                )
            }
            Ok(problem) => bail!("{}: {}", problem.code, problem.detail),
            Err(_) => bail!(
                "{status}, and no problem+json: is {} a Stockade?",
                self.host
            ),
        }
    }
}
