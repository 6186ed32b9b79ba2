//! Whichever server the sentinels name, followed through failovers.
//!
//! The simple way, to ask once and to ask again when the connection breaks, goes on with the old master when that was only paused: its
//! connection never broke, and for up to ten seconds after it wakes it takes writes that nobody will ever see. So the sentinels are
//! asked all the time ([`LOOK_EVERY`]), and at once when a command fails. What decides is the *epoch*: every failover has a higher one than
//! all before it, so of several sentinels the one with the highest is right, and a server of an epoch that is over is never gone back
//! to, whatever a sentinel that was cut off says.
//!
//! When the master changes, everything moves: the shared connections, the pool, the subscriptions. A command that is under way at the
//! old master fails at once instead of waiting for its time to be over; whether it was carried out is unknown, and it is asked again.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::future::join_all;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult,
    ServerErrorKind, Value,
    aio::{ConnectionLike, ConnectionManager, MultiplexedConnection},
};
use tokio::{
    sync::{Mutex, Notify},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Bulk, Connection, Connections, Nodes, Replicated, address::SentinelAddress, info, replicated,
    single,
};
use crate::{StockError, server, stock::StockSettings};

/// How often the sentinels are asked when nothing fails. Three short questions; an old master that wakes up is left after this time.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often they are asked at most when everything fails.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(50);

pub(super) async fn open(
    settings: &StockSettings,
    address: SentinelAddress,
) -> Result<Connections, StockError> {
    let watch = Watch::new(settings, address)?;
    let named = watch.look().await?;
    let master = Master::open(&watch, &named).await?;
    let following = Following(Arc::new(Inner {
        master: ArcSwap::from_pointee(master),
        doubt: Arc::clone(&watch.doubt),
    }));
    tokio::spawn(watch.follow(Arc::downgrade(&following.0)));
    Ok(Connections {
        orders: Connection::Sentinel(following.clone()),
        bulk: Bulk::Sentinel(following.clone()),
        replicated: Replicated::new(
            settings,
            replicated::Connections::Sentinel(following.clone()),
        ),
        nodes: Nodes::Sentinel(following),
    })
}

/// Everything that is open towards the present master. The sentinels are asked as long as somebody has it.
#[derive(Clone)]
pub struct Following(Arc<Inner>);

struct Inner {
    master: ArcSwap<Master>,
    doubt: Arc<Notify>,
}

impl Following {
    pub(super) async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        let master = self.0.master.load_full();
        let result = master
            .unless_succeeded(master.orders.clone().req_packed_command(cmd))
            .await;
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
            .unless_succeeded(
                master
                    .orders
                    .clone()
                    .req_packed_commands(pipeline, offset, count),
            )
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
            .unless_succeeded(cmd.query_async(&mut master.bulk.clone()))
            .await;
        self.note(result.is_err());
        Ok(result?)
    }

    pub(super) async fn bulk_query_each(&self, cmds: &[Cmd]) -> RedisResult<Vec<Value>> {
        let master = self.0.master.load_full();
        let result = master
            .unless_succeeded(single::query_each(master.bulk.clone(), cmds))
            .await;
        self.note(
            result
                .as_ref()
                .map_or(true, |values| values.iter().any(is_refusal)),
        );
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

    /// Where to subscribe, and what says that it is the wrong place from now on.
    pub(super) fn node(&self) -> (Client, CancellationToken) {
        let master = self.0.master.load();
        (master.client.clone(), master.succeeded.clone())
    }

    /// Has the sentinels asked at once, if what happened may mean that the master is another one.
    fn note(&self, doubtful: bool) {
        if doubtful {
            self.0.doubt.notify_one();
        }
    }
}

/// A script that is missing says nothing about the server; everything else that goes wrong may.
fn casts_doubt(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Some errors come as values.
fn is_refusal(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() != Some(ServerErrorKind::NoScript))
}

fn another_master() -> RedisError {
    RedisError::from((ErrorKind::Io, "the sentinels have named another master"))
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
    client: Client,
    orders: ConnectionManager,
    bulk: ConnectionManager,
    replicated: deadpool_redis::Pool,
    /// It is the master no longer.
    succeeded: CancellationToken,
}

