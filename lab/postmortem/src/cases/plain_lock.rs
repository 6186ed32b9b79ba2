//! The common lock on one Redis key, as services write it by hand: `SET NX PX`, a script that
//! deletes the key while it has the holder's value, and a watchdog.

use std::{convert::Infallible, time::Duration};

use anyhow::Result;
use redis::{
    AsyncCommands, ExistenceCheck, RedisResult, Script, SetExpiry, SetOptions,
    aio::MultiplexedConnection,
};

use crate::{
    actor::{At, Host},
    pace::Pace,
};

/// Takes the lock if it is free, and returns whether it was.
pub(super) async fn set_nx_px(
    redis: &mut MultiplexedConnection,
    lock: &str,
    value: &str,
    lease_ms: u64,
) -> RedisResult<bool> {
    let options = SetOptions::default()
        .conditional_set(ExistenceCheck::NX)
        .with_expiration(SetExpiry::PX(lease_ms));
    let set: Option<String> = redis.set_options(lock, value, options).await?;
    Ok(set.is_some())
}

/// Releases the lock if it has this value, and returns whether it had.
pub(super) async fn compare_and_delete(
    redis: &mut MultiplexedConnection,
    lock: &str,
    value: &str,
) -> RedisResult<bool> {
    let script = Script::new(
        "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
    );
    script.key(lock).arg(value).invoke_async(redis).await
}

/// The watchdog. It ends only with an error. When there is nothing left to extend, the work is not
/// notified, and continues: Redisson's watchdog stopped silently as well, at the time of the
/// incident.
pub(super) async fn renew(
    host: &Host,
    mut redis: MultiplexedConnection,
    (lock, value): (&str, &str),
    pace: Pace,
    lease: Duration,
    inside: At,
) -> Result<Infallible> {
    let script = Script::new(
        "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0",
    );
    loop {
        pace.sleep(lease / 3).await;
        let extended: u64 = script
            .key(lock)
            .arg(value)
            .arg(pace.real_ms(lease))
            .invoke_async(&mut redis)
            .await?;
        if extended == 1 {
            host.extended(inside, lease).await?;
        }
    }
}
