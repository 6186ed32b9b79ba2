//! What a variant of P9 is: it sells single units, and its state can be audited.

use anyhow::Result;
use async_trait::async_trait;

use crate::goals::crowd::Reply;

/// One way to sell single units.
#[async_trait]
pub trait Variant: Send + Sync + 'static {
    /// One order.
    async fn buy(&self, buyer: u64) -> Result<Reply>;

    /// Makes buyers that wait for a lock give up. Otherwise a contended lock would delay the end of
    /// a run by minutes.
    fn close(&self) {}

    /// Compares the stored state with the accepted orders. Returns drift and oversold units.
    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)>;

    /// Releases its resources.
    async fn end(&self) -> Result<()> {
        Ok(())
    }
}

/// Drift and oversold units, from the units left, the units of recorded orders, the stock and the
/// accepted orders.
pub fn judge(stock: u64, left: i64, sold: i64, accepted: u64) -> Result<(i64, u64)> {
    let (stock, accepted) = (i64::try_from(stock)?, i64::try_from(accepted)?);
    Ok((
        (stock - left - sold).abs() + (sold - accepted).abs(),
        u64::try_from(sold - stock).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_lost_unit_is_drift_and_an_extra_unit_is_oversold() {
        assert_eq!(judge(10, 4, 6, 6).unwrap(), (0, 0));
        assert_eq!(
            judge(10, 5, 6, 6).unwrap(),
            (1, 0),
            "an update of the counter was lost"
        );
        assert_eq!(
            judge(10, 4, 6, 7).unwrap(),
            (1, 0),
            "an accepted order is missing from the table"
        );
        assert_eq!(judge(10, -1, 11, 11).unwrap(), (0, 1));
    }
}
