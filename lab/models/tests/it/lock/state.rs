//! What the nodes hold, what the clients know, and what the network may still deliver.

/// As many as the protocol needs to show what a quorum is.
pub const NODES: usize = 3;
/// Of [`NODES`].
pub const QUORUM: usize = 2;
/// The most clients that a model may have.
pub const CLIENTS: usize = 3;

/// A token; zero is none.
pub type Token = u8;

/// One node, with what the clients have heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Node {
    /// The client that has the lock.
    pub lock: Option<u8>,
    /// The highest token accepted.
    pub fence: Token,
    /// Which client has heard that its newest question was accepted here, and with what: the fence
    /// of the node then.
    pub heard: [Option<Token>; CLIENTS],
}

/// How far a client has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Stage {
    /// It has not begun.
    #[default]
    Idle,
    /// It has asked for the lock.
    Asking,
    /// It has the lock and asks for its token. Only in the wrong ways.
    Numbering,
    /// It has both.
    Holding,
    /// It has ended, with or without the lock.
    Over,
}

/// One acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Client {
    /// How far it has come.
    pub stage: Stage,
    /// What it proposes, and in the end has.
    pub token: Token,
    /// Tokens that it has asked for, as bits. Each of these messages can be delivered at any time.
    pub proposed: u8,
    /// The highest fence that a node has answered.
    pub told: Token,
    /// The highest token that any client had when it began.
    pub before: Token,
    /// Whether it ever had the lock: from then on its extensions can be delivered at any time.
    pub acquired: bool,
    /// Whether it has given the lock back, or up: from then on its releases can be delivered at any
    /// time.
    pub released: bool,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct State {
    /// In order: which one is which does not matter.
    pub nodes: [Node; NODES],
    /// By number.
    pub clients: [Client; CLIENTS],
    /// The perfect counter that [`super::client::Way::MintLater`] mints from.
    pub minted: Token,
    /// Whether the one node that may forget has done so.
    pub forgot: bool,
    /// A client got a token above that of a holder that had the lock on a quorum at that moment.
    pub overruled: bool,
    /// A client got a token that was not above every token that was given before it began.
    pub fell: bool,
    /// Two clients got the same token.
    pub repeated: bool,
}

impl State {
    /// On how many nodes the client has the lock.
    pub fn locks_of(&self, client: usize) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.lock == Some(client as u8))
            .count()
    }

    /// The highest token that any client ever had.
    pub fn highest_given(&self) -> Token {
        self.clients
            .iter()
            .filter(|client| client.acquired && client.stage >= Stage::Holding)
            .map(|client| client.token)
            .max()
            .unwrap_or(0)
    }
}