impl Master {
    /// Refuses what cannot be trusted with stock, and what says itself that it is a replica.
    async fn open(watch: &Watch, named: &Named) -> Result<Self, StockError> {
        let url = watch.address.server(&named.host, named.port);
        let client = Client::open(info(&url)?)?;
        let orders = single::orders(&watch.settings.redis, &client).await?;
        server::check(&Connection::Single(orders.clone())).await?;
        let bulk = single::bulk(&watch.settings.redis, &client).await?;
        let replicated = single::replicated_pool(&watch.settings, &url)?;
        Ok(Self {
            named: named.clone(),
            client,
            orders,
            bulk,
            replicated,
            succeeded: CancellationToken::new(),
        })
    }

    async fn unless_succeeded<T, E: From<RedisError>>(
        &self,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            result = asked => result,
            () = self.succeeded.cancelled() => Err(another_master().into()),
        }
    }
}

/// Who asks the sentinels.
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

    /// Until nobody has a connection any more.
    async fn follow(self, following: Weak<Inner>) {
        loop {
            let _ = timeout(LOOK_EVERY, self.doubt.notified()).await;
            let Some(inner) = following.upgrade() else {
                return;
            };
            if let Err(error) = self.look_and_move(&inner).await {
                tracing::debug!(%error, "no later master yet");
            }
            drop(inner);
            sleep(LOOK_AT_MOST_EVERY).await;
        }
    }

    async fn look_and_move(&self, inner: &Inner) -> Result<(), StockError> {
        let named = self.look().await?;
        let old = inner.master.load_full();
        if named.epoch <= old.named.epoch {
            return Ok(());
        }
        let patience = self.settings.redis.connect_timeout * 2;
        // A server that died meanwhile must not keep us from asking for the one after it.
        let opened = timeout(patience, Master::open(self, &named)).await;
        let master = opened.unwrap_or(Err(StockError::OutcomeUnknown(patience)))?;
        inner.master.store(Arc::new(master));
        old.succeeded.cancel();
        metrics::counter!("stockade_redis_failovers_total").increment(1);
        tracing::warn!(from = ?old.named, to = ?named, "the sentinels have named another master");
        Ok(())
    }

    /// The server of the highest epoch that any sentinel knows of.
    async fn look(&self) -> Result<Named, StockError> {
        let (mut best, mut trouble) = (None::<Named>, None);
        for answer in join_all(
            self.sentinels
                .iter()
                .map(|sentinel| sentinel.master(&self.address.name)),
        )
        .await
        {
            match answer {
                Ok(named) if best.as_ref().is_none_or(|best| best.epoch < named.epoch) => {
                    best = Some(named)
                }
                Ok(_) => {}
                Err(error) => trouble = Some(error),
            }
        }
        let trouble = || trouble.map_or_else(String::new, |error| error.to_string());
        let nobody = || {
            RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "no sentinel names a master",
                trouble(),
            ))
        };
        best.ok_or_else(|| nobody().into())
    }
}

/// One sentinel, and the connection to it while it lasts.
struct Sentinel {
    /// Without credentials and with them.
    ways: Vec<Client>,
    config: AsyncConnectionConfig,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Sentinel {
    fn new(settings: &StockSettings, urls: &[String]) -> Result<Self, StockError> {
        let ways = urls
            .iter()
            .map(|url| Ok(Client::open(info(url)?)?))
            .collect::<Result<_, StockError>>()?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.redis.connect_timeout))
            .set_response_timeout(Some(settings.redis.response_timeout));
        Ok(Self {
            ways,
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
        let mut trouble = RedisError::from((ErrorKind::EmptySentinelList, "no sentinels"));
        for way in &self.ways {
            match self.ask_anew(way, name).await {
                Ok((connection, named)) => {
                    *open = Some(connection);
                    return Ok(named);
                }
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    async fn ask_anew(
        &self,
        way: &Client,
        name: &str,
    ) -> RedisResult<(MultiplexedConnection, Named)> {
        let mut connection = way
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        let named = named_by(&mut connection, name).await?;
        Ok((connection, named))
    }
}

/// The address alone says nothing about its age, and beside the epoch stands the old address until every replica has moved. Sent as one,
/// the two questions are answered in one go.
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
        RedisError::from((ErrorKind::UnexpectedReturnType, "a sentinel names no epoch"))
    })?;
    Ok(Named { epoch, host, port })
}
