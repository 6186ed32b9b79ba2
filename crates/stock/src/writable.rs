//! Whether an order could be written: every master is asked with what an order sends.
//!
//! A server that answers may still refuse each order: it is out of memory, has too few replicas,
//! cannot write its file, or has become a replica itself. `PING` and reads show none of it. So each
//! master gets the script of an order, with no order in it and a deadline that is long over. Redis
//! decides whether a script may write before it runs it, by the script's flags. What runs then
//! reads the clock and returns: no key is read, nothing is written, and nothing goes to the
//! replicas.
//!
//! What a reader could get wrong: a script of its own would have to keep the flags, the number of
//! keys and their names of the order's script. This one has them, whatever they become.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{ItemId, SegmentKey};
use futures::future::join_all;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout_at};

use crate::{
    RedisSettings, StockError,
    connection::{self, Carrier, Connection, Shard, shards},
    keys::Keys,
    script,
};

/// How long the slots of a cluster are taken for known. A master that joins is asked after it. When
/// a master refuses, the slots are read again at once: it may be none any more.
const SLOTS_KNOWN_FOR: Duration = Duration::from_secs(10);

/// What a master says to an order.
#[derive(Debug, Clone)]
pub struct WriteCheck {
    /// `HOST:PORT`.
    pub server: String,
    /// The refusal of an order, or that there was no answer.
    pub result: Result<(), StockError>,
}

impl WriteCheck {
    /// Why the master takes no order, in its own words where it has said so: `OOM command not
    /// allowed...`. `None`: it takes orders.
    pub fn refusal(&self) -> Option<String> {
        match &self.result {
            Ok(()) => None,
            Err(error) => Some(error.in_words_of_server()),
        }
    }
}

impl StockError {
    /// The error in the server's own words, where it has said something:
    /// `OOM command not allowed...`.
    pub fn in_words_of_server(&self) -> String {
        match self {
            Self::Redis(error) => said(error),
            error => error.to_string(),
        }
    }
}

/// The error as the server has sent it, with its code first. What came from no server has no code.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

/// A master, and keys that it would have.
struct Target {
    server: String,
    keys: Keys,
}

/// The masters of a cluster, as they were last read.
struct Known {
    shards: Vec<Shard>,
    targets: Arc<[Target]>,
    read_at: Instant,
    /// Whether one of them has refused since.
    is_doubtful: bool,
}

/// Asks the masters of one [`Connection`].
#[derive(Default)]
pub(crate) struct WriteChecks {
    known: Mutex<Option<Known>>,
}

impl WriteChecks {
    /// Asks every master at once, and is done `within` this time. `name` is the address of a single
    /// server, and stands for a cluster that does not name its masters.
    pub(crate) async fn ask(
        &self,
        connection: &Connection,
        name: &str,
        within: Duration,
    ) -> Vec<WriteCheck> {
        let until = Instant::now() + within;
        let targets = match bounded(until, within, self.targets(connection, name)).await {
            Ok(targets) => targets,
            Err(error) => {
                return vec![WriteCheck {
                    server: name.to_owned(),
                    result: Err(error),
                }];
            }
        };
        // The carrier of an order, with the time limits and the recovery that an order has.
        let asked = targets.iter().map(|target| async move {
            WriteCheck {
                server: target.server.clone(),
                result: bounded(until, within, takes_orders(connection, &target.keys)).await,
            }
        });
        let checks = join_all(asked).await;
        if checks.iter().any(|check| check.result.is_err()) {
            self.doubt();
        }
        checks
    }

    async fn targets(
        &self,
        connection: &Connection,
        name: &str,
    ) -> Result<Arc<[Target]>, StockError> {
        if !matches!(connection, Connection::Cluster(_)) {
            let keys = keys_where(|_| true)?;
            let server = name.to_owned();
            return Ok(Arc::new([Target { server, keys }]));
        }
        if let Some(targets) = self.fresh() {
            return Ok(targets);
        }
        let reply = shards::command().query_async(&mut connection.clone()).await;
        self.learn(shards::read(reply?, name)?)
    }

