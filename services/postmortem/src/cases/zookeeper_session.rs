//! A client of ZooKeeper is stopped for longer than its session lasts.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::holder::{self, Check, Coordination, Service, Task};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    what_if::Knob,
};

/// In the story.
const SESSION: Duration = Duration::from_secs(30);
/// The server believes in nobody for a shorter time than some ticks, and a busy machine is late by many.
const SESSION_MIN: Duration = Duration::from_millis(1000);

/// The case.
pub struct ZookeeperSession;

const RECIPE: &str = "the recipe";
const ASKS_FIRST: &str = "asks before it writes";
const CZXID: &str = "czxid as fence";

#[async_trait]
impl Case for ZookeeperSession {
    fn name(&self) -> &'static str {
        "zookeeper-session"
    }

    fn story(&self) -> Story {
        Story {
            title: "A ZooKeeper client sleeps through the end of its session",
            told: "A lock in ZooKeeper is an ephemeral node: it is there for as long as its client is heard of. A client that stands still for \
                   longer than its session, in a collection of garbage for example, loses the node without knowing, the next one enters, and \
                   the first one goes on where it stood. Curator's own notes end that story with both believing that they hold the lock.",
            sources: &[
                (
                    "Apache Curator, Tech Note 10",
                    "https://curator.apache.org/docs/tech-note-10",
                ),
                (
                    "ZooKeeper Recipes and Solutions: Locks",
                    "https://zookeeper.apache.org/doc/current/recipes.html",
                ),
            ],
            schedule: "Seller A has the lock and has read that one unit is left. It is stopped (SIGSTOP). Its session ends, seller B gets the lock, \
                       reads, sells and leaves. A resumes and writes what it had decided.",
            instead: "Take the czxid of the lock's node, which rises from holder to holder, as a token, claim the row with it before reading, and \
                      write with token and version. No question to ZooKeeper before the write can replace that.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                RECIPE,
                "ephemeral sequential node, lowest number has the lock",
                "the session ends while its owner sleeps",
            ),
            Way::does_not_help(
                ASKS_FIRST,
                "the same, and asks ZooKeeper whether its node is still there before it writes",
                "the pause comes between the answer and the write",
            ),
            Way::holds(
                CZXID,
                "the same; the row is claimed with the node's czxid, and written with it and a version",
                "the row knows who came later",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let check = match way {
            RECIPE => Check::Nothing,
            ASKS_FIRST => Check::Asked,
            _ => Check::Row,
        };
        let session = stage
            .pace
            .real(stage.what_if.lease.unwrap_or(SESSION))
            .max(SESSION_MIN);
        let (servers, parent) = stage.zookeeper().await?;
        let service = Service::ZooKeeper {
            servers,
            parent,
            session_ms: u64::try_from(session.as_millis())?,
        };
        let lease = stage.pace.story(session).as_secs_f64();
        holder::play(
            stage,
            Task {
                service,
                database: stage.database().await?,
                check,
                lease,
            },
        )
        .await
    }
}

/// The lock of ZooKeeper's page of recipes. Its client keeps the session alive by itself.
pub(super) struct ZooKeeperRecipe {
    client: Client,
    parent: String,
    node: Option<String>,
}

impl ZooKeeperRecipe {
    pub(super) async fn connect(servers: &str, parent: &str, session: Duration) -> Result<Self> {
        let client = Client::connector()
            .with_session_timeout(session)
            .connect(servers)
            .await?;
        client
            .mkdir(
                parent,
                &CreateMode::Persistent.with_acls(Acls::anyone_all()),
            )
            .await?;
        Ok(Self {
            client,
            parent: parent.into(),
            node: None,
        })
    }

    /// The one in front of ours, if there is one.
    async fn predecessor(&self, ours: &str) -> Result<Option<String>> {
        let mut queue = self.client.list_children(&self.parent).await?;
        // All names are the same but for the number, which has leading zeros.
        queue.sort_unstable();
        let place = queue
            .iter()
            .position(|node| *node == ours)
            .context("the node in the queue is gone")?;
        Ok(place
            .checked_sub(1)
            .map(|before| format!("{}/{}", self.parent, queue[before])))
    }

    fn path(&self) -> Result<String> {
        Ok(format!(
            "{}/{}",
            self.parent,
            self.node.as_deref().context("there is no node")?
        ))
    }
}

#[async_trait]
impl Coordination for ZooKeeperRecipe {
    async fn lock(&mut self) -> Result<i64> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (stat, number) = self
            .client
            .create(&format!("{}/lock-", self.parent), &[], &options)
            .await?;
        let node = format!("lock-{number}");
        self.node = Some(node.clone());
        while let Some(before) = self.predecessor(&node).await? {
            let (there, watch) = self.client.check_and_watch_stat(&before).await?;
            if there.is_some() {
                watch.changed().await;
            }
        }
        Ok(stat.czxid)
    }

    async fn is_ours(&mut self) -> Result<bool> {
        match self.client.check_stat(&self.path()?).await {
            Ok(stat) => Ok(stat.is_some()),
            Err(Error::SessionExpired) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn unlock(&mut self) -> Result<()> {
        // If the session has ended, the node has, too.
        let _ = self.client.delete(&self.path()?, None).await;
        Ok(())
    }
}
