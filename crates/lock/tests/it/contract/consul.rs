//! A test double of Consul that accepts sessions of a tenth of a second. As Consul does, it ends a
//! session after twice its TTL.

use std::{sync::Arc, time::Duration};

use lock::{ConsulBuilder, Lock};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{TestEnv, answer_timeout, consul_double::Consul};
use crate::support::{HOUR, ms};

static SHARED: OnceCell<ConsulEnv> = OnceCell::const_new();

pub struct ConsulEnv(Consul);

impl ConsulEnv {
    pub fn consul(&self) -> &Consul {
        &self.0
    }

    fn builder(&self, lease: Duration) -> ConsulBuilder {
        ConsulBuilder::new(self.0.url())
            .session_ttl_min(ms(100))
            .lease(lease)
            .timeout(answer_timeout(lease))
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}/v1/kv/locks/{}", self.0.url(), name.replace(' ', "_20"))
    }

    /// The entry of a lock, as an operator would read it. Only spaces in the name are encoded.
    pub async fn entry(&self, name: &str) -> Option<Value> {
        let answer = reqwest::get(self.key(name)).await.unwrap();
        if answer.status() == 404 {
            return None;
        }
        answer.json::<Vec<Value>>().await.unwrap().pop()
    }

    pub async fn destroy(&self, session: &str) {
        let destroy = format!("{}/v1/session/destroy/{session}", self.0.url());
        assert_eq!(
            reqwest::Client::new()
                .put(destroy)
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap(),
            "true"
        );
    }
}

impl TestEnv for ConsulEnv {
    async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::own).await
    }

    async fn own() -> Self {
        Self(Consul::start(ms(100)))
    }

    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder(lease).build().await.unwrap())
    }

    async fn seldom_client(&self) -> Arc<dyn Lock> {
        Arc::new(self.builder(Self::LEASE).retry(HOUR).build().await.unwrap())
    }

    async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
        let builder = self.builder(Self::LEASE).lock_delay(delay);
        Arc::new(builder.build().await.unwrap())
    }

    async fn make_unavailable(&mut self) {
        self.0.kill();
    }

    async fn make_available(&mut self) {
        self.0.restart().await;
    }

    async fn revoke(&self, name: &str) {
        let entry = self.entry(name).await;
        if let Some(session) = entry.as_ref().and_then(|entry| entry["Session"].as_str()) {
            self.destroy(session).await;
        }
    }
}
