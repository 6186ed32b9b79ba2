//! The scripts of `lua/`, as functions of a node: one atomic step each. `Ok` is an acceptance,
//! `Err` the fence that stood in the way.

use super::state::{Node, Token};

/// `acquire.lua`
pub fn acquire(node: &mut Node, owner: u8, token: Token) -> Result<Token, Option<Token>> {
    if node.lock.is_some_and(|holder| holder != owner) {
        return Err(Some(node.fence));
    }
    let again = node.lock == Some(owner) && node.fence == token;
    if node.fence >= token && !again {
        return Err(Some(node.fence));
    }
    node.fence = token;
    node.lock = Some(owner);
    Ok(token)
}

/// `extend.lua`
pub fn extend(node: &mut Node, owner: u8, token: Token) {
    if node.lock.is_none() && node.fence <= token {
        node.fence = token;
        node.lock = Some(owner);
    }
}

/// `release.lua`
pub fn release(node: &mut Node, owner: u8) {
    if node.lock == Some(owner) {
        node.lock = None;
    }
}

/// Not in the protocol: takes the lock, and answers the fence as it is.
pub fn lock_only(node: &mut Node, owner: u8) -> Result<Token, Option<Token>> {
    if node.lock.is_some_and(|holder| holder != owner) {
        return Err(None);
    }
    node.lock = Some(owner);
    Ok(node.fence)
}

/// Not in the protocol: takes the lock and counts. A repeat for the same holder does not count
/// again.
pub fn lock_and_count(node: &mut Node, owner: u8) -> Result<Token, Option<Token>> {
    if node.lock.is_none() {
        node.fence += 1;
    }
    lock_only(node, owner)
}

/// Not in the protocol: the second round of a client that has the lock accepts what is not below
/// the fence.
pub fn raise_fence(node: &mut Node, owner: u8, token: Token) -> Result<Token, Option<Token>> {
    if node.lock != Some(owner) {
        return Err(None);
    }
    node.fence = node.fence.max(token);
    Ok(token)
}
