//! Fenced tables under a faulty lock: the same token for two holders, and a token below an earlier
//! one.

use lock::{
    FencingToken,
    store::{Claim, Write},
};
use testkit_macros::tested;

use super::env::{KEY, Row, Session, TestEnv, applied, conflict, token};

/// With equal tokens the fence cannot tell the holders apart. The version can, because the second
/// claim has raised it.
#[tested(on_every_database)]
async fn a_late_write_is_refused_once_another_holder_of_the_token_has_claimed(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let before = first.claimed(&env, 33).await;
    let after = second.claimed(&env, 33).await;
    let late = first.writes(&env, 33, before, "first").await;
    assert_eq!(
        (late, env.row().await.value),
        (conflict(after), String::new())
    );
    assert_eq!(
        second.writes(&env, 33, after, "second").await,
        applied(after + 1)
    );
    assert_eq!(
        first.writes(&env, 33, before, "first").await,
        conflict(after + 1)
    );
    assert_eq!(env.row().await.value, "second");
}

/// Two holders of one token can only take turns: a holder that claims again must read what the
/// other wrote, and the other gets a conflict.
#[tested(on_every_database)]
async fn two_holders_of_one_token_take_turns_and_lose_nothing(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    for turn in 0..3 {
        let overtaken = second.claimed(&env, 33).await;
        let version = first.claimed(&env, 33).await;
        let seen = first.row().await.value;
        assert_eq!(
            first.writes(&env, 33, version, &format!("{seen}1")).await,
            applied(version + 1)
        );
        let late = second.writes(&env, 33, overtaken, "lost").await;
        assert_eq!(late, conflict(version + 1), "turn {turn}");
        let version = second.claimed(&env, 33).await;
        let seen = second.row().await.value;
        let outcome = second.writes(&env, 33, version, &format!("{seen}2")).await;
        assert_eq!(outcome, applied(version + 1));
    }
    assert_eq!(env.row().await.value, "121212");
}

/// The rightful holder is stopped, which is safe, and learns the token to start above.
#[tested(on_every_database)]
async fn a_token_below_the_fence_changes_nothing_until_the_lock_observes_the_fence(env: TestEnv) {
    let (mut earlier, mut rightful) = (env.session().await, env.session().await);
    let version = earlier.claimed(&env, 33).await;
    let before = env.row().await;
    let superseded = token(33);
    assert_eq!(
        rightful.claims(&env, 32).await,
        Claim::Superseded {
            current: superseded
        }
    );
    let forced = rightful.writes(&env, 32, before.version, "32").await;
    assert_eq!(
        forced,
        Write::Superseded {
            current: superseded
        }
    );
    assert_eq!(env.row().await, before);
    // No other holder could claim, so the earlier write is based on the latest state.
    assert_eq!(
        earlier.writes(&env, 33, version, "33").await,
        applied(version + 1)
    );
    let learned = FencingToken::new(superseded.get() + 1).unwrap();
    let next = rightful.claimed(&env, learned.get()).await;
    let late = earlier.writes(&env, 33, version + 1, "late").await;
    assert_eq!(late, Write::Superseded { current: learned });
    assert_eq!(env.row().await, Row::of("33", 34, next));
}

#[tested(on_every_database)]
async fn a_claim_is_repeated_when_its_answer_was_lost(env: TestEnv) {
    let mut session = env.session().await;
    let unheard = session.claimed(&env, 33).await;
    let version = session.claimed(&env, 33).await;
    assert!(version > unheard);
    assert_eq!(
        session.writes(&env, 33, version, "x").await,
        applied(version + 1)
    );
}

#[tested(on_every_database)]
async fn a_repeated_write_is_applied_once(env: TestEnv) {
    let mut session = env.session().await;
    let version = session.claimed(&env, 33).await;
    assert_eq!(
        session.writes(&env, 33, version, "x").await,
        applied(version + 1)
    );
    for _ in 0..2 {
        let again = session.writes(&env, 33, version, "x").await;
        assert_eq!(again, conflict(version + 1));
    }
}

