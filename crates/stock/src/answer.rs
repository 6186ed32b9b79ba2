//! What a segment remembers for an order id, and repeats for good.

use domain::Quantity;

use crate::StockError;

/// An answer as it stands in the `answers` hash: a letter, the quantity, and what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// `T`: the units are this order's; its hold is over at `expires_ms`.
    Taken {
        /// How many.
        quantity: Quantity,
        /// Milliseconds since 1970.
        expires_ms: i64,
    },
    /// `P`: this segment will never give units to this order. No attempt asks after `until_ms`.
    Passed {
        /// How many were asked for.
        quantity: Quantity,
        /// Milliseconds since 1970.
        until_ms: i64,
    },
    /// `E`, at home: the walk ended at `segment`.
    Elsewhere {
        /// How many.
        quantity: Quantity,
        /// Milliseconds since 1970.
        expires_ms: i64,
        /// Who has the units.
        segment: u16,
    },
    /// `R`: the units were this order's and were given back. Also at home, when another segment had them.
    Released {
        /// How many.
        quantity: Quantity,
        /// When, in milliseconds since 1970.
        since_ms: i64,
    },
    /// `S`, at home: every segment passed. No attempt asked after `until_ms`.
    SoldOut {
        /// How many were asked for.
        quantity: Quantity,
        /// Milliseconds since 1970.
        until_ms: i64,
    },
}

impl Answer {
    /// Reads a stored answer.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, StockError> {
        Self::read(text).ok_or_else(|| {
            StockError::Unreadable(format!("the answer {:?}", String::from_utf8_lossy(text)))
        })
    }

    fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (kind, rest) = text.split_at_checked(1)?;
        let mut parts = rest.split(':');
        let quantity = Quantity::new(parts.next()?.parse().ok()?).ok()?;
        let time = parts.next()?.parse().ok()?;
        Some(match kind {
            "T" => Self::Taken {
                quantity,
                expires_ms: time,
            },
            "P" => Self::Passed {
                quantity,
                until_ms: time,
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
            _ => return None,
        })
    }

    /// How many units the order that was answered wanted.
    pub fn quantity(self) -> Quantity {
        match self {
            Self::Taken { quantity, .. }
            | Self::Passed { quantity, .. }
            | Self::Elsewhere { quantity, .. }
            | Self::Released { quantity, .. }
            | Self::SoldOut { quantity, .. } => quantity,
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::Quantity;

    use super::Answer;

    #[test]
    fn every_stored_answer_is_read() {
        let quantity = Quantity::new(2).unwrap();
        let table = [
            (
                "T2:1763",
                Answer::Taken {
                    quantity,
                    expires_ms: 1763,
                },
            ),
            (
                "P2:1763",
                Answer::Passed {
                    quantity,
                    until_ms: 1763,
                },
            ),
            (
                "E2:1763:5",
                Answer::Elsewhere {
                    quantity,
                    expires_ms: 1763,
                    segment: 5,
                },
            ),
            (
                "R2:1763",
                Answer::Released {
                    quantity,
                    since_ms: 1763,
                },
            ),
            (
                "S2:1763",
                Answer::SoldOut {
                    quantity,
                    until_ms: 1763,
                },
            ),
        ];
        for (text, answer) in table {
            assert_eq!(Answer::parse(text.as_bytes()).unwrap(), answer, "{text}");
        }
        for bad in ["", "T", "T2", "X2:1", "T0:1", "Tx:1", "E2:1"] {
            assert!(Answer::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
