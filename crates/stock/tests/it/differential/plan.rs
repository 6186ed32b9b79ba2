//! What is tried: sequences of steps without times and ids, which only the playing of them knows.

use proptest::{
    collection::vec,
    prelude::{BoxedStrategy, Just, Strategy, any},
    prop_oneof,
};

pub const ORDERS: u8 = 8;
pub const BUYERS: u8 = 3;
pub const SEGMENTS: u8 = 3;

/// An item and what happens to it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Units of each segment that is opened at first; `None`: it is missing.
    pub opened: [Option<u8>; SEGMENTS as usize],
    pub limit: u8,
    /// The only segment that opens as an item's only one.
    pub alone: Option<u8>,
    /// Near which number most tokens are.
    pub tokens_from: u64,
    pub steps: Vec<Step>,
}

/// A deadline.
#[derive(Debug, Clone, Copy)]
pub enum When {
    Over,
    /// Over before the sequence is.
    Soon,
    Later(u8),
}

/// How long a final spillover is remembered.
#[derive(Debug, Clone, Copy)]
pub enum Margin {
    None,
    Long,
    /// So far below zero that a spillover falls due when it becomes final, without a wait for its
    /// deadline.
    AtOnce,
}

/// An order, and whether it asks for another quantity than it should.
#[derive(Debug, Clone, Copy)]
pub struct Pick {
    pub order: u8,
    pub other_units: bool,
}

impl Pick {
    /// The order, for the quantity that it should have.
    pub fn of(order: u8) -> Self {
        Self {
            order,
            other_units: false,
        }
    }
}

/// How a spillover ends, and in which round.
#[derive(Debug, Clone, Copy)]
pub enum End {
    SoldOut(u8),
    GivenUp(u8),
    Elsewhere,
}

/// How what is said of a spillover differs from what the segment has of it.
#[derive(Debug, Clone, Copy)]
pub enum Knows {
    Earlier,
    Exactly,
    Later,
}

/// A fencing token.
#[derive(Debug, Clone, Copy)]
pub enum Token {
    /// So far behind where the plan's tokens begin.
    Usual(u8),
    Any(u64),
}

/// What is restored for an order.
#[derive(Debug, Clone, Copy)]
pub enum Memory {
    Taken,
    Elsewhere,
    Released,
}

#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub state: &'static str,
    pub epoch: u8,
    pub limit: u8,
    pub window: Window,
}

#[derive(Debug, Clone, Copy)]
pub enum Window {
    Always,
    Now,
    NotYet,
    Over,
}

