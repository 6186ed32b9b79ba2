//! What can happen next: messages are delivered, nodes crash or lose their memory, leases end.

use stateright::{Model, Property};

use super::state::{
    CLIENTS, Client, Generation, Keys, LOOKS, NODES, Node, QUORUM, Stage, State, Token, Watch,
};

/// Two leases never overlap.
pub const EXCLUSIVE: &str = "two clients never hold the lock at the same time";
/// An acquisition that begins after another had a token gets a higher one.
pub const RISING: &str = "tokens rise in real time";

/// The rules, or the rules with one condition left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Both rules, with every condition.
    Sound,
    /// A node that crashes can come back as it was when it was admitted.
    RestoredBackup,
    /// A vote is answered before it is on disk; the generation is on disk.
    AnswerBeforeDisk,
    /// A blank node votes at once, whatever the others have.
    BlankVotesAlone,
    /// A fresh start needs the marks of a quorum only.
    QuorumIsFresh,
    /// A fresh start also counts a blank node that another look has marked.
    MarksOfOthersCount,
    /// A look may take longer than the longest lease.
    LookOutlivesLease,
    /// A look sends a node the same mark again.
    MarkIsRepeated,
    /// An admission does not check that the node still has the look's mark.
    AdmissionIgnoresMark,
}

/// The rules, and how much goes wrong.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// Which rules.
    pub variant: Variant,
    /// Whether all nodes vote from the beginning, instead of being new.
    pub vote_at_first: bool,
    /// Clients that look at the nodes.
    pub looks: u8,
    /// How many crashes can happen.
    pub crashes: u8,
    /// How many nodes can lose their memory, each once.
    pub losses: usize,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An acquisition begins.
    Begin { client: usize },
    /// An acquire is delivered, perhaps again, and its answer heard or lost.
    Acquire {
        client: usize,
        node: usize,
        heard: bool,
    },
    /// A client that has heard a quorum of votes has the lock.
    Hold { client: usize },
    /// A lease ends, or an acquisition gives up.
    End { client: usize },
    /// A key of an ended lease expires.
    Expire { node: usize },
    /// What the server has in memory reaches the disk.
    Sync { node: usize },
    /// The server crashes and starts again.
    Crash { node: usize },
    /// The server starts again from a backup.
    Restore { node: usize },
    /// The server loses everything and starts again.
    Lose { node: usize },
    /// A look marks a node that does not vote.
    Mark { look: u8, node: usize },
    /// A node that kept its generation is admitted.
    AdmitKept { node: usize },
    /// A new node is admitted in a fresh start.
    AdmitFresh { look: u8, node: usize },
    /// A node is admitted that has waited for every lease that it may have lost.
    AdmitWaited { node: usize },
}

impl Protocol {
    fn client_steps(&self, state: &State, client: usize, steps: &mut Vec<Step>) {
        let stage = state.clients[client].stage;
        match stage {
            Stage::Idle => return steps.push(Step::Begin { client }),
            Stage::Asking => {
                let votes = state
                    .nodes
                    .iter()
                    .filter(|node| node.heard & (1 << client) != 0);
                if votes.count() >= QUORUM {
                    steps.push(Step::Hold { client });
                }
                steps.push(Step::End { client });
            }
            Stage::Holding => steps.push(Step::End { client }),
            Stage::Ended => {}
        }
        for node in 0..NODES {
            if stage == Stage::Asking {
                steps.push(Step::Acquire {
                    client,
                    node,
                    heard: true,
                });
            }
            if self.crashes > 0 {
                steps.push(Step::Acquire {
                    client,
                    node,
                    heard: false,
                });
            }
        }
    }

