//! Every outcome from every relevant state of the row, and the row afterwards.

use lock::store::{Check, Claim, FencedTable, StoreError, Write};
use testkit_macros::tested;

use super::env::{KEY, Row, Session, TestEnv, applied, conflict, token};

const LAST: i64 = i64::MAX;
const NOWHERE: i64 = 99;

#[tested(on_every_database)]
async fn every_outcome_of_a_claim(env: TestEnv) {
    let claimed = Claim::Claimed { version: 8 };
    let superseded = |current| Claim::Superseded {
        current: token(current),
    };
    let table = [
        // fence, token, outcome
        (0, 1, claimed),
        (33, 34, claimed),
        (33, 33, claimed), // Again.
        (33, LAST, claimed),
        (LAST, LAST, claimed),
        (34, 33, superseded(34)),
        (LAST, 1, superseded(LAST)),
    ];
    let mut session = env.session().await;
    for (fence, ours, expected) in table {
        session.put("x", fence, 7).await;
        assert_eq!(
            session.claims(&env, ours).await,
            expected,
            "fence {fence}, token {ours}"
        );
        let (fence, version) = if expected == claimed {
            (ours, 8)
        } else {
            (fence, 7)
        };
        assert_eq!(session.row().await, Row::of("x", fence, version));
    }
    assert_eq!(
        session.claim(&env.items, NOWHERE, token(1)).await.unwrap(),
        Claim::Missing
    );
    the_other_row_is_untouched(&mut *session).await;
}

#[tested(on_every_database)]
async fn every_outcome_of_a_write(env: TestEnv) {
    let superseded = |current| Write::Superseded {
        current: token(current),
    };
    let applied = applied(8);
    let table = [
        // fence, token, version, outcome; the row's version is 7
        (33, 33, 7, applied),
        (LAST, LAST, 7, applied),
        (34, 33, 7, superseded(34)),
        (34, 33, 6, superseded(34)), // It conflicts too, but nothing helps against a successor.
        (32, 33, 7, Write::Unclaimed),
        (0, 1, 7, Write::Unclaimed),
        (0, 1, 6, Write::Unclaimed),
        (33, 33, 6, conflict(7)),
        (33, 33, 8, conflict(7)),
    ];
    let mut session = env.session().await;
    for (fence, ours, version, expected) in table {
        session.put("before", fence, 7).await;
        let outcome = session.writes(&env, ours, version, "after").await;
        assert_eq!(
            outcome, expected,
            "fence {fence}, token {ours}, version {version}"
        );
        let (value, version) = if expected == applied {
            ("after", 8)
        } else {
            ("before", 7)
        };
        assert_eq!(session.row().await, Row::of(value, fence, version));
    }
    assert_eq!(
        session
            .write(&env.items, NOWHERE, token(1), 0, "after")
            .await
            .unwrap(),
        Write::Missing
    );
    // A write without assignments is a write.
    session.put("before", 33, 7).await;
    assert_eq!(
        session.set(&env.items, token(33), 7, &[]).await.unwrap(),
        applied
    );
    // A write of an unchanged value is a write.
    assert_eq!(
        session.writes(&env, 33, 8, "before").await,
        Write::Applied { version: 9 }
    );
    the_other_row_is_untouched(&mut *session).await;
}

#[tested(on_every_database)]
async fn every_outcome_of_a_check(env: TestEnv) {
    let mut session = env.session().await;
    session.put("x", 33, 7).await;
    let before = session.row().await;
    for (ours, expected) in [
        (32, Check::Superseded { current: token(33) }),
        (33, Check::Current),
        (34, Check::Unclaimed),
        (LAST, Check::Unclaimed),
    ] {
        assert_eq!(session.checks(&env, ours).await, expected, "token {ours}");
    }
    assert_eq!(
        session.check(&env.items, NOWHERE, token(1)).await.unwrap(),
        Check::Missing
    );
    session.put("x", 0, 7).await;
    assert_eq!(session.checks(&env, 1).await, Check::Unclaimed);
    assert_eq!(session.row().await, Row { fence: 0, ..before });
}

