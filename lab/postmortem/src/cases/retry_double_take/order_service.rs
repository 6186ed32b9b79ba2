//! The order service tries one segment after the other, and then writes the order. It is a separate
//! process, so it can be stopped between the two.

use anyhow::Result;
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    actor::Host,
    test_env,
    timeline::{Doing, Event},
};

/// Written orders, and the segments of their units.
pub(super) const ORDERS: &str = "tickets:orders";
/// Point after a unit was taken.
pub(super) const TAKEN: &str = "after a unit was taken, before the order is written";

/// What a segment records about an order that it has declined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusals {
    NotRecorded,
    RecordedForMs(u64),
    Recorded,
}

/// Arguments of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub redis_url: String,
    pub order: String,
    pub segments: usize,
    pub refusals: Refusals,
    /// Whether it looks for a written order before it takes a unit.
    pub lookup_first: bool,
}

/// Key of the counter of free units.
pub(super) fn available(segment: usize) -> String {
    format!("tickets:{segment}:available")
}

/// Key of the segment's decision for an order.
pub(super) fn answer(segment: usize, order: &str) -> String {
    format!("tickets:{segment}:answer:{order}")
}

/// Serves one request. Returns the segment of the order's unit, or none if it is refused.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let mut redis = test_env::connect(&task.redis_url).await?;
    let at = host
        .begins(Doing::Working, &format!("serves {}", task.order))
        .await?;
    let segment = order(host, &mut redis, &task).await?;
    host.ends(at).await?;
    Ok(serde_json::to_value(segment)?)
}

async fn order(
    host: &Host,
    redis: &mut MultiplexedConnection,
    task: &Task,
) -> Result<Option<usize>> {
    if task.lookup_first
        && let Some(segment) = redis.hget(ORDERS, &task.order).await?
    {
        return Ok(Some(segment));
    }
    let Some(segment) = take(host, redis, task).await? else {
        return Ok(None);
    };
    host.point(TAKEN).await?;
    match redis.hset_nx(ORDERS, &task.order, segment).await? {
        true => {
            host.notes(Event::Sale, &format!("writes {}", task.order))
                .await?
        }
        false => {
            host.notes(Event::Note, &format!("{} exists already", task.order))
                .await?
        }
    }
    Ok(Some(segment))
}

/// Tries the next segment whenever one declines.
async fn take(
    host: &Host,
    redis: &mut MultiplexedConnection,
    task: &Task,
) -> Result<Option<usize>> {
    let reserve = reserve(task.refusals);
    for segment in 1..=task.segments {
        let answer: String = reserve
            .key(available(segment))
            .key(answer(segment, &task.order))
            .invoke_async(redis)
            .await?;
        if answer == "taken" {
            host.notes(Event::Write, &format!("takes a unit of segment {segment}"))
                .await?;
            return Ok(Some(segment));
        }
        host.notes(Event::Refused, &format!("segment {segment} declines"))
            .await?;
    }
    Ok(None)
}

/// Returns the script of a segment. An order that has taken a unit gets the same answer again.
fn reserve(refusals: Refusals) -> Script {
    let remember = match refusals {
        Refusals::NotRecorded => String::new(),
        Refusals::RecordedForMs(ms) => {
            format!("redis.call('SET', KEYS[2], 'declined', 'PX', {ms})")
        }
        Refusals::Recorded => "redis.call('SET', KEYS[2], 'declined')".into(),
    };
    Script::new(&format!(
        "local answer = redis.call('GET', KEYS[2])
         if answer then return answer end
         if tonumber(redis.call('GET', KEYS[1])) < 1 then {remember} return 'declined' end
         redis.call('DECR', KEYS[1])
         redis.call('SET', KEYS[2], 'taken')
         return 'taken'"
    ))
}