/// One thing that happens. Some are several calls, as the crate makes them.
#[derive(Debug, Clone)]
pub enum Step {
    /// At the home of the first of them, or wherever it says.
    ReserveHome {
        segment: Option<u8>,
        picks: Vec<Pick>,
        when: When,
        margin: Margin,
    },
    ReserveNext {
        segment: u8,
        picks: Vec<Pick>,
        when: When,
    },
    /// At the home of the first of them, or wherever it says.
    ReserveAgain {
        segment: Option<u8>,
        picks: Vec<Pick>,
        round: u8,
        when: When,
        margin: Margin,
    },
    /// Home, then around the ring, then home again; or less of it.
    Spillover {
        order: u8,
        when: When,
        margin: Margin,
        calls: u8,
    },
    Finish {
        segment: u8,
        spillovers: Vec<(Pick, End)>,
        when: When,
        margin: Margin,
    },
    /// At its home, or wherever it says.
    Reopen {
        segment: Option<u8>,
        pick: Pick,
        when: When,
    },
    /// Home declines, gives up, and reopens the order or forgets it.
    GiveUp {
        order: u8,
        when: When,
        margin: Margin,
        reopens: bool,
    },
    DueSpillovers {
        segment: u8,
        at_most: u8,
        skip: u8,
    },
    ForgetDeclined {
        segment: u8,
        picks: Vec<Pick>,
        knows: Knows,
    },
    ForgetSpillover {
        segment: u8,
        picks: Vec<Pick>,
        knows: Knows,
    },
    /// As the worker does it: the others forget, then home does.
    Forget {
        order: u8,
    },
    ReleaseCount {
        segment: u8,
        picks: Vec<Pick>,
        margin: Margin,
    },
    Release {
        segment: u8,
        picks: Vec<Pick>,
    },
    /// The count at home, then the units where they are; or only the first of it.
    ReturnOrder {
        order: u8,
        margin: Margin,
        crash: bool,
    },
    TransferOut {
        segment: u8,
        transfer: u8,
        units: u8,
        token: Token,
    },
    TransferIn {
        segment: u8,
        transfer: u8,
        units: u8,
        token: Token,
    },
    SettleTransfers {
        segment: u8,
        looked_at_left: bool,
    },
    /// With whether the ledger says that the order has its units.
    CheckHome {
        segment: u8,
        picks: Vec<(Pick, bool)>,
        is_other: bool,
    },
    MarkChecked {
        segment: u8,
        token: Token,
        is_other: bool,
    },
    SetState {
        segment: u8,
        setting: Setting,
    },
    Halt {
        segment: u8,
        token: Token,
        drop: bool,
    },
    RestoreDecisions {
        segment: u8,
        memories: Vec<(Pick, Memory)>,
        margin: Margin,
        token: Option<Token>,
    },
    RestoreBuyers {
        segment: u8,
        counts: Vec<(u8, bool, u8)>,
        token: Option<Token>,
    },
    /// With the token of the repairer and its last entry, unless it says otherwise.
    Adjust {
        segment: u8,
        available: u8,
        setting: Setting,
        token: Option<Token>,
        looked_at_last: bool,
    },
    /// All of it at once: halted, released what it has to remember of orders at home there, and
    /// adjusted; perhaps after a loss.
    Repair {
        segment: u8,
        lost: bool,
        memories: Vec<(u8, Memory)>,
        margin: Margin,
        available: u8,
        setting: Setting,
    },
    Open {
        segment: u8,
        units: u8,
        setting: Setting,
    },
    Inspect {
        segment: u8,
        from: u8,
        at_most: u8,
    },
    /// A call that was made before is made again, as it was.
    Again {
        back: u8,
    },
    /// All keys of the segment are gone.
    Lose {
        segment: u8,
    },
    /// Until every deadline that was soon is over.
    Wait,
}

fn segment() -> impl Strategy<Value = u8> {
    0..SEGMENTS
}

fn pick() -> impl Strategy<Value = Pick> {
    (0..ORDERS, prop_oneof![9 => Just(false), 1 => Just(true)])
        .prop_map(|(order, other_units)| Pick { order, other_units })
}

fn picks() -> impl Strategy<Value = Vec<Pick>> {
    vec(pick(), 1..=3)
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![16 => (0..4_u8).prop_map(When::Later), 3 => Just(When::Soon), 1 => Just(When::Over)]
}

fn margin() -> impl Strategy<Value = Margin> {
    prop_oneof![Just(Margin::AtOnce), Just(Margin::None), Just(Margin::Long)]
}

fn knows() -> impl Strategy<Value = Knows> {
    prop_oneof![3 => Just(Knows::Exactly), 1 => Just(Knows::Earlier), 1 => Just(Knows::Later)]
}

/// Where the tokens of a sequence are: where they become longer, and where a double cannot tell
/// them apart.
fn tokens_from() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(1), 3 => Just(8), 2 => Just(98), 2 => Just((1 << 53) - 1), 1 => Just(u64::MAX - 4)]
}

fn token() -> impl Strategy<Value = Token> {
    prop_oneof![12 => (0..4_u8).prop_map(Token::Usual), 1 => tokens_from().prop_map(Token::Any)]
}

