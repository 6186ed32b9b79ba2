//! One Redis server: the plain lock and the re-entrant lock.

use std::{sync::Arc, time::Duration};

use lock::{Lock, RedisLock, RedisLockBuilder};
use testbed::{AppendFsync, Redis};
use tokio::sync::OnceCell;

use super::{TestEnv, answer_timeout};
use crate::support::{HOUR, raw};

pub struct Single<const REENTRANT: bool>(Redis);

static PLAIN: OnceCell<Single<false>> = OnceCell::const_new();
static REENTRANT: OnceCell<Single<true>> = OnceCell::const_new();

impl<const AGAIN: bool> Single<AGAIN> {
    fn builder(&self, lease: Duration) -> RedisLockBuilder {
        RedisLockBuilder::new(self.0.url())
            .lease(lease)
            .server_timeout(answer_timeout(lease))
    }
}

macro_rules! env {
    ($again:literal, $shared:ident, $client:expr) => {
        impl TestEnv for Single<$again> {
            async fn shared() -> &'static Self {
                $shared.get_or_init(Self::own).await
            }

            async fn own() -> Self {
                Self(
                    Redis::builder()
                        .appendfsync(AppendFsync::Always)
                        .start()
                        .await
                        .unwrap(),
                )
            }

            async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
                Arc::new($client(self.builder(lease).build().unwrap()))
            }

            async fn seldom_client(&self) -> Arc<dyn Lock> {
                let builder = self.builder(Self::LEASE).retry(HOUR);
                Arc::new($client(builder.build().unwrap()))
            }

            async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
                let builder = self.builder(Self::LEASE).lock_delay(delay);
                Arc::new($client(builder.build().unwrap()))
            }

            async fn make_unavailable(&mut self) {
                self.0.kill().await.unwrap();
            }

            async fn make_available(&mut self) {
                self.0.restart().await.unwrap();
            }

            async fn revoke(&self, name: &str) {
                redis::cmd("DEL")
                    .arg(name)
                    .exec_async(&mut raw(&self.0).await)
                    .await
                    .unwrap();
            }
        }
    };
}

env!(false, PLAIN, |lock| lock);
env!(true, REENTRANT, |lock: RedisLock| lock.reentrant());