#[tested(on_every_database)]
async fn values_are_never_part_of_the_text(env: TestEnv) {
    let mut session = env.session().await;
    session.put("", 1, 0).await;
    for (version, value) in (0..).zip([
        "'; DROP TABLE items; --",
        "$1 ? :a @b \\' \" `",
        "größer 'als' \u{1F512}",
        "",
    ]) {
        let outcome = session.writes(&env, 1, version, value).await;
        assert_eq!(
            (outcome, session.row().await.value),
            (applied(version + 1), value.into())
        );
    }
}

#[tested(on_every_database)]
async fn reserved_words_can_be_names(env: TestEnv) {
    let table = FencedTable::builder("order")
        .key_column("group")
        .fence_column("select")
        .version_column("where")
        .build()
        .unwrap();
    let quote = if env.url.starts_with("mysql") {
        '`'
    } else {
        '"'
    };
    let mut session = env.session().await;
    session.run(format!("CREATE TABLE {quote}order{quote} ({quote}group{quote} BIGINT PRIMARY KEY, value VARCHAR(9))")).await;
    for statement in env.schema(&table) {
        session.run(statement).await;
    }
    session
        .run(format!(
            "INSERT INTO {quote}order{quote} ({quote}group{quote}) VALUES (5)"
        ))
        .await;
    assert_eq!(
        session.claim(&table, 5, token(9)).await.unwrap(),
        Claim::Claimed { version: 1 }
    );
    assert_eq!(
        session.write(&table, 5, token(9), 1, "x").await.unwrap(),
        applied(2)
    );
    assert_eq!(
        session.check(&table, 5, token(9)).await.unwrap(),
        Check::Current
    );
    // The schema refuses numbers that no lock gives.
    assert!(
        session
            .try_run(format!(
                "UPDATE {quote}order{quote} SET {quote}select{quote} = -1"
            ))
            .await
            .is_err()
    );
    assert!(
        session
            .try_run(format!(
                "UPDATE {quote}order{quote} SET {quote}where{quote} = -1"
            ))
            .await
            .is_err()
    );
}

/// With double quotes, SQLite would compare the text `idd` with the key and find no row.
#[tested(on_every_database)]
async fn a_missing_column_is_an_error_and_never_taken_for_text(env: TestEnv) {
    let builder = || FencedTable::builder("items");
    let mut session = env.session().await;
    let wrong = [
        builder().key_column("idd"),
        builder().fence_column("fenc"),
        builder().version_column("ver"),
        FencedTable::builder("item"),
    ];
    for table in wrong.map(|builder| builder.build().unwrap()) {
        let errors = [
            session.claim(&table, KEY, token(1)).await.unwrap_err(),
            session
                .write(&table, KEY, token(1), 0, "x")
                .await
                .unwrap_err(),
            session.check(&table, KEY, token(1)).await.unwrap_err(),
        ];
        assert!(
            errors
                .iter()
                .all(|error| matches!(error, StoreError::Database(_)) && !error.is_retryable()),
            "{errors:?}"
        );
    }
    let error = session
        .set(&env.items, token(1), 0, &["nothing"])
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Database(_)), "{error:?}");
    assert_eq!(session.row().await, Row::of("", 0, 0));
}

#[tested(on_every_database)]
async fn a_key_that_is_not_unique_is_reported(env: TestEnv) {
    let table = FencedTable::builder("items")
        .key_column("other")
        .build()
        .unwrap();
    let mut session = env.session().await;
    session.run("UPDATE items SET other = 5").await;
    for error in [
        session.claim(&table, 5, token(1)).await.unwrap_err(),
        session.check(&table, 5, token(1)).await.unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::KeyNotUnique { rows: 2 }) && !error.is_retryable(),
            "{error:?}"
        );
    }
}

