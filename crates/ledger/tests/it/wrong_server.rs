//! The address of the ledger names a server that cannot write, and later the right one again. No
//! test cuts a connection at the end: the pools must heal by asking.

use std::{sync::Arc, time::Duration};

use ledger::{Created, Ledger, LedgerError, NotWritable, PoolSettings, ReadOnly};
use testbed::{Postgres, Proxy, Traffic};
use testkit::{Backend, Database, eventually, eventually_some};

use crate::env::{TestEnv, item, segment};

/// How long an acquisition takes that must fail. One that must succeed is repeated.
const BRIEF: Duration = Duration::from_secs(1);

/// A server behind an address that can change, and a ledger that knows only the address.
struct Moving {
    primary: Postgres,
    address: Proxy,
    ledger: Arc<dyn Ledger>,
}

impl Moving {
    async fn start() -> Self {
        let primary = Postgres::start().await.unwrap();
        let address = Proxy::start(primary.port()).await.unwrap();
        let opened = async || ledger_at(&address).await.ok();
        let ledger = eventually_some("a ledger", opened).await;
        eventually("the tables", async || ledger.migrate().await.is_ok()).await;
        Self {
            primary,
            address,
            ledger,
        }
    }

    async fn create(&self, name: &str) -> Result<Created, LedgerError> {
        self.ledger.create_item(&item(name, 10, 1)).await
    }

    /// Ends the sessions at the primary, and waits until they have ended.
    async fn end_sessions(&self) {
        let sql = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
                   WHERE application_name = 'stockade'";
        execute(&self.primary, sql).await;
    }

    /// The ledger can write, and nothing else is found before it is asked in time.
    async fn is_writable(&self) {
        eventually("an answer in time", async || {
            match self.ledger.check_writable().await {
                Err(LedgerError::NoAnswer(_)) => false,
                answer => answer.is_ok() || panic!("{answer:?}"),
            }
        })
        .await;
    }

    /// Opens all connections of the pool for steps. A busy machine may need longer than an
    /// acquisition.
    async fn fill_pool(&self) {
        let ping = || self.ledger.ping();
        eventually("all connections", async || {
            let (a, b, c, d) = tokio::join!(ping(), ping(), ping(), ping());
            [a, b, c, d].iter().all(Result::is_ok)
        })
        .await;
    }
}

async fn ledger_at(address: &Proxy) -> Result<Arc<dyn Ledger>, LedgerError> {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", address.port());
    let settings = PoolSettings {
        acquire_timeout: Some(BRIEF),
        ..PoolSettings::new(4)
    };
    ledger::connect_with(&url, settings).await
}

async fn execute(server: &Postgres, sql: &str) -> u64 {
    let database = Database::postgres_at(server.url("postgres"));
    database.execute(sql).await.unwrap()
}

/// Sessions of the ledger at this server.
async fn has_sessions(server: &Postgres) -> bool {
    let sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'stockade'";
    execute(server, sessions).await > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_never_used_and_orders_go_on_when_the_address_is_right() {
    let env = Moving::start().await;
    let standby = env.primary.standby().await.unwrap();
    env.fill_pool().await;
    env.address.set_target(standby.port());
    env.end_sessions().await;
    let refused = eventually_some("a refusal that proves that nothing ran", async || {
        let error = env.create("vase").await.unwrap_err();
        error.proves_unchanged().then_some(error)
    })
    .await;
    assert!(refused.is_retryable(), "{refused:?}");
    let error = eventually_some("an answer in time", async || {
        let error = env.ledger.check_writable().await.unwrap_err();
        (!matches!(error, LedgerError::NoAnswer(_))).then_some(error)
    })
    .await;
    assert!(
        matches!(
            error,
            LedgerError::NotWritable(NotWritable(ReadOnly::Standby))
        ),
        "{error:?}"
    );
    eventually("no session at the standby", async || {
        !has_sessions(&standby).await
    })
    .await;

    env.address.set_target(env.primary.port());
    let created = eventually_some("the first order", async || env.create("vase").await.ok()).await;
    assert!(
        matches!(created, Created::New(_)),
        "nothing was created before"
    );
    env.is_writable().await;
}

/// A former primary is told to refuse writes and stays up. Its connections are busy, so none is
/// idle long enough to be asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refusal_drops_all_connections_to_a_server_that_became_read_only() {
    let env = Moving::start().await;
    let standby = env.primary.standby().await.unwrap();
    standby.promote().await.unwrap();
    env.fill_pool().await;
    env.address.set_target(standby.port());
    let becomes_read_only = async {
        let sql = "ALTER SYSTEM SET default_transaction_read_only = on";
        execute(&env.primary, sql).await;
        execute(&env.primary, "SELECT pg_reload_conf()").await;
        eventually("the new setting", async || {
            let setting = "SELECT 1 WHERE current_setting('default_transaction_read_only') = 'on'";
            execute(&env.primary, setting).await == 1
        })
        .await;
    };
    // A connection that was idle would be asked, and replaced without a doubt.
    let all_are_busy = async {
        let ping = || env.ledger.ping();
        loop {
            let _ = tokio::join!(ping(), ping(), ping(), ping());
        }
    };
    tokio::select! {
        () = becomes_read_only => {}
        () = all_are_busy => {}
    }

    let mut refusals = 0;
    eventually("an order at the new primary", async || {
        match env.create("vase").await {
            Ok(_) => true,
            Err(error) => {
                assert!(error.proves_unchanged(), "{error:?}");
                // On a busy machine the pool may give no connection in time, which is no refusal.
                refusals += usize::from(error.is_said_by_server());
                false
            }
        }
    })
    .await;
    // Without the doubt, each of the four connections is refused once.
    assert!(refusals <= 1, "one for each connection: {refusals}");
    assert_eq!(
        execute(&standby, "SELECT 1 FROM items WHERE id = 'vase'").await,
        1
    );
    env.fill_pool().await;
    env.create("bowl").await.unwrap();
}