    fn node_steps(&self, state: &State, node: usize, steps: &mut Vec<Step>) {
        let it = &state.nodes[node];
        steps.push(Step::Expire { node });
        if self.crashes > 0 {
            steps.push(Step::Sync { node });
        }
        if state.crashes < self.crashes {
            steps.push(Step::Crash { node });
            if self.variant == Variant::RestoredBackup {
                steps.push(Step::Restore { node });
            }
        }
        let lost = state.nodes.iter().filter(|node| node.lost).count();
        if !it.lost && lost < self.losses {
            steps.push(Step::Lose { node });
        }
        steps.push(Step::AdmitKept { node });
        steps.push(Step::AdmitWaited { node });
        for look in 0..self.looks {
            steps.push(Step::Mark { look, node });
            steps.push(Step::AdmitFresh { look, node });
        }
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin { client } => {
                state.clients[client] = Client {
                    stage: Stage::Asking,
                    token: client as Token + 1,
                    before: state.highest_given(),
                    acquired: false,
                };
            }
            Step::Acquire {
                client,
                node,
                heard,
            } => self.acquire(state, client, node, heard),
            Step::Hold { client } => hold(state, client),
            Step::End { client } => state.clients[client].stage = Stage::Ended,
            Step::Expire { node } => expire(state, node),
            Step::Sync { node } => state.nodes[node].sync(),
            Step::Crash { node } => {
                state.nodes[node].restart();
                state.crashes += 1;
            }
            Step::Restore { node } => {
                let it = &mut state.nodes[node];
                (it.disk.lock, it.disk.fence) = (None, 0);
                it.restart();
                state.crashes += 1;
            }
            Step::Lose { node } => {
                let it = &mut state.nodes[node];
                (it.memory, it.disk, it.waits_for) = (Keys::default(), Keys::default(), 0);
                it.lost = true;
            }
            Step::Mark { look, node } => self.mark(state, look, node),
            Step::AdmitKept { node } => admit_kept(state, node),
            Step::AdmitFresh { look, node } => self.admit_fresh(state, look, node),
            Step::AdmitWaited { node } => self.admit_waited(state, node),
        }
    }

    /// `acquire.lua`
    fn acquire(&self, state: &mut State, client: usize, node: usize, heard: bool) {
        let (owner, token) = (client as u8, state.clients[client].token);
        let node = &mut state.nodes[node];
        let keys = &mut node.memory;
        if keys.generation != Generation::Current || keys.lock.is_some_and(|held| held != owner) {
            return;
        }
        let again = keys.lock == Some(owner) && keys.fence == token;
        if keys.fence >= token && !again {
            return;
        }
        (keys.fence, keys.lock) = (token, Some(owner));
        if heard {
            node.heard |= 1 << client;
        }
        if heard && self.variant != Variant::AnswerBeforeDisk || self.crashes == 0 {
            node.sync();
        }
    }

    /// `watch.lua`
    fn mark(&self, state: &mut State, look: u8, node: usize) {
        let live = state.live();
        let node = &mut state.nodes[node];
        let is_repeated = node.asked & (1 << look) != 0;
        if is_repeated && self.variant != Variant::MarkIsRepeated {
            return;
        }
        node.asked |= 1 << look;
        if node.memory.generation == Generation::Current {
            return;
        }
        let fresh = match node.memory.watch {
            Watch::None => node.is_blank(),
            Watch::By(_) => self.variant == Variant::MarksOfOthersCount && node.is_blank(),
            Watch::Stale => false,
        };
        if !matches!(node.memory.watch, Watch::By(_)) {
            node.memory.watch = Watch::By(look);
            node.waits_for = live;
        }
        if fresh {
            node.found_blank |= 1 << look;
        }
        node.sync();
    }

    fn admit_fresh(&self, state: &mut State, look: u8, node: usize) {
        let found_blank = |node: &&Node| node.found_blank & (1 << look) != 0;
        let needed = match self.variant {
            Variant::BlankVotesAlone => 0,
            Variant::QuorumIsFresh => QUORUM,
            _ => NODES,
        };
        if state.nodes.iter().filter(found_blank).count() < needed {
            return;
        }
        let node = &mut state.nodes[node];
        let marked = match (self.variant, node.memory.watch) {
            (Variant::AdmissionIgnoresMark, _) => node.is_blank(),
            (Variant::MarksOfOthersCount, Watch::By(_)) => true,
            (_, Watch::By(marked)) => marked == look,
            _ => false,
        };
        if marked && node.is_blank() {
            admit(node, 0);
            state.started_fresh = true;
        }
    }

    fn admit_waited(&self, state: &mut State, node: usize) {
        let is_over = state.live() & state.nodes[node].waits_for == 0;
        if !is_over || !matches!(state.nodes[node].memory.watch, Watch::By(_)) {
            return;
        }
        for peer in &mut state.nodes {
            peer.sync();
            if self.variant != Variant::LookOutlivesLease {
                peer.asked = (1 << LOOKS) - 1;
            }
        }
        let floor = state.nodes.iter().map(|peer| peer.memory.fence).max();
        state.waited |= state.nodes[node].lost;
        admit(&mut state.nodes[node], floor.unwrap_or(0));
    }
}

fn hold(state: &mut State, client: usize) {
    state.two_hold |= state.is_held();
    let it = &mut state.clients[client];
    (it.stage, it.acquired) = (Stage::Holding, true);
    state.fell |= it.token <= it.before;
}

fn expire(state: &mut State, node: usize) {
    let clients = state.clients;
    let has_ended = |owner: u8| clients[usize::from(owner)].stage == Stage::Ended;
    let node = &mut state.nodes[node];
    for keys in [&mut node.memory, &mut node.disk] {
        keys.lock = keys.lock.filter(|owner| !has_ended(*owner));
    }
}

/// `admit.lua`
fn admit(node: &mut Node, floor: Token) {
    let keys = &mut node.memory;
    keys.fence = keys.fence.max(floor);
    (keys.generation, keys.watch) = (Generation::Current, Watch::None);
    node.waits_for = 0;
    node.sync();
}

fn admit_kept(state: &mut State, node: usize) {
    let is_held = state.is_held();
    let node = &mut state.nodes[node];
    if node.memory.generation == Generation::Earlier {
        admit(node, 0);
        state.kept_under_lease |= is_held;
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        assert!(usize::from(self.looks) <= LOOKS);
        let mut state = State::default();
        if self.vote_at_first {
            state.nodes.iter_mut().for_each(|node| admit(node, 0));
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.two_hold || state.fell {
            return;
        }
        for client in 0..CLIENTS {
            self.client_steps(state, client, steps);
        }
        for node in 0..NODES {
            self.node_steps(state, node, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        self.take(&mut next, step);
        next.nodes.sort_unstable();
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSIVE, |_, state: &State| !state.two_hold),
            // Tokens begin again if no node is left that remembers them.
            Property::always(RISING, |protocol: &Self, state: &State| {
                protocol.losses > NODES - QUORUM || !state.fell
            }),
            Property::sometimes("every acquisition completes", |_, state: &State| {
                state.clients.iter().all(|client| client.acquired)
            }),
            Property::sometimes(
                "new nodes vote without waiting",
                |protocol: &Self, state: &State| protocol.vote_at_first || state.started_fresh,
            ),
            Property::sometimes(
                "a restarted node votes while a lease lasts",
                |protocol: &Self, state: &State| protocol.crashes == 0 || state.kept_under_lease,
            ),
            Property::sometimes(
                "a node that lost its memory votes after waiting",
                |protocol: &Self, state: &State| protocol.losses == 0 || state.waited,
            ),
        ]
    }
}
