//! The master that Sentinel names, followed through failovers.
//!
//! The simple way is to ask the sentinels once, and again when the connection breaks. It stays with
//! an old master that was only paused: the connection never broke, and for up to ten seconds after
//! it resumes, the old master takes writes that will be lost. So the sentinels are polled all the
//! time ([`POLL_INTERVAL`]), and immediately when a command fails. The *epoch* decides: every
//! failover has a higher one than all before it. Of several sentinels the one with the highest
//! epoch is right, and the client never returns to a server of an earlier epoch, even if a sentinel
//! that was partitioned off still names it.
//!
//! When the master changes, everything moves: the shared connections, the pools, the subscriptions.
//! A command in flight at the old master fails immediately instead of waiting for its time limit.
//! Whether it was carried out is unknown, and it is repeated.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::future::join_all;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult,
    ServerErrorKind, Value, aio::MultiplexedConnection,
};
use tokio::{
    sync::{Mutex, Notify},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Bulk, Connection, Connections, Nodes, Operators, Reconnecting, Replicated, Target,
    address::SentinelAddress, info, operators, pool::Pool, replicated, server, single,
};
use crate::{RedisSettings, StockError, StockSettings};

/// Interval between polls of the sentinels when nothing fails: three short queries. After it the
/// client has left an old master that resumes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Shortest interval between two polls, when everything fails.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(50);

pub(super) async fn open(
    settings: &StockSettings,
    address: SentinelAddress,
) -> Result<Connections, StockError> {
    let watch = Watch::new(settings, address)?;
    let named = watch.poll().await?;
    let master = Master::open(&watch, &named).await?;
    let following = Following(Arc::new(Inner {
        master: ArcSwap::from_pointee(master),
        doubt: Arc::clone(&watch.doubt),
    }));
    tokio::spawn(watch.follow(Arc::downgrade(&following.0)));
    Ok(Connections {
        orders: Connection::Sentinel(following.clone()),
        bulk: Bulk::Sentinel(following.clone()),
        operators: Operators::Sentinel(following.clone()),
        replicated: Replicated::new(
            settings,
            replicated::Connections::Sentinel(following.clone()),
        ),
        nodes: Nodes::Sentinel(following),
        masters: 1,
    })
}

/// The URL of the present master.
pub(super) async fn master_url(
    settings: &RedisSettings,
    address: SentinelAddress,
) -> Result<String, StockError> {
    let settings = StockSettings {
        redis: settings.clone(),
        ..StockSettings::new("")
    };
    let watch = Watch::new(&settings, address)?;
    let named = watch.poll().await?;
    Ok(watch.address.server(&named.host, named.port))
}

/// The connections to the present master. The sentinels are polled as long as a copy of it exists.
#[derive(Clone)]
pub struct Following(Arc<Inner>);

struct Inner {
    master: ArcSwap<Master>,
    doubt: Arc<Notify>,
}

