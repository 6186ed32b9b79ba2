//! The buyers and their tokens.

use std::time::Duration;

use client::Token;

/// Longer than any run.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// All buyers.
pub struct Buyers {
    jwt_secret: String,
    /// Signed before the clock starts, because signing costs as much as a request.
    tokens: Vec<Token>,
}

/// A buyer for one session.
#[derive(Debug, Clone, Copy)]
pub struct VirtualUser {
    /// The number of the session.
    pub session: u64,
    /// The number of the buyer.
    pub buyer: usize,
    /// The number of the item.
    pub item: usize,
    /// Whether the buyer can have another session, even concurrently. A session then does not know
    /// all units that the buyer holds.
    pub may_return: bool,
    /// Random bits for all decisions of the session.
    pub random: u64,
}

impl Buyers {
    /// So many buyers, with valid tokens.
    pub fn new(count: u64, jwt_secret: &str) -> Self {
        Self {
            jwt_secret: jwt_secret.to_owned(),
            tokens: (0..count).map(|buyer| mint(jwt_secret, buyer)).collect(),
        }
    }

    /// Number of buyers. A higher number than that is a new buyer.
    pub fn count(&self) -> usize {
        self.tokens.len()
    }

    /// The token of a buyer.
    pub fn token(&self, buyer: usize) -> Token {
        match self.tokens.get(buyer) {
            Some(token) => token.clone(),
            None => mint(&self.jwt_secret, buyer as u64),
        }
    }
}

fn mint(jwt_secret: &str, buyer: u64) -> Token {
    Token::mint_buyer(jwt_secret, &format!("buyer-{buyer}"), TOKEN_LIFETIME)
}

#[cfg(test)]
mod tests {
    use super::Buyers;

    #[test]
    fn there_is_always_one_more_buyer() {
        let buyers = Buyers::new(3, "a secret that is long enough");
        let token = |buyer| buyers.token(buyer).as_str().to_owned();
        assert_eq!(buyers.count(), 3);
        assert_ne!(token(0), token(1));
        assert_ne!(token(0), token(buyers.count()));
    }
}
