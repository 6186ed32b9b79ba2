//! Three Redis servers.

use std::{sync::Arc, time::Duration};

use lock::{Lock, RedlockBuilder};
use testbed::{AppendFsync, Redis, timeout};

use super::{TestEnv, answer_timeout};
use crate::support::{HOUR, admit, builder, five, ms, raw};

pub struct Nodes<const FAIR: bool>(Servers);

enum Servers {
    Shared(&'static [Redis]),
    Own(Vec<Redis>),
}

impl<const FAIR: bool> Nodes<FAIR> {
    fn servers(&self) -> &[Redis] {
        match &self.0 {
            Servers::Shared(servers) => servers,
            Servers::Own(servers) => servers,
        }
    }

    fn own_servers(&mut self) -> &mut Vec<Redis> {
        match &mut self.0 {
            Servers::Shared(_) => panic!("shared servers are never stopped"),
            Servers::Own(servers) => servers,
        }
    }

    fn builder(&self, lease: Duration) -> RedlockBuilder {
        builder(self.servers())
            .fair(FAIR)
            .lease(lease)
            .node_timeout(answer_timeout(lease))
            .longest_lease(lease.max(ms(3000)))
            // Clients with a short lease may vanish. The others keep their places, however seldom a
            // busy machine lets them ask again.
            .waiter_timeout(if lease < HOUR {
                ms(2000)
            } else {
                2 * timeout()
            })
    }
}

impl<const FAIR: bool> TestEnv for Nodes<FAIR> {
    async fn shared() -> &'static Self {
        // Leaks a few bytes for each test.
        Box::leak(Box::new(Self(Servers::Shared(five().await))))
    }

    async fn own() -> Self {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(
                Redis::builder()
                    .appendfsync(AppendFsync::Always)
                    .start()
                    .await
                    .unwrap(),
            );
        }
        admit(&servers).await;
        Self(Servers::Own(servers))
    }

    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder(lease).build().await.unwrap())
    }

    async fn seldom_client(&self) -> Arc<dyn Lock> {
        let builder = self.builder(Self::LEASE).retry(HOUR);
        Arc::new(builder.waiter_timeout(4 * HOUR).build().await.unwrap())
    }

    async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
        let builder = self.builder(Self::LEASE).lock_delay(delay);
        Arc::new(builder.build().await.unwrap())
    }

    async fn queued(&self, name: &str) -> usize {
        let mut queued = 0;
        for server in self.servers() {
            let mut count = redis::cmd("ZCARD");
            count.arg(format!("{name}:queue"));
            queued = queued.max(count.query_async(&mut raw(server).await).await.unwrap());
        }
        queued
    }

    async fn make_unavailable(&mut self) {
        for server in self.own_servers() {
            server.kill().await.unwrap();
        }
    }

    async fn make_available(&mut self) {
        for server in self.own_servers() {
            server.restart().await.unwrap();
        }
        admit(self.servers()).await;
    }

    async fn revoke(&self, name: &str) {
        for server in self.servers() {
            redis::cmd("DEL")
                .arg(name)
                .exec_async(&mut raw(server).await)
                .await
                .unwrap();
        }
    }
}
