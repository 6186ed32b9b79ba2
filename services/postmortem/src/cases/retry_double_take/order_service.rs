//! The order service: it asks one segment after the other for a unit, and then writes the order. A process of its own: it can be stopped
//! between the two.

use anyhow::Result;
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    actor::Host,
    stage,
    timeline::{Doing, Event},
};

/// Orders that there are, and where their units are from.
pub(super) const ORDERS: &str = "tickets:orders";
/// Where a service stands when it has a unit.
pub(super) const TAKEN: &str = "after a unit was taken, before the order is written";

/// What a segment remembers of an order for which it had nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Passed {
    Forgotten,
    KeptForMs(u64),
    KeptForGood,
}

/// What a service is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub redis_url: String,
    pub order: String,
    pub segments: usize,
    pub passed: Passed,
    /// It looks whether the order is there before it asks for a unit.
    pub looks_first: bool,
}

/// Units that nobody has.
pub(super) fn available(segment: usize) -> String {
    format!("tickets:{segment}:available")
}

/// What a segment has answered to an order.
pub(super) fn answer(segment: usize, order: &str) -> String {
    format!("tickets:{segment}:answer:{order}")
}

/// Serves one request. Which segment the order's unit is from; none if it is refused.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let mut redis = stage::connect(&task.redis_url).await?;
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
    if task.looks_first
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
            host.notes(Event::Note, &format!("{} is there already", task.order))
                .await?
        }
    }
    Ok(Some(segment))
}

/// Empty? The next one.
async fn take(
    host: &Host,
    redis: &mut MultiplexedConnection,
    task: &Task,
) -> Result<Option<usize>> {
    let ask = ask(task.passed);
    for segment in 1..=task.segments {
        let answer: String = ask
            .key(available(segment))
            .key(answer(segment, &task.order))
            .invoke_async(redis)
            .await?;
        if answer == "taken" {
            host.notes(Event::Write, &format!("has a unit of segment {segment}"))
                .await?;
            return Ok(Some(segment));
        }
        host.notes(Event::Refused, &format!("segment {segment} has nothing"))
            .await?;
    }
    Ok(None)
}

/// A segment is asked. One who has taken already gets the same answer.
fn ask(passed: Passed) -> Script {
    let remember = match passed {
        Passed::Forgotten => String::new(),
        Passed::KeptForMs(ms) => format!("redis.call('SET', KEYS[2], 'passed', 'PX', {ms})"),
        Passed::KeptForGood => "redis.call('SET', KEYS[2], 'passed')".into(),
    };
    Script::new(&format!(
        "local answer = redis.call('GET', KEYS[2])
         if answer then return answer end
         if tonumber(redis.call('GET', KEYS[1])) < 1 then {remember} return 'passed' end
         redis.call('DECR', KEYS[1])
         redis.call('SET', KEYS[2], 'taken')
         return 'taken'"
    ))
}
