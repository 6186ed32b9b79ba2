//! The roles of this process. They start and stop in a fixed order.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result, bail};
use ledger::Ledger;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use order::{BuyerKey, Credentials, Engine, Limits};
use publisher::{PublisherSettings, StoreClock};
use reconciler::{LockLog, ReconcilerSettings};
use stock::Stock;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    dedicated_runtime,
    heartbeat::Heartbeat,
    item_lock, key_set,
    pages::{with_console, with_sale_page},
    settings::Settings,
};

/// Serves until SIGINT or SIGTERM.
pub async fn serve(settings: Settings) -> Result<()> {
    let mut stop = StopSignal::listen()?;
    let running = tokio::select! {
        running = Running::start(&settings) => running?,
        () = stop.received() => return Ok(()),
    };
    if let Some(address) = running.address {
        tracing::info!(%address, "serving");
    }
    stop.received().await;
    tokio::select! {
        () = running.drain(&settings) => {}
        // A second signal: no more waiting.
        () = stop.received() => {}
    }
    tracing::info!("stopping: finishing requests in flight");
    running.stop().await;
    Ok(())
}

/// Disables transparent huge pages for this process.
///
/// The allocator requests huge pages, and a huge page is resident as soon as one part of it is
/// touched. The buffers of a connection are mostly empty: 10,000 connections took 246 MB with huge
/// pages and 155 MB without, at the same speed (docs/performance.md). Child processes inherit the
/// setting, so only serving processes call this. A system without the call is left unchanged.
fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
}

/// SIGINT or SIGTERM. It must exist before the process says that it is ready: without it, a signal
/// kills the process where it stands.
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Notes every signal from now on.
    pub fn listen() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns when a signal has come.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Opens the ledger without changing its schema, and without creating it.
pub async fn connect_ledger(settings: &Settings) -> Result<Arc<dyn Ledger>> {
    let database = &settings.database;
    let pool = database.pool(database.database_connections);
    ledger::connect_existing(settings.database_url()?, pool)
        .await
        .context("DATABASE_URL")
}

/// Opens the ledger, creates it if it is a file that is missing, and updates its schema.
pub async fn migrated_ledger(settings: &Settings) -> Result<Arc<dyn Ledger>> {
    let database = &settings.database;
    let pool = database.pool(database.database_connections);
    let ledger = ledger::connect(settings.database_url()?, pool)
        .await
        .context("DATABASE_URL")?;
    ledger.migrate().await.context("DATABASE_URL")?;
    Ok(ledger)
}

/// Opens a ledger whose schema is up to date, or updates it where the settings say so.
async fn open_ledger(settings: &Settings) -> Result<Arc<dyn Ledger>> {
    if settings.database.migrate {
        return migrated_ledger(settings).await;
    }
    let ledger = connect_ledger(settings).await?;
    let missing = ledger.missing_migrations().await.context("DATABASE_URL")?;
    if let Some(first) = missing.first() {
        bail!(
            "DATABASE_URL: the schema lacks {} migrations, from {first} on: run `stockade migrate`, or set STOCKADE_MIGRATE=on",
            missing.len()
        );
    }
    Ok(ledger)
}

/// Connects to the stock.
pub async fn open_stock(settings: &Settings) -> Result<Arc<Stock>> {
    Stock::connect(settings.stock()?).await.context("REDIS_URL")
}

/// The running roles of this process.
pub struct Running {
    /// Address of the HTTP service, if it runs.
    pub address: Option<SocketAddr>,
    /// Address of the operators' pages, if they have a listener of their own.
    pub operators_address: Option<SocketAddr>,
    /// Stock and ledger, shared by the roles.
    pub engine: Arc<Engine>,
    stop_serving: CancellationToken,
    stop_recording: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    recording: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts the roles. Fails without secrets before it changes anything.
    pub async fn start(settings: &Settings) -> Result<Self> {
        refuse_huge_pages();
        let credentials = match settings.service.roles.order {
            true => Some(Arc::new(credentials(settings).await?)),
            false => None,
        };
        let metrics = order::metrics::install();
        let ledger = open_ledger(settings).await?;
        let stock = open_stock(settings).await?;
        let engine = Engine::new(stock, ledger, settings.engine());
        let mut running = Self {
            address: None,
            operators_address: None,
            engine,
            stop_serving: CancellationToken::new(),
            stop_recording: CancellationToken::new(),
            serving: Vec::new(),
            recording: Vec::new(),
        };
        // First of all, so that a role that listens soon knows whether it is ready.
        running.recording.push(tokio::spawn(order::watch_stores(
            Arc::clone(&running.engine),
            running.stop_recording.clone(),
        )));
        let locks = Arc::new(LockLog::default());
        if settings.service.roles.recorder {
            running.start_recorder(settings).await?;
        }
        if settings.service.roles.reconciler {
            running
                .start_reconciler(settings, Arc::clone(&locks))
                .await?;
        }
        if settings.service.roles.publisher {
            running.start_publisher(settings);
        }
        if let Some(credentials) = &credentials {
            running
                .start_order_service(settings, Arc::clone(credentials), metrics.clone())
                .await?;
        }
        if let Some(address) = settings.operators_address() {
            running.start_operators_service(settings, address, credentials, metrics.clone())?;
        }
        let heartbeat = Heartbeat::new(
            Arc::clone(&running.engine),
            settings.service.roles.to_string(),
            locks,
        );
        running
            .recording
            .push(tokio::spawn(heartbeat.run(running.stop_recording.clone())));
        if let Some(metrics) = metrics {
            running.recording.push(tokio::spawn(order::metrics::upkeep(
                metrics,
                running.stop_recording.clone(),
            )));
        }
        Ok(running)
    }

