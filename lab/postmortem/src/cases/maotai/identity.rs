//! The identity service: a process with one worker and a queue. A check is fast, but a request that
//! arrives after three hundred others waits for all of them.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use axum::{Router, extract::State, routing::get};
use futures::future::try_join_all;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::free_port;
use tokio::{
    net::TcpListener,
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};

use crate::{
    actor::{Actor, Host, Role},
    test_env::TestEnv,
};

/// Number of requests in the flood.
const CROWD: u32 = 300;
const SERVING: &str = "ready to serve";

/// Arguments of the service.
#[derive(Serialize, Deserialize)]
pub(crate) struct Task {
    port: u16,
    /// Duration of one check in microseconds.
    check_us: u64,
}

/// A running service.
pub(super) struct IdentityService {
    /// Address of the service.
    pub url: String,
    client: Client,
    _process: Actor,
}

impl IdentityService {
    /// Starts a service whose queue takes `stall` during the flood.
    pub async fn start(env: &TestEnv, stall: Duration) -> Result<Self> {
        let port = free_port().await;
        let check_us = u64::try_from(env.pace.real(stall / CROWD).as_micros())?;
        let mut process = Actor::start(
            env,
            "identity service",
            Role::IdentityService,
            &Task { port, check_us },
        )
        .await?;
        process.until(SERVING).await?;
        process.go().await?;
        let client = Client::builder()
            .timeout(Duration::from_secs(600))
            .build()?;
        Ok(Self {
            url: format!("http://127.0.0.1:{port}"),
            client,
            _process: process,
        })
    }

    /// Sends the flood. Returns when all its requests are queued; the returned task ends when they
    /// have been served.
    ///
    /// The worker is kept busy until the last request is queued. On a busy machine some of them
    /// would otherwise be served before.
    pub async fn flood(&self) -> Result<JoinHandle<Result<()>>> {
        self.command("busy").await?;
        let request = |_| {
            let request = self
                .client
                .get(format!("{}/identity/visitor", self.url))
                .send();
            async move { request.await?.error_for_status() }
        };
        let crowd = try_join_all((0..CROWD).map(request));
        let served = tokio::spawn(async move {
            crowd
                .await
                .map(drop)
                .context("cannot reach the identity service")
        });
        while self.in_queue().await? < CROWD {
            ensure!(
                !served.is_finished(),
                "the requests of the crowd ended before they were queued"
            );
        }
        self.command("free").await?;
        Ok(served)
    }

    async fn command(&self, command: &str) -> Result<()> {
        self.client
            .get(format!("{}/{command}", self.url))
            .send()
            .await?
            .error_for_status()
            .context("cannot reach the identity service")?;
        Ok(())
    }

    async fn in_queue(&self) -> Result<u32> {
        Ok(self
            .client
            .get(format!("{}/queue", self.url))
            .send()
            .await?
            .json()
            .await?)
    }
}

/// Asks the service to verify a buyer's identity.
pub(super) async fn identify(client: &Client, url: &str, buyer: &str) -> Result<()> {
    client
        .get(format!("{url}/identity/{buyer}"))
        .send()
        .await?
        .error_for_status()
        .context("cannot reach the identity service")?;
    Ok(())
}

/// Runs the service.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let queue = Queue {
        worker: Arc::new(Semaphore::new(1)),
        busy: Mutex::default(),
        check: Duration::from_micros(task.check_us),
        waiting: 0.into(),
    };
    let router = Router::new()
        .route("/identity/{buyer}", get(check))
        .route("/queue", get(length))
        .route("/busy", get(busy))
        .route("/free", get(free))
        .with_state(Arc::new(queue));
    let listener = TcpListener::bind(("127.0.0.1", task.port)).await?;
    let serving = axum::serve(listener, router).into_future();
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => ended?,
        // The service continues after the runner has released it.
        started = host.point(SERVING) => { started?; serving.await?; }
    }
    Ok(Value::Null)
}

/// One worker, and its queue in order of arrival.
struct Queue {
    worker: Arc<Semaphore>,
    /// The worker's permit, while the flood is being queued.
    busy: Mutex<Option<OwnedSemaphorePermit>>,
    check: Duration,
    waiting: std::sync::atomic::AtomicU32,
}

async fn check(State(queue): State<Arc<Queue>>) -> &'static str {
    use std::sync::atomic::Ordering::Relaxed;
    queue.waiting.fetch_add(1, Relaxed);
    let worker = queue.worker.acquire().await;
    tokio::time::sleep(queue.check).await;
    drop(worker);
    queue.waiting.fetch_sub(1, Relaxed);
    "known"
}

async fn busy(State(queue): State<Arc<Queue>>) {
    let worker = Arc::clone(&queue.worker).acquire_owned().await;
    *queue.busy.lock().await = worker.ok();
}

async fn free(State(queue): State<Arc<Queue>>) {
    queue.busy.lock().await.take();
}

async fn length(State(queue): State<Arc<Queue>>) -> String {
    queue
        .waiting
        .load(std::sync::atomic::Ordering::Relaxed)
        .to_string()
}
