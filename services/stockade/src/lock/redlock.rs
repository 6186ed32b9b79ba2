//! Opens Redlock, and reports the nodes that it waits for.

use std::{future, time::Duration};

use anyhow::Result;
use lock::{NodeStatus, Redlock, RedlockBuilder, Standing};
use tokio::time::{sleep, timeout};

use super::{options::Options, say};

/// A longer wait is reported.
const REPORT_DELAY: Duration = Duration::from_secs(1);
/// Limit of the node timeout, which is a fifth of the lease. A command can wait longer than a
/// service.
const NODE_TIMEOUT_MAX: Duration = Duration::from_millis(500);

/// Reads the state of all nodes. Without a quorum of voters, it then waits for new or restarted
/// nodes.
pub async fn open(options: &Options, wait_max: Option<Duration>) -> Result<Redlock> {
    let redlock = builder(options)
        .build_without_waiting()
        .map_err(|error| options.servers.wrong(&error))?;
    if votes(&redlock.status().await) || wait_max == Some(Duration::ZERO) {
        return Ok(redlock);
    }
    let voting = async {
        tokio::select! {
            () = redlock.wait_for_a_quorum() => {}
            () = report(&redlock) => {}
        }
    };
    match wait_max {
        // After the timeout, the next request fails with the reason.
        Some(wait_max) => drop(timeout(wait_max, voting).await),
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
    let builder = match options.longest_lease {
        Some(longest) => builder.longest_lease(longest),
        None => builder,
    };
    match &options.servers.tls {
        Some(tls) => builder.tls(tls.clone()),
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

/// Reports the nodes that do not vote, once. Never returns.
async fn report(redlock: &Redlock) {
    sleep(REPORT_DELAY).await;
    let nodes = redlock.status().await;
    let waiting: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some(format!("{}: {}", node.node, why(&node.standing)?)))
        .collect();
    if !waiting.is_empty() {
        say(format_args!(
            "waiting for nodes to vote: {}",
            waiting.join("; ")
        ));
    }
    future::pending().await
}

/// Reason why a node does not vote, or `None` if it votes.
fn why(standing: &Standing) -> Option<String> {
    match standing {
        Standing::Excluded(exclusion) => Some(exclusion.to_string()),
        Standing::Unreachable(answer) => Some(answer.to_string()),
        _ => None,
    }
}
