//! What can happen next: every message that was ever sent may be delivered, locks expire, clients
//! go on or do not.

use std::ops::RangeInclusive;

use stateright::{Model, Property};

use super::{
    properties, scripts,
    state::{CLIENTS, Client, NODES, QUORUM, Stage, State, Token},
};

/// How a client gets its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The protocol.
    Ballot,
    /// Every node counts; the token is the highest count of the quorum.
    NodeCounters,
    /// The lock first, then a number from a counter, which even is a perfect one.
    MintLater,
    /// The lock first, then one above the highest fence is written with `fence = max(fence,
    /// token)`.
    SecondRound,
    /// Every node counts; the token is read from a quorum after the lock.
    ReadLater,
}

/// The protocol, and how much of it is checked.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// How a client gets its token.
    pub way: Way,
    /// Acquisitions.
    pub clients: usize,
    /// Tokens that one acquisition may propose.
    pub proposals: u32,
    /// Whether holders extend.
    pub extends: bool,
    /// Whether a lock may expire.
    pub expires: bool,
    /// Whether one node may lose all it has, once, and go on voting.
    pub forgets: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client begins. It may have seen a token before, of whatever holder.
    Begin { client: usize, seen: Token },
    /// An acquire that was sent is delivered, perhaps again, and its answer heard or lost.
    Acquire {
        client: usize,
        token: Token,
        node: usize,
        heard: bool,
    },
    /// A question for the token is delivered and its answer heard (only in the wrong ways).
    Number { client: usize, node: usize },
    /// A client that has not reached a quorum proposes one above the highest fence that it has
    /// seen.
    Propose { client: usize },
    /// A client that has reached a quorum goes on.
    Proceed { client: usize },
    /// A client gives back, or up.
    Release { client: usize },
    /// An extend that was sent is delivered, perhaps again.
    Extend { client: usize, node: usize },
    /// A release that was sent is delivered, perhaps again.
    Free { client: usize, node: usize },
    /// A lock expires.
    Expire { node: usize },
    /// A node forgets.
    Forget { node: usize },
}

impl Protocol {
    fn client_steps(&self, state: &State, client: usize, steps: &mut Vec<Step>) {
        let it = state.clients[client];
        match it.stage {
            Stage::Idle => {
                return steps.extend(self.seen().map(|seen| Step::Begin { client, seen }));
            }
            Stage::Asking | Stage::Numbering => {
                if self.answers(state, client) >= QUORUM {
                    steps.push(Step::Proceed { client });
                }
                if self.may_propose(it) {
                    steps.push(Step::Propose { client });
                }
                steps.push(Step::Release { client });
            }
            Stage::Holding => steps.push(Step::Release { client }),
            Stage::Over => {}
        }
        for node in 0..NODES {
            self.deliveries(it, client, node, steps);
        }
    }

    /// Only the ballot proposes.
    fn seen(&self) -> RangeInclusive<Token> {
        0..=if self.way == Way::Ballot {
            self.clients as Token - 1
        } else {
            0
        }
    }

    fn may_propose(&self, client: Client) -> bool {
        self.way == Way::Ballot
            && client.told >= client.token
            && client.proposed.count_ones() < self.proposals
    }

    fn deliveries(&self, it: Client, client: usize, node: usize, steps: &mut Vec<Step>) {
        for token in (0..8).filter(|token| it.proposed & (1 << token) != 0) {
            steps.push(Step::Acquire {
                client,
                token,
                node,
                heard: false,
            });
            if it.stage == Stage::Asking && token == it.token {
                steps.push(Step::Acquire {
                    client,
                    token,
                    node,
                    heard: true,
                });
            }
        }
        if it.stage == Stage::Numbering && matches!(self.way, Way::SecondRound | Way::ReadLater) {
            steps.push(Step::Number { client, node });
        }
        if self.extends && it.acquired {
            steps.push(Step::Extend { client, node });
        }
        if it.released {
            steps.push(Step::Free { client, node });
        }
    }

    fn answers(&self, state: &State, client: usize) -> usize {
        let minting = self.way == Way::MintLater && state.clients[client].stage == Stage::Numbering;
        if minting {
            QUORUM
        } else {
            state
                .nodes
                .iter()
                .filter(|node| node.heard[client].is_some())
                .count()
        }
    }

