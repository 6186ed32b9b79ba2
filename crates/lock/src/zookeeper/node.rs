//! A node: one position in the queue, and its removal.
//!
//! The name of the node begins with an identifier that the client chooses before it sends anything,
//! so the result of a create without an answer can be looked up. A node that is dropped is removed
//! by a background task, which repeats the request until it gets an answer or the session has ended
//! and the node with it.

use std::time::{Duration, Instant};

use tokio::{runtime::Handle, time::sleep};
use zookeeper_client::{Acls, CreateMode, Error, EventType, OneshotWatcher};

use super::session::Session;
use crate::{
    ephemeral_queue::{Node, Position},
    error::Answer,
};

/// Between the identifier and the number, as in Curator's locks.
const NUMBER_MARK: &str = "-lock-";
/// How often the parent is created again because the server removed it as empty just before the
/// node was created.
const CREATE_ATTEMPTS: usize = 5;
/// Pause before a server that did not answer is sent the delete again.
const DELETE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct ZooKeeperNode {
    session: Session,
    /// Path of the lock's node.
    parent: String,
    /// Name of the node up to its number.
    stem: String,
    /// Name of the node, once it is known.
    name: Option<String>,
    /// Whether the node may exist.
    may_exist: bool,
    kept_alive_at: Instant,
    unreported: Duration,
}

impl ZooKeeperNode {
    /// Chooses the identifier. Nothing is sent yet.
    pub(crate) fn new(session: Session, parent: &str, unreported: Duration) -> Self {
        let id: u128 = rand::random();
        let stem = format!("_c_{id:032x}{NUMBER_MARK}");
        Self {
            session,
            parent: parent.to_owned(),
            stem,
            name: None,
            may_exist: false,
            kept_alive_at: Instant::now(),
            unreported,
        }
    }

    async fn create(&mut self) -> Result<(), Answer> {
        let path = self.child(&self.stem);
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        self.may_exist = true;
        for _ in 0..CREATE_ATTEMPTS {
            self.kept_alive_at = Instant::now();
            match self
                .session
                .send(self.session.client.create(&path, &[], &options))
                .await
            {
                Err(Answer::Gone) if !self.session.has_ended() => self.create_parent().await?,
                Err(answer) => return Err(answer),
                Ok((_, number)) => {
                    self.name = Some(format!("{}{number}", self.stem));
                    return Ok(());
                }
            }
        }
        Err(Answer::Gone)
    }

    /// The server removes a container node when it has been empty for a while. Servers before 3.5.3
    /// have no container nodes.
    async fn create_parent(&self) -> Result<(), Answer> {
        let create = async |mode: CreateMode| {
            self.session
                .client
                .mkdir(&self.parent, &mode.with_acls(Acls::anyone_all()))
                .await
        };
        let created = async {
            match create(CreateMode::Container).await {
                Err(Error::Unimplemented) => create(CreateMode::Persistent).await,
                created => created,
            }
        };
        self.session.send(created).await
    }

    /// Looks up whether an earlier create was carried out.
    async fn find(&mut self) -> Result<(), Answer> {
        self.name = self
            .synced_queue()
            .await?
            .into_iter()
            .find(|name| name.starts_with(&self.stem));
        Ok(())
    }

    /// The queue as the leader knows it.
    async fn synced_queue(&self) -> Result<Vec<String>, Answer> {
        let synced = self.session.send(self.session.client.sync(&self.parent));
        let (synced, listed) = tokio::join!(synced, self.queue());
        match (synced, listed) {
            (Ok(()), listed) => listed,
            (Err(Answer::Gone), _) if !self.session.has_ended() => Ok(Vec::new()),
            (Err(answer), _) => Err(answer),
        }
    }

    /// The queue as the connected server knows it, in the order of the numbers. Children with other
    /// names are ignored.
    async fn queue(&self) -> Result<Vec<String>, Answer> {
        let names = match self
            .session
            .send(self.session.client.list_children(&self.parent))
            .await
        {
            Err(Answer::Gone) if !self.session.has_ended() => Vec::new(),
            names => names?,
        };
        let mut queue: Vec<_> = names
            .into_iter()
            .filter_map(|name| Some((number(&name)?, name)))
            .collect();
        queue.sort_unstable();
        Ok(queue.into_iter().map(|(_, name)| name).collect())
    }

    async fn delete(&self) -> Result<(), Answer> {
        let path = self.path()?;
        self.session
            .send(self.session.client.delete(&path, None))
            .await
    }

    /// Deletes the node, whether or not its create was answered.
    async fn clean_up(&mut self) -> Result<(), Answer> {
        if self.name.is_none() {
            self.find().await?;
        }
        self.delete().await
    }

