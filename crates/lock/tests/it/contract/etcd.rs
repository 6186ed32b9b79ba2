//! One etcd server, a cluster of one. Its shortest lease is a second; ours are two, for loaded machines.

use std::{sync::Arc, time::Duration};

use etcd_client::{DeleteOptions, GetOptions, KeyValue, SortOrder, SortTarget};
use lock::{EtcdBuilder, Lock};
use testbed::Etcd;
use tokio::sync::OnceCell;

use super::{Site, contract};
use crate::site::ms;

static SHARED: OnceCell<EtcdSite> = OnceCell::const_new();

pub struct EtcdSite(Etcd);

impl EtcdSite {
    pub fn server(&self) -> &Etcd {
        &self.0
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    pub fn builder(&self) -> EtcdBuilder {
        EtcdBuilder::new([self.url()])
            .lease(Self::LEASE)
            .timeout(ms(1500))
    }

    /// The keys of a lock whose name stays as it is, in the order of their creation.
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

    /// Leases of all locks.
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

impl Site for EtcdSite {
    const LEASE: Duration = ms(2000);

    async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::own).await
    }

    async fn own() -> Self {
        Self(Etcd::start().await.unwrap())
    }

    async fn client(&self) -> Arc<dyn Lock> {
        Arc::new(self.builder().build().await.unwrap())
    }

    async fn break_down(&mut self) {
        self.0.kill().await.unwrap();
    }

    async fn mend(&mut self) {
        self.0.restart().await.unwrap();
    }

    async fn steal(&self, name: &str) {
        let mut client = etcd_client::Client::connect([self.url()], None)
            .await
            .unwrap();
        client
            .delete(prefix(name), Some(DeleteOptions::new().with_prefix()))
            .await
            .unwrap();
    }
}

contract!(cluster_of_one, EtcdSite);