impl Following {
    pub(super) async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        let master = self.0.master.load_full();
        let result = master.unless_succeeded(master.orders.command(cmd)).await;
        let refusal = result.as_ref().map(is_refusal);
        self.note(refusal.unwrap_or_else(casts_doubt));
        result
    }

    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let master = self.0.master.load_full();
        let result = master
            .unless_succeeded(master.orders.commands(pipeline, offset, count))
            .await;
        self.note(
            result
                .as_ref()
                .map_or_else(casts_doubt, |values| values.iter().any(is_refusal)),
        );
        result
    }

    pub(super) async fn bulk_query<T: redis::FromRedisValue>(
        &self,
        cmd: &Cmd,
    ) -> Result<T, StockError> {
        let master = self.0.master.load_full();
        let result: RedisResult<T> = master
            .unless_succeeded(single::query(&master.bulk, cmd))
            .await;
        self.note(result.is_err());
        Ok(result?)
    }

    pub(super) async fn bulk_query_each(&self, cmds: &[Cmd]) -> RedisResult<Vec<Value>> {
        let master = self.0.master.load_full();
        let result = master
            .unless_succeeded(single::query_each(&master.bulk, cmds))
            .await;
        self.note(
            result
                .as_ref()
                .map_or(true, |values| values.iter().any(is_refusal)),
        );
        result
    }

    pub(super) async fn operators_query(&self, cmd: &Cmd) -> Result<Value, StockError> {
        let master = self.0.master.load_full();
        let result = master
            .unless_succeeded(operators::query(&master.operators, cmd))
            .await;
        self.note(match &result {
            Err(StockError::Redis(error)) => casts_doubt(error),
            result => result.is_err(),
        });
        result
    }

    pub(super) async fn send_replicated(
        &self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, StockError> {
        let master = self.0.master.load_full();
        let result = master
            .unless_succeeded(replicated::send(&master.replicated, pipeline))
            .await;
        self.note(
            result
                .as_ref()
                .map_or(true, |values| values.iter().any(is_refusal)),
        );
        result
    }

    /// The server to subscribe at, and a token that is cancelled when it is not the master any
    /// more, or when its address leads to another server.
    pub(super) fn node(&self) -> (Client, CancellationToken) {
        let master = self.0.master.load();
        (master.target.client.clone(), master.target.stay())
    }

    /// Has the sentinels polled immediately, if a result may mean that the master has changed.
    fn note(&self, doubtful: bool) {
        if doubtful {
            self.0.doubt.notify_one();
        }
    }
}

/// Whether an error may mean that the master has changed. A missing script does not.
fn casts_doubt(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether a value is an error that may mean that the master has changed.
fn is_refusal(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() != Some(ServerErrorKind::NoScript))
}

fn another_master() -> RedisError {
    RedisError::from((ErrorKind::Io, "Sentinel has named another master"))
}

/// A server that a sentinel named.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    epoch: u64,
    host: String,
    port: u16,
}

/// What is open towards a master.
struct Master {
    named: Named,
    target: Arc<Target>,
    orders: Reconnecting,
    bulk: Reconnecting,
    replicated: Pool,
    /// For reads by operators and auditors.
    operators: Pool,
}

impl Master {
    /// Refuses a server that cannot be trusted with stock, and one that reports to be a replica.
    async fn open(watch: &Watch, named: &Named) -> Result<Self, StockError> {
        let url = watch.address.server(&named.host, named.port);
        let target = Target::new(Client::open(info(&watch.settings.redis, &url)?)?);
        let orders = single::orders(&watch.settings.redis, &target).await?;
        server::check(&Connection::Single(orders.clone())).await?;
        let bulk = single::bulk(&watch.settings.redis, &target).await?;
        let replicated = single::replicated_pool(&watch.settings, &target)?;
        let operators = operators::pool(&watch.settings.redis, &target)?;
        Ok(Self {
            named: named.clone(),
            target,
            orders,
            bulk,
            replicated,
            operators,
        })
    }

    async fn unless_succeeded<T, E: From<RedisError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            result = request => result,
            () = self.target.ended.cancelled() => Err(another_master().into()),
        }
    }
}

/// Polls the sentinels.
struct Watch {
    settings: StockSettings,
    address: SentinelAddress,
    sentinels: Vec<Sentinel>,
    doubt: Arc<Notify>,
}

