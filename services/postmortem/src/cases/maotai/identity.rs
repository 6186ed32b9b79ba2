//! The identity service: a process with one worker and a queue. It is not slow, it is overloaded: whoever comes when three hundred others
//! have come before waits until they have been served.

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
    stage::Stage,
};

/// How many others ask it when the crowd comes.
const CROWD: u32 = 300;
const SERVING: &str = "it serves";

/// What the service is told.
#[derive(Serialize, Deserialize)]
pub(crate) struct Task {
    port: u16,
    /// How long one check takes.
    check_us: u64,
}

/// The running service.
pub(super) struct IdentityService {
    /// Where it is asked.
    pub url: String,
    client: Client,
    _process: Actor,
}

impl IdentityService {
    /// Starts one whose queue is as long as `stall` when the crowd has come.
    pub async fn start(stage: &Stage, stall: Duration) -> Result<Self> {
        let port = free_port().await;
        let check_us = u64::try_from(stage.pace.real(stall / CROWD).as_micros())?;
        let mut process = Actor::start(
            stage,
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

    /// The crowd comes. Returns when it stands in the queue; what is returned ends when it has been served.
    ///
    /// The clerk is kept busy until the last of it has come: on a machine that has much else to do a part of it would have been served by then.
    pub async fn flood(&self) -> Result<JoinHandle<Result<()>>> {
        self.tell("busy").await?;
        let ask = |_| {
            let request = self
                .client
                .get(format!("{}/identity/somebody", self.url))
                .send();
            async move { request.await?.error_for_status() }
        };
        let crowd = try_join_all((0..CROWD).map(ask));
        let served =
            tokio::spawn(async move { crowd.await.map(drop).context("the identity service") });
        while self.in_queue().await? < CROWD {
            ensure!(
                !served.is_finished(),
                "the crowd did not come to the identity service"
            );
        }
        self.tell("free").await?;
        Ok(served)
    }

    async fn tell(&self, what: &str) -> Result<()> {
        self.client
            .get(format!("{}/{what}", self.url))
            .send()
            .await?
            .error_for_status()
            .context("the identity service")?;
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

/// Asks whether a buyer is who the buyer claims to be.
pub(super) async fn identify(client: &Client, url: &str, buyer: &str) -> Result<()> {
    client
        .get(format!("{url}/identity/{buyer}"))
        .send()
        .await?
        .error_for_status()
        .context("the identity service")?;
    Ok(())
}

/// Is the service.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let desk = Desk {
        worker: Arc::new(Semaphore::new(1)),
        busy: Mutex::default(),
        check: Duration::from_micros(task.check_us),
        waiting: 0.into(),
    };
    let router = Router::new()
        .route("/identity/{buyer}", get(check))
        .route("/queue", get(queue))
        .route("/busy", get(busy))
        .route("/free", get(free))
        .with_state(Arc::new(desk));
    let listener = TcpListener::bind(("127.0.0.1", task.port)).await?;
    let serving = axum::serve(listener, router).into_future();
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => ended?,
        // Whoever is let go on serves on.
        started = host.point(SERVING) => { started?; serving.await?; }
    }
    Ok(Value::Null)
}

/// One worker, and who waits for it: first come, first served.
struct Desk {
    worker: Arc<Semaphore>,
    /// The worker, while something else keeps it busy.
    busy: Mutex<Option<OwnedSemaphorePermit>>,
    check: Duration,
    waiting: std::sync::atomic::AtomicU32,
}

async fn check(State(desk): State<Arc<Desk>>) -> &'static str {
    use std::sync::atomic::Ordering::Relaxed;
    desk.waiting.fetch_add(1, Relaxed);
    let worker = desk.worker.acquire().await;
    tokio::time::sleep(desk.check).await;
    drop(worker);
    desk.waiting.fetch_sub(1, Relaxed);
    "known"
}

async fn busy(State(desk): State<Arc<Desk>>) {
    let worker = Arc::clone(&desk.worker).acquire_owned().await;
    *desk.busy.lock().await = worker.ok();
}

async fn free(State(desk): State<Arc<Desk>>) {
    desk.busy.lock().await.take();
}

async fn queue(State(desk): State<Arc<Desk>>) -> String {
    desk.waiting
        .load(std::sync::atomic::Ordering::Relaxed)
        .to_string()
}
