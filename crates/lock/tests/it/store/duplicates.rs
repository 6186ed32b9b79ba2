//! What the kit does when the lock breaks its promise: the same token for two holders, and a token below an earlier one.

use lock::{
    FencingToken,
    store::{Claim, Write},
};

use super::site::{KEY, Row, Session, Site, token};

on_every_database!(
    a_late_write_is_refused_once_another_holder_of_the_token_has_claimed,
    two_holders_of_one_token_take_turns_and_lose_nothing,
    a_token_that_went_back_changes_nothing_until_the_lock_has_learned,
    a_claim_is_repeated_when_its_answer_was_lost,
    a_repeated_write_is_applied_once,
    a_version_from_before_the_claim_is_refused,
    in_every_interleaving_no_update_is_lost,
);

/// With equal tokens the fence cannot tell them apart: it is the version, which the second claim has raised.
async fn a_late_write_is_refused_once_another_holder_of_the_token_has_claimed(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let before = claimed(&mut *first, &site, 33).await;
    let after = claimed(&mut *second, &site, 33).await;
    let late = first
        .write(&site.items, KEY, token(33), before, "first")
        .await
        .unwrap();
    assert_eq!(
        (late, site.row().await.value),
        (Write::Conflict { version: after }, String::new())
    );
    assert_eq!(
        second
            .write(&site.items, KEY, token(33), after, "second")
            .await
            .unwrap(),
        Write::Applied { version: after + 1 }
    );
    assert_eq!(
        first
            .write(&site.items, KEY, token(33), before, "first")
            .await
            .unwrap(),
        Write::Conflict { version: after + 1 }
    );
    assert_eq!(site.row().await.value, "second");
}

/// This is all that is left to two who share a token: whoever claims again has to read what the other wrote, and the other is told.
async fn two_holders_of_one_token_take_turns_and_lose_nothing(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    for turn in 0..3 {
        let overtaken = claimed(&mut *second, &site, 33).await;
        let version = claimed(&mut *first, &site, 33).await;
        let seen = first.row().await.value;
        assert_eq!(
            first
                .write(&site.items, KEY, token(33), version, &format!("{seen}1"))
                .await
                .unwrap(),
            Write::Applied {
                version: version + 1
            }
        );
        let late = second
            .write(&site.items, KEY, token(33), overtaken, "lost")
            .await
            .unwrap();
        assert_eq!(
            late,
            Write::Conflict {
                version: version + 1
            },
            "turn {turn}"
        );
        let version = claimed(&mut *second, &site, 33).await;
        let seen = second.row().await.value;
        let outcome = second
            .write(&site.items, KEY, token(33), version, &format!("{seen}2"))
            .await
            .unwrap();
        assert_eq!(
            outcome,
            Write::Applied {
                version: version + 1
            }
        );
    }
    assert_eq!(site.row().await.value, "121212");
}

/// The rightful holder is stopped, which is safe, and is told which token to start above.
async fn a_token_that_went_back_changes_nothing_until_the_lock_has_learned(site: Site) {
    let (mut earlier, mut rightful) = (site.session().await, site.session().await);
    let version = claimed(&mut *earlier, &site, 33).await;
    let before = site.row().await;
    let superseded = token(33);
    assert_eq!(
        rightful.claim(&site.items, KEY, token(32)).await.unwrap(),
        Claim::Superseded {
            current: superseded
        }
    );
    let forced = rightful
        .write(&site.items, KEY, token(32), before.version, "32")
        .await
        .unwrap();
    assert_eq!(
        forced,
        Write::Superseded {
            current: superseded
        }
    );
    assert_eq!(site.row().await, before);
    // The earlier one has written nothing that anybody else had decided on: nobody else could claim.
    assert_eq!(
        earlier
            .write(&site.items, KEY, token(33), version, "33")
            .await
            .unwrap(),
        Write::Applied {
            version: version + 1
        }
    );
    let learned = FencingToken::new(superseded.get() + 1).unwrap();
    let next = claimed(&mut *rightful, &site, learned.get()).await;
    let late = earlier
        .write(&site.items, KEY, token(33), version + 1, "late")
        .await
        .unwrap();
    assert_eq!(late, Write::Superseded { current: learned });
    assert_eq!(
        site.row().await,
        Row {
            value: "33".into(),
            fence: 34,
            version: next
        }
    );
}

