//! What is asked of etcd, each with a timeout.
//!
//! What a reader could get wrong: a request that timed out is not undone. Everything that is ever created here hangs on a lease whose number
//! we chose before we asked for it, so revoking that lease undoes it, and what arrives after that is refused.

use std::{sync::Arc, time::Duration};

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, KeyValue, LeaseGrantOptions,
    PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, WatchFilterType, WatchOptions,
};
use tokio::time::timeout;

use super::place::{Front, Turn};
use crate::error::{Answer, Vote};

/// `NOT_FOUND` of gRPC.
const NOT_FOUND: i32 = 5;

pub(crate) struct Server {
    pub client: Client,
    /// All endpoints: any of them may have been the one that was asked.
    pub label: String,
    /// For an answer.
    pub timeout: Duration,
}

impl Server {
    /// There is one vote, that of the cluster.
    pub(crate) fn votes(&self, answer: Answer) -> Vec<Vote> {
        vec![Vote {
            node: self.label.clone(),
            answer,
        }]
    }

    /// How long the granted lease is.
    pub(crate) async fn grant(&self, lease: i64, length: Duration) -> Result<Duration, Answer> {
        let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
        let options = LeaseGrantOptions::new().with_id(lease);
        let granted = self
            .ask(
                self.client
                    .lease_client()
                    .grant(seconds.cast_signed(), Some(options)),
            )
            .await?;
        Ok(Duration::from_secs(
            u64::try_from(granted.ttl()).unwrap_or_default(),
        ))
    }

    /// Sets the lease anew.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<(), Answer> {
        self.ask(self.client.lease_client().keep_alive(lease))
            .await
            .map(drop)
    }

    /// Whatever hangs on it goes with it.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), Answer> {
        self.ask(self.client.lease_client().revoke(lease))
            .await
            .map(drop)
    }

    /// Creates a key at the end of the queue, and says when, and what is in front of it.
    pub(crate) async fn queue(
        &self,
        prefix: &str,
        key: &str,
        lease: i64,
    ) -> Result<(i64, Turn), Answer> {
        let create = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([put(key, lease), TxnOp::get(prefix, Some(last_two()))]);
        let done = self.ask(self.client.kv_client().txn(create)).await?;
        let revision = done.header().map_or(0, |header| header.revision());
        match done.op_responses().pop() {
            Some(TxnOpResponse::Get(found)) if done.succeeded() => {
                Ok((revision, turn(found.kvs(), revision, revision)))
            }
            _ => Err(Answer::Unreadable("another key of ours".into())),
        }
    }

    /// Creates a key if nobody else has one, and says when.
    pub(crate) async fn create_alone(
        &self,
        prefix: &str,
        key: &str,
        lease: i64,
    ) -> Result<(i64, Turn), Answer> {
        let first = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend)
            .with_limit(1)
            .with_keys_only();
        let create = Txn::new()
            .when([Compare::create_revision(prefix, CompareOp::Equal, 0).with_prefix()])
            .and_then([put(key, lease)])
            .or_else([TxnOp::get(prefix, Some(first))]);
        let done = self.ask(self.client.kv_client().txn(create)).await?;
        let revision = done.header().map_or(0, |header| header.revision());
        match done.op_responses().pop() {
            Some(TxnOpResponse::Get(found)) => Ok((0, turn(found.kvs(), 0, revision))),
            _ => Ok((revision, Turn::Ours)),
        }
    }

    /// What is in front of a key that was created at this revision.
    pub(crate) async fn turn(&self, prefix: &str, created: i64) -> Result<Turn, Answer> {
        let options = last_two().with_max_create_revision(created);
        let found = self
            .ask(self.client.kv_client().get(prefix, Some(options)))
            .await?;
        let now = found.header().map_or(0, |header| header.revision());
        Ok(turn(found.kvs(), created, now))
    }

    /// Whether the key is still the one that was created at this revision, and the revision at which that was true.
    pub(crate) async fn has(&self, key: &str, created: i64) -> Result<Option<i64>, Answer> {
        let found = self
            .ask(
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

    /// Whether it was still the one that was created at this revision.
    pub(crate) async fn delete(&self, key: &str, created: i64) -> Result<bool, Answer> {
        let delete = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, created)])
            .and_then([TxnOp::delete(key, None)]);
        Ok(self
            .ask(self.client.kv_client().txn(delete))
            .await?
            .succeeded())
    }

    /// Returns when the key is deleted at this revision or later, or was.
    pub(crate) async fn deleted(&self, key: &str, since: i64) -> Result<(), Answer> {
        let options = WatchOptions::new()
            .with_start_revision(since)
            .with_filters([WatchFilterType::NoPut]);
        let mut watch = self
            .ask(self.client.watch_client().watch(key, Some(options)))
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

    async fn ask<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Answer> {
        timeout(self.timeout, asked)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }
}

fn put(key: &str, lease: i64) -> TxnOp {
    TxnOp::put(key, "", Some(PutOptions::new().with_lease(lease)))
}

/// The last key and the one in front of it.
fn last_two() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(2)
        .with_keys_only()
}

/// Whose turn it is, by the last two keys up to ours, as they were at revision `now`.
fn turn(last: &[KeyValue], created: i64, now: i64) -> Turn {
    let front = |kv: &KeyValue| Front {
        key: String::from_utf8_lossy(kv.key()).into_owned(),
        created: kv.create_revision(),
        as_of: now,
    };
    match last {
        [ours] if ours.create_revision() == created => Turn::Ours,
        [ours, before, ..] if ours.create_revision() == created => Turn::Behind(front(before)),
        [other, ..] if created == 0 => Turn::Behind(front(other)),
        _ => Turn::Gone,
    }
}

fn failed(error: Error) -> Answer {
    match &error {
        // The client makes this out of a lease that has no time left, and of nothing else.
        Error::LeaseKeepAliveError(_) => Answer::Gone,
        Error::GRpcStatus(status) if status.code() as i32 == NOT_FOUND => Answer::Gone,
        _ => Answer::Failed(Arc::new(error)),
    }
}
