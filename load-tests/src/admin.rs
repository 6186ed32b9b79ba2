//! What the load test does as an admin: it creates items and reads audits.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use client::{Audit, Cart, Client, Error, ListedOrder, NewItem, ProblemCode, RetryPolicy, Token};
use futures::TryStreamExt;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::target::Target;

/// An audit of a large item reads every order.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an outage may last.
const OUTAGE_MAX: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An admin of the service.
pub struct Admin {
    admin: client::Admin,
    host: String,
}

impl Admin {
    /// The admin of this service. In outages, calls are repeated.
    pub fn new(target: &Target, outages: bool) -> Result<Self> {
        let retry = RetryPolicy {
            deadline: OUTAGE_MAX,
            ..RetryPolicy::default()
        };
        let client = Client::builder([&target.host])
            .attempt_timeout(ATTEMPT_TIMEOUT)
            .retry(if outages { retry } else { RetryPolicy::never() })
            .build()?;
        Ok(Self {
            admin: client.admin(Token::bearer(&target.admin_token)?),
            host: target.host.clone(),
        })
    }

    /// Creates an item, which must not have been sold from before.
    pub async fn create(&self, item: &NewItem) -> Result<()> {
        let created = self.admin.create_item(item).await;
        let created = created.map_err(|error| self.explain(error));
        let created = created.context("POST /v1/items")?;
        // A repeat with the same body is answered with the current item.
        ensure!(
            created.available == created.stock,
            "the item {} has been sold from before; expected --item to name a new one",
            item.id
        );
        Ok(())
    }

    /// The full audit as soon as no unit is on its way to the ledger or back, or when `timeout` has
    /// passed.
    pub async fn audit(&self, item: &str, timeout: Duration) -> Result<Audit> {
        self.audit_when(item, timeout, |_| true).await
    }

    /// The full audit as soon as no unit is on its way and `condition` is true, or when `timeout`
    /// has passed.
    pub async fn audit_when(
        &self,
        item: &str,
        timeout: Duration,
        condition: impl Fn(&Audit) -> bool,
    ) -> Result<Audit> {
        let deadline = Instant::now() + timeout;
        loop {
            let audit = self.admin.audit(item).await;
            let audit = audit.map_err(|error| self.explain(error));
            let audit = audit.with_context(|| format!("GET /v1/items/{item}/audit"))?;
            let is_met =
                |audit: &Audit| audit.in_flight == 0 && audit.returning == 0 && condition(audit);
            let is_late = Instant::now() > deadline;
            if is_met(&audit) || is_late {
                let full = self.full_audit(item).await?;
                if is_met(&full) || is_late {
                    return Ok(full);
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// The audit that reads every order.
    async fn full_audit(&self, item: &str) -> Result<Audit> {
        let audit = self.admin.full_audit(item).await;
        let audit = audit.map_err(|error| self.explain(error));
        audit.with_context(|| format!("GET /v1/items/{item}/audit?full=true"))
    }

    /// Every recorded order of an item.
    pub async fn orders(&self, item: &str) -> Result<Vec<ListedOrder>> {
        let orders = self.admin.all_item_orders(item, None).try_collect().await;
        let orders = orders.map_err(|error| self.explain(error));
        orders.with_context(|| format!("GET /v1/items/{item}/orders"))
    }

    /// A cart, if the ledger has it.
    pub async fn cart(&self, id: Uuid) -> Result<Option<Cart>> {
        match self.admin.cart(id).await {
            Err(error) if error.is(ProblemCode::CartNotFound) => Ok(None),
            cart => {
                let cart = cart.map_err(|error| self.explain(error));
                cart.map(Some)
                    .with_context(|| format!("GET /v1/carts/{id}"))
            }
        }
    }

    /// Adds what the user can do about the error.
    fn explain(&self, error: Error) -> anyhow::Error {
        let host = &self.host;
        if error.is(ProblemCode::Unauthorized) {
            return anyhow!(
                "{host} refused the admin token; is it from another --dir, or is STOCKADE_ADMIN_TOKEN set?"
            );
        }
        if error.is_outcome_unknown() && error.problem().is_none() {
            return anyhow::Error::new(error).context(format!(
                "{host} does not respond; is `stockade up` running?"
            ));
        }
        anyhow::Error::new(error).context(format!("unexpected response of {host}"))
    }
}
