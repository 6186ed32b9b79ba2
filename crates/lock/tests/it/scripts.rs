//! Every case of every script, straight at a server.

use redis::Value;
use testbed::Redis;
use tokio::time::sleep;

use crate::support::{get, ms, name, raw, run};

const ACQUIRE: &str = include_str!("../../lua/acquire.lua");
const EXTEND: &str = include_str!("../../lua/extend.lua");
const RELEASE: &str = include_str!("../../lua/release.lua");
const ACQUIRE_SHARED: &str = include_str!("../../lua/acquire_shared.lua");
const EXTEND_SHARED: &str = include_str!("../../lua/extend_shared.lua");
const RELEASE_SHARED: &str = include_str!("../../lua/release_shared.lua");
const QUEUE: &str = include_str!("../../lua/queue.lua");
const LEAVE: &str = include_str!("../../lua/leave.lua");
const ADMIT: &str = include_str!("../../lua/admit.lua");
const WATCH: &str = include_str!("../../lua/watch.lua");
const WATCH_KEY: &str = "lock:node:watch";
const GENERATION: &str = "lock:node:generation";
const HIGH_WATER: &str = "lock:node:high-water";

/// One server, and a name on it.
struct Bench {
    server: Redis,
    name: String,
}

impl Bench {
    async fn new() -> Self {
        let bench = Self {
            server: Redis::start().await.unwrap(),
            name: name("bench"),
        };
        bench.admit("0").await;
        bench
    }

    async fn eval(&self, script: &str, keys: &[&str], arguments: &[&str]) -> Vec<String> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(keys.len()).arg(keys).arg(arguments);
        let mut reply: Vec<String> = eval
            .query_async(&mut raw(&self.server).await)
            .await
            .unwrap();
        reply.remove(1);
        reply
    }

    async fn ballot(&self, script: &str, owner: &str, token: &str) -> Vec<String> {
        self.eval(
            script,
            &[&self.name, &self.fence(), GENERATION, HIGH_WATER],
            &[owner, token, "3600000", "7200000"],
        )
        .await
    }

    async fn acquire(&self, owner: &str, token: &str) -> Vec<String> {
        self.ballot(ACQUIRE, owner, token).await
    }

    async fn extend(&self, owner: &str, token: &str) -> Vec<String> {
        self.ballot(EXTEND, owner, token).await
    }

    async fn release(&self, owner: &str) -> Vec<String> {
        self.eval(RELEASE, &[&self.name], &[owner, ""]).await
    }

    async fn shared(&self, script: &str, owner: &str, token: &str, ttl_ms: &str) -> Vec<String> {
        let keys = [
            &self.name,
            &self.fence(),
            GENERATION,
            HIGH_WATER,
            &self.key("readers"),
        ];
        self.eval(script, &keys, &[owner, token, ttl_ms, "7200000"])
            .await
    }

    async fn share(&self, owner: &str, token: &str) -> Vec<String> {
        self.shared(ACQUIRE_SHARED, owner, token, "3600000").await
    }

    async fn extend_share(&self, owner: &str, token: &str) -> Vec<String> {
        self.shared(EXTEND_SHARED, owner, token, "3600000").await
    }

    async fn release_share(&self, owner: &str) -> Vec<String> {
        self.eval(
            RELEASE_SHARED,
            &[&self.name, &self.key("readers")],
            &[owner, ""],
        )
        .await
    }

    async fn queue(&self, waiter: &str, ticket: &str, ttl_ms: &str) -> Vec<String> {
        self.eval(
            QUEUE,
            &[&self.key("queue"), &self.key("waiters")],
            &[waiter, ticket, ttl_ms],
        )
        .await
    }

    async fn left_ms(&self, key: &str) -> i64 {
        redis::cmd("PTTL")
            .arg(key)
            .query_async(&mut raw(&self.server).await)
            .await
            .unwrap()
    }

    async fn run_id(&self) -> String {
        let info: redis::InfoDict = redis::cmd("INFO")
            .query_async(&mut raw(&self.server).await)
            .await
            .unwrap();
        info.get("run_id").unwrap()
    }

    /// Offers this mark, instead of an earlier one if there is any.
    async fn watch(&self, mark: &str, earlier: &str) -> Vec<String> {
        let keys = [WATCH_KEY, GENERATION, HIGH_WATER];
        self.eval(WATCH, &keys, &[mark, earlier, ""]).await
    }

    async fn admit(&self, mark: &str) -> Vec<String> {
        self.watch("watch", "").await;
        self.admit_as(&self.run_id().await, mark, "watch").await
    }

    async fn admit_as(&self, run_id: &str, mark: &str, watch: &str) -> Vec<String> {
        self.eval(
            ADMIT,
            &[GENERATION, HIGH_WATER, WATCH_KEY],
            &[run_id, mark, watch, ""],
        )
        .await
    }

    fn fence(&self) -> String {
        self.key("fence")
    }

    fn key(&self, what: &str) -> String {
        format!("{}:{what}", self.name)
    }

    async fn server_forgets(&self) {
        run(&self.server, &["FLUSHALL"]).await;
    }

    async fn forget(&self, key: &str) {
        run(&self.server, &["DEL", key]).await;
    }
}

