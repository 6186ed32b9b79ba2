//! Admins: their names, tokens and scopes.

use std::{fmt, str::FromStr, sync::Arc};

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// What an admin may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read items, orders, journals and audits.
    Read,
    /// Create items, and change their state, limit and window.
    ItemsWrite,
    /// Add and withdraw units.
    StockWrite,
    /// Place and cancel orders for buyers.
    OrdersPlace,
    /// Record that money was returned.
    RefundsWrite,
    /// Create, test and remove webhooks.
    WebhooksWrite,
    /// Erase the names of buyers.
    BuyersErase,
}

/// No scope has this name.
#[derive(Debug, thiserror::Error)]
#[error("expected one of {}", Scope::names())]
pub struct UnknownScope;

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::ItemsWrite,
        Self::StockWrite,
        Self::OrdersPlace,
        Self::RefundsWrite,
        Self::WebhooksWrite,
        Self::BuyersErase,
    ];

    /// Its name in settings, documents and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ItemsWrite => "items:write",
            Self::StockWrite => "stock:write",
            Self::OrdersPlace => "orders:place",
            Self::RefundsWrite => "refunds:write",
            Self::WebhooksWrite => "webhooks:write",
            Self::BuyersErase => "buyers:erase",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or(UnknownScope)
    }
}

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The hash of a token.
fn hash(token: &[u8]) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

/// An admin. The service keeps the hash of the token, so a settings file with admins is no secret.
#[derive(Debug, Clone)]
pub struct Admin {
    name: Arc<str>,
    token_hash: TokenHash,
    scopes: Vec<Scope>,
}

impl Admin {
    /// An admin whose token has this SHA-256. The token must be random: its hash has no salt.
    pub fn new(name: &str, token_hash: TokenHash, scopes: Vec<Scope>) -> Self {
        Self {
            name: name.into(),
            token_hash,
            scopes,
        }
    }

    /// The admin `admin`, who may do everything.
    pub(super) fn with_every_scope(token: &[u8]) -> Self {
        Self::new("admin", hash(token), Scope::ALL.to_vec())
    }

    /// The name, for the journal.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn token_hash(&self) -> &[u8] {
        &self.token_hash
    }

    /// Whether the admin may do this.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// The admin with this token. Compares with every admin in constant time.
pub(super) fn find<'a>(admins: &'a [Admin], token: &str) -> Option<&'a Admin> {
    let hash = hash(token.as_bytes());
    admins.iter().fold(None, |found, admin| {
        let same: bool = admin.token_hash.ct_eq(&hash).into();
        if same { Some(admin) } else { found }
    })
}

#[cfg(test)]
mod tests {
    use super::{Admin, Scope, find, hash};

    #[test]
    fn a_token_is_found_among_several() {
        let admin = |name, token: &str| Admin::new(name, hash(token.as_bytes()), Vec::new());
        let admins = [admin("ann", "a"), admin("bob", "b")];
        for (token, name) in [
            ("a", Some("ann")),
            ("b", Some("bob")),
            ("c", None),
            ("", None),
        ] {
            let found = find(&admins, token).map(|admin| &**admin.name());
            assert_eq!(found, name, "{token:?}");
        }
    }

    #[test]
    fn a_scope_is_read_as_it_is_written() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
        }
        let error = "write".parse::<Scope>().unwrap_err().to_string();
        assert!(error.contains("items:write"), "{error}");
    }
}
