//! What the nodes have in memory and on disk, and what clients know.

/// As many as the protocol needs to show what a quorum is.
pub const NODES: usize = 3;
/// Of [`NODES`].
pub const QUORUM: usize = 2;
/// Acquisitions.
pub const CLIENTS: usize = 2;
/// Clients that look at the nodes.
pub const LOOKS: usize = 2;

/// A token; zero is none.
pub type Token = u8;

/// Whether the node was admitted: the key `lock:node:generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Generation {
    /// Never, or it has lost that.
    #[default]
    None,
    /// In an earlier run of the server.
    Earlier,
    /// In this run: it votes.
    Current,
}

/// The key `lock:node:watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Watch {
    /// There is none.
    #[default]
    None,
    /// Written in an earlier run of the server.
    Stale,
    /// Written by this look in this run.
    By(u8),
}

/// The keys of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Keys {
    /// The client that has the lock.
    pub lock: Option<u8>,
    /// The highest token accepted, or the floor of the admission if that is higher.
    pub fence: Token,
    /// Whether the node may vote.
    pub generation: Generation,
    /// Who marked the node while it waits.
    pub watch: Watch,
}

/// One node, with what clients have heard from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Node {
    /// What the server answers from.
    pub memory: Keys,
    /// What a crash leaves.
    pub disk: Keys,
    /// The acquisitions, as bits, that had begun and not ended when the node was marked.
    pub waits_for: u8,
    /// Which clients have heard its vote, as bits.
    pub heard: u8,
    /// Which looks have sent it their mark, as bits.
    pub asked: u8,
    /// Which looks found it blank and marked it, as bits.
    pub found_blank: u8,
    /// Whether it has lost its memory. It does so once.
    pub lost: bool,
}

impl Node {
    /// Nothing says that it ever voted.
    pub fn is_blank(&self) -> bool {
        self.memory.generation == Generation::None && self.memory.fence == 0
    }

    /// The server answers after it has written.
    pub fn sync(&mut self) {
        self.disk = self.memory;
    }

    /// The server starts again with what is on disk.
    pub fn restart(&mut self) {
        if self.disk.generation == Generation::Current {
            self.disk.generation = Generation::Earlier;
        }
        if let Watch::By(_) = self.disk.watch {
            self.disk.watch = Watch::Stale;
        }
        self.memory = self.disk;
    }
}

/// How far an acquisition has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Stage {
    /// It has not begun.
    #[default]
    Idle,
    /// It has asked for the lock.
    Asking,
    /// It has the lock, and its lease has not ended.
    Holding,
    /// Its lease has ended, or it gave up.
    Ended,
}

/// One acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Client {
    /// How far it has come.
    pub stage: Stage,
    /// What it proposes.
    pub token: Token,
    /// The highest token that any client had when it began.
    pub before: Token,
    /// Whether it ever had the lock.
    pub acquired: bool,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct State {
    /// In order: which one is which does not matter.
    pub nodes: [Node; NODES],
    /// By number.
    pub clients: [Client; CLIENTS],
    /// Crashes so far.
    pub crashes: u8,
    /// A restarted node was admitted while a client held the lock.
    pub kept_under_lease: bool,
    /// New nodes were admitted without waiting.
    pub started_fresh: bool,
    /// A node that had lost its memory was admitted after waiting.
    pub waited: bool,
    /// Two clients held the lock at the same time.
    pub two_hold: bool,
    /// A token was not above every token that was given before its acquisition began.
    pub fell: bool,
}

impl State {
    /// The acquisitions that have begun and not ended, as bits.
    pub fn live(&self) -> u8 {
        let is_live = |client: &Client| matches!(client.stage, Stage::Asking | Stage::Holding);
        let bits = self.clients.iter().enumerate();
        bits.filter(|(_, client)| is_live(client))
            .fold(0, |live, (index, _)| live | 1 << index)
    }

    /// The highest token that any client ever had.
    pub fn highest_given(&self) -> Token {
        let given = self.clients.iter().filter(|client| client.acquired);
        given.map(|client| client.token).max().unwrap_or(0)
    }

    /// Whether a client holds the lock.
    pub fn is_held(&self) -> bool {
        self.clients
            .iter()
            .any(|client| client.stage == Stage::Holding)
    }
}