fn setting() -> impl Strategy<Value = Setting> {
    let state = prop_oneof![6 => Just("open"), 1 => Just("paused"), 1 => Just("closed")];
    let window = prop_oneof![5 => Just(Window::Always), 2 => Just(Window::Now), 1 => Just(Window::NotYet), 1 => Just(Window::Over)];
    (state, 0..12_u8, 0..5_u8, window).prop_map(|(state, epoch, limit, window)| Setting {
        state,
        epoch,
        limit,
        window,
    })
}

/// Mostly that of the repairer.
fn other_token() -> impl Strategy<Value = Option<Token>> {
    prop_oneof![7 => Just(None), 1 => token().prop_map(Some)]
}

fn reservations() -> BoxedStrategy<Step> {
    let home = || prop_oneof![3 => Just(None), 1 => segment().prop_map(Some)];
    prop_oneof![
        3 => (home(), picks(), 1..=2_u8, when(), margin()).prop_map(|(segment, picks, round, when, margin)| Step::ReserveAgain { segment, picks, round, when, margin }),
        3 => (home(), picks(), when(), margin()).prop_map(|(segment, picks, when, margin)| Step::ReserveHome { segment, picks, when, margin }),
        2 => (segment(), picks(), when()).prop_map(|(segment, picks, when)| Step::ReserveNext { segment, picks, when }),
        6 => (0..ORDERS, when(), margin(), 1..=5_u8).prop_map(|(order, when, margin, calls)| Step::Spillover { order, when, margin, calls }),
    ]
    .boxed()
}

fn ends() -> BoxedStrategy<Step> {
    let round = || prop_oneof![2 => Just(0), 1 => 1..=2_u8];
    let end = prop_oneof![
        2 => round().prop_map(End::SoldOut),
        1 => round().prop_map(End::GivenUp),
        2 => Just(End::Elsewhere)
    ];
    let spillovers = vec((pick(), end), 1..=2);
    let home = prop_oneof![7 => Just(None), 1 => segment().prop_map(Some)];
    prop_oneof![
        2 => (home, pick(), when()).prop_map(|(segment, pick, when)| Step::Reopen { segment, pick, when }),
        1 => (0..ORDERS, when(), margin(), any::<bool>()).prop_map(|(order, when, margin, reopens)| Step::GiveUp { order, when, margin, reopens }),
        2 => (segment(), spillovers, when(), margin()).prop_map(|(segment, spillovers, when, margin)| Step::Finish { segment, spillovers, when, margin }),
        1 => (segment(), 0..4_u8, 0..2_u8).prop_map(|(segment, at_most, skip)| Step::DueSpillovers { segment, at_most, skip }),
        1 => (segment(), picks(), knows()).prop_map(|(segment, picks, knows)| Step::ForgetDeclined { segment, picks, knows }),
        1 => (segment(), picks(), knows()).prop_map(|(segment, picks, knows)| Step::ForgetSpillover { segment, picks, knows }),
        2 => (0..ORDERS).prop_map(|order| Step::Forget { order }),
    ]
    .boxed()
}

fn returns() -> BoxedStrategy<Step> {
    let crash = prop_oneof![4 => Just(false), 1 => Just(true)];
    prop_oneof![
        1 => (segment(), picks(), margin()).prop_map(|(segment, picks, margin)| Step::ReleaseCount { segment, picks, margin }),
        1 => (segment(), picks()).prop_map(|(segment, picks)| Step::Release { segment, picks }),
        3 => (0..ORDERS, margin(), crash).prop_map(|(order, margin, crash)| Step::ReturnOrder { order, margin, crash }),
    ]
    .boxed()
}

fn transfers() -> BoxedStrategy<Step> {
    let moved = || (segment(), 0..4_u8, 0..4_u8, token());
    prop_oneof![
        moved().prop_map(|(segment, transfer, units, token)| Step::TransferOut {
            segment,
            transfer,
            units,
            token
        }),
        moved().prop_map(|(segment, transfer, units, token)| Step::TransferIn {
            segment,
            transfer,
            units,
            token
        }),
        (segment(), any::<bool>()).prop_map(|(segment, looked_at_left)| Step::SettleTransfers {
            segment,
            looked_at_left
        }),
    ]
    .boxed()
}

