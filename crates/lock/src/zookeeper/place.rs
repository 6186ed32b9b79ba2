//! A node: a place in the queue, and the certainty that it goes away again.
//!
//! The name of the node begins with an identifier that is ours and is chosen before anything is sent, so what has become of a create without an
//! answer can be found out. A place that is dropped is given back by a task of its own, which asks until it gets an answer or the session
//! has ended, and the node with it.

use std::time::{Duration, Instant};

use tokio::{runtime::Handle, time::sleep};
use zookeeper_client::{Acls, CreateMode, Error, OneshotWatcher};

use super::session::Session;
use crate::error::Answer;

/// Between the identifier and the number; Curator's locks have the same.
const MARK: &str = "-lock-";
/// How often the parent is made anew because the server has removed it as empty just before it was needed.
const PARENTS: usize = 5;
/// How long a server that did not answer is left alone before it is told again to delete.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);
/// A place is confirmed before it becomes a lock if so much of the lease is over.
const CONFIRM_AFTER: u32 = 3;

pub(crate) struct Place {
    pub session: Session,
    /// The node of the lock.
    parent: String,
    /// Of the node, up to its number.
    stem: String,
    /// Of the node, once it is known.
    node: Option<String>,
    /// Whether there may be a node.
    traces: bool,
    /// When the last request was sent that has proved that the session lives and the node is there.
    pub confirmed: Instant,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) enum Turn {
    Ours,
    /// The path of the node in front of us.
    Behind(String),
    /// We have no place any more.
    Gone,
}

impl Place {
    /// Nothing is sent yet.
    pub(crate) fn new(session: Session, parent: &str) -> Self {
        let unique: u128 = rand::random();
        let stem = format!("_c_{unique:032x}{MARK}");
        Self {
            session,
            parent: parent.to_owned(),
            stem,
            node: None,
            traces: false,
            confirmed: Instant::now(),
        }
    }

    /// Takes the place: at the end of the queue, or only if nobody else has one. If it was tried before, what became of that is found out.
    pub(crate) async fn take(&mut self, alone: bool) -> Result<Turn, Answer> {
        if self.traces {
            self.find().await?;
        } else if alone && let Some(first) = self.queue().await?.into_iter().next() {
            return Ok(Turn::Behind(self.path(&first)));
        }
        if self.node.is_none() {
            self.create().await?;
        }
        self.turn().await
    }

    /// Looks at the queue. What this server shows of it may be late for others, but never for what came before our own node.
    pub(crate) async fn turn(&self) -> Result<Turn, Answer> {
        let Some(node) = &self.node else {
            return Ok(Turn::Gone);
        };
        let queue = self.list().await?;
        Ok(match queue.iter().position(|name| name == node) {
            None => Turn::Gone,
            Some(0) => Turn::Ours,
            Some(place) => Turn::Behind(self.path(&queue[place - 1])),
        })
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.node.is_some()
    }

    /// A transaction that changes nothing.
    pub(crate) async fn confirm(&mut self) -> Result<(), Answer> {
        let path = self.own_path()?;
        let sent = Instant::now();
        let mut check = self.session.client.new_multi_writer();
        let checked = async {
            check.add_check_version(&path, -1)?;
            check.commit().await.map_err(Error::from)
        };
        self.session.ask(checked).await?;
        self.confirmed = sent;
        Ok(())
    }

    /// The same if much of the lease is over.
    pub(crate) async fn confirm_if_due(&mut self) -> Result<(), Answer> {
        if self.confirmed.elapsed() < self.session.length() / CONFIRM_AFTER {
            Ok(())
        } else {
            self.confirm().await
        }
    }

    /// The transaction that has created our node, and a watch on the node.
    pub(crate) async fn czxid(&self) -> Result<(i64, OneshotWatcher), Answer> {
        let path = self.own_path()?;
        let (_, stat, watch) = self
            .session
            .ask(self.session.client.get_and_watch_data(&path))
            .await?;
        Ok((stat.czxid, watch))
    }

    pub(crate) fn own_path(&self) -> Result<String, Answer> {
        self.node
            .as_deref()
            .map(|node| self.path(node))
            .ok_or(Answer::Gone)
    }

    /// Gives it back; `Gone` if it was not there any more.
    pub(crate) async fn leave(mut self) -> Result<(), Answer> {
        let deleted = self.delete().await;
        self.traces = !matches!(deleted, Ok(()) | Err(Answer::Gone));
        deleted
    }

    async fn create(&mut self) -> Result<(), Answer> {
        let path = self.path(&self.stem);
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        self.traces = true;
        for _ in 0..PARENTS {
            self.confirmed = Instant::now();
            match self
                .session
                .ask(self.session.client.create(&path, &[], &options))
                .await
            {
                Err(Answer::Gone) if !self.session.has_ended() => self.create_parent().await?,
                Err(answer) => return Err(answer),
                Ok((_, number)) => {
                    self.node = Some(format!("{}{number}", self.stem));
                    return Ok(());
                }
            }
        }
        Err(Answer::Gone)
    }

    /// The server removes it when it has been empty for a while; servers before 3.5.3 cannot do that.
    async fn create_parent(&self) -> Result<(), Answer> {
        let make = async |mode: CreateMode| {
            self.session
                .client
                .mkdir(&self.parent, &mode.with_acls(Acls::anyone_all()))
                .await
        };
        let made = async {
            match make(CreateMode::Container).await {
                Err(Error::Unimplemented) => make(CreateMode::Persistent).await,
                made => made,
            }
        };
        self.session.ask(made).await
    }

    /// Whether an earlier create was carried out.
    async fn find(&mut self) -> Result<(), Answer> {
        self.node = self
            .queue()
            .await?
            .into_iter()
            .find(|name| name.starts_with(&self.stem));
        Ok(())
    }

    /// As the leader knows it.
    async fn queue(&self) -> Result<Vec<String>, Answer> {
        let synced = self.session.ask(self.session.client.sync(&self.parent));
        let (synced, listed) = tokio::join!(synced, self.list());
        match (synced, listed) {
            (Ok(()), listed) => listed,
            (Err(Answer::Gone), _) if !self.session.has_ended() => Ok(Vec::new()),
            (Err(answer), _) => Err(answer),
        }
    }

    /// In the order of the numbers. Whatever else is there is not ours to judge.
    async fn list(&self) -> Result<Vec<String>, Answer> {
        let names = match self
            .session
            .ask(self.session.client.list_children(&self.parent))
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
        let path = self.own_path()?;
        self.session
            .ask(self.session.client.delete(&path, None))
            .await
    }

    /// Whatever has become of it, it is not there any more after this.
    async fn sweep(&mut self) -> Result<(), Answer> {
        if self.node.is_none() {
            self.find().await?;
        }
        self.delete().await
    }

    fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.parent)
    }
}

fn number(name: &str) -> Option<i64> {
    name.rsplit_once(MARK)?.1.parse().ok()
}

impl Drop for Place {
    fn drop(&mut self) {
        // Without a runtime the session ends, and the node with it.
        let (true, Ok(runtime)) = (self.traces, Handle::try_current()) else {
            return;
        };
        let mut place = Self {
            session: self.session.clone(),
            parent: self.parent.clone(),
            stem: self.stem.clone(),
            node: self.node.take(),
            traces: false,
            confirmed: self.confirmed,
        };
        runtime.spawn(async move {
            while !matches!(place.sweep().await, Ok(()) | Err(Answer::Gone))
                && !place.session.has_ended()
            {
                sleep(SWEEP_PAUSE).await;
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
