//! The roles of this process, started and ended in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use ledger::Ledger;
use order::{Credentials, Engine, EngineSettings, Limits, PaymentKey};
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use stock::{RedisSettings, Stock, StockSettings};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{apart, item_lock, settings::Settings};

/// Serves until SIGINT or SIGTERM.
pub async fn serve(settings: Settings) -> Result<()> {
    let running = Running::start(&settings).await?;
    if let Some(address) = running.address {
        tracing::info!(%address, "serving");
    }
    asked_to_stop().await?;
    tracing::info!("ending: finishing what was taken");
    running.stop().await;
    Ok(())
}

/// The allocator asks for huge pages, of which every part is resident as soon as one is touched. The buffers of a connection are mostly empty: 10,000 of them
/// took 246 MB with huge pages and take 155 MB without, at the same speed (docs/performance.md). A system that does not know the call stays as it is.
/// Processes that are started later inherit it, so only who serves does this.
fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
}

/// Returns when the process has been asked to stop.
pub async fn asked_to_stop() -> Result<()> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Opens the ledger as it is.
pub async fn connect_ledger(settings: &Settings) -> Result<Arc<dyn Ledger>> {
    ledger::connect(settings.database_url()?, settings.database_connections)
        .await
        .context("DATABASE_URL")
}

/// Opens the ledger and brings its schema up to date.
pub async fn open_ledger(settings: &Settings) -> Result<Arc<dyn Ledger>> {
    let ledger = connect_ledger(settings).await?;
    ledger.migrate().await.context("DATABASE_URL")?;
    Ok(ledger)
}

/// Connects to the stock.
pub async fn open_stock(settings: &Settings) -> Result<Arc<Stock>> {
    let redis = RedisSettings {
        connect_timeout: settings.redis_connect_timeout,
        response_timeout: settings.redis_timeout,
        ..RedisSettings::new(settings.redis_url()?)
    };
    let defaults = StockSettings::new("");
    let stock = StockSettings {
        redis,
        batch_max: settings.batch_max,
        hint_lifetime: settings.hint_lifetime,
        replicas: settings.replicas,
        replicas_timeout: settings.replicas_timeout,
        ..defaults
    };
    Stock::connect(stock).await.context("REDIS_URL")
}

/// The roles of this process, running.
pub struct Running {
    /// Where the order service serves, if it does.
    pub address: Option<SocketAddr>,
    /// The engine.
    pub engine: Arc<Engine>,
    stop_serving: CancellationToken,
    stop_recording: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    recording: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts them. Refuses to without secrets, before it touches anything.
    pub async fn start(settings: &Settings) -> Result<Self> {
        refuse_huge_pages();
        let credentials = settings
            .roles
            .order
            .then(|| credentials(settings))
            .transpose()?;
        let metrics = order::metrics::install();
        let ledger = open_ledger(settings).await?;
        let stock = open_stock(settings).await?;
        let engine = Engine::new(
            stock,
            ledger,
            EngineSettings {
                order_within: settings.order_timeout,
            },
        );
        let mut running = Self {
            address: None,
            engine,
            stop_serving: CancellationToken::new(),
            stop_recording: CancellationToken::new(),
            serving: Vec::new(),
            recording: Vec::new(),
        };
        if settings.roles.recorder {
            running.start_recorder(settings).await?;
        }
        if settings.roles.reconciler {
            running.start_reconciler(settings).await?;
        }
        if let Some(credentials) = credentials {
            running
                .start_order_service(settings, Arc::new(credentials), metrics.clone())
                .await?;
        } else if settings.listen_is_set {
            running
                .start_operators_service(settings, metrics.clone())
                .await?;
        }
        if let Some(metrics) = metrics {
            running.recording.push(tokio::spawn(order::metrics::upkeep(
                metrics,
                running.stop_recording.clone(),
            )));
        }
        Ok(running)
    }

