//! A ballot Redlock on nodes of which nobody has taken a lock before.

use std::time::Duration;

use anyhow::Result;
use lock::{Exclusion, NodeStatus, Redlock, RedlockBuilder, Standing};
use tokio::time::{sleep, timeout};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Several times what the slowest machine needs for a look at every node.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens it, and waits until every node that can be reached votes, not only a quorum: which of them was looked at too late, on a machine that has much
/// else to do, must not decide what a case shows.
pub(super) async fn admitted(builder: RedlockBuilder) -> Result<Redlock> {
    let redlock = builder.build().await?;
    let all_vote = async {
        while redlock.status().await.iter().any(waits) {
            sleep(LOOK_EVERY).await;
        }
    };
    // Where too few can be reached to say what a new one may have forgotten, it never votes; that is for the case to show.
    let _ = timeout(PATIENCE, all_vote).await;
    Ok(redlock)
}

fn waits(node: &NodeStatus) -> bool {
    matches!(node.standing, Standing::Excluded(Exclusion::Forgot { .. }))
}