#[tokio::test]
async fn acquire_answers_every_case() {
    let bench = Bench::new().await;
    assert_eq!(bench.acquire("a", "5").await, ["accepted"]);
    assert_eq!(
        bench.acquire("a", "5").await,
        ["accepted"],
        "the same owner with the same token again"
    );
    assert_eq!(
        bench.acquire("a", "4").await,
        ["low", "5"],
        "a message from before"
    );
    let held = bench.acquire("b", "6").await;
    assert_eq!(held[..2], ["held", "5"]);
    assert!(
        (3_000_000..=3_600_000).contains(&held[2].parse().unwrap()),
        "{held:?}"
    );
    assert_eq!(
        bench.acquire("a", "6").await,
        ["accepted"],
        "its own lock does not keep an owner from a higher proposal"
    );
    assert_eq!(bench.release("a").await, ["accepted"]);
    assert_eq!(
        bench.acquire("a", "6").await,
        ["low", "6"],
        "a repeat that arrives after the release"
    );
    assert_eq!(
        bench.acquire("b", "6").await,
        ["low", "6"],
        "strictly above, not equal"
    );
    assert_eq!(
        bench.acquire("b", "10").await,
        ["accepted"],
        "ten is above six, as text as well"
    );
    assert_eq!(get(&bench.server, &bench.fence()).await.unwrap(), "10");
}

#[tokio::test]
async fn extend_answers_every_case() {
    let bench = Bench::new().await;
    bench.acquire("a", "5").await;
    run(&bench.server, &["PEXPIRE", &bench.name, "1000"]).await;
    assert_eq!(bench.extend("a", "5").await, ["accepted"]);
    let Value::Int(left_ms) = redis::cmd("PTTL")
        .arg(&bench.name)
        .query_async(&mut raw(&bench.server).await)
        .await
        .unwrap()
    else {
        panic!()
    };
    assert!(
        (3_000_000..=3_600_000).contains(&left_ms),
        "set, not added: {left_ms}"
    );
    assert_eq!(
        bench.extend("a", "4").await,
        ["low", "5"],
        "an earlier proposal of the same owner"
    );
    assert_eq!(bench.extend("b", "6").await[..2], ["held", "5"]);
    assert_eq!(bench.extend("a", "5").await, ["accepted"]);
    bench.forget(&bench.name).await;
    assert_eq!(
        bench.extend("a", "5").await,
        ["accepted"],
        "a node that lost the lock gets it back"
    );
    assert_eq!(get(&bench.server, &bench.name).await.unwrap(), "a");
    bench.release("a").await;
    bench.acquire("b", "6").await;
    bench.release("b").await;
    assert_eq!(
        bench.extend("a", "5").await,
        ["low", "6"],
        "not after a later owner"
    );
    bench.acquire("c", "7").await;
    assert_eq!(
        bench.extend("c", "8").await,
        ["accepted"],
        "a node that a later proposal of the same owner did not reach"
    );
    assert_eq!(get(&bench.server, &bench.fence()).await.unwrap(), "8");
}

