//! Buyers' tokens, signed before any clock starts.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use domain::BuyerId;
use order::TokenPolicy;
use tempfile::TempDir;

/// Secret with which the services of a run check buyers' tokens.
pub const JWT_SECRET: &str = "a secret of the login of the bench";

/// Number of buyers; enough to spread their home segments evenly.
pub const CROWD: usize = 4096;

/// Longer than any run.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A file with buyers' tokens, which wrk uses round robin.
pub struct Crowd {
    tokens: PathBuf,
    _folder: TempDir,
}

impl Crowd {
    /// Signs tokens for this many buyers.
    pub fn new(buyers: usize) -> Result<Self> {
        Self::numbered(0..buyers)
    }

    /// Signs tokens for the buyers with these numbers.
    pub fn numbered(buyers: Range<usize>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let tokens = folder.path().join("tokens");
        let text: String = buyers
            .map(|number| Ok(token(number)? + "\n"))
            .collect::<Result<_>>()?;
        fs::write(&tokens, text).with_context(|| tokens.display().to_string())?;
        Ok(Self {
            tokens,
            _folder: folder,
        })
    }

    /// File with one token per line.
    pub fn tokens(&self) -> &Path {
        &self.tokens
    }
}

/// The token of one buyer.
pub fn token(number: usize) -> Result<String> {
    let buyer = BuyerId::new(format!("buyer-{number}"))?;
    order::mint_buyer_token(
        JWT_SECRET.as_bytes(),
        &buyer,
        LIFETIME,
        &TokenPolicy::default(),
    )
    .context("the token could not be signed")
}
