//! The checks of a store: each weaker check lets a write through, and the row shows it.
//!
//! Two holders, 33 and then 34, each on its own connection. The lock of 33 ends while 33 is paused,
//! so only the check at the row can stop its write. Each holder reads the row and writes it back
//! with its number appended. The value therefore shows who wrote, in which order, and on which
//! state.

use lock::store::{Claim, Write};
use testkit_macros::tested;

use super::env::{KEY, Row, Session, TestEnv, token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    None,
    Fence,
    Version,
    /// The check of [`lock::store`].
    FenceClaimAndVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// 34 is done when the write of 33 arrives.
    StaleWrite,
    /// Both pause after their reads. Both writes arrive late, but in order.
    InOrderPuzzle,
    /// 34 is done when 33 resumes, reads the latest row and writes.
    ZombieReread,
}

/// Effect on the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Stopped,
    /// A write was overwritten by a holder that had not read it.
    LostUpdate,
    /// A stale holder has written after its successor.
    ZombieWrite,
}

use Outcome::{LostUpdate, Stopped, ZombieWrite};
use Scenario::{InOrderPuzzle, StaleWrite, ZombieReread};

#[tested(on_every_database)]
async fn without_a_check_every_late_write_gets_through(env: TestEnv) {
    assert_table(
        &env,
        Check::None,
        [
            (StaleWrite, LostUpdate, " 33"),
            (InOrderPuzzle, LostUpdate, " 34"),
            (ZombieReread, ZombieWrite, " 34 33"),
        ],
    )
    .await;
}

#[tested(on_every_database)]
async fn the_fence_alone_loses_an_update_when_late_writes_arrive_in_order(env: TestEnv) {
    let table = [
        (StaleWrite, Stopped, " 34"),
        (InOrderPuzzle, LostUpdate, " 34"),
        (ZombieReread, Stopped, " 34"),
    ];
    assert_table(&env, Check::Fence, table).await;
}

#[tested(on_every_database)]
async fn the_version_alone_admits_a_zombie_that_reads_again(env: TestEnv) {
    let table = [
        (StaleWrite, Stopped, " 34"),
        (InOrderPuzzle, Stopped, " 33"),
        (ZombieReread, ZombieWrite, " 34 33"),
    ];
    assert_table(&env, Check::Version, table).await;
}

#[tested(on_every_database)]
async fn claim_by_fence_then_write_with_version_and_fence_lets_nothing_through(env: TestEnv) {
    let table = [
        (StaleWrite, Stopped, " 34"),
        (InOrderPuzzle, Stopped, " 34"),
        (ZombieReread, Stopped, " 34"),
    ];
    assert_table(&env, Check::FenceClaimAndVersion, table).await;
}

async fn assert_table(env: &TestEnv, check: Check, table: [(Scenario, Outcome, &str); 3]) {
    for (scenario, outcome, value) in table {
        env.session().await.put("", 0, 0).await;
        let history = play(env, check, scenario).await;
        assert_eq!(
            judge(&history),
            outcome,
            "{check:?}, {scenario:?}: {history:?}"
        );
        assert_eq!(history.last().unwrap(), value, "{check:?}, {scenario:?}");
    }
}

/// Value of the row after each write that was sent.
async fn play(env: &TestEnv, check: Check, scenario: Scenario) -> Vec<String> {
    let mut first = Holder::new(env, 33, check).await;
    let mut second = Holder::new(env, 34, check).await;
    let mut history = Vec::new();
    first.start().await;
    second.start().await;
    match scenario {
        StaleWrite => {
            history.push(second.write().await);
            history.push(first.write().await);
        }
        InOrderPuzzle => {
            history.push(first.write().await);
            history.push(second.write().await);
        }
        ZombieReread => {
            history.push(second.write().await);
            first.read_again().await;
            history.push(first.write().await);
        }
    }
    history
}

/// Judges by the row alone, not by the outcomes that the holders got.
fn judge(history: &[String]) -> Outcome {
    let lost = history
        .windows(2)
        .any(|pair| !pair[1].starts_with(&pair[0]));
    let zombie = history.iter().any(|value| value.contains("34 33"));
    match (lost, zombie) {
        (true, _) => LostUpdate,
        (false, true) => ZombieWrite,
        (false, false) => Stopped,
    }
}

struct Holder<'a> {
    env: &'a TestEnv,
    session: Box<dyn Session>,
    number: i64,
    check: Check,
    seen: Row,
}

impl<'a> Holder<'a> {
    async fn new(env: &'a TestEnv, number: i64, check: Check) -> Self {
        let mut session = env.session().await;
        let seen = session.row().await;
        Self {
            env,
            session,
            number,
            check,
            seen,
        }
    }

    /// Claims if the check requires it, and reads.
    async fn start(&mut self) {
        if self.check == Check::FenceClaimAndVersion {
            let claim = self.session.claims(self.env, self.number).await;
            assert!(matches!(claim, Claim::Claimed { .. }), "{claim:?}");
        }
        self.seen = self.session.row().await;
    }

    /// A zombie that follows the rules claims again and is refused. This one continues with the
    /// version in the row.
    async fn read_again(&mut self) {
        if self.check == Check::FenceClaimAndVersion {
            let claim = self.session.claims(self.env, self.number).await;
            assert_eq!(claim, Claim::Superseded { current: token(34) });
        }
        self.seen = self.session.row().await;
    }

    /// Writes the last read value with the number appended. Returns the value in the row
    /// afterwards.
    async fn write(&mut self) -> String {
        let Self { number, seen, .. } = self;
        let (value, version) = (format!("{} {number}", seen.value), seen.version);
        let applied = match self.check {
            Check::None => {
                self.session
                    .run(format!(
                        "UPDATE items SET value = '{value}' WHERE id = {KEY}"
                    ))
                    .await
            }
            Check::Fence => {
                let condition = format!("id = {KEY} AND fence <= {number}");
                self.session
                    .run(format!(
                        "UPDATE items SET value = '{value}', fence = {number} WHERE {condition}"
                    ))
                    .await
            }
            Check::Version => {
                let condition = format!("id = {KEY} AND version = {version}");
                self.session.run(format!("UPDATE items SET value = '{value}', version = version + 1 WHERE {condition}")).await
            }
            Check::FenceClaimAndVersion => {
                let outcome = self
                    .session
                    .writes(self.env, self.number, version, &value)
                    .await;
                let stopped = Write::Superseded { current: token(34) };
                assert!(
                    matches!(outcome, Write::Applied { .. }) || outcome == stopped,
                    "{outcome:?}"
                );
                u64::from(outcome != stopped)
            }
        };
        let now = self.env.row().await.value;
        assert_eq!(
            now == value,
            applied == 1,
            "the reported outcome matches the row"
        );
        now
    }
}
