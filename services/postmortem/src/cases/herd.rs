//! Everybody who waits for a lock in ZooKeeper watches the same node, and is woken whenever anybody gives the lock back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use async_trait::async_trait;
use tokio::{
    sync::{Barrier, watch},
    task::JoinSet,
};
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher};

use crate::{
    case::{Case, Story, Way},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// So many want the lock; in one way half as many, for comparison.
const BUYERS: usize = 20;
/// Of all of them, so many have a lane of the picture.
const LANES: usize = 6;
/// Longer than any way: it is not about sessions.
const SESSION: Duration = Duration::from_secs(30);

/// The case.
pub struct Herd;

const HALF_A_HERD: &str = "one node, half as many";
const ONE_NODE: &str = "one node";
const THE_LIST: &str = "a queue, and its list";
const PREDECESSOR: &str = "the predecessor";

#[async_trait]
impl Case for Herd {
    fn name(&self) -> &'static str {
        "herd"
    }

    fn story(&self) -> Story {
        Story {
            title: "A release wakes everybody",
            told: "The simplest lock in ZooKeeper is one node: who can create it has the lock, and everybody else watches it. Each release wakes all \
                   who wait, all of them ask at once, and all but one wait again. With n buyers that is n (n - 1) / 2 messages for n locks, (n - 1) (n - 2) / 2 \
                   of them in vain: the paper on ZooKeeper calls it the herd effect, and gives the lock without it in the next paragraph.",
            sources: &[
                (
                    "ZooKeeper Recipes and Solutions: Locks",
                    "https://zookeeper.apache.org/doc/current/recipes.html",
                ),
                (
                    "Hunt, Konar, Junqueira, Reed: ZooKeeper: wait-free coordination for internet-scale systems (USENIX ATC 2010)",
                    "",
                ),
            ],
            schedule: "All buyers want the lock. Whoever has it keeps it until all others are in place and watch, and then gives it back, until all \
                       have had it. Each wake-up of somebody who then waits again was in vain.",
            instead: "Have everybody stand in a queue of sequential nodes, and watch only the node in front of it: a release wakes one. etcd's lock \
                      and Curator's do so, and so does this library's on both.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                HALF_A_HERD,
                "all create and watch the same node; half as many buyers",
                "every release wakes all who wait",
            ),
            Way::faulty(
                ONE_NODE,
                "all create and watch the same node",
                "twice the buyers, four times the wake-ups",
            ),
            Way::does_not_help(
                THE_LIST,
                "each creates a sequential node, the lowest number has the lock; all watch the list of nodes",
                "the queue is fair, and every release still wakes all who wait",
            ),
            Way::holds(
                PREDECESSOR,
                "the same, but each watches only the node in front of its own",
                "a release wakes one, whose turn it is",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Buyers]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let all = stage.what_if.buyers.unwrap_or(BUYERS);
        let buyers = if way == HALF_A_HERD {
            (all / 2).max(1)
        } else {
            all
        };
        let watched = match way {
            THE_LIST => Watched::List,
            PREDECESSOR => Watched::Predecessor,
            _ => Watched::Lock,
        };
        let (servers, parent) = stage.zookeeper().await?;
        let crowd = Arc::new(Crowd::new(buyers, parent, watched));
        play(stage, &servers, Arc::clone(&crowd)).await?;
        let timeline = &stage.timeline;
        let evidence = Evidence::new()
            .holders(timeline.holders_at_once())
            .stuck(timeline.longest(Doing::Waiting));
        Ok(evidence.judge_holders().judge(
            Measure::VainWakeUps,
            crowd.in_vain.load(Ordering::SeqCst),
            0,
        ))
    }
}

