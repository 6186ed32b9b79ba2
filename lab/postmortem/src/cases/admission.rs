//! Opens a ballot Redlock on nodes that have not granted a lock before.

use std::time::Duration;

use anyhow::Result;
use lock::{Exclusion, NodeStatus, Redlock, RedlockBuilder, Standing};
use tokio::time::{sleep, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Several times the duration of a poll of every node on the slowest machine.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens the Redlock, and waits until every reachable node votes, not only a quorum. A node that
/// was polled late on a busy machine must not decide what a case shows.
pub(super) async fn open_admitted(builder: RedlockBuilder) -> Result<Redlock> {
    let redlock = builder.build().await?;
    let all_vote = async {
        while redlock.status().await.iter().any(is_waiting) {
            sleep(POLL_INTERVAL).await;
        }
    };
    // Where too few nodes are reachable to tell which locks a restarted node has lost, it never
    // votes. The case shows that.
    let _ = timeout(ADMISSION_TIMEOUT, all_vote).await;
    Ok(redlock)
}

fn is_waiting(node: &NodeStatus) -> bool {
    matches!(node.standing, Standing::Excluded(Exclusion::Forgot { .. }))
}