    async fn start_recorder(&mut self, settings: &Settings) -> Result<()> {
        let recorder = settings.service.recorder();
        if !settings.service.roles.order {
            // Without requests in this process, the shared runtime with several threads is faster
            // than one dedicated thread.
            let (stock, ledger) = (
                Arc::clone(&self.engine.stock),
                Arc::clone(&self.engine.ledger),
            );
            self.recording.push(tokio::spawn(recorder::run(
                stock,
                ledger,
                recorder,
                self.stop_recording.clone(),
            )));
            return Ok(());
        }
        let (engine, url, stop) = (
            Arc::clone(&self.engine),
            settings.database_url()?.to_owned(),
            self.stop_recording.clone(),
        );
        let database = settings.database.clone();
        let role = async move || {
            let stock = engine.stock.reconnect().await.context("REDIS_URL")?;
            // One connection per worker, and one for the sweep.
            let connections = u32::try_from(recorder.workers + 1)?;
            let ledger = ledger::connect_again(&engine.ledger, &url, database.pool(connections))
                .await
                .context("DATABASE_URL")?;
            Ok(recorder::run(stock, ledger, recorder, stop))
        };
        self.recording
            .push(dedicated_runtime::start("recorder", role).await?);
        Ok(())
    }

    async fn start_reconciler(&mut self, settings: &Settings, locks: Arc<LockLog>) -> Result<()> {
        let lock = item_lock::open(settings).await?;
        let (stock, ledger) = (
            Arc::clone(&self.engine.stock),
            Arc::clone(&self.engine.ledger),
        );
        let reconciler = reconciler::run(
            stock,
            ledger,
            lock,
            ReconcilerSettings {
                locks,
                ..settings.reconciler()
            },
            self.stop_recording.clone(),
        );
        self.recording.push(tokio::spawn(reconciler));
        Ok(())
    }

    fn start_publisher(&mut self, settings: &Settings) {
        let stock = Arc::clone(&self.engine.stock);
        let redis_clock = StoreClock::new(move || {
            let stock = Arc::clone(&stock);
            async move { stock.time().await }
        });
        let publisher = PublisherSettings {
            store_clock: Some(redis_clock),
            ..settings.publisher()
        };
        let ledger = Arc::clone(&self.engine.ledger);
        let publishing = publisher::run(ledger, publisher, self.stop_recording.clone());
        self.recording.push(tokio::spawn(async move {
            if let Err(error) = publishing.await {
                tracing::error!(%error, "no publisher: webhooks and sinks get no events");
            }
        }));
    }

    async fn start_order_service(
        &mut self,
        settings: &Settings,
        credentials: Arc<Credentials>,
        metrics: Option<order::metrics::Exporter>,
    ) -> Result<()> {
        let listener = listen(settings.service.listen, "STOCKADE_LISTEN")?;
        self.address = Some(listener.local_addr()?);
        let limits = settings.limits();
        let payments = settings.access.payment_keys();
        if let Some(keys) = settings.key_set() {
            let (credentials, stop) = (Arc::clone(&credentials), self.stop_recording.clone());
            self.recording
                .push(tokio::spawn(key_set::follow(keys, credentials, stop)));
        }
        let engine = Arc::clone(&self.engine);
        let stop = self.stop_serving.clone();
        let api = if settings.service.operators_at_listen == Some(true) {
            order::router(engine, Arc::clone(&credentials), payments, metrics, &limits)
                .map(|api| with_console(api, settings, &self.engine, &credentials, &stop))
        } else {
            if settings.service.operators_listen.is_none() {
                tracing::info!(
                    "metrics, API pages and console are not served: STOCKADE_OPERATORS_LISTEN is not set"
                );
            }
            order::api_router(engine, credentials, payments, &limits)
        };
        let pages = with_sale_page(api.routes().clone(), settings, &self.engine, &stop)?;
        let origins = settings.service.cors_origins.clone().unwrap_or_default();
        let api = order::with_cors(api.map(|_| pages), &origins);
        self.serving.push(tokio::spawn(async move {
            order::serve(listener, api, &limits, stop).await
        }));
        self.serving.push(tokio::spawn(order::watch_overdue(
            Arc::clone(&self.engine),
            self.stop_recording.clone(),
        )));
        Ok(())
    }

