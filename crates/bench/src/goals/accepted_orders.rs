//! P1a: accepted orders over HTTP, which are acknowledged when Redis has them on its disk.

use anyhow::Result;

use super::recorded_orders::{ceiling, load_setting};
use crate::{
    buyers::{CROWD, Crowd},
    cli::Bench,
    goal::{Bound, Line, Measured, Sample},
    sale::{Terms, sell},
    site::Site,
};

/// Each repeat is the bare handler and then Stockade, on new servers.
pub async fn measure(bench: &Bench) -> Result<Measured> {
    let (crowd, mut samples) = (Crowd::new(CROWD)?, Vec::new());
    let Bench { connections, seconds, .. } = *bench;
    for _ in 0..bench.repeats {
        let baseline = ceiling(bench, &crowd).await?;
        let site = Site::start().await?;
        let (answered, sample) =
            sell(&site, &crowd, Terms { item: "p1a", durability: "accepted", status: 202, connections, seconds }).await?;
        samples.push(Sample { figure: answered.per_second(), baseline, ..sample });
    }
    let line = Line {
        figure: "accepted orders".into(),
        baseline: "bare axum handler".into(),
        unit: "orders/s",
        bound: Bound::AtLeast(0.8),
        setting: format!(
            "as P1, answered when Redis has flushed them; the recorder writes them to the ledger meanwhile; {}",
            load_setting(bench)
        ),
        samples,
    };
    Ok(Measured { goal: "P1a", title: "accepted orders (202 after the script) over HTTP", lines: vec![line] })
}
