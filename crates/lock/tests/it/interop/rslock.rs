//! The rslock crate in person.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use lock::{Lock, Redlock};
use rslock::LockManager;
use testbed::{Redis, in_time};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{
    HOUR, acquire_everywhere, becomes, holding, is_nowhere, kept_out, ms, name, patient,
    uneven_five, value,
};

/// Asks so often, and pauses for less than the given time in between.
fn manager(servers: &[Redis], tries: u32, pause: Duration) -> LockManager {
    let mut manager = LockManager::new(servers.iter().map(Redis::url).collect());
    manager.set_retry(tries, pause);
    manager
}

fn asks_once(servers: &[Redis]) -> LockManager {
    manager(servers, 1, ms(10))
}

#[tokio::test]
async fn it_keeps_us_out_and_we_keep_it_out() {
    let five = uneven_five().await;
    let (ours, theirs) = (patient(five).await, asks_once(five));
    let name = name("rslock");
    let mut last = None;
    for _ in 0..3 {
        let lock = theirs.lock(&*name, HOUR).await.unwrap();
        kept_out(ours.try_acquire(&name)).await;
        let lock = theirs
            .extend(&lock, HOUR)
            .await
            .expect("our attempt took nothing from it");
        for server in five {
            assert_eq!(value(server, &name).await.as_ref(), Some(&lock.val));
        }
        lock.release().await;

        let mut guard = ours.try_acquire(&name).await.unwrap();
        assert!(
            Some(guard.token()) > last,
            "{} after {last:?}",
            guard.token()
        );
        last = Some(guard.token());
        let error = theirs.lock(&*name, HOUR).await.unwrap_err();
        assert!(matches!(error, rslock::LockError::Unavailable), "{error}");
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        is_nowhere(five, &name).await;
    }
}

#[tokio::test]
async fn one_who_waits_for_the_other_gets_it() {
    let five = uneven_five().await;
    let (ours, theirs) = (patient(five).await, manager(five, 3, ms(50)));
    let name = name("rslock waits");
    let held = theirs.acquire(&*name, HOUR).await.unwrap();
    let waits = tokio::spawn({
        let (ours, name) = (ours.clone(), name.clone());
        async move { ours.acquire(&name).await }
    });
    sleep(ms(50)).await;
    assert!(!waits.is_finished());
    held.release().await;
    let guard = in_time("its turn", waits).await.unwrap().unwrap();
    becomes("it is ours", async || holding(five, &name).await >= 3).await;
    let waits = tokio::spawn({
        let name = name.clone();
        async move { theirs.acquire(&*name, HOUR).await }
    });
    sleep(ms(50)).await;
    assert!(!waits.is_finished());
    guard.release().await.unwrap();
    in_time("its turn", waits)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await;
    is_nowhere(five, &name).await;
}

/// A failed extension of rslock also unlocks.
#[tokio::test]
async fn one_that_has_expired_does_not_disturb_who_came_after_it() {
    let five = uneven_five().await;
    let (ours, theirs) = (patient(five).await, asks_once(five));
    let name = name("rslock expired");
    let expired = theirs.lock(&*name, ms(1500)).await.unwrap();
    kept_out(ours.try_acquire(&name)).await;
    let mut guard = acquire_everywhere(&ours, five, &name).await;
    let owner = value(&five[0], &name).await;
    assert_ne!(owner.as_ref(), Some(&expired.val));
    assert!(theirs.extend(&expired, HOUR).await.is_err());
    theirs.unlock(&expired).await;
    for server in five {
        assert_eq!(value(server, &name).await, owner);
    }
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
}

/// What the racers do under the lock, and who saw whom there.
#[derive(Default)]
struct Room {
    inside: AtomicU32,
    /// Read, and written a little later: two concurrent ones lose a count.
    count: AtomicU32,
}

impl Room {
    async fn enter(&self) {
        assert_eq!(
            self.inside.fetch_add(1, SeqCst),
            0,
            "another client is inside"
        );
        let count = self.count.load(SeqCst);
        sleep(ms(2)).await;
        self.count.store(count + 1, SeqCst);
        self.inside.fetch_sub(1, SeqCst);
    }
}

async fn race_with_our_lock(redlock: Redlock, name: String, room: Arc<Room>, rounds: u32) {
    let mut last = None;
    for _ in 0..rounds {
        let guard = redlock.acquire(&name).await.unwrap();
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        room.enter().await;
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
    }
}

async fn race_with_rslock(manager: LockManager, name: String, room: Arc<Room>, rounds: u32) {
    for _ in 0..rounds {
        let guard = manager.acquire(&*name, HOUR).await.unwrap();
        room.enter().await;
        guard.release().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn of_two_of_us_and_one_of_them_never_two_are_inside() {
    const ROUNDS: u32 = 10;
    let five = uneven_five().await;
    let (name, room) = (name("rslock race"), Arc::new(Room::default()));
    let mut racers = JoinSet::new();
    for _ in 0..2 {
        racers.spawn(race_with_our_lock(
            patient(five).await,
            name.clone(),
            Arc::clone(&room),
            ROUNDS,
        ));
    }
    racers.spawn(race_with_rslock(
        manager(five, 3, ms(20)),
        name.clone(),
        Arc::clone(&room),
        ROUNDS,
    ));
    in_time("the turns of each", racers.join_all()).await;
    assert_eq!(room.count.load(SeqCst), 3 * ROUNDS);
    is_nowhere(five, &name).await;
}