    fn begin(&self, state: &mut State, client: usize, seen: Token) {
        // The wrong ways ask for the lock under no token.
        let token = if self.way == Way::Ballot { seen + 1 } else { 0 };
        state.clients[client] = Client {
            stage: Stage::Asking,
            token,
            proposed: 1 << token,
            before: state.highest_given(),
            ..Client::default()
        };
    }

    fn acquire(&self, state: &mut State, client: usize, token: Token, node: usize, heard: bool) {
        let owner = client as u8;
        let at = &mut state.nodes[node];
        let answer = match self.way {
            Way::Ballot => scripts::acquire(at, owner, token),
            Way::MintLater | Way::SecondRound => scripts::lock_only(at, owner),
            Way::NodeCounters | Way::ReadLater => scripts::lock_and_count(at, owner),
        };
        match answer {
            _ if !heard => {}
            Ok(fence) => at.heard[client] = Some(fence),
            Err(fence) => {
                state.clients[client].told = state.clients[client].told.max(fence.unwrap_or(0))
            }
        }
    }

    fn number(&self, state: &mut State, client: usize, node: usize) {
        let at = &mut state.nodes[node];
        let answer = match self.way {
            Way::SecondRound => scripts::raise_fence(at, client as u8, state.clients[client].token),
            _ => Ok(at.fence),
        };
        if let Ok(fence) = answer {
            at.heard[client] = Some(fence);
        }
    }

    fn propose(&self, state: &mut State, client: usize) {
        forget_answers(state, client);
        let it = &mut state.clients[client];
        it.token = it.told + 1;
        it.proposed |= 1 << it.token;
    }

    fn proceed(&self, state: &mut State, client: usize) {
        let highest = state
            .nodes
            .iter()
            .filter_map(|node| node.heard[client])
            .max()
            .unwrap_or(0);
        forget_answers(state, client);
        let first = state.clients[client].stage == Stage::Asking;
        match self.way {
            Way::Ballot => self.complete(state, client, state.clients[client].token),
            Way::NodeCounters => self.complete(state, client, highest),
            Way::SecondRound if first => {
                state.clients[client].stage = Stage::Numbering;
                state.clients[client].token = highest + 1;
            }
            Way::MintLater | Way::ReadLater if first => {
                state.clients[client].stage = Stage::Numbering
            }
            Way::SecondRound => self.complete(state, client, state.clients[client].token),
            Way::ReadLater => self.complete(state, client, highest),
            Way::MintLater => {
                state.minted += 1;
                self.complete(state, client, state.minted);
            }
        }
    }

    fn complete(&self, state: &mut State, client: usize, token: Token) {
        for other in (0..self.clients).filter(|other| *other != client) {
            let held = state.clients[other];
            state.repeated |= held.acquired && held.token == token;
            state.overruled |= held.stage == Stage::Holding
                && held.token < token
                && state.locks_of(other) >= QUORUM;
        }
        let it = &mut state.clients[client];
        state.fell |= token <= it.before;
        (it.stage, it.token, it.acquired) = (Stage::Holding, token, true);
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin { client, seen } => self.begin(state, client, seen),
            Step::Acquire {
                client,
                token,
                node,
                heard,
            } => self.acquire(state, client, token, node, heard),
            Step::Number { client, node } => self.number(state, client, node),
            Step::Propose { client } => self.propose(state, client),
            Step::Proceed { client } => self.proceed(state, client),
            Step::Release { client } => {
                forget_answers(state, client);
                state.clients[client].stage = Stage::Over;
                state.clients[client].released = true;
            }
            Step::Extend { client, node } => scripts::extend(
                &mut state.nodes[node],
                client as u8,
                state.clients[client].token,
            ),
            Step::Free { client, node } => scripts::release(&mut state.nodes[node], client as u8),
            Step::Expire { node } => state.nodes[node].lock = None,
            Step::Forget { node } => {
                (state.nodes[node].lock, state.nodes[node].fence) = (None, 0);
                state.forgot = true;
            }
        }
    }
}

fn forget_answers(state: &mut State, client: usize) {
    for node in &mut state.nodes {
        node.heard[client] = None;
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        assert!(self.clients <= CLIENTS);
        vec![State::default()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.repeated || state.fell || state.overruled {
            return;
        }
        for client in 0..self.clients {
            self.client_steps(state, client, steps);
        }
        for node in 0..NODES {
            if self.expires && state.nodes[node].lock.is_some() {
                steps.push(Step::Expire { node });
            }
            if self.forgets && !state.forgot {
                steps.push(Step::Forget { node });
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        self.take(&mut next, step);
        next.nodes.sort_unstable();
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