#[tokio::test]
async fn release_answers_every_case() {
    let bench = Bench::new().await;
    assert_eq!(bench.release("a").await, ["gone"]);
    bench.acquire("a", "5").await;
    assert_eq!(bench.release("b").await[0], "held");
    assert_eq!(bench.release("a").await, ["accepted"]);
    assert_eq!(
        get(&bench.server, &bench.fence()).await.unwrap(),
        "5",
        "the fence stays"
    );
}

#[tokio::test]
async fn tokens_are_compared_as_text_beyond_2_to_the_53() {
    let bench = Bench::new().await;
    assert_eq!(bench.acquire("a", "9007199254740992").await, ["accepted"]);
    bench.release("a").await;
    assert_eq!(
        bench.acquire("b", "9007199254740993").await,
        ["accepted"],
        "as numbers they are equal"
    );
    bench.release("b").await;
    assert_eq!(
        bench.acquire("c", "9007199254740993").await,
        ["low", "9007199254740993"]
    );
    assert_eq!(
        bench.acquire("c", "9223372036854775807").await,
        ["accepted"]
    );
}

#[tokio::test]
async fn a_name_whose_fence_has_expired_goes_on_above_the_high_water_mark() {
    let bench = Bench::new().await;
    bench.acquire("a", "5").await;
    bench.release("a").await;
    bench.forget(&bench.fence()).await;
    assert_eq!(
        bench.acquire("b", "5").await,
        ["low", "5"],
        "it had token 5"
    );
    assert_eq!(bench.extend("a", "4").await, ["low", "5"]);
    assert_eq!(bench.acquire("b", "6").await, ["accepted"]);
}

#[tokio::test]
async fn a_node_that_has_forgotten_does_not_vote_until_it_is_admitted() {
    let mut bench = Bench::new().await;
    bench.acquire("a", "5").await;
    bench.server.restart().await.unwrap();
    assert_eq!(
        bench.acquire("a", "6").await[0],
        "forgot",
        "also with everything still on its disk"
    );
    assert_eq!(bench.extend("a", "5").await[0], "forgot");
    assert_eq!(
        bench.release("a").await,
        ["accepted"],
        "but what it has can go"
    );
    assert_eq!(
        bench.admit_as("0123456789abcdef", "9", "watch").await[0],
        "forgot",
        "another start was watched"
    );
    let run_id = bench.run_id().await;
    assert_eq!(
        bench.admit_as(&run_id, "9", "watch").await[0],
        "forgot",
        "no client has watched it"
    );
    assert_eq!(bench.watch("none", "").await, ["watched", "none"]);
    assert_eq!(
        bench.watch("one", "none").await,
        ["watched", "one"],
        "one of an earlier start is replaced"
    );
    assert_eq!(
        bench.watch("two", "").await,
        ["watched", "one"],
        "all who wait have the same mark"
    );
    assert_eq!(
        bench.admit_as(&run_id, "9", "two").await[0],
        "forgot",
        "it has lost that mark, and with it what it knew"
    );
    assert_eq!(bench.admit_as(&run_id, "9", "one").await, ["admitted"]);
    assert_eq!(get(&bench.server, WATCH_KEY).await, None);
    assert_eq!(
        bench.acquire("b", "9").await,
        ["low", "9"],
        "its peers remember 9"
    );
    assert_eq!(bench.acquire("b", "10").await, ["accepted"]);
    assert_eq!(bench.admit("3").await, ["admitted"]);
    bench.release("b").await;
    assert_eq!(
        get(&bench.server, GENERATION)
            .await
            .unwrap()
            .split(':')
            .nth(1),
        Some("9"),
        "a floor never falls"
    );
    run(&bench.server, &["FLUSHALL"]).await;
    assert_eq!(bench.acquire("c", "1").await[0], "forgot");
}