    async fn start_recorder(&mut self, settings: &Settings) -> Result<()> {
        let recorder = RecorderSettings {
            workers: settings.recorder_workers,
            ..RecorderSettings::default()
        };
        if !settings.roles.order {
            // There is no crowd that it would have to queue behind, and several threads are faster than one.
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
        let role = async move || {
            let stock = engine.stock.beside().await.context("REDIS_URL")?;
            // The sweep wants one, too.
            let connections = u32::try_from(recorder.workers + 1)?;
            let ledger = ledger::connect_again(&engine.ledger, &url, connections)
                .await
                .context("DATABASE_URL")?;
            Ok(recorder::run(stock, ledger, recorder, stop))
        };
        self.recording.push(apart::start("recorder", role).await?);
        Ok(())
    }

    async fn start_reconciler(&mut self, settings: &Settings) -> Result<()> {
        let lock = item_lock::open(settings).await?;
        let (stock, ledger) = (
            Arc::clone(&self.engine.stock),
            Arc::clone(&self.engine.ledger),
        );
        let reconciler = reconciler::run(
            stock,
            ledger,
            lock,
            ReconcilerSettings::default(),
            self.stop_recording.clone(),
        );
        self.recording.push(tokio::spawn(reconciler));
        Ok(())
    }

    async fn start_order_service(
        &mut self,
        settings: &Settings,
        credentials: Arc<Credentials>,
        metrics: Option<metrics_exporter_prometheus::PrometheusHandle>,
    ) -> Result<()> {
        let (listener, limits) = (self.listen(settings)?, limits(settings));
        let payments = settings
            .payment_secret
            .as_ref()
            .map(|secret| PaymentKey::new(secret.as_bytes(), settings.payment_window));
        let router = order::router(
            Arc::clone(&self.engine),
            credentials,
            payments,
            metrics,
            &limits,
        );
        let stop = self.stop_serving.clone();
        self.serving.push(tokio::spawn(async move {
            order::serve(listener, router, &limits, stop).await
        }));
        self.serving.push(tokio::spawn(order::watch_overdue(
            Arc::clone(&self.engine),
            self.stop_recording.clone(),
        )));
        Ok(())
    }

    /// A process that sells nothing is asked how it is, too: the reconciler has the metric that must be 0. It is so where an address is set, since several
    /// roles on one machine would all want the default.
    async fn start_operators_service(
        &mut self,
        settings: &Settings,
        metrics: Option<metrics_exporter_prometheus::PrometheusHandle>,
    ) -> Result<()> {
        let (listener, limits) = (self.listen(settings)?, limits(settings));
        let (router, stop) = (
            order::operators_router(Arc::clone(&self.engine), metrics),
            self.stop_recording.clone(),
        );
        self.recording.push(tokio::spawn(async move {
            order::serve(listener, router, &limits, stop).await
        }));
        Ok(())
    }

    fn listen(&mut self, settings: &Settings) -> Result<TcpListener> {
        let listener = order::listen(settings.listen);
        let listener = listener
            .with_context(|| format!("STOCKADE_LISTEN: cannot listen on {}", settings.listen))?;
        self.address = Some(listener.local_addr()?);
        Ok(listener)
    }

    /// First no new requests, then those under way (they wait for the recorder), then the recorder, then Redis.
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

fn credentials(settings: &Settings) -> Result<Credentials> {
    let key = settings.buyer_key()?;
    Credentials::new(&key, settings.admin_token()?).context("STOCKADE_JWT_PUBLIC_KEY")
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        body_bytes: settings.body_bytes_max,
        headers: settings.headers_max,
        head_bytes: settings.head_bytes_max,
        head_within: settings.head_timeout,
        // An order must be told that its outcome is unknown rather than be cut off: it may look its item up first, and look into the ledger last.
        request_within: settings
            .request_timeout
            .max(settings.order_timeout * 2 + Duration::from_secs(5)),
        drain_within: settings.drain_timeout,
    }
}