async fn play(stage: &Stage, servers: &str, crowd: Arc<Crowd>) -> Result<()> {
    let mut coming = JoinSet::new();
    for number in 1..=crowd.buyers {
        let seen = number < LANES;
        let name = if seen {
            format!("buyer {number}")
        } else {
            format!("buyers {LANES} to {}", crowd.buyers)
        };
        let client = connect(servers, &crowd.parent).await?;
        let buyer = Buyer {
            lane: stage.timeline.lane(name),
            seen,
            client,
            crowd: Arc::clone(&crowd),
            node: String::new(),
        };
        coming.spawn(buyer.comes());
    }
    while let Some(left) = coming.join_next().await {
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

/// What everybody who waits watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Lock,
    List,
    Predecessor,
}

/// All of them.
struct Crowd {
    buyers: usize,
    parent: String,
    watched: Watched,
    /// Whoever has a queue to stand in stands in it before anybody looks.
    in_place: Barrier,
    /// How many watch, and have not been woken since.
    watching: watch::Sender<usize>,
    /// How many have had the lock, or have it.
    served: AtomicUsize,
    in_vain: AtomicU64,
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
            in_vain: AtomicU64::new(0),
        }
    }

    fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.parent)
    }

    /// Waits until all who are still to have the lock watch.
    async fn watches(&self) -> Result<()> {
        let left = self.buyers - self.served.fetch_add(1, Ordering::SeqCst) - 1;
        self.watching
            .subscribe()
            .wait_for(|watching| *watching == left)
            .await?;
        // All of them will be woken, or one.
        let woken = if self.watched == Watched::Predecessor {
            left.min(1)
        } else {
            left
        };
        self.watching.send_modify(|watching| *watching -= woken);
        Ok(())
    }
}

/// What a look at the lock has shown.
enum Turn {
    Ours,
    /// Not yet; this tells of a change.
    Watch(OneshotWatcher),
    /// It has changed while we looked.
    Again,
}

struct Buyer {
    lane: Lane,
    /// It has its lane for itself.
    seen: bool,
    client: Client,
    crowd: Arc<Crowd>,
    /// Of the lock, or of its place in the queue.
    node: String,
}

impl Buyer {
    async fn comes(mut self) -> Result<()> {
        self.takes_a_place().await?;
        self.crowd.in_place.wait().await;
        let waiting = self
            .seen
            .then(|| self.lane.is(Doing::Waiting, "wants the lock"));
        self.waits().await?;
        drop(waiting);
        let inside = self.lane.holds("has the lock", SESSION);
        self.crowd.watches().await?;
        drop(inside);
        Ok(self
            .client
            .delete(&self.crowd.path(&self.node), None)
            .await?)
    }

    /// Until the lock is ours.
    async fn waits(&self) -> Result<()> {
        let mut woken = false;
        loop {
            match self.looks().await? {
                Turn::Ours => return Ok(()),
                Turn::Again => {}
                Turn::Watch(watch) => {
                    if std::mem::replace(&mut woken, true) {
                        self.was_woken_in_vain();
                    }
                    self.crowd.watching.send_modify(|watching| *watching += 1);
                    watch.changed().await;
                }
            }
        }
    }

    fn was_woken_in_vain(&self) {
        self.crowd.in_vain.fetch_add(1, Ordering::SeqCst);
        if self.seen {
            self.lane.notes(Event::Note, "woken in vain");
        }
    }

    async fn takes_a_place(&mut self) -> Result<()> {
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

    async fn looks(&self) -> Result<Turn> {
        match self.crowd.watched {
            Watched::Lock => self.creates_or_watches().await,
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
                    Some(before) => self.watches(&before).await,
                }
            }
        }
    }

    async fn creates_or_watches(&self) -> Result<Turn> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        match self
            .client
            .create(&self.crowd.path(&self.node), &[], &options)
            .await
        {
            Ok(_) => Ok(Turn::Ours),
            Err(Error::NodeExists) => self.watches(&self.node).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn watches(&self, node: &str) -> Result<Turn> {
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

    /// The node in front of ours. All names are the same but for the number, which has leading zeros.
    fn predecessor(&self, mut nodes: Vec<String>) -> Result<Option<String>> {
        nodes.sort_unstable();
        let place = nodes
            .iter()
            .position(|node| *node == self.node)
            .context("the node in the queue is gone")?;
        Ok(place.checked_sub(1).map(|before| nodes[before].clone()))
    }
}
