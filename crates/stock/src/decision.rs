//! The decision that a segment stores for an order id, and repeats permanently.

use domain::Quantity;

use crate::StockError;

/// A decision as it stands in the `decisions` hash: a letter, the quantity, and its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// `T`: the order has its units, held until `expires_ms`. The scripts write `T1x` and the time
    /// in hexadecimal digits, which takes half of the memory that `T1:` and decimal digits take.
    /// A repair writes those.
    Taken {
        /// Number of units.
        quantity: Quantity,
        /// End of the hold, in milliseconds since 1970.
        expires_ms: i64,
    },
    /// `D`: this segment gives no units to this order before a round later than `round`. No attempt
    /// is valid after `until_ms`.
    Declined {
        /// Number of units requested.
        quantity: Quantity,
        /// Latest deadline of the attempts, in milliseconds since 1970.
        until_ms: i64,
        /// The latest round that it declined; 0 is the first one.
        round: u32,
    },
    /// `E`, at home: the spillover ended at `segment`.
    Elsewhere {
        /// Number of units.
        quantity: Quantity,
        /// End of the hold, in milliseconds since 1970.
        expires_ms: i64,
        /// The segment that gave the units.
        segment: u16,
    },
    /// `R`: the order had its units and released them. Also stored at home when another segment had
    /// given the units.
    Released {
        /// Number of units.
        quantity: Quantity,
        /// Time of the release, in milliseconds since 1970.
        since_ms: i64,
    },
    /// `S`, at home: every segment declined. No attempt was valid after `until_ms`.
    SoldOut {
        /// Number of units requested.
        quantity: Quantity,
        /// Latest deadline of the attempts, in milliseconds since 1970.
        until_ms: i64,
    },
    /// `N`, at home: every segment declined `round`, and nothing waited for the order any more. It
    /// was not sold out, and a repeat reopens it. No attempt was valid after `until_ms`.
    GivenUp {
        /// Number of units requested.
        quantity: Quantity,
        /// Latest deadline of the attempts, in milliseconds since 1970.
        until_ms: i64,
        /// The latest round that every segment declined; 0 is the first one.
        round: u32,
    },
}

impl Decision {
    /// Reads a stored decision.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, StockError> {
        Self::read(text).ok_or_else(|| {
            let text = String::from_utf8_lossy(text);
            StockError::Unreadable(format!("expected a stored decision, found {text:?}"))
        })
    }

    fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (kind, rest) = text.split_at_checked(1)?;
        if let ("T", Some((quantity, expires_ms))) = (kind, rest.split_once('x')) {
            return Some(Self::Taken {
                quantity: Quantity::new(quantity.parse().ok()?).ok()?,
                expires_ms: i64::from_str_radix(expires_ms, 16).ok()?,
            });
        }
        let mut parts = rest.split(':');
        let quantity = Quantity::new(parts.next()?.parse().ok()?).ok()?;
        let time = parts.next()?.parse().ok()?;
        Some(match kind {
            "T" => Self::Taken {
                quantity,
                expires_ms: time,
            },
            "D" => Self::Declined {
                quantity,
                until_ms: time,
                round: parts.next().map_or(Some(0), |round| round.parse().ok())?,
            },
            "E" => Self::Elsewhere {
                quantity,
                expires_ms: time,
                segment: parts.next()?.parse().ok()?,
            },
            "R" => Self::Released {
                quantity,
                since_ms: time,
            },
            "S" => Self::SoldOut {
                quantity,
                until_ms: time,
            },
            "N" => Self::GivenUp {
                quantity,
                until_ms: time,
                round: parts.next().map_or(Some(0), |round| round.parse().ok())?,
            },
            _ => return None,
        })
    }

    /// Number of units that the order requested.
    pub fn quantity(self) -> Quantity {
        match self {
            Self::Taken { quantity, .. }
            | Self::Declined { quantity, .. }
            | Self::Elsewhere { quantity, .. }
            | Self::Released { quantity, .. }
            | Self::SoldOut { quantity, .. }
            | Self::GivenUp { quantity, .. } => quantity,
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::Quantity;

    use super::Decision;

    #[test]
    fn every_stored_decision_is_read() {
        let quantity = Quantity::new(2).unwrap();
        let table = [
            (
                "T2x6e3",
                Decision::Taken {
                    quantity,
                    expires_ms: 1763,
                },
            ),
            (
                "T2:1763",
                Decision::Taken {
                    quantity,
                    expires_ms: 1763,
                },
            ),
            (
                "D2:1763",
                Decision::Declined {
                    quantity,
                    until_ms: 1763,
                    round: 0,
                },
            ),
            (
                "D2:1763:3",
                Decision::Declined {
                    quantity,
                    until_ms: 1763,
                    round: 3,
                },
            ),
            (
                "N2:1763",
                Decision::GivenUp {
                    quantity,
                    until_ms: 1763,
                    round: 0,
                },
            ),
            (
                "N2:1763:3",
                Decision::GivenUp {
                    quantity,
                    until_ms: 1763,
                    round: 3,
                },
            ),
            (
                "E2:1763:5",
                Decision::Elsewhere {
                    quantity,
                    expires_ms: 1763,
                    segment: 5,
                },
            ),
            (
                "R2:1763",
                Decision::Released {
                    quantity,
                    since_ms: 1763,
                },
            ),
            (
                "S2:1763",
                Decision::SoldOut {
                    quantity,
                    until_ms: 1763,
                },
            ),
        ];
        for (text, decision) in table {
            assert_eq!(
                Decision::parse(text.as_bytes()).unwrap(),
                decision,
                "{text}"
            );
        }
        for bad in [
            "", "T", "T2", "X2:1", "T0:1", "Tx:1", "E2:1", "D2:1:", "T2x", "D2x6e3",
        ] {
            assert!(Decision::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