/// A trigger, a rule or a policy can suppress an update. The claim must then not be reported as
/// successful.
#[tested(on_every_database)]
async fn an_update_that_the_database_suppresses_is_reported(env: TestEnv) {
    let mut session = env.session().await;
    if env.url.starts_with("sqlite") {
        session
            .run("CREATE TRIGGER keep BEFORE UPDATE ON items BEGIN SELECT RAISE(IGNORE); END")
            .await;
    } else if env.url.starts_with("postgres") {
        session
            .run("CREATE RULE keep AS ON UPDATE TO items DO INSTEAD NOTHING")
            .await;
        // A rule that replaces an update has nothing to return, which is an error of PostgreSQL.
        assert!(matches!(
            session.claim(&env.items, KEY, token(1)).await.unwrap_err(),
            StoreError::Database(_)
        ));
        session.run("DROP RULE keep ON items").await;
        session.run("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'").await;
        session
            .run("CREATE TRIGGER keep BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION keep()")
            .await;
    } else {
        return; // MySQL cannot suppress an update.
    }
    assert!(matches!(
        session.claim(&env.items, KEY, token(1)).await.unwrap_err(),
        StoreError::NotUpdated
    ));
    session
        .run("INSERT INTO items (id, value, fence, version) VALUES (3, 'x', 33, 7)")
        .await;
    assert!(matches!(
        session
            .write(&env.items, 3, token(33), 7, "y")
            .await
            .unwrap_err(),
        StoreError::NotUpdated
    ));
}

#[tested(on_every_database)]
async fn invalid_assignments_are_refused_before_anything_is_sent(env: TestEnv) {
    let mut session = env.session().await;
    session.put("x", 33, 7).await;
    let reserved = "a column that is not the key, the fence or the version";
    for (columns, found, why) in [
        (&["fence"][..], "fence", reserved),
        (&["other", "VERSION"], "VERSION", reserved),
        (&["id"], "id", reserved),
        (&["other", "Other"], "Other", "each column once"),
        (&["other = 1, fence"], "other = 1, fence", "ASCII letters"),
    ] {
        let error = session
            .set(&env.items, token(33), 7, columns)
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("an assigned column is {found:?}; expected ")),
            "{error}"
        );
        assert!(
            error.to_string().contains(why) && !error.is_retryable(),
            "{error}"
        );
    }
    assert_eq!(session.row().await, Row::of("x", 33, 7));
    assert_eq!(
        session
            .set(&env.items, token(33), 7, &["other"])
            .await
            .unwrap(),
        applied(8)
    );
    assert_eq!(
        session
            .number(format!("SELECT other FROM items WHERE id = {KEY}"))
            .await,
        5
    );
}

#[tested(on_every_database)]
async fn refusals_of_the_database_are_not_retryable(env: TestEnv) {
    let mut session = env.session().await;
    session
        .run("CREATE UNIQUE INDEX one_of_each ON items (other)")
        .await;
    session.run("UPDATE items SET other = 5 WHERE id = 2").await;
    session.put("x", 33, 7).await;
    let error = session
        .set(&env.items, token(33), 7, &["other"])
        .await
        .unwrap_err();
    assert!(
        matches!(error, StoreError::Database(_)) && !error.is_retryable(),
        "{error:?}"
    );
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(session.row().await, Row::of("x", 33, 7));
}

async fn the_other_row_is_untouched(session: &mut dyn Session) {
    assert_eq!(
        session.number("SELECT count(*) FROM items WHERE id = 2 AND value = 'another' AND fence = 0 AND version = 0".into()).await,
        1
    );
    assert_eq!(session.number("SELECT count(*) FROM items".into()).await, 2);
}

/// Needs no database.
#[test]
fn an_invalid_table_is_refused_with_the_name_of_the_field() {
    let items = || FencedTable::builder("items");
    for (builder, message) in [
        (
            FencedTable::builder("items; --"),
            "table is \"items; --\"; expected TABLE or SCHEMA.TABLE, ",
        ),
        (
            FencedTable::builder(""),
            "table is \"\"; expected TABLE or SCHEMA.TABLE, ",
        ),
        (
            items().key_column("1d"),
            "key_column is \"1d\"; expected 1 to 63 ASCII letters, ",
        ),
        (
            items().fence_column("the fence"),
            "fence_column is \"the fence\"; expected 1 to 63 ASCII letters, ",
        ),
        (
            items().version_column(""),
            "version_column is \"\"; expected 1 to 63 ASCII letters, ",
        ),
        (
            items().fence_column("ID"),
            "fence_column is \"ID\"; expected a column that is not the key_column",
        ),
        (
            items().version_column("Fence"),
            "version_column is \"Fence\"; expected a column that is neither the key_column nor the fence_column",
        ),
    ] {
        let error = builder.build().unwrap_err();
        assert!(
            error.to_string().starts_with(message) && !error.is_retryable(),
            "{error}"
        );
    }
}
