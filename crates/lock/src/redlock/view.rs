//! What the nodes have of one lock. It only reads, and waits for no quorum.
//!
//! What a reader could get wrong: every node is seen at one moment, but not all of them at the
//! same. A lock that changes hands meanwhile is seen half here and half there, and so is one whose
//! votes are on nodes that do not answer: that is [`Verdict::Undecided`], not free.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::future::join_all;
use redis::InfoDict;

use super::{
    Durability, NodeStatus, Redlock, Standing,
    node::{Node, Probe},
    status,
};
use crate::{
    FencingToken, LockError,
    error::Answer,
    redis_server::{GENERATION, HIGH_WATER, Keys, WATCH},
};

/// What a node has as the owner of a lock that is shared.
const SHARED: &[u8] = b"shared";

/// What every node has of a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockView {
    /// In the order in which they were configured.
    pub nodes: Vec<NodeView>,
    /// How many of them decide.
    pub quorum: usize,
}

/// What one node has of a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeView {
    /// What the node is like.
    pub status: NodeStatus,
    /// The owner of the lock there; `None` if it is free, or if the node did not answer.
    pub holder: Option<Holder>,
    /// The last token that the node has accepted for the name, also if the lock is
    /// free.
    pub token: Option<FencingToken>,
    /// What is left of the holder's lease; `None` without a holder, and for a lock that has no
    /// lease.
    pub remaining: Option<Duration>,
}

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// One owner. One that is not text, as some other libraries write it, is shown in hexadecimal.
    Owner(String),
    /// Those who share it.
    Shared(BTreeSet<String>),
}

/// What the nodes together say of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A quorum has the same holder.
    Held {
        /// Of those who share it, those that a quorum has.
        holder: Holder,
        /// The highest that a node of the holder has accepted.
        token: Option<FencingToken>,
        /// For how long a quorum still has it, unless the lease is extended; `None` if it has no
        /// lease.
        remaining: Option<Duration>,
    },
    /// Some nodes have a holder. With those that do not answer or do not vote it may have a quorum.
    Undecided,
    /// No owner can have a quorum.
    Free,
    /// Too few nodes vote.
    NoQuorum,
}

impl LockView {
    /// What the nodes together say.
    pub fn verdict(&self) -> Verdict {
        let voting: Vec<_> = self
            .nodes
            .iter()
            .filter(|node| matches!(node.status.standing, Standing::Voting))
            .collect();
        if voting.len() < self.quorum {
            return Verdict::NoQuorum;
        }
        let mut supporters: BTreeMap<&str, usize> = BTreeMap::new();
        for owner in voting.iter().flat_map(|node| node.owners()) {
            *supporters.entry(owner).or_default() += 1;
        }
        let most = supporters.values().max().copied().unwrap_or_default();
        let unknown = self.nodes.len() - voting.len();
        match most {
            0 => Verdict::Free,
            _ if most >= self.quorum => self.held(&voting, &supporters),
            _ if most + unknown >= self.quorum => Verdict::Undecided,
            _ => Verdict::Free,
        }
    }

    fn held(&self, voting: &[&NodeView], supporters: &BTreeMap<&str, usize>) -> Verdict {
        let holds = |owner: &&str| {
            supporters
                .get(owner)
                .is_some_and(|count| *count >= self.quorum)
        };
        let nodes: Vec<_> = voting
            .iter()
            .filter(|node| node.owners().any(|owner| holds(&owner)))
            .collect();
        let mut remaining: Vec<_> = nodes
            .iter()
            .map(|node| node.remaining.unwrap_or(Duration::MAX))
            .collect();
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        let owners = || {
            supporters
                .keys()
                .filter(|owner| holds(owner))
                .map(|owner| (*owner).to_owned())
        };
        let shared = nodes
            .iter()
            .any(|node| matches!(node.holder, Some(Holder::Shared(_))));
        Verdict::Held {
            holder: if shared {
                Holder::Shared(owners().collect())
            } else {
                Holder::Owner(owners().collect())
            },
            token: nodes.iter().filter_map(|node| node.token).max(),
            remaining: remaining
                .get(self.quorum - 1)
                .copied()
                .filter(|remaining| *remaining < Duration::MAX),
        }
    }
}

impl NodeView {
    fn owners(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match &self.holder {
            Some(Holder::Owner(owner)) => (Some(owner), None),
            Some(Holder::Shared(owners)) => (None, Some(owners)),
            None => (None, None),
        };
        one.into_iter()
            .chain(several.into_iter().flatten())
            .map(String::as_str)
    }
}

impl Redlock {
    /// Asks every node what it has of a lock. It changes nothing there, and does not wait for nodes
    /// that may not vote.
    ///
    /// # Errors
    ///
    /// Only for a name that no lock may have.
    pub async fn view(&self, name: &str) -> Result<LockView, LockError> {
        let keys = Keys::new(name)?;
        let nodes = join_all(self.nodes().all.iter().map(|node| node.view(&keys))).await;
        Ok(LockView {
            nodes,
            quorum: self.nodes().quorum,
        })
    }
}

/// INFO, TIME, the generation, the high-water mark and the mark of who waits for the node; then
/// owner, lease and fence of the lock, and those who share it.
type Found = (
    InfoDict,
    (i64, i64),
    Option<String>,
    Option<String>,
    Option<String>,
    Option<Vec<u8>>,
    i64,
    Option<String>,
    Vec<(Vec<u8>, f64)>,
);