    fn path(&self) -> Result<String, Answer> {
        self.name
            .as_deref()
            .map(|name| self.child(name))
            .ok_or(Answer::Gone)
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }
}

impl Node for ZooKeeperNode {
    /// Path of the node ahead.
    type Predecessor = String;
    type Watch = OneshotWatcher;

    fn is_usable(&self) -> bool {
        !self.session.has_ended()
    }

    fn is_queued(&self) -> bool {
        self.name.is_some()
    }

    async fn enter(&mut self, only_if_first: bool) -> Result<Position<String>, Answer> {
        if self.may_exist {
            self.find().await?;
        } else if only_if_first && let Some(first) = self.synced_queue().await?.into_iter().next() {
            return Ok(Position::Behind(self.child(&first), None));
        }
        if self.name.is_none() {
            self.create().await?;
        }
        self.position().await
    }

    /// The connected server may lag behind the leader, but it has seen everything that happened
    /// before the creation of our node.
    async fn position(&self) -> Result<Position<String>, Answer> {
        let Some(name) = &self.name else {
            return Ok(Position::Gone);
        };
        let queue = self.queue().await?;
        Ok(match queue.iter().position(|other| other == name) {
            None => Position::Gone,
            Some(0) => Position::First,
            Some(index) => Position::Behind(self.child(&queue[index - 1]), None),
        })
    }

    async fn created(&self) -> Result<(i64, OneshotWatcher), Answer> {
        let path = self.path()?;
        let (_, stat, watch) = self
            .session
            .send(self.session.client.get_and_watch_data(&path))
            .await?;
        Ok((stat.czxid, watch))
    }

    /// A transaction that changes nothing.
    async fn keep_alive(&mut self) -> Result<(), Answer> {
        let path = self.path()?;
        let sent = Instant::now();
        let mut check = self.session.client.new_multi_writer();
        let checked = async {
            check.add_check_version(&path, -1)?;
            check.commit().await.map_err(Error::from)
        };
        self.session.send(checked).await?;
        self.kept_alive_at = sent;
        Ok(())
    }

    fn kept_alive_at(&self) -> Instant {
        self.kept_alive_at
    }

    fn granted(&self) -> Duration {
        self.session.length()
    }

    fn unreported(&self) -> Duration {
        self.unreported
    }

    /// The client keeps the session alive, and the watch also ends with the session.
    async fn wait_for(&mut self, predecessor: &String) -> Result<(), Answer> {
        match self
            .session
            .send(self.session.client.get_and_watch_data(predecessor))
            .await
        {
            Ok((_, _, watch)) => {
                watch.changed().await;
                Ok(())
            }
            Err(Answer::Gone) => Ok(()),
            Err(answer) => Err(answer),
        }
    }

    /// Also returns when the session has ended.
    fn removed(
        &self,
        mut watch: OneshotWatcher,
        retry: Duration,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (session, path) = (self.session.clone(), self.path());
        async move {
            let Ok(path) = path else { return };
            loop {
                let event = watch.changed().await;
                if event.event_type == EventType::NodeDeleted {
                    return;
                }
                watch = loop {
                    match session.send(session.client.get_and_watch_data(&path)).await {
                        Ok((_, _, watch)) => break watch,
                        Err(Answer::Gone) => return,
                        Err(_) if session.has_ended() => return,
                        Err(_) => sleep(retry).await,
                    }
                };
            }
        }
    }

    async fn leave(mut self) -> Result<(), Answer> {
        let deleted = self.delete().await;
        self.may_exist = !matches!(deleted, Ok(()) | Err(Answer::Gone));
        deleted
    }
}

fn number(name: &str) -> Option<i64> {
    name.rsplit_once(NUMBER_MARK)?.1.parse().ok()
}

impl Drop for ZooKeeperNode {
    fn drop(&mut self) {
        // Without a runtime the session ends, and the node with it.
        let (true, Ok(runtime)) = (self.may_exist, Handle::try_current()) else {
            return;
        };
        let mut node = Self {
            session: self.session.clone(),
            parent: self.parent.clone(),
            stem: self.stem.clone(),
            name: self.name.take(),
            may_exist: false,
            kept_alive_at: self.kept_alive_at,
            unreported: self.unreported,
        };
        runtime.spawn(async move {
            while !matches!(node.clean_up().await, Ok(()) | Err(Answer::Gone))
                && !node.session.has_ended()
            {
                sleep(DELETE_RETRY_INTERVAL).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn nodes_are_ordered_by_the_number_that_the_server_gave_them() {
        assert_eq!(number("_c_00ff-lock-0000000012"), Some(12));
        assert_eq!(number("_c_00ff-lock--2147483648"), Some(-2_147_483_648));
        assert_eq!(number("_c_lock-lock-9999999999"), Some(9_999_999_999));
        assert_eq!(number("something else"), None);
    }
}