    /// Serves the operators' pages apart from the API. The reconciler exports the drift metric,
    /// which must be 0.
    fn start_operators_service(
        &mut self,
        settings: &Settings,
        (variable, address): (&str, SocketAddr),
        credentials: Option<Arc<Credentials>>,
        metrics: Option<order::metrics::Exporter>,
    ) -> Result<()> {
        let connections = settings.connections.connections_max.unwrap_or(usize::MAX);
        let limits = Limits {
            // A few requests a minute need no thread.
            threads: 0,
            connections: Some(connections.min(OPERATORS_CONNECTIONS)),
            ..settings.limits()
        };
        let listener = listen(address, variable)?;
        // The pages of the API belong to a process that has one.
        let (engine, api_docs) = (Arc::clone(&self.engine), settings.service.roles.order);
        let mut router = order::operators_router(engine, metrics, api_docs);
        let stop = self.stop_recording.clone();
        // Admins are known to a process that has the API.
        if let Some(credentials) = credentials {
            router = with_console(router, settings, &self.engine, &credentials, &stop);
        }
        let address = listener.local_addr()?;
        self.operators_address = Some(address);
        if settings.service.roles.order {
            tracing::info!(%address, "serving operators");
        } else {
            self.address = Some(address);
        }
        self.recording.push(tokio::spawn(async move {
            order::serve(listener, router, &limits, stop).await
        }));
        Ok(())
    }

    /// Fails the readiness for a while, so that balancers send no more requests. They are still
    /// answered.
    async fn drain(&self, settings: &Settings) {
        self.engine.drain();
        let delay = settings.service.drain_delay_ms;
        if settings.service.roles.order && !delay.is_zero() {
            tracing::info!(?delay, "stopping: no longer ready");
            tokio::time::sleep(delay).await;
        }
    }

    /// Stops accepting requests, finishes those in flight (they wait for the recorder), then stops
    /// the recorder, then closes Redis.
    pub async fn stop(self) {
        self.stop_serving.cancel();
        if let Some(http) = self.serving.into_iter().next() {
            let _ = http.await;
        }
        self.stop_recording.cancel();
        for task in self.recording {
            let _ = task.await;
        }
        self.engine.stock.shutdown().await;
    }
}

/// Connections to the operators' address. Their descriptors are of those that the connections of
/// buyers leave, so that both together leave some to the stores.
const OPERATORS_CONNECTIONS: usize = 64;

fn listen(address: SocketAddr, variable: &str) -> Result<TcpListener> {
    raise_descriptor_limit();
    order::listen(address).with_context(|| format!("{variable}: cannot listen on {address}"))
}

async fn credentials(settings: &Settings) -> Result<Credentials> {
    let mut credentials = buyers(settings).await?;
    if settings.admins.is_empty() || settings.access.admin_token.is_some() {
        credentials = credentials.or_admin_token(settings.admin_token()?);
    }
    let admins = settings.admins.iter().cloned();
    Ok(admins.fold(credentials, Credentials::or_admin))
}

/// Credentials that have the keys of buyers' tokens, and no admins.
pub async fn buyers(settings: &Settings) -> Result<Credentials> {
    settings.check_audience()?;
    let policy = settings.access.token_policy();
    if let Some(keys) = settings.key_set() {
        return key_set::credentials(&keys, policy).await;
    }
    let credentials = Credentials::with_policy(&settings.access.buyer_key()?, policy)
        .context("STOCKADE_JWT_PUBLIC_KEY")?;
    match &settings.access.jwt_secret_previous {
        Some(secret) => Ok(credentials.or_key(&BuyerKey::Secret(secret.as_bytes().to_vec()))?),
        None => Ok(credentials),
    }
}

/// Each connection of a client is a descriptor. Many systems allow 1,024 at first, and more on
/// demand.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "could not raise the limit of descriptors");
    }
}