/// The address accepts connections and closes them, as a balancer does whose server is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_gets_no_connection_has_changed_nothing() {
    let env = Moving::start().await;
    env.fill_pool().await;
    env.address.set(Traffic::Reset);
    let cart = domain::CartId::from(uuid::Uuid::from_u128(7));
    // In a transaction, and as a single statement. The latter may have been sent on a connection
    // that was cut, once for each.
    for _ in 0..3 {
        let error = env.create("vase").await.unwrap_err();
        assert!(
            error.proves_unchanged() && error.is_retryable(),
            "{error:?}"
        );
    }
    let proven = eventually_some("a statement without a connection", async || {
        let error = env.ledger.take_over_cart(cart).await.unwrap_err();
        error.proves_unchanged().then_some(error)
    })
    .await;
    assert!(proven.is_retryable(), "{proven:?}");
    for _ in 0..3 {
        let error = env.ledger.take_over_cart(cart).await.unwrap_err();
        assert!(error.proves_unchanged(), "{error:?}");
    }
    env.address.set(Traffic::Pass);
    let created = eventually_some("the first order", async || env.create("vase").await.ok()).await;
    assert!(matches!(created, Created::New(_)), "nothing was created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_is_not_opened_on_a_server_that_cannot_write() {
    let primary = Postgres::start().await.unwrap();
    let standby = primary.standby().await.unwrap();
    let url = primary.create_database("shop").await.unwrap();
    execute(
        &primary,
        "ALTER DATABASE shop SET default_transaction_read_only = on",
    )
    .await;
    for (url, expected) in [
        (standby.url("postgres"), ReadOnly::Standby),
        (url, ReadOnly::Transactions),
    ] {
        let Err(error) = ledger::connect(&url, 2).await else {
            panic!("{expected}")
        };
        assert!(
            matches!(&error, LedgerError::NotWritable(NotWritable(why)) if *why == expected),
            "{error:?}"
        );
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_the_ledger_can_write_is_known_while_its_pool_is_full() {
    let env = TestEnv::unopened(Backend::Postgres).await;
    let ledger = env.ledger_of_one_connection().await;
    let vase = env.create_by(&ledger, &item("vase", 10, 1)).await;
    let claim = ledger.claim(&[segment(&vase, 0)], 1).await.unwrap();
    assert!(claim.is_some(), "the claim has the only connection");
    ledger.check_writable().await.unwrap();
    drop(claim);
    env.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_check_that_is_cut_is_replaced() {
    let env = Moving::start().await;
    env.is_writable().await;
    env.end_sessions().await;
    env.is_writable().await;
    env.address.set(Traffic::Hold);
    let error = env.ledger.check_writable().await.unwrap_err();
    assert!(matches!(error, LedgerError::NoAnswer(BRIEF)), "{error:?}");
    env.address.set(Traffic::Pass);
    eventually_some("an answer", async || env.ledger.check_writable().await.ok()).await;
}
