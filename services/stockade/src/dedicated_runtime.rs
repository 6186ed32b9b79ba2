//! A dedicated thread and runtime for one role.
//!
//! The tasks of a runtime take turns. Under load, each step of a role would wait for hundreds of
//! requests, and a pass of the recorder has a dozen steps. The operating system schedules a
//! dedicated thread instead, and prefers threads that have slept long.

use anyhow::{Context, Result};
use tokio::{runtime::Builder, sync::oneshot, task::JoinHandle};

/// Starts the role on its thread. Returns once `begin` has succeeded, with a task that ends with
/// the role.
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
        .with_context(|| format!("the thread of the {name} ended while it was starting"))??;
    Ok(tokio::spawn(async {
        let _ = ended.await;
    }))
}
