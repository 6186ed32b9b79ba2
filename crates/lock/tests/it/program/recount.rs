use lock::{FencingToken, Lock, LockError, RedlockBuilder};

pub async fn recount(
    nodes: Vec<String>,
    write: impl AsyncFn(FencingToken),
) -> Result<(), LockError> {
    let lock = RedlockBuilder::new(nodes).build().await?;
    let mut guard = lock.acquire("item:42").await?;
    guard
        .run(async |held| {
            // UPDATE items SET fence = :token WHERE id = 42 AND fence < :token
            // Continue only if it matched the row.
            write(held.token()).await;
        })
        .await?;
    guard.release().await
}