    fn fresh(&self) -> Option<Arc<[Target]>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref()?;
        let is_fresh = !known.is_doubtful && known.read_at.elapsed() < SLOTS_KNOWN_FOR;
        is_fresh.then(|| Arc::clone(&known.targets))
    }

    /// The search for keys is long, so it is repeated only when the shards have changed.
    fn learn(&self, shards: Vec<Shard>) -> Result<Arc<[Target]>, StockError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let targets = match known.as_ref().filter(|known| known.shards == shards) {
            Some(same) => Arc::clone(&same.targets),
            None => shards.iter().map(target).collect::<Result<_, _>>()?,
        };
        *known = Some(Known {
            shards,
            targets: Arc::clone(&targets),
            read_at: Instant::now(),
            is_doubtful: false,
        });
        Ok(targets)
    }

    fn doubt(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_mut() {
            known.is_doubtful = true;
        }
    }
}

/// Asks every master that the URL leads to, on connections of their own. A server that
/// [`crate::Stock::connect`] would refuse is asked like any other.
pub async fn check_writable(settings: &RedisSettings) -> Result<Vec<WriteCheck>, StockError> {
    let clients = connection::masters(settings).await?;
    let asked = clients.iter().map(|client| async move {
        WriteCheck {
            server: client.get_connection_info().addr().to_string(),
            result: check_server(settings, client).await,
        }
    });
    Ok(join_all(asked).await)
}

async fn check_server(settings: &RedisSettings, client: &Client) -> Result<(), StockError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(settings.response_timeout));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let keys = keys_of_server(client, &mut connection).await?;
    takes_orders(&Alone(connection), &keys).await
}

/// Keys that this server would have. One that is not in a cluster would have any.
async fn keys_of_server(
    client: &Client,
    connection: &mut MultiplexedConnection,
) -> Result<Keys, StockError> {
    let mut info = redis::cmd("INFO");
    let info: String = info.arg("cluster").query_async(connection).await?;
    if connection::field(&info, "cluster_enabled") != "1" {
        return keys_where(|_| true);
    }
    let server = client.get_connection_info().addr().to_string();
    let reply = shards::command().query_async(connection).await?;
    let shards = shards::read(reply, &server)?;
    let own = shards.iter().find(|shard| shard.server == server);
    match own {
        Some(shard) => Ok(target(shard)?.keys),
        None => Err(StockError::Unsuitable(format!(
            "{server} serves no slot of its cluster"
        ))),
    }
}

/// A connection to one server, which has one user.
struct Alone(MultiplexedConnection);

impl Carrier for Alone {
    async fn carry(&self, cmd: Cmd, _: &Keys) -> Result<Value, StockError> {
        Ok(cmd.query_async(&mut self.0.clone()).await?)
    }
}

/// Succeeds if the server would run the script of an order.
async fn takes_orders(carrier: &impl Carrier, keys: &Keys) -> Result<(), StockError> {
    match script::reserve_home(carrier, keys, &[], 0, 0).await {
        Err(StockError::Late { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(reply) => Err(StockError::Unreadable(format!(
            "a reservation that was too late has run: {reply:?}"
        ))),
    }
}

fn target(shard: &Shard) -> Result<Target, StockError> {
    Ok(Target {
        server: shard.server.clone(),
        keys: keys_where(|key| shard.has(key))?,
    })
}

/// The keys of a segment that nothing reads or writes, the first whose slot suits.
fn keys_where(suits: impl Fn(&str) -> bool) -> Result<Keys, StockError> {
    let found = (0..u32::MAX).find_map(|number| {
        let item = ItemId::new(format!("ready-{number}")).ok()?;
        let keys = Keys::of(&SegmentKey { item, segment: 0 });
        suits(&keys.stock).then_some(keys)
    });
    found.ok_or_else(|| StockError::Unsuitable("a master serves no slot that a key has".into()))
}

async fn bounded<T>(
    until: Instant,
    within: Duration,
    work: impl Future<Output = Result<T, StockError>>,
) -> Result<T, StockError> {
    let silent = || {
        let why = format!("no answer within {within:?}");
        RedisError::from(io::Error::new(io::ErrorKind::TimedOut, why))
    };
    let answer = timeout_at(until, work).await;
    answer.unwrap_or_else(|_| Err(silent().into()))
}

#[cfg(test)]
mod tests {
    use super::keys_where;
    use crate::connection::shards;
    use redis::Value;

    #[test]
    fn a_master_of_a_single_slot_has_a_key_too() {
        let master = vec![Value::BulkString(b"h".to_vec()), Value::Int(1)];
        let row = vec![Value::Int(16_383), Value::Int(16_383), Value::Array(master)];
        let shards = shards::read(Value::Array(vec![Value::Array(row)]), "h:1").unwrap();
        let keys = keys_where(|key| shards[0].has(key)).unwrap();
        assert!(shards[0].has(&keys.stock) && shards[0].has(&keys.outbox));
    }
}