fn memory() -> impl Strategy<Value = Memory> {
    prop_oneof![
        Just(Memory::Taken),
        Just(Memory::Elsewhere),
        Just(Memory::Released)
    ]
}

fn repair() -> impl Strategy<Value = Step> {
    let lost = prop_oneof![2 => Just(false), 1 => Just(true)];
    (
        segment(),
        lost,
        vec((0..ORDERS / BUYERS, memory()), 0..=3),
        margin(),
        0..6_u8,
        setting(),
    )
        .prop_map(
            |(segment, lost, memories, margin, available, setting)| Step::Repair {
                segment,
                lost,
                memories,
                margin,
                available,
                setting,
            },
        )
}

fn repairing() -> BoxedStrategy<Step> {
    let memories = (
        segment(),
        vec((pick(), memory()), 0..=3),
        margin(),
        other_token(),
    );
    let counts = (
        segment(),
        vec((0..BUYERS, any::<bool>(), 0..4_u8), 0..=3),
        other_token(),
    );
    let looked = prop_oneof![4 => Just(true), 1 => Just(false)];
    prop_oneof![
        4 => repair(),
        2 => (segment(), token(), prop_oneof![3 => Just(false), 1 => Just(true)]).prop_map(|(segment, token, drop)| Step::Halt { segment, token, drop }),
        2 => memories.prop_map(|(segment, memories, margin, token)| Step::RestoreDecisions { segment, memories, margin, token }),
        1 => counts.prop_map(|(segment, counts, token)| Step::RestoreBuyers { segment, counts, token }),
        5 => (segment(), 0..6_u8, setting(), other_token(), looked).prop_map(|(segment, available, setting, token, looked_at_last)| {
            Step::Adjust { segment, available, setting, token, looked_at_last }
        }),
    ]
    .boxed()
}

fn is_other() -> impl Strategy<Value = bool> {
    prop_oneof![3 => Just(false), 1 => Just(true)]
}

fn others() -> BoxedStrategy<Step> {
    prop_oneof![
        4 => (segment(), setting()).prop_map(|(segment, setting)| Step::SetState { segment, setting }),
        2 => (segment(), 0..6_u8, setting()).prop_map(|(segment, units, setting)| Step::Open { segment, units, setting }),
        2 => (segment(), 0..3_u8, 1..6_u8).prop_map(|(segment, from, at_most)| Step::Inspect { segment, from, at_most }),
        2 => (segment(), vec((pick(), any::<bool>()), 1..=3), is_other()).prop_map(|(segment, picks, is_other)| Step::CheckHome { segment, picks, is_other }),
        2 => (segment(), token(), is_other()).prop_map(|(segment, token, is_other)| Step::MarkChecked { segment, token, is_other }),
        1 => segment().prop_map(|segment| Step::Lose { segment }),
        1 => Just(Step::Wait),
    ]
    .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => reservations(),
        4 => ends(),
        4 => returns(),
        3 => transfers(),
        3 => repairing(),
        2 => others(),
        4 => (0..16_u8).prop_map(|back| Step::Again { back }),
    ]
}

/// Any plan.
pub fn plan() -> impl Strategy<Value = Plan> {
    let units = || prop_oneof![9 => (0..7_u8).prop_map(Some), 1 => Just(None)];
    let alone = prop_oneof![3 => Just(None), 1 => segment().prop_map(Some)];
    (
        [units(), units(), units()],
        0..6_u8,
        alone,
        tokens_from(),
        vec(step(), 1..=48),
    )
        .prop_map(|(opened, limit, alone, tokens_from, steps)| Plan {
            opened,
            limit,
            alone,
            tokens_from,
            steps,
        })
}
