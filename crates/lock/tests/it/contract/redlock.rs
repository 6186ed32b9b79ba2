//! Three Redis servers.

use std::{sync::Arc, time::Duration};

use lock::{Lock, Standing};
use testbed::{AppendFsync, Redis};

use super::{TestEnv, contract};
use crate::support::{becomes, builder, five, ms, raw};

struct Nodes<const FAIR: bool>(Servers);

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

    async fn all_vote(&self) {
        let lock = builder(self.servers()).build().await.unwrap();
        becomes("all vote", async || {
            lock.status()
                .await
                .iter()
                .all(|node| matches!(node.standing, Standing::Voting))
        })
        .await;
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
        let env = Self(Servers::Own(servers));
        env.all_vote().await;
        env
    }

    async fn client(&self) -> Arc<dyn Lock> {
        Arc::new(
            builder(self.servers())
                .fair(FAIR)
                .longest_lease(ms(3000))
                .build()
                .await
                .unwrap(),
        )
    }

    async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
        Arc::new(
            builder(self.servers())
                .fair(FAIR)
                .lock_delay(delay)
                .longest_lease(ms(3000))
                .build()
                .await
                .unwrap(),
        )
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
        self.all_vote().await;
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

contract!(unordered, Nodes<false>);
contract!(fair, Nodes<true>);
