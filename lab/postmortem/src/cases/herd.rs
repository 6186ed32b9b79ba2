//! All waiters for a lock in ZooKeeper watch the same node, and every release wakes all of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    sync::{Barrier, watch},
    task::JoinSet,
};
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher};

use crate::{
    case::Case,
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// Number of buyers; one variant has half as many, for comparison.
const BUYERS: usize = 20;
/// Number of lanes; the last one shows all further buyers.
const LANES_MAX: usize = 6;
/// Session timeout, longer than any variant: this case does not end sessions.
const SESSION: Duration = Duration::from_secs(30);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("herd", include_str!("herd.toml"))
        .knobs(&[Knob::Buyers])
        .faulty("one node, half the buyers", |env| {
            Box::pin(run(env, (buyers(env) / 2).max(1), Watched::Lock))
        })
        .faulty("one node", |env| {
            Box::pin(run(env, buyers(env), Watched::Lock))
        })
        .does_not_help("queue, watching the list", |env| {
            Box::pin(run(env, buyers(env), Watched::List))
        })
        .holds("queue, watching the predecessor", |env| {
            Box::pin(run(env, buyers(env), Watched::Predecessor))
        })
}

fn buyers(env: &TestEnv) -> usize {
    env.what_if.buyers.unwrap_or(BUYERS)
}

async fn run(env: &TestEnv, buyers: usize, watched: Watched) -> Result<Measurements> {
    let (servers, parent) = env.zookeeper().await?;
    let crowd = Arc::new(Crowd::new(buyers, parent, watched));
    let unnecessary = Arc::clone(&crowd);
    serve_all(env, &servers, crowd).await?;
    Ok(Measurements::of(&env.timeline).judge_holders().judge(
        Measure::UnnecessaryWakeUps,
        unnecessary.unnecessary_wake_ups.load(Ordering::SeqCst),
        0,
    ))
}

async fn serve_all(env: &TestEnv, servers: &str, crowd: Arc<Crowd>) -> Result<()> {
    let mut buyers = JoinSet::new();
    for number in 1..=crowd.buyers {
        let has_lane = number < LANES_MAX;
        let name = if has_lane {
            format!("buyer {number}")
        } else {
            format!("buyers {LANES_MAX} to {}", crowd.buyers)
        };
        let client = connect(servers, &crowd.parent).await?;
        let buyer = Buyer {
            lane: env.timeline.lane(name),
            has_lane,
            client,
            crowd: Arc::clone(&crowd),
            node: String::new(),
        };
        buyers.spawn(buyer.run());
    }
    while let Some(left) = buyers.join_next().await {
        left??;
    }
    Ok(())
}

async fn connect(servers: &str, parent: &str) -> Result<Client> {
    let client = Client::connector()
        .with_session_timeout(SESSION)
        .connect(servers)
        .await?;
    client
        .mkdir(
            parent,
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        )
        .await?;
    Ok(client)
}

/// Node that the waiters watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Lock,
    List,
    Predecessor,
}

/// State that all buyers share.
struct Crowd {
    buyers: usize,
    parent: String,
    watched: Watched,
    /// Holds all buyers back until each has joined the queue.
    in_place: Barrier,
    /// Number of buyers who watch and have not been woken since.
    watching: watch::Sender<usize>,
    /// Number of buyers who have or have had the lock.
    served: AtomicUsize,
    unnecessary_wake_ups: AtomicU64,
}

impl Crowd {
    fn new(buyers: usize, parent: String, watched: Watched) -> Self {
        let (in_place, watching) = (Barrier::new(buyers), watch::Sender::new(0));
        Self {
            buyers,
            parent,
            watched,
            in_place,
            watching,
            served: AtomicUsize::new(0),
            unnecessary_wake_ups: AtomicU64::new(0),
        }
    }

    fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.parent)
    }

    /// Waits until all buyers who are still to get the lock watch.
    async fn wait_for_watchers(&self) -> Result<()> {
        let left = self.buyers - self.served.fetch_add(1, Ordering::SeqCst) - 1;
        self.watching
            .subscribe()
            .wait_for(|watching| *watching == left)
            .await?;
        // The release wakes all of them, or one.
        let woken = if self.watched == Watched::Predecessor {
            left.min(1)
        } else {
            left
        };
        self.watching.send_modify(|watching| *watching -= woken);
        Ok(())
    }
}

/// Result of a look at the lock.
enum Turn {
    Ours,
    /// Another client holds the lock; the watcher fires on a change.
    Watch(OneshotWatcher),
    /// The lock has changed during the look.
    Again,
}

struct Buyer {
    lane: Lane,
    /// Whether the buyer has a lane that it shares with no other.
    has_lane: bool,
    client: Client,
    crowd: Arc<Crowd>,
    /// Node of the lock, or of the place in the queue.
    node: String,
}

impl Buyer {
    async fn run(mut self) -> Result<()> {
        self.join_queue().await?;
        self.crowd.in_place.wait().await;
        let waiting = self
            .has_lane
            .then(|| self.lane.is(Doing::Waiting, "waits for the lock"));
        self.acquire().await?;
        drop(waiting);
        let inside = self.lane.holds("has the lock", SESSION);
        self.crowd.wait_for_watchers().await?;
        drop(inside);
        Ok(self
            .client
            .delete(&self.crowd.path(&self.node), None)
            .await?)
    }

    /// Waits until this buyer has the lock.
    async fn acquire(&self) -> Result<()> {
        let mut woken = false;
        loop {
            match self.check().await? {
                Turn::Ours => return Ok(()),
                Turn::Again => {}
                Turn::Watch(watch) => {
                    if std::mem::replace(&mut woken, true) {
                        self.count_unnecessary_wake_up();
                    }
                    self.crowd.watching.send_modify(|watching| *watching += 1);
                    watch.changed().await;
                }
            }
        }
    }

    fn count_unnecessary_wake_up(&self) {
        self.crowd
            .unnecessary_wake_ups
            .fetch_add(1, Ordering::SeqCst);
        if self.has_lane {
            self.lane.notes(Event::Note, "woken unnecessarily");
        }
    }

    async fn join_queue(&mut self) -> Result<()> {
        self.node = "lock".into();
        if self.crowd.watched != Watched::Lock {
            let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            let (_, number) = self
                .client
                .create(&self.crowd.path("lock-"), &[], &options)
                .await?;
            self.node = format!("lock-{number}");
        }
        Ok(())
    }

    async fn check(&self) -> Result<Turn> {
        match self.crowd.watched {
            Watched::Lock => self.create_or_watch().await,
            Watched::List => {
                let (nodes, watch) = self
                    .client
                    .list_and_watch_children(&self.crowd.parent)
                    .await?;
                Ok(self
                    .predecessor(nodes)?
                    .map_or(Turn::Ours, |_| Turn::Watch(watch)))
            }
            Watched::Predecessor => {
                match self.predecessor(self.client.list_children(&self.crowd.parent).await?)? {
                    None => Ok(Turn::Ours),
                    Some(before) => self.watch(&before).await,
                }
            }
        }
    }

    async fn create_or_watch(&self) -> Result<Turn> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        match self
            .client
            .create(&self.crowd.path(&self.node), &[], &options)
            .await
        {
            Ok(_) => Ok(Turn::Ours),
            Err(Error::NodeExists) => self.watch(&self.node).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn watch(&self, node: &str) -> Result<Turn> {
        let (there, watch) = self
            .client
            .check_and_watch_stat(&self.crowd.path(node))
            .await?;
        Ok(if there.is_some() {
            Turn::Watch(watch)
        } else {
            Turn::Again
        })
    }

    /// Returns the node in front of ours. All names are equal except for the number, which has
    /// leading zeros.
    fn predecessor(&self, mut nodes: Vec<String>) -> Result<Option<String>> {
        nodes.sort_unstable();
        let place = nodes
            .iter()
            .position(|node| *node == self.node)
            .context("our node in the queue is gone")?;
        Ok(place.checked_sub(1).map(|before| nodes[before].clone()))
    }
}