impl Watch {
    fn new(settings: &StockSettings, address: SentinelAddress) -> Result<Self, StockError> {
        let sentinels = address
            .sentinels()
            .iter()
            .map(|urls| Sentinel::new(settings, urls))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            settings: settings.clone(),
            address,
            sentinels,
            doubt: Arc::default(),
        })
    }

    /// Runs until the last connection is dropped.
    async fn follow(self, following: Weak<Inner>) {
        loop {
            let _ = timeout(POLL_INTERVAL, self.doubt.notified()).await;
            let Some(inner) = following.upgrade() else {
                return;
            };
            if let Err(error) = self.poll_and_move(&inner).await {
                tracing::debug!(%error, "no newer master yet");
            }
            drop(inner);
            sleep(POLL_INTERVAL_MIN).await;
        }
    }

    async fn poll_and_move(&self, inner: &Inner) -> Result<(), StockError> {
        let named = self.poll().await?;
        let old = inner.master.load_full();
        if named.epoch <= old.named.epoch {
            return Ok(());
        }
        let open_timeout = self.settings.redis.connect_timeout * 2;
        // A server that died meanwhile must not delay the poll that finds the next one.
        let opened = timeout(open_timeout, Master::open(self, &named)).await;
        let master = opened.unwrap_or(Err(StockError::OutcomeUnknown(open_timeout)))?;
        inner.master.store(Arc::new(master));
        old.target.ended.cancel();
        metrics::counter!("stockade_redis_failovers_total").increment(1);
        tracing::warn!(from = ?old.named, to = ?named, "Sentinel has named another master, connections moved");
        Ok(())
    }

    /// The server of the highest epoch that any sentinel names.
    async fn poll(&self) -> Result<Named, StockError> {
        let (mut best, mut last_error) = (None::<Named>, None);
        for reply in join_all(
            self.sentinels
                .iter()
                .map(|sentinel| sentinel.master(&self.address.name)),
        )
        .await
        {
            match reply {
                Ok(named) if best.as_ref().is_none_or(|best| best.epoch < named.epoch) => {
                    best = Some(named)
                }
                Ok(_) => {}
                Err(error) => last_error = Some(error),
            }
        }
        let detail = || last_error.map_or_else(String::new, |error| error.to_string());
        let none = || {
            RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "no sentinel names a master",
                detail(),
            ))
        };
        best.ok_or_else(|| none().into())
    }
}

/// One sentinel, and the connection to it while it is open.
struct Sentinel {
    /// Without credentials and with them.
    clients: Vec<Client>,
    config: AsyncConnectionConfig,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Sentinel {
    fn new(settings: &StockSettings, urls: &[String]) -> Result<Self, StockError> {
        let clients = urls
            .iter()
            .map(|url| Ok(Client::open(info(&settings.redis, url)?)?))
            .collect::<Result<_, StockError>>()?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.redis.connect_timeout))
            .set_response_timeout(Some(settings.redis.response_timeout));
        Ok(Self {
            clients,
            config,
            open: Mutex::default(),
        })
    }

    /// The server that it names.
    async fn master(&self, name: &str) -> RedisResult<Named> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &mut *open {
            match named_by(connection, name).await {
                Ok(named) => return Ok(named),
                Err(_) => *open = None,
            }
        }
        let mut last_error = RedisError::from((ErrorKind::EmptySentinelList, "no sentinels"));
        for client in &self.clients {
            match self.connect(client, name).await {
                Ok((connection, named)) => {
                    *open = Some(connection);
                    return Ok(named);
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn connect(
        &self,
        client: &Client,
        name: &str,
    ) -> RedisResult<(MultiplexedConnection, Named)> {
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        let named = named_by(&mut connection, name).await?;
        Ok((connection, named))
    }
}

/// The master that a sentinel names, with its epoch. The address alone has no age, and
/// `SENTINEL MASTER`, which has the epoch, shows the old address until every replica has moved.
/// Sent as one pipeline, both queries describe the same moment.
async fn named_by(connection: &mut MultiplexedConnection, name: &str) -> RedisResult<Named> {
    let mut both = redis::pipe();
    both.cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name)
        .cmd("SENTINEL")
        .arg("MASTER")
        .arg(name);
    let ((host, port), fields): ((String, u16), HashMap<String, String>) =
        both.query_async(connection).await?;
    let epoch = fields
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    let epoch = epoch.ok_or_else(|| {
        RedisError::from((
            ErrorKind::UnexpectedReturnType,
            "expected config-epoch in the reply of a sentinel",
        ))
    })?;
    Ok(Named { epoch, host, port })
}
