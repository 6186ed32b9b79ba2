//! A thread and a runtime of its own for a role.
//!
//! The tasks of a runtime take turns. Beside the requests of a crowd each step of a role waits for hundreds of them, and a pass of the recorder has
//! a dozen steps; a thread of its own is the operating system's to place, which gives whoever slept long the next turn.

use anyhow::{Context, Result};
use tokio::{runtime::Builder, sync::oneshot, task::JoinHandle};

/// Begins the role on its thread; returns when it has begun, with what ends when the role has.
pub async fn start<Begin, Role>(name: &str, begin: Begin) -> Result<JoinHandle<()>>
where
    Begin: AsyncFnOnce() -> Result<Role> + Send + 'static,
    Role: Future<Output = ()>,
{
    let (begun, beginning) = oneshot::channel();
    let (alive, ended) = oneshot::channel::<()>();
    let work = move || {
        let _alive = alive;
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(begun.send(Err(error.into()))),
        };
        runtime.block_on(async {
            match begin().await {
                Ok(role) => {
                    let _ = begun.send(Ok(()));
                    role.await;
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        });
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)?;
    beginning
        .await
        .with_context(|| format!("the thread of the {name} ended"))??;
    Ok(tokio::spawn(async {
        let _ = ended.await;
    }))
}