async fn a_claim_is_repeated_when_its_answer_was_lost(site: Site) {
    let mut session = site.session().await;
    let unheard = claimed(&mut *session, &site, 33).await;
    let version = claimed(&mut *session, &site, 33).await;
    assert!(version > unheard);
    assert_eq!(
        session
            .write(&site.items, KEY, token(33), version, "x")
            .await
            .unwrap(),
        Write::Applied {
            version: version + 1
        }
    );
}

async fn a_repeated_write_is_applied_once(site: Site) {
    let mut session = site.session().await;
    let version = claimed(&mut *session, &site, 33).await;
    assert_eq!(
        session
            .write(&site.items, KEY, token(33), version, "x")
            .await
            .unwrap(),
        Write::Applied {
            version: version + 1
        }
    );
    for _ in 0..2 {
        let again = session
            .write(&site.items, KEY, token(33), version, "x")
            .await
            .unwrap();
        assert_eq!(
            again,
            Write::Conflict {
                version: version + 1
            }
        );
    }
}

/// Two who read before they claim decide on the same state. The later one must not write, however current its claim.
async fn a_version_from_before_the_claim_is_refused(site: Site) {
    let (mut first, mut second) = (site.session().await, site.session().await);
    let [early, same] = [first.row().await.version, second.row().await.version];
    assert_eq!(early, same);
    let version = claimed(&mut *first, &site, 33).await;
    assert_eq!(
        first
            .write(&site.items, KEY, token(33), early, "33")
            .await
            .unwrap(),
        Write::Conflict { version }
    );
    let version = claimed(&mut *second, &site, 34).await;
    assert_eq!(
        second
            .write(&site.items, KEY, token(34), same, "34")
            .await
            .unwrap(),
        Write::Conflict { version }
    );
    assert_eq!(site.row().await.value, "");
}

/// What a holder does, in this order: what it may, and then what a stubborn zombie may try.
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

/// The second holder came after the first, whatever their tokens are: rising, the same, or fallen.
async fn in_every_interleaving_no_update_is_lost(site: Site) {
    let (mut session, mut applied) = (site.session().await, 0);
    faster(&mut *session, &site).await;
    for tokens in [[33, 34], [33, 33], [34, 33]] {
        for schedule in schedules() {
            session.put("", 0, 0).await;
            applied += play(&mut *session, &site, tokens, schedule).await;
        }
    }
    assert!(
        applied > 1000,
        "hardly anything was written, so hardly anything could go wrong: {applied}"
    );
}

/// Each step is a transaction of its own, so one connection does for both. Returns how many writes were applied.
async fn play(session: &mut dyn Session, site: &Site, tokens: [i64; 2], schedule: u32) -> usize {
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
                let claim = session.claim(&site.items, KEY, ours).await.unwrap();
                second_has_claimed |= who == 1 && matches!(claim, Claim::Claimed { .. });
            }
            Step::Read => seen[who] = Some(session.row().await),
            Step::Write => {
                let row = seen[who].as_ref().unwrap();
                let outcome = session
                    .write(
                        &site.items,
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

/// Every order of the steps of two: a one is the second's turn.
fn schedules() -> impl Iterator<Item = u32> {
    (0..1 << (2 * STEPS.len()))
        .filter(|schedule: &u32| schedule.count_ones() as usize == STEPS.len())
}

/// Nothing here is about what survives a crash.
async fn faster(session: &mut dyn Session, site: &Site) {
    if site.url.starts_with("postgres") {
        session.run("SET synchronous_commit = off").await;
    } else if site.url.starts_with("mysql") {
        session
            .run("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
            .await;
    }
}

async fn claimed(session: &mut dyn Session, site: &Site, number: i64) -> i64 {
    match session
        .claim(&site.items, KEY, token(number))
        .await
        .unwrap()
    {
        Claim::Claimed { version } => version,
        other => panic!("{other:?}"),
    }
}