#[tokio::test]
async fn admit_answers_every_case_of_a_durable_node() {
    let bench = Bench::new().await;
    let (run_id, earlier) = (bench.run_id().await, "0123456789abcdef:7:durable");
    let admit = async |evidence: &str, durable: &str| {
        bench
            .eval(
                ADMIT,
                &[GENERATION, HIGH_WATER, WATCH_KEY],
                &[&run_id, "0", evidence, durable],
            )
            .await
    };
    let generation = async || get(&bench.server, GENERATION).await.unwrap();
    let with = |rest: &str| format!("{run_id}:{rest}");
    assert_eq!(admit("", "yes").await, ["admitted"]);
    assert_eq!(generation().await, with("0:durable"));
    assert_eq!(admit("", "").await, ["admitted"]);
    assert_eq!(
        generation().await,
        with("0:durable"),
        "a client that does not know does not change it"
    );
    assert_eq!(bench.acquire("a", "5").await, ["accepted"]);
    assert_eq!(admit("", "no").await, ["admitted"]);
    assert_eq!(generation().await, with("0"));
    run(&bench.server, &["SET", GENERATION, earlier]).await;
    assert_eq!(bench.acquire("a", "8").await[0], "forgot");
    assert_eq!(
        admit("0123456789abcdef:6:durable", "yes").await[0],
        "forgot",
        "it has another generation"
    );
    assert_eq!(admit("", "yes").await[0], "forgot", "without evidence");
    assert_eq!(admit(earlier, "yes").await, ["admitted"]);
    assert_eq!(generation().await, with("7:durable"), "with the old floor");
    run(&bench.server, &["SET", GENERATION, earlier]).await;
    assert_eq!(admit(earlier, "").await, ["admitted"]);
    assert_eq!(
        generation().await,
        with("7"),
        "an earlier run says nothing about this one"
    );
}

#[tokio::test]
async fn a_blank_server_is_marked_once_and_any_other_is_not() {
    let bench = Bench::new().await;
    let mark = async |mark: &str| {
        let keys = [WATCH_KEY, GENERATION, HIGH_WATER];
        bench.eval(WATCH, &keys, &[mark, "", "yes"]).await
    };
    assert_eq!(mark("a").await, ["watched", ""], "it has a generation");
    bench.server_forgets().await;
    run(&bench.server, &["SET", HIGH_WATER, "5"]).await;
    assert_eq!(mark("b").await, ["watched", ""], "it has accepted a token");
    bench.server_forgets().await;
    assert_eq!(mark("c").await, ["watched", "c"]);
    assert_eq!(
        mark("d").await,
        ["watched", "c"],
        "another client was first"
    );
}

