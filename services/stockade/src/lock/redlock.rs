//! The ballot Redlock, opened in a way that says what it waits for.

use std::{future, time::Duration};

use anyhow::Result;
use lock::{NodeStatus, Redlock, RedlockBuilder, Standing};
use tokio::time::{sleep, timeout};

use super::{backend::Options, say};

/// Longer waits are spoken of.
const SILENCE: Duration = Duration::from_secs(1);
/// A command is not as hasty as a service: a node gets a fifth of the lease, as far as that is no more than this.
const NODE_TIMEOUT_MAX: Duration = Duration::from_millis(500);

/// Looks at the nodes in any case, and then waits for those that are new or have restarted if there is no quorum without them.
pub async fn open(options: &Options, patience: Option<Duration>) -> Result<Redlock> {
    let redlock = builder(options)
        .build_without_waiting()
        .map_err(|error| options.servers.wrong(&error))?;
    if votes(&redlock.status().await) || patience == Some(Duration::ZERO) {
        return Ok(redlock);
    }
    let voting = async {
        tokio::select! {
            () = redlock.wait_for_a_quorum() => {}
            () = speak(&redlock) => {}
        }
    };
    match patience {
        // Whoever asks next is told why there is no quorum.
        Some(patience) => drop(timeout(patience, voting).await),
        None => voting.await,
    }
    Ok(redlock)
}

fn builder(options: &Options) -> RedlockBuilder {
    let lease = options.lease;
    let builder = RedlockBuilder::new(&options.servers.urls)
        .lease(lease)
        .fair(options.fair)
        .node_timeout((lease / 5).min(NODE_TIMEOUT_MAX));
    match options.longest_lease {
        Some(longest) => builder.longest_lease(longest),
        None => builder,
    }
}

fn votes(nodes: &[NodeStatus]) -> bool {
    nodes
        .iter()
        .filter(|node| matches!(node.standing, Standing::Voting))
        .count()
        > nodes.len() / 2
}

/// Never returns.
async fn speak(redlock: &Redlock) {
    sleep(SILENCE).await;
    let nodes = redlock.status().await;
    let silent: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some(format!("{}: {}", node.node, why(&node.standing)?)))
        .collect();
    if !silent.is_empty() {
        say(format_args!(
            "waiting for nodes to vote: {}",
            silent.join("; ")
        ));
    }
    future::pending().await
}

/// Why a node does not vote, if it does not.
fn why(standing: &Standing) -> Option<String> {
    match standing {
        Standing::Excluded(exclusion) => Some(exclusion.to_string()),
        Standing::Unreachable(answer) => Some(answer.to_string()),
        _ => None,
    }
}
