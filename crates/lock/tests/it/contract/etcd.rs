//! One etcd server, a cluster of one. Its shortest lease is a second; these tests use two, for
//! loaded machines.

use std::{sync::Arc, time::Duration};

use etcd_client::{DeleteOptions, GetOptions, KeyValue, SortOrder, SortTarget};
use lock::{EtcdBuilder, Lock};
use testbed::Etcd;
use tokio::sync::OnceCell;

use super::{TestEnv, answer_timeout};
use crate::support::{HOUR, ms};

static SHARED: OnceCell<EtcdEnv> = OnceCell::const_new();

pub struct EtcdEnv(Etcd);

impl EtcdEnv {
    pub fn server(&self) -> &Etcd {
        &self.0
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    fn builder(&self, lease: Duration) -> EtcdBuilder {
        EtcdBuilder::new([self.url()])
            .lease(lease)
            .timeout(answer_timeout(lease))
    }

    /// The keys of a lock, in the order of their creation. Only spaces in the name are encoded.
    pub async fn keys(&self, name: &str) -> Vec<KeyValue> {
        let mut client = etcd_client::Client::connect([self.url()], None)
            .await
            .unwrap();
        let options = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend);
        client
            .get(prefix(name), Some(options))
            .await
            .unwrap()
            .take_kvs()
    }

    /// Number of leases of all locks.
    pub async fn leases(&self) -> usize {
        let mut client = etcd_client::Client::connect([self.url()], None)
            .await
            .unwrap();
        client.leases().await.unwrap().leases().len()
    }
}

/// As an operator would type it.
fn prefix(name: &str) -> String {
    format!("locks/{}/", name.replace(' ', "_20"))
}

impl TestEnv for EtcdEnv {
    const LEASE: Duration = ms(2000);

    async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::own).await
    }

    async fn own() -> Self {
        Self(Etcd::start().await.unwrap())
    }

    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder(lease).build().await.unwrap())
    }

    async fn seldom_client(&self) -> Arc<dyn Lock> {
        Arc::new(self.builder(Self::LEASE).retry(HOUR).build().await.unwrap())
    }

    async fn queued(&self, name: &str) -> usize {
        // All but the holder.
        self.keys(name).await.len() - 1
    }

    async fn make_unavailable(&mut self) {
        self.0.kill().await.unwrap();
    }

    async fn make_available(&mut self) {
        self.0.restart().await.unwrap();
    }

    async fn revoke(&self, name: &str) {
        let mut client = etcd_client::Client::connect([self.url()], None)
            .await
            .unwrap();
        client
            .delete(prefix(name), Some(DeleteOptions::new().with_prefix()))
            .await
            .unwrap();
    }
}