#[tokio::test]
async fn a_server_without_memory_frees_and_extends() {
    let bench = Bench::new().await;
    bench.acquire("a", "5").await;
    run(&bench.server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(bench.extend("a", "5").await, ["accepted"]);
    assert_eq!(bench.release("a").await, ["accepted"]);
}

#[tokio::test]
async fn sharing_answers_every_case() {
    let bench = Bench::new().await;
    assert_eq!(bench.extend_share("a", "5").await, ["gone"]);
    assert_eq!(bench.release_share("a").await, ["gone"]);
    assert_eq!(bench.share("a", "5").await, ["accepted"]);
    assert_eq!(
        bench.share("a", "5").await,
        ["accepted"],
        "the same owner with the same token again"
    );
    assert_eq!(bench.share("b", "5").await, ["low", "5"]);
    assert_eq!(bench.share("b", "6").await, ["accepted"]);
    assert_eq!(get(&bench.server, &bench.name).await.unwrap(), "shared");
    assert_eq!(
        bench.acquire("c", "7").await[..2],
        ["held", "6"],
        "not alone while others share it"
    );
    assert_eq!(
        bench.extend_share("a", "5").await,
        ["accepted"],
        "also after another has come"
    );
    assert_eq!(
        bench.extend_share("c", "7").await,
        ["gone"],
        "it has no share"
    );
    assert_eq!(
        bench.release("a").await[0],
        "held",
        "a share is not the lock"
    );
    assert_eq!(bench.release_share("a").await, ["accepted"]);
    assert_eq!(bench.release_share("a").await, ["gone"]);
    assert_eq!(bench.acquire("c", "7").await[0], "held", "one still has it");
    assert_eq!(bench.release_share("b").await, ["accepted"]);
    assert_eq!(bench.acquire("c", "7").await, ["accepted"]);
    assert_eq!(bench.share("d", "8").await[..2], ["held", "7"]);
    assert_eq!(bench.extend_share("a", "5").await[0], "held");
    assert_eq!(bench.release_share("a").await[0], "held");
    assert_eq!(
        bench.shared(ACQUIRE_SHARED, "d", "8", "3600000").await[0],
        "held"
    );
    bench.server_forgets().await;
    assert_eq!(bench.share("d", "9").await[0], "forgot");
    assert_eq!(bench.extend_share("d", "9").await[0], "forgot");
}

#[tokio::test]
async fn a_shared_lock_lasts_as_long_as_its_longest_share_and_no_longer() {
    let bench = Bench::new().await;
    bench.share("long", "1").await;
    bench.shared(ACQUIRE_SHARED, "short", "2", "50").await;
    assert!(
        bench.left_ms(&bench.name).await > 3_000_000,
        "a short share does not cut a long one"
    );
    // The short one has expired, and no longer counts.
    sleep(ms(80)).await;
    assert_eq!(bench.extend_share("short", "2").await, ["gone"]);
    assert_eq!(bench.release_share("long").await, ["accepted"]);
    assert_eq!(
        get(&bench.server, &bench.name).await,
        None,
        "the last that lives frees it"
    );
    bench.shared(ACQUIRE_SHARED, "short", "3", "50").await;
    sleep(ms(80)).await;
    assert_eq!(
        bench.acquire("alone", "4").await,
        ["accepted"],
        "a share ends by itself"
    );
    bench.release("alone").await;
    // Earlier shares that are left have no owner.
    run(
        &bench.server,
        &["ZADD", &bench.key("readers"), "99999999999999", "ghost"],
    )
    .await;
    assert_eq!(bench.share("a", "5").await, ["accepted"]);
    assert_eq!(bench.extend_share("ghost", "1").await, ["gone"]);
    assert!(bench.left_ms(&bench.name).await <= 3_600_000);
}

#[tokio::test]
async fn a_queue_answers_every_case() {
    let bench = Bench::new().await;
    assert_eq!(
        bench.queue("a", "0", "1000").await,
        ["accepted", "0"],
        "one only looks"
    );
    assert_eq!(bench.queue("a", "1", "3600000").await, ["accepted", "0"]);
    assert_eq!(bench.queue("b", "0", "1000").await, ["accepted", "1"]);
    assert_eq!(bench.queue("c", "3", "3600000").await, ["queued", "1", "1"]);
    assert_eq!(
        bench.queue("b", "2", "3600000").await,
        ["queued", "3", "1"],
        "by tickets, not by arrival at this node"
    );
    assert_eq!(bench.queue("c", "3", "3600000").await, ["queued", "3", "2"]);
    assert_eq!(
        bench.queue("bb", "2", "3600000").await,
        ["queued", "3", "2"],
        "equal tickets by name"
    );
    assert_eq!(
        bench.queue("a", "1", "3600000").await,
        ["accepted", "3"],
        "who asks again keeps its place"
    );
    assert_eq!(
        bench
            .eval(LEAVE, &[&bench.key("queue"), &bench.key("waiters")], &["a"])
            .await,
        ["accepted"]
    );
    assert_eq!(bench.queue("b", "2", "50").await, ["accepted", "3"]);
    sleep(ms(80)).await;
    assert_eq!(
        bench.queue("bb", "2", "3600000").await,
        ["accepted", "3"],
        "who does not ask again is taken for dead"
    );
    assert!(
        bench.left_ms(&bench.key("queue")).await <= 3_600_000,
        "an idle queue goes away"
    );
    assert!(bench.left_ms(&bench.key("waiters")).await <= 3_600_000);
}
