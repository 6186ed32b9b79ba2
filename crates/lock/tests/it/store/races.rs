//! What a store has to check: each weaker check lets something through, and each hole is shown in the row.
//!
//! Two holders, 33 and then 34, each on a connection of its own. The lock of 33 ends while it is paused, so all that keeps it from the row
//! is what the row checks. Each reads the row and writes it back with its number added, so the row says who wrote in which order, on what.

use lock::store::{Claim, Write};

use super::site::{KEY, Row, Session, Site, token};

on_every_database!(
    without_a_check_everything_gets_through,
    the_fence_alone_loses_an_update_that_is_late_but_in_order,
    the_version_alone_lets_a_zombie_in_that_reads_again,
    claim_by_fence_then_write_with_version_and_fence_lets_nothing_through,
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    None,
    Fence,
    Version,
    /// The kit.
    FenceClaimAndVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// 34 is done when the write of 33 arrives.
    StaleWrite,
    /// Both pause after they have read, and both arrive late, but in order.
    InOrderPuzzle,
    /// 34 is done when 33 wakes, reads the row as it is now, and writes.
    ZombieReread,
}

/// What became of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Stopped,
    /// What was in the row is no longer, because somebody wrote who had not seen it.
    LostUpdate,
    /// A stale holder has written after its successor.
    ZombieWrite,
}

use Outcome::{LostUpdate, Stopped, ZombieWrite};
use Scenario::{InOrderPuzzle, StaleWrite, ZombieReread};

async fn without_a_check_everything_gets_through(site: Site) {
    assert_table(
        &site,
        Check::None,
        [
            (StaleWrite, LostUpdate, " 33"),
            (InOrderPuzzle, LostUpdate, " 34"),
            (ZombieReread, ZombieWrite, " 34 33"),
        ],
    )
    .await;
}

async fn the_fence_alone_loses_an_update_that_is_late_but_in_order(site: Site) {
    let table = [
        (StaleWrite, Stopped, " 34"),
        (InOrderPuzzle, LostUpdate, " 34"),
        (ZombieReread, Stopped, " 34"),
    ];
    assert_table(&site, Check::Fence, table).await;
}

async fn the_version_alone_lets_a_zombie_in_that_reads_again(site: Site) {
    let table = [
        (StaleWrite, Stopped, " 34"),
        (InOrderPuzzle, Stopped, " 33"),
        (ZombieReread, ZombieWrite, " 34 33"),
    ];
    assert_table(&site, Check::Version, table).await;
}

async fn claim_by_fence_then_write_with_version_and_fence_lets_nothing_through(site: Site) {
    let table = [
        (StaleWrite, Stopped, " 34"),
        (InOrderPuzzle, Stopped, " 34"),
        (ZombieReread, Stopped, " 34"),
    ];
    assert_table(&site, Check::FenceClaimAndVersion, table).await;
}

async fn assert_table(site: &Site, check: Check, table: [(Scenario, Outcome, &str); 3]) {
    for (scenario, outcome, value) in table {
        site.session().await.put("", 0, 0).await;
        let history = play(site, check, scenario).await;
        assert_eq!(
            judge(&history),
            outcome,
            "{check:?}, {scenario:?}: {history:?}"
        );
        assert_eq!(history.last().unwrap(), value, "{check:?}, {scenario:?}");
    }
}

/// What stood in the row after each write that was sent.
async fn play(site: &Site, check: Check, scenario: Scenario) -> Vec<String> {
    let mut first = Holder::new(site, 33, check).await;
    let mut second = Holder::new(site, 34, check).await;
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

/// By the row alone, and not by what anybody was told.
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
    site: &'a Site,
    session: Box<dyn Session>,
    number: i64,
    check: Check,
    seen: Row,
}

impl<'a> Holder<'a> {
    async fn new(site: &'a Site, number: i64, check: Check) -> Self {
        let mut session = site.session().await;
        let seen = session.row().await;
        Self {
            site,
            session,
            number,
            check,
            seen,
        }
    }

    /// Claims if that is the rule, and reads.
    async fn start(&mut self) {
        if self.check == Check::FenceClaimAndVersion {
            let claim = self
                .session
                .claim(&self.site.items, KEY, token(self.number))
                .await
                .unwrap();
            assert!(matches!(claim, Claim::Claimed { .. }), "{claim:?}");
        }
        self.seen = self.session.row().await;
    }

    /// A zombie that follows the rules claims again, and is told. This one goes on all the same, with the version that stands there.
    async fn read_again(&mut self) {
        if self.check == Check::FenceClaimAndVersion {
            let claim = self
                .session
                .claim(&self.site.items, KEY, token(self.number))
                .await
                .unwrap();
            assert_eq!(claim, Claim::Superseded { current: token(34) });
        }
        self.seen = self.session.row().await;
    }

    /// Writes what was seen and the own number, and returns what stands there then.
    async fn write(&mut self) -> String {
        let Self { number, seen, .. } = self;
        let (value, version) = (format!("{} {number}", seen.value), seen.version);
        let told = match self.check {
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
                    .write(&self.site.items, KEY, token(self.number), version, &value)
                    .await
                    .unwrap();
                let stopped = Write::Superseded { current: token(34) };
                assert!(
                    matches!(outcome, Write::Applied { .. }) || outcome == stopped,
                    "{outcome:?}"
                );
                u64::from(outcome != stopped)
            }
        };
        let now = self.site.row().await.value;
        assert_eq!(
            now == value,
            told == 1,
            "what a holder is told is what has happened"
        );
        now
    }
}