/// Two holders that read before they claim decide on the same state. The later one must not write,
/// although its claim is current.
#[tested(on_every_database)]
async fn a_version_from_before_the_claim_is_refused(env: TestEnv) {
    let (mut first, mut second) = (env.session().await, env.session().await);
    let [early, same] = [first.row().await.version, second.row().await.version];
    assert_eq!(early, same);
    let version = first.claimed(&env, 33).await;
    assert_eq!(first.writes(&env, 33, early, "33").await, conflict(version));
    let version = second.claimed(&env, 34).await;
    assert_eq!(second.writes(&env, 34, same, "34").await, conflict(version));
    assert_eq!(env.row().await.value, "");
}

/// The steps of a holder, in this order: the regular ones, then those of a zombie that continues.
#[derive(Debug, Clone, Copy)]
enum Step {
    Claim,
    Read,
    Write,
}

const STEPS: [Step; 5] = [
    Step::Claim,
    Step::Read,
    Step::Write,
    Step::Read,
    Step::Write,
];

/// The second holder comes after the first, with a higher, the same, or a lower token.
#[tested(on_every_database)]
async fn in_every_interleaving_no_update_is_lost(env: TestEnv) {
    let (mut session, mut applied) = (env.session().await, 0);
    faster(&mut *session, &env).await;
    for tokens in [[33, 34], [33, 33], [34, 33]] {
        for schedule in schedules() {
            session.put("", 0, 0).await;
            applied += play(&mut *session, &env, tokens, schedule).await;
        }
    }
    assert!(
        applied > 1000,
        "too few writes were applied for the test to mean anything: {applied}"
    );
}

/// Each step is its own transaction, so both holders can use one connection. Returns the number of
/// applied writes.
async fn play(session: &mut dyn Session, env: &TestEnv, tokens: [i64; 2], schedule: u32) -> usize {
    let mut next = [0, 0];
    let mut seen: [Option<Row>; 2] = [None, None];
    let mut written: Vec<usize> = Vec::new();
    let mut second_has_claimed = false;
    for bit in 0..2 * STEPS.len() {
        let who = usize::from(schedule & (1 << bit) != 0);
        let ours = token(tokens[who]);
        let step = STEPS[next[who]];
        next[who] += 1;
        match step {
            Step::Claim => {
                let claim = session.claim(&env.items, KEY, ours).await.unwrap();
                second_has_claimed |= who == 1 && matches!(claim, Claim::Claimed { .. });
            }
            Step::Read => seen[who] = Some(session.row().await),
            Step::Write => {
                let row = seen[who].as_ref().unwrap();
                let outcome = session
                    .write(
                        &env.items,
                        KEY,
                        ours,
                        row.version,
                        &format!("{} {who}", row.value),
                    )
                    .await
                    .unwrap();
                if matches!(outcome, Write::Applied { .. }) {
                    assert!(
                        who == 1 || !second_has_claimed || tokens[0] >= tokens[1],
                        "a zombie wrote: {tokens:?}, {schedule:010b}"
                    );
                    written.push(who);
                }
            }
        }
    }
    let expected: String = written.iter().map(|who| format!(" {who}")).collect();
    assert_eq!(
        session.row().await.value,
        expected,
        "an update was lost: {tokens:?}, {schedule:010b}"
    );
    written.len()
}

/// Every interleaving of the steps of two holders: a set bit is a step of the second one.
fn schedules() -> impl Iterator<Item = u32> {
    (0..1 << (2 * STEPS.len()))
        .filter(|schedule: &u32| schedule.count_ones() as usize == STEPS.len())
}

/// Turns durability off: no test here restarts the database.
async fn faster(session: &mut dyn Session, env: &TestEnv) {
    if env.url.starts_with("postgres") {
        session.run("SET synchronous_commit = off").await;
    } else if env.url.starts_with("mysql") {
        session
            .run("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
            .await;
    }
}
