//! The requests to etcd, each with a timeout.
//!
//! A request that timed out is not undone. Every key hangs on a lease whose number the client chose
//! before it sent anything: revoking that lease removes the key, and requests that arrive later are
//! refused.

use std::{sync::Arc, time::Duration};

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, KeyValue, LeaseGrantOptions,
    PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, WatchFilterType, WatchOptions,
};
use tokio::time::timeout;

use crate::{ephemeral_queue::Position, error::Answer};

/// `NOT_FOUND` of gRPC.
const NOT_FOUND: i32 = 5;

pub(crate) struct Server {
    pub client: Client,
    /// All endpoints: any of them may have answered.
    pub label: String,
    /// Time limit of each answer.
    pub timeout: Duration,
}

/// The key ahead in the queue.
#[derive(Debug, Clone)]
pub(crate) struct Predecessor {
    pub key: String,
    /// The revision at which it existed.
    pub as_of: i64,
}

impl Server {
    /// Requests a lease with this number and returns the granted length.
    pub(crate) async fn grant(&self, lease: i64, length: Duration) -> Result<Duration, Answer> {
        let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
        let options = LeaseGrantOptions::new().with_id(lease);
        let granted = self
            .send(
                self.client
                    .lease_client()
                    .grant(seconds.cast_signed(), Some(options)),
            )
            .await?;
        Ok(Duration::from_secs(
            u64::try_from(granted.ttl()).unwrap_or_default(),
        ))
    }

    /// Restarts the lease.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<(), Answer> {
        self.send(self.client.lease_client().keep_alive(lease))
            .await
            .map(drop)
    }

    /// Ends the lease and deletes the keys that hang on it.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), Answer> {
        self.send(self.client.lease_client().revoke(lease))
            .await
            .map(drop)
    }

    /// Creates a key at the end of the queue. Returns the revision of its creation and its
    /// position.
    pub(crate) async fn create_last(
        &self,
        queue: &str,
        key: &str,
        lease: i64,
    ) -> Result<(i64, Position<Predecessor>), Answer> {
        let create = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([put(key, lease), TxnOp::get(queue, Some(last_two()))]);
        let done = self.send(self.client.kv_client().txn(create)).await?;
        let revision = done.header().map_or(0, |header| header.revision());
        match done.op_responses().pop() {
            Some(TxnOpResponse::Get(found)) if done.succeeded() => {
                Ok((revision, position(found.kvs(), revision, revision)))
            }
            _ => Err(Answer::Unreadable("the key existed already".into())),
        }
    }

    /// Creates a key if the queue is empty. Returns the revision of its creation, or zero and the
    /// position behind the first key.
    pub(crate) async fn create_first(
        &self,
        queue: &str,
        key: &str,
        lease: i64,
    ) -> Result<(i64, Position<Predecessor>), Answer> {
        let first = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_limit(1)
            .with_keys_only();
        let create = Txn::new()
            .when([Compare::create_revision(queue, CompareOp::Equal, 0).with_prefix()])
            .and_then([put(key, lease)])
            .or_else([TxnOp::get(queue, Some(first))]);
        let done = self.send(self.client.kv_client().txn(create)).await?;
        let revision = done.header().map_or(0, |header| header.revision());
        match done.op_responses().pop() {
            Some(TxnOpResponse::Get(found)) => Ok((0, position(found.kvs(), 0, revision))),
            _ => Ok((revision, Position::First)),
        }
    }

    /// Position of the key that was created at this revision.
    pub(crate) async fn position(
        &self,
        queue: &str,
        created: i64,
    ) -> Result<Position<Predecessor>, Answer> {
        let options = last_two().with_max_create_revision(created);
        let found = self
            .send(self.client.kv_client().get(queue, Some(options)))
            .await?;
        let now = found.header().map_or(0, |header| header.revision());
        Ok(position(found.kvs(), created, now))
    }

    /// Whether the key that was created at this revision still exists, with the revision of the
    /// read.
    pub(crate) async fn exists(&self, key: &str, created: i64) -> Result<Option<i64>, Answer> {
        let found = self
            .send(
                self.client
                    .kv_client()
                    .get(key, Some(GetOptions::new().with_keys_only())),
            )
            .await?;
        let now = found.header().map_or(0, |header| header.revision());
        Ok(found
            .kvs()
            .iter()
            .any(|kv| kv.create_revision() == created)
            .then_some(now))
    }

    /// Deletes the key that was created at this revision. Returns whether it existed.
    pub(crate) async fn delete(&self, key: &str, created: i64) -> Result<bool, Answer> {
        let delete = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, created)])
            .and_then([TxnOp::delete(key, None)]);
        Ok(self
            .send(self.client.kv_client().txn(delete))
            .await?
            .succeeded())
    }

    /// Returns when the key was deleted at this revision or later.
    pub(crate) async fn deleted(&self, key: &str, since: i64) -> Result<(), Answer> {
        let options = WatchOptions::new()
            .with_start_revision(since)
            .with_filters([WatchFilterType::NoPut]);
        let mut watch = self
            .send(self.client.watch_client().watch(key, Some(options)))
            .await?;
        while let Some(message) = watch.message().await.map_err(failed)? {
            if message.canceled() {
                return Err(Answer::Unreadable(format!(
                    "watch ended: {}",
                    message.cancel_reason()
                )));
            }
            if message
                .events()
                .iter()
                .any(|event| event.event_type() == EventType::Delete)
            {
                return Ok(());
            }
        }
        Err(Answer::Unreadable("watch ended".into()))
    }

    async fn send<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Answer> {
        timeout(self.timeout, request)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }
}

fn put(key: &str, lease: i64) -> TxnOp {
    TxnOp::put(key, "", Some(PutOptions::new().with_lease(lease)))
}

/// The last key and the one ahead of it.
fn last_two() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(2)
        .with_keys_only()
}

/// Position of the key that was created at this revision, from the last two keys up to it as they
/// were at revision `now`. Zero stands for a key that was not created.
fn position(last: &[KeyValue], created: i64, now: i64) -> Position<Predecessor> {
    let behind = |kv: &KeyValue| {
        let predecessor = Predecessor {
            key: String::from_utf8_lossy(kv.key()).into_owned(),
            as_of: now,
        };
        Position::Behind(predecessor, Some(kv.create_revision()))
    };
    match last {
        [ours] if ours.create_revision() == created => Position::First,
        [ours, ahead, ..] if ours.create_revision() == created => behind(ahead),
        [other, ..] if created == 0 => behind(other),
        _ => Position::Gone,
    }
}

fn failed(error: Error) -> Answer {
    match &error {
        // The client returns this error only for a lease that has no time left.
        Error::LeaseKeepAliveError(_) => Answer::Gone,
        Error::GRpcStatus(status) if status.code() as i32 == NOT_FOUND => Answer::Gone,
        _ => Answer::Failed(Arc::new(error)),
    }
}