/// What a node has of a lock, as far as it answered.
#[derive(Default)]
struct Record {
    holder: Option<Holder>,
    token: Option<FencingToken>,
    remaining: Option<Duration>,
}

impl Node {
    async fn view(&self, keys: &Keys) -> NodeView {
        let (probe, record) = match self.inspect(keys).await {
            Ok((probe, record)) => (Ok(probe), record),
            Err(answer) => (Err(answer), Record::default()),
        };
        let Record {
            holder,
            token,
            remaining,
        } = record;
        NodeView {
            status: status(self, probe),
            holder,
            token,
            remaining,
        }
    }

    /// In one transaction, so that the lock cannot end between its owner and its lease.
    async fn inspect(&self, keys: &Keys) -> Result<(Probe, Record), Answer> {
        let mut pipeline = redis::pipe();
        pipeline
            .atomic()
            .cmd("INFO")
            .cmd("TIME")
            .get(GENERATION)
            .get(HIGH_WATER)
            .get(WATCH);
        pipeline
            .get(keys.lock())
            .pttl(keys.lock())
            .get(keys.fence())
            .zrange_withscores(keys.readers(), 0, -1);
        let sent = Instant::now();
        let (found, durability) = tokio::join!(
            self.server.query::<Found>(&pipeline),
            Durability::ask(&self.server)
        );
        let (info, time, generation, mark, watch, owner, lease_ms, fence, readers) = found?;
        let probe = self.judge((info, time, generation, mark, watch), durability, sent)?;
        let now_ms = (time.0 * 1000 + time.1 / 1000) as f64;
        let living = readers
            .into_iter()
            .filter(|(_, until_ms)| *until_ms > now_ms)
            .map(|(reader, _)| text(&reader));
        let holder = owner.map(|owner| match &owner[..] {
            SHARED => Holder::Shared(living.collect()),
            owner => Holder::Owner(text(owner)),
        });
        let token = fence
            .and_then(|fence| fence.parse().ok())
            .and_then(FencingToken::new);
        Ok((
            probe,
            Record {
                holder,
                token,
                remaining: u64::try_from(lease_ms).ok().map(Duration::from_millis),
            },
        ))
    }
}

/// Other libraries write owners of random bytes.
fn text(owner: &[u8]) -> String {
    match std::str::from_utf8(owner) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => owner.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        Answer, Durability, FencingToken, Holder, LockView, NodeStatus, NodeView, Standing,
        Verdict, text,
    };

    /// A node for each word: `-` is free, `?` is silent, `a` has owner a, `a+b` is shared by a and
    /// b, `a+` by a alone. Remaining: 1, 2, 3 ... seconds.
    fn view(words: &str) -> LockView {
        let nodes: Vec<_> = words
            .split(' ')
            .zip(1..)
            .map(|(word, number)| node(word, number))
            .collect();
        LockView {
            quorum: nodes.len() / 2 + 1,
            nodes,
        }
    }

    fn node(word: &str, number: u64) -> NodeView {
        let standing = if word == "?" {
            Standing::Unreachable(Answer::TimedOut)
        } else {
            Standing::Voting
        };
        let holder = match word {
            "-" | "?" => None,
            shared if shared.contains('+') => Some(Holder::Shared(
                shared.split_terminator('+').map(Into::into).collect(),
            )),
            owner => Some(Holder::Owner(owner.into())),
        };
        let remaining = holder.is_some().then(|| Duration::from_secs(number));
        let status = NodeStatus {
            node: number.to_string(),
            standing,
            high_water: None,
            durability: Durability::NotDeclared,
        };
        NodeView {
            status,
            holder,
            token: FencingToken::new(number.cast_signed()),
            remaining,
        }
    }

    #[test]
    fn the_holder_is_whom_a_quorum_has() {
        let held = |holder, token, seconds| Verdict::Held {
            holder,
            token: FencingToken::new(token),
            remaining: Some(Duration::from_secs(seconds)),
        };
        let owner = |owner: &str| Holder::Owner(owner.into());
        let shared = |owners: &[&str]| {
            Holder::Shared(owners.iter().map(|owner| (*owner).to_owned()).collect())
        };
        let table = [
            ("a a a a a", held(owner("a"), 5, 3)),
            ("a a a - -", held(owner("a"), 3, 1)),
            ("b a ? a a", held(owner("a"), 5, 2)),
            ("a+b a+c a+ b+a -", held(shared(&["a"]), 4, 2)),
            ("a", held(owner("a"), 1, 1)),
            ("- - - - -", Verdict::Free),
            ("- - - ? ?", Verdict::Free),
            ("a a b b -", Verdict::Free),
            ("a b - - ?", Verdict::Free),
            ("a - - ? ?", Verdict::Undecided),
            ("a a - - ?", Verdict::Undecided),
            ("a a ? ? ?", Verdict::NoQuorum),
            ("a a ? ?", Verdict::NoQuorum),
        ];
        for (words, verdict) in table {
            assert_eq!(view(words).verdict(), verdict, "{words}");
        }
    }

    #[test]
    fn an_owner_that_is_not_text_is_shown_in_hexadecimal() {
        assert_eq!(text("another owner".as_bytes()), "another owner");
        assert_eq!(text(&[0xff, 0x00]), "ff00");
        assert_eq!(
            text(b"\x1b[2J"),
            "1b5b324a",
            "no control character reaches a terminal"
        );
    }
}
