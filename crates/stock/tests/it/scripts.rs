//! Each file of `lua/` as a table: what is asked, what it answers, what it leaves. Run as it stands in the file, with the key names that
//! are documented, so that a change of Lua alone is noticed. Here are those by which an order takes; how units come back, move, and are
//! mended is in files of its own.

mod give_back;
mod mend;
mod transfer;

use std::sync::Arc;

use domain::{BuyerId, ItemState, OrderId};
use redis::{Cmd, Value};

use crate::{
    sale::{self, Sale, Terms},
    site::{Site, on_both},
};

const ASK_HOME: &str = include_str!("../../../../lua/ask_home.lua");
const ASK_NEXT: &str = include_str!("../../../../lua/ask_next.lua");
const DUE_WALKS: &str = include_str!("../../../../lua/due_walks.lua");
const FINISH_WALK: &str = include_str!("../../../../lua/finish_walk.lua");
const FORGET_PASSES: &str = include_str!("../../../../lua/forget_passes.lua");
const FORGET_WALK: &str = include_str!("../../../../lua/forget_walk.lua");
const INSPECT: &str = include_str!("../../../../lua/inspect.lua");
const OPEN_SEGMENT: &str = include_str!("../../../../lua/open_segment.lua");
const SET_STATE: &str = include_str!("../../../../lua/set_state.lua");

/// The margin that these tests tell the scripts.
const MARGIN_MS: i64 = 1000;

on_both!(
    ask_home_answers_every_case,
    ask_home_without_another_segment_says_sold_out,
    ask_home_refuses_before_it_writes,
    ask_home_remembers_the_latest_deadline,
    ask_home_outside_the_window_refuses_but_repeats,
    ask_next_answers_every_case,
    ask_next_refuses_before_it_writes,
    finish_walk_settles_once,
    finish_walk_leaves_what_did_not_pass,
    due_walks_lists_what_is_due,
    forget_passes_drops_only_what_the_walk_knew,
    forget_walk_forgets_only_what_was_read_and_is_due,
    open_segment_twice_changes_nothing,
    set_state_lets_the_higher_epoch_stand,
    inspect_shows_everything,
    a_segment_that_lost_a_key_refuses_and_says_so,
    an_empty_outbox_that_gets_something_says_so,
);

/// What an order asks for, in columns of its own making.
#[derive(Clone)]
pub struct Wish {
    id: OrderId,
    buyer: BuyerId,
    units: u32,
}

impl Sale {
    fn wish(&self, buyer: &BuyerId, key: &str, units: u32) -> Wish {
        Wish {
            id: self.order_id(buyer, key),
            buyer: buyer.clone(),
            units,
        }
    }

    async fn eval(
        &self,
        source: &str,
        keys: &[&String],
        arguments: impl FnOnce(&mut Cmd),
    ) -> redis::RedisResult<Value> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(source).arg(keys.len()).arg(keys);
        arguments(&mut cmd);
        self.try_redis(&cmd).await
    }

    async fn ask_home(
        &self,
        segment: u16,
        deadline_ms: i64,
        wishes: &[Wish],
    ) -> redis::RedisResult<Value> {
        let names = self.names(segment);
        let keys = [
            &names.stock,
            &names.answers,
            &names.buyers,
            &names.outbox,
            &names.walks,
        ];
        self.eval(ASK_HOME, &keys, |cmd| {
            cmd.arg(wishes.len())
                .arg(deadline_ms)
                .arg(MARGIN_MS)
                .arg(self.segment(segment).to_string());
            ids(cmd, wishes);
            column(cmd, wishes.iter().map(|wish| wish.buyer.as_str()));
            quantities_and_packed(cmd, wishes);
        })
        .await
    }

    async fn ask_next(
        &self,
        segment: u16,
        deadline_ms: i64,
        wishes: &[Wish],
    ) -> redis::RedisResult<Value> {
        let names = self.names(segment);
        self.eval(
            ASK_NEXT,
            &[&names.stock, &names.answers, &names.outbox],
            |cmd| {
                cmd.arg(wishes.len())
                    .arg(deadline_ms)
                    .arg(self.segment(segment).to_string());
                ids(cmd, wishes);
                quantities_and_packed(cmd, wishes);
            },
        )
        .await
    }

    /// `ends`: outcome and place.
    async fn finish_walk(
        &self,
        segment: u16,
        deadline_ms: i64,
        wishes: &[Wish],
        ends: &[(&str, &str)],
    ) -> Value {
        let names = self.names(segment);
        self.eval(
            FINISH_WALK,
            &[&names.stock, &names.answers, &names.buyers, &names.walks],
            |cmd| {
                cmd.arg(wishes.len()).arg(deadline_ms).arg(MARGIN_MS);
                ids(cmd, wishes);
                column(cmd, wishes.iter().map(|wish| wish.buyer.as_str()));
                column(cmd, wishes.iter().map(pack));
                column(cmd, ends.iter().map(|(outcome, _)| *outcome));
                column(cmd, ends.iter().map(|(_, place)| *place));
            },
        )
        .await
        .unwrap()
    }

    async fn due_walks(&self, segment: u16, at_most: usize) -> Vec<(Vec<u8>, i64, String)> {
        let names = self.names(segment);
        let reply = self
            .eval(DUE_WALKS, &[&names.answers, &names.walks], |cmd| {
                column(cmd, [at_most, 0])
            })
            .await
            .unwrap();
        let (_now_ms, list): (i64, Vec<Value>) = redis::from_redis_value(reply).unwrap();
        let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).unwrap();
        let walk = |walk: &[Value]| {
            (
                redis::from_redis_value(walk[0].clone()).unwrap(),
                text(&walk[1]).parse().unwrap(),
                text(&walk[2]),
            )
        };
        list.chunks(3).map(walk).collect()
    }

    async fn forget_passes(&self, segment: u16, walks: &[(&Wish, i64)]) -> i64 {
        let names = self.names(segment);
        let fill = |cmd: &mut Cmd| {
            cmd.arg(walks.len());
            column(cmd, walks.iter().map(|(wish, _)| &wish.id.as_bytes()[..]));
            column(cmd, walks.iter().map(|(_, until_ms)| *until_ms));
        };
        redis::from_redis_value(
            self.eval(FORGET_PASSES, &[&names.answers], fill)
                .await
                .unwrap(),
        )
        .unwrap()
    }

    async fn forget_walk(&self, segment: u16, walks: &[(&Wish, i64)]) -> i64 {
        let names = self.names(segment);
        let fill = |cmd: &mut Cmd| {
            cmd.arg(walks.len());
            column(cmd, walks.iter().map(|(wish, _)| &wish.id.as_bytes()[..]));
            column(cmd, walks.iter().map(|(wish, _)| pack(wish)));
            column(cmd, walks.iter().map(|(_, due_ms)| *due_ms));
        };
        let reply = self
            .eval(FORGET_WALK, &[&names.answers, &names.walks], fill)
            .await
            .unwrap();
        let (_now_ms, forgotten): (i64, i64) = redis::from_redis_value(reply).unwrap();
        forgotten
    }

    /// An order that home has passed and that nobody sees to any further.
    pub async fn begin_walk(&self, buyer: &BuyerId, key: &str, units: u32, deadline_ms: i64) {
        let home = u16::try_from(buyer.stable_hash() % u64::from(self.item.segments)).unwrap();
        let reply = self
            .ask_home(home, deadline_ms, &[self.wish(buyer, key, units)])
            .await
            .unwrap();
        assert_eq!(home_answers(&reply, 1).1, ["p"], "home was to be empty");
    }

    /// The same for a crowd that has its home here, for one unit each.
    pub async fn begin_walks(&self, home: u16, buyers: &[BuyerId], key: &str, deadline_ms: i64) {
        for crowd in buyers.chunks(500) {
            let wishes: Vec<_> = crowd.iter().map(|buyer| self.wish(buyer, key, 1)).collect();
            let reply = self.ask_home(home, deadline_ms, &wishes).await.unwrap();
            assert!(
                home_answers(&reply, wishes.len())
                    .1
                    .iter()
                    .all(|answer| answer == "p"),
                "home was to be empty"
            );
        }
    }

    /// The same, one segment further.
    pub async fn continue_walk(
        &self,
        segment: u16,
        buyer: &BuyerId,
        key: &str,
        units: u32,
        deadline_ms: i64,
    ) -> String {
        let reply = self
            .ask_next(segment, deadline_ms, &[self.wish(buyer, key, units)])
            .await
            .unwrap();
        next_answers(&reply, 1).1.remove(0)
    }

    /// A duplicate that the network has delayed, delivered now.
    pub async fn deliver_home(
        &self,
        buyer: &BuyerId,
        key: &str,
        units: u32,
        deadline_ms: i64,
    ) -> String {
        let home = u16::try_from(buyer.stable_hash() % u64::from(self.item.segments)).unwrap();
        let reply = self
            .ask_home(home, deadline_ms, &[self.wish(buyer, key, units)])
            .await
            .unwrap();
        status(&reply)
    }
}

fn column<T: redis::ToRedisArgs>(cmd: &mut Cmd, values: impl IntoIterator<Item = T>) {
    for value in values {
        cmd.arg(value);
    }
}

fn ids(cmd: &mut Cmd, wishes: &[Wish]) {
    column(cmd, wishes.iter().map(|wish| &wish.id.as_bytes()[..]));
}

fn quantities_and_packed(cmd: &mut Cmd, wishes: &[Wish]) {
    column(cmd, wishes.iter().map(|wish| wish.units));
    column(cmd, wishes.iter().map(pack));
}

/// As `src/outbox.rs` has it, written down a second time.
fn pack(wish: &Wish) -> Vec<u8> {
    let buyer = wish.buyer.as_str().as_bytes();
    [
        wish.id.as_bytes(),
        &wish.units.to_be_bytes()[..],
        &[u8::try_from(buyer.len()).unwrap()],
        buyer,
    ]
    .concat()
}

fn fields(reply: &Value) -> &[Value] {
    match reply {
        Value::Array(fields) => fields,
        other => panic!("{other:?}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        other => redis::from_redis_value(other.clone()).unwrap(),
    }
}

fn status(reply: &Value) -> String {
    text(&fields(reply)[0])
}

/// Units left, and one word for each order: `taken`, or the code and the stored answer.
fn answers(available: &Value, exceptions: &Value, orders: usize) -> (u64, Vec<String>) {
    let mut answers = vec!["taken".to_owned(); orders];
    for exception in fields(exceptions).chunks(3) {
        let index: usize = text(&exception[0]).parse().unwrap();
        answers[index] = format!("{} {}", text(&exception[1]), text(&exception[2]))
            .trim_end()
            .to_owned();
    }
    (text(available).parse().unwrap(), answers)
}

fn home_answers(reply: &Value, orders: usize) -> (u64, Vec<String>) {
    let fields = fields(reply);
    assert_eq!((text(&fields[0]).as_str(), fields.len()), ("ok", 10));
    answers(&fields[3], &fields[9], orders)
}

fn next_answers(reply: &Value, orders: usize) -> (u64, Vec<String>) {
    let fields = fields(reply);
    assert_eq!((text(&fields[0]).as_str(), fields.len()), ("ok", 7));
    answers(&fields[3], &fields[6], orders)
}

/// When holds taken by this reply are over.
fn expires(reply: &Value) -> String {
    text(&fields(reply)[5])
}

async fn ask_home_answers_every_case(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(6, 2).limit(2)).await;
    let [ann, bob, cid, dan] = [0, 1, 2, 3].map(|n| sale.buyer_at(0, n));
    let deadline = sale.now_ms().await + 60_000;
    let ask = async |wishes: &[Wish]| sale.ask_home(0, deadline, wishes).await.unwrap();

    let first = ask(&[sale.wish(&ann, "1", 1)]).await;
    assert_eq!(home_answers(&first, 1), (2, vec!["taken".into()]));
    let [now, entry] = [1, 4].map(|at| text(&fields(&first)[at]));
    assert_eq!(
        expires(&first).parse::<i64>().unwrap(),
        now.parse::<i64>().unwrap() + 600_000
    );
    assert_eq!(sale.dump(0).await.stock["last"], entry);
    let t1 = format!("a T1:{}", expires(&first));

    let table: &[(&str, Vec<Wish>, u64, Vec<&str>)] = &[
        (
            "a repeat changes nothing",
            vec![sale.wish(&ann, "1", 1)],
            2,
            vec![&t1],
        ),
        (
            "nor does one for another quantity",
            vec![sale.wish(&ann, "1", 9)],
            2,
            vec![&t1],
        ),
        (
            "the limit counts units",
            vec![sale.wish(&ann, "2", 2)],
            2,
            vec!["l"],
        ),
        (
            "within a batch too",
            vec![sale.wish(&bob, "1", 1), sale.wish(&bob, "2", 2)],
            1,
            vec!["taken", "l"],
        ),
        (
            "a batch mixes answers",
            vec![
                sale.wish(&ann, "1", 1),
                sale.wish(&cid, "1", 1),
                sale.wish(&dan, "1", 1),
            ],
            0,
            vec![&t1, "taken", "p"],
        ),
        (
            "the limit goes before passed",
            vec![sale.wish(&bob, "3", 2)],
            0,
            vec!["l"],
        ),
        (
            "an order that passed is counted",
            vec![sale.wish(&dan, "2", 2)],
            0,
            vec!["l"],
        ),
    ];
    for (what, wishes, left, expected) in table {
        let (available, answers) = home_answers(&ask(wishes).await, wishes.len());
        assert_eq!(
            (available, answers.iter().map(String::as_str).collect()),
            (*left, expected.clone()),
            "{what}"
        );
    }
    let passed = format!("a P1:{deadline}");
    assert_eq!(
        home_answers(&ask(&[sale.wish(&dan, "1", 1)]).await, 1).1,
        [passed],
        "passed is repeated"
    );
    sale.give_back(0, 1).await;
    assert_eq!(
        home_answers(&ask(&[sale.wish(&dan, "1", 1)]).await, 1),
        (1, vec![format!("a P1:{deadline}")]),
        "even with a unit there"
    );
    assert_eq!(
        home_answers(&ask(&[sale.wish(&dan, "2", 1)]).await, 1),
        (0, vec!["taken".into()]),
        "which another order takes"
    );

    assert_eq!(
        status(
            &sale
                .finish_walk(0, deadline, &[sale.wish(&dan, "1", 1)], &[("S", "")])
                .await
        ),
        "ok"
    );
    assert_eq!(
        home_answers(&ask(&[sale.wish(&dan, "1", 1)]).await, 1).1,
        [format!("a S1:{deadline}")]
    );
    // An order that ends elsewhere.
    assert_eq!(
        home_answers(&ask(&[sale.wish(&dan, "3", 1)]).await, 1).1,
        ["p"]
    );
    let next = sale
        .ask_next(1, deadline, &[sale.wish(&dan, "3", 1)])
        .await
        .unwrap();
    let place = format!("{}:1", expires(&next));
    sale.finish_walk(0, deadline, &[sale.wish(&dan, "3", 1)], &[("E", &place)])
        .await;
    assert_eq!(
        home_answers(&ask(&[sale.wish(&dan, "3", 1)]).await, 1).1,
        [format!("a E1:{place}")]
    );
}

async fn ask_home_without_another_segment_says_sold_out(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 1).limit(1)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    let deadline = sale.now_ms().await + 60_000;
    let ask = async |wish: Wish| {
        home_answers(&sale.ask_home(0, deadline, &[wish]).await.unwrap(), 1)
            .1
            .remove(0)
    };
    assert_eq!(ask(sale.wish(&ann, "1", 1)).await, "taken");
    assert_eq!(
        ask(sale.wish(&ann, "2", 1)).await,
        "l",
        "the limit goes before sold out"
    );
    assert_eq!(ask(sale.wish(&bob, "1", 1)).await, "s");
    assert_eq!(
        ask(sale.wish(&bob, "1", 1)).await,
        format!("a S1:{deadline}")
    );
    let dump = sale.dump(0).await;
    assert_eq!(dump.buyers.get(bob.as_str()), None, "nothing to give back");
    assert_eq!(
        dump.walks[&pack(&sale.wish(&bob, "1", 1))],
        (deadline + MARGIN_MS).to_string(),
        "it is to be forgotten some time"
    );
}

async fn ask_home_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann = sale.buyer_at(0, 0);
    let before = sale.dumps().await;
    let wish = sale.wish(&ann, "1", 1);
    let now = sale.now_ms().await;
    assert_eq!(
        status(
            &sale
                .ask_home(0, now - 100, std::slice::from_ref(&wish))
                .await
                .unwrap()
        ),
        "late"
    );
    let twice = sale
        .ask_home(0, now + 60_000, &[wish.clone(), wish.clone()])
        .await
        .unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    assert_eq!(
        status(&sale.ask_home(2, now + 60_000, &[wish]).await.unwrap()),
        "missing"
    );
    assert_eq!(sale.dumps().await, before);
    let exists: u64 = sale
        .redis(redis::cmd("EXISTS").arg(sale.names(2).answers))
        .await;
    assert_eq!(exists, 0, "a segment that is missing is not made by asking");
}

async fn ask_home_remembers_the_latest_deadline(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let wish = sale.wish(&sale.buyer_at(0, 0), "1", 1);
    let deadline = sale.now_ms().await + 60_000;
    for (asked, remembered) in [
        (deadline, deadline),
        (deadline + 500, deadline + 500),
        (deadline + 200, deadline + 500),
    ] {
        sale.ask_home(0, asked, std::slice::from_ref(&wish))
            .await
            .unwrap();
        let dump = sale.dump(0).await;
        assert_eq!(dump.answer(wish.id).unwrap(), format!("P1:{remembered}"));
        assert_eq!(dump.walks[&pack(&wish)], remembered.to_string());
        assert_eq!(
            dump.buyers[wish.buyer.as_str()],
            1,
            "a repeat is not counted"
        );
    }
    let before = sale.dump(0).await;
    let other = Wish { units: 2, ..wish };
    let reply = sale
        .ask_home(0, deadline + 9000, std::slice::from_ref(&other))
        .await
        .unwrap();
    assert_eq!(
        home_answers(&reply, 1).1,
        [format!("a P1:{}", deadline + 500)]
    );
    assert_eq!(
        sale.dump(0).await,
        before,
        "the same id for another quantity is no attempt of this order"
    );
}

async fn ask_home_outside_the_window_refuses_but_repeats(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 1)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    let now = sale.now_ms().await;
    let ask = async |wish: Wish| sale.ask_home(0, now + 60_000, &[wish]).await.unwrap();
    let taken = expires(&ask(sale.wish(&ann, "1", 1)).await);
    for (state, opens_ms, closes_ms) in [
        ("paused", 0, 0),
        ("closed", 0, 0),
        ("open", now + 50_000, 0),
        ("open", 0, now),
        ("open", now + 50_000, now + 60_000),
    ] {
        let mut set = redis::cmd("HSET");
        set.arg(sale.names(0).stock)
            .arg("state")
            .arg(state)
            .arg("opens_ms")
            .arg(opens_ms)
            .arg("closes_ms")
            .arg(closes_ms);
        let _: i64 = sale.redis(&set).await;
        let before = sale.dump(0).await;
        let refused = ask(sale.wish(&bob, "1", 1)).await;
        assert_eq!(
            home_answers(&refused, 1),
            (1, vec!["n".into()]),
            "{state} {opens_ms} {closes_ms}"
        );
        assert_eq!(
            [6, 7, 8].map(|at| text(&fields(&refused)[at])),
            [
                state.to_owned(),
                opens_ms.to_string(),
                closes_ms.to_string()
            ]
        );
        assert_eq!(
            home_answers(&ask(sale.wish(&ann, "1", 1)).await, 1).1,
            [format!("a T1:{taken}")]
        );
        assert_eq!(sale.dump(0).await, before);
    }
}

async fn ask_next_answers_every_case(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let [ann, bob, cid] = [0, 1, 2].map(|n| sale.buyer_at(0, n));
    let deadline = sale.now_ms().await + 60_000;
    // Home gives its two units, and then passes whoever asks at segment 1.
    let wishes = [
        sale.wish(&ann, "0", 2),
        sale.wish(&ann, "1", 1),
        sale.wish(&bob, "1", 2),
        sale.wish(&cid, "1", 1),
        sale.wish(&cid, "2", 1),
    ];
    assert_eq!(
        home_answers(&sale.ask_home(0, deadline, &wishes).await.unwrap(), 5).1,
        ["taken", "p", "p", "p", "p"]
    );
    let [_, ann1, bob1, cid1, cid2] = wishes;
    let first = sale
        .ask_next(1, deadline, std::slice::from_ref(&ann1))
        .await
        .unwrap();
    let (t1, p1, p2) = (
        format!("a T1:{}", expires(&first)),
        format!("a P1:{deadline}"),
        format!("a P2:{deadline}"),
    );
    assert_eq!(next_answers(&first, 1), (1, vec!["taken".into()]));
    let table: &[(&str, Vec<Wish>, u64, Vec<&str>)] = &[
        ("a repeat changes nothing", vec![ann1.clone()], 1, vec![&t1]),
        (
            "two are not there, but one is",
            vec![bob1.clone(), cid1.clone()],
            0,
            vec!["p", "taken"],
        ),
        (
            "a batch mixes answers",
            vec![ann1.clone(), bob1.clone(), cid2.clone()],
            0,
            vec![&t1, &p2, "p"],
        ),
        ("passed is repeated", vec![cid2.clone()], 0, vec![&p1]),
    ];
    for (what, wishes, left, expected) in table {
        let (available, answers) = next_answers(
            &sale.ask_next(1, deadline, wishes).await.unwrap(),
            wishes.len(),
        );
        assert_eq!(
            (available, answers.iter().map(String::as_str).collect()),
            (*left, expected.clone()),
            "{what}"
        );
    }
    sale.give_back(1, 2).await;
    let later = sale
        .ask_next(1, deadline + 5, &[bob1.clone(), cid2])
        .await
        .unwrap();
    assert_eq!(
        next_answers(&later, 2),
        (2, vec![p2, p1]),
        "passed stays passed with units there, under the deadline that it had"
    );
    let _: i64 = sale
        .redis(
            redis::cmd("HSET")
                .arg(sale.names(1).stock)
                .arg("state")
                .arg("paused"),
        )
        .await;
}

async fn ask_next_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann = sale.buyer_at(0, 0);
    let (now, wish) = (sale.now_ms().await, sale.wish(&ann, "1", 1));
    let before = sale.dumps().await;
    assert_eq!(
        status(
            &sale
                .ask_next(1, now - 100, std::slice::from_ref(&wish))
                .await
                .unwrap()
        ),
        "late"
    );
    assert!(
        sale.ask_next(1, now + 60_000, &[wish.clone(), wish.clone()])
            .await
            .unwrap_err()
            .to_string()
            .contains("twice")
    );
    assert_eq!(
        status(
            &sale
                .ask_next(2, now + 60_000, std::slice::from_ref(&wish))
                .await
                .unwrap()
        ),
        "missing"
    );
    assert_eq!(sale.dumps().await, before);

    let _: i64 = sale
        .redis(
            redis::cmd("HSET")
                .arg(sale.names(1).stock)
                .arg("state")
                .arg("paused"),
        )
        .await;
    let reply = sale.ask_next(1, now + 60_000, &[wish]).await.unwrap();
    assert_eq!(
        next_answers(&reply, 1),
        (1, vec!["p".into()]),
        "a paused segment passes"
    );
}

async fn finish_walk_settles_once(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2).limit(3)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 60_000;
    let (gone, kept, missed) = (
        sale.wish(&ann, "gone", 2),
        sale.wish(&ann, "kept", 1),
        sale.wish(&ann, "missed", 1),
    );
    assert_eq!(
        home_answers(
            &sale
                .ask_home(1, deadline, &[gone.clone(), kept.clone()])
                .await
                .unwrap(),
            2
        )
        .1,
        ["p", "p"]
    );
    let next = sale
        .ask_next(0, deadline, &[gone.clone(), kept.clone()])
        .await
        .unwrap();
    assert_eq!(next_answers(&next, 2).1, ["p", "taken"]);
    let place = format!("{}:0", expires(&next));

    let before = sale.dump(1).await;
    let now = sale.now_ms().await;
    assert_eq!(
        status(
            &sale
                .finish_walk(1, now - 100, std::slice::from_ref(&gone), &[("S", "")])
                .await
        ),
        "late"
    );
    assert_eq!(
        sale.dump(1).await,
        before,
        "a late outcome may be that of an earlier walk"
    );

    let walks = [gone.clone(), kept.clone(), missed];
    let ends = [("S", ""), ("E", place.as_str()), ("S", "")];
    for changed in ["2", "0", "0"] {
        assert_eq!(
            text(&fields(&sale.finish_walk(1, deadline, &walks, &ends).await)[2]),
            changed
        );
        let dump = sale.dump(1).await;
        assert_eq!(
            dump.buyers[ann.as_str()],
            1,
            "given back once for the one, kept for the other"
        );
        assert_eq!(dump.answer(gone.id).unwrap(), format!("S2:{deadline}"));
        assert_eq!(dump.answer(kept.id).unwrap(), format!("E1:{place}"));
        assert_eq!(
            dump.answers.len(),
            2,
            "an order that never asked gets no answer"
        );
        assert!(
            dump.walks
                .values()
                .all(|due| *due == (deadline + MARGIN_MS).to_string())
        );
    }
    // The other attempt ended otherwise, or so it says: the first one stands.
    sale.finish_walk(
        1,
        deadline,
        &[gone.clone(), kept.clone()],
        &[("E", &place), ("S", "")],
    )
    .await;
    assert_eq!(
        sale.dump(1).await.answer(kept.id).unwrap(),
        format!("E1:{place}")
    );
    assert_eq!(
        sale.dump(1).await.answer(gone.id).unwrap(),
        format!("S2:{deadline}")
    );
}

async fn finish_walk_leaves_what_did_not_pass(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let wish = sale.wish(&sale.buyer_at(0, 0), "1", 1);
    let deadline = sale.now_ms().await + 60_000;
    sale.ask_home(0, deadline, std::slice::from_ref(&wish))
        .await
        .unwrap();
    let before = sale.dump(0).await;
    let reply = sale.finish_walk(0, deadline, &[wish], &[("S", "")]).await;
    assert_eq!(text(&fields(&reply)[2]), "0");
    assert_eq!(sale.dump(0).await, before, "the units were taken at home");
}

async fn due_walks_lists_what_is_due(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let now = sale.now_ms().await;
    let wishes = [0, 1, 2, 3].map(|n| sale.wish(&sale.buyer_at(0, n), "k", 1));
    for (wish, due) in wishes
        .iter()
        .zip([now + 150, now + 100, now + 60_000, now + 50])
    {
        sale.ask_home(0, due, std::slice::from_ref(wish))
            .await
            .unwrap();
    }
    sale::eventually("three walks falling due", async || {
        sale.due_walks(0, 10).await.len() == 3
    })
    .await;
    let due = |n: usize, due: i64| (pack(&wishes[n]), due, format!("P1:{due}"));
    assert_eq!(
        sale.due_walks(0, 10).await,
        [due(3, now + 50), due(1, now + 100), due(0, now + 150)],
        "the oldest first"
    );
    assert_eq!(sale.due_walks(0, 2).await.len(), 2);
    let _: i64 = sale
        .redis(
            redis::cmd("HDEL")
                .arg(sale.names(0).answers)
                .arg(&wishes[3].id.as_bytes()[..]),
        )
        .await;
    assert_eq!(
        sale.due_walks(0, 1).await,
        [(pack(&wishes[3]), now + 50, String::new())],
        "without an answer"
    );
    // The audit counts her walk by its answer.
    let _: i64 = sale
        .redis(
            redis::cmd("HDEL")
                .arg(sale.names(0).buyers)
                .arg(wishes[3].buyer.as_str()),
        )
        .await;
}

async fn forget_passes_drops_only_what_the_walk_knew(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let deadline = sale.now_ms().await + 60_000;
    let wishes = [0, 1, 2].map(|n| sale.wish(&sale.buyer_at(1, n), "k", 1));
    sale.ask_home(1, deadline, &wishes).await.unwrap();
    let reply = sale.ask_next(0, deadline, &wishes).await.unwrap();
    assert_eq!(next_answers(&reply, 3).1, ["taken", "p", "p"]);
    let [taken, one, two] = &wishes;
    let unknown = sale.wish(&sale.buyer_at(1, 3), "k", 1);
    let before = sale.dump(0).await;
    assert_eq!(
        sale.forget_passes(
            0,
            &[(taken, deadline), (one, deadline - 1), (&unknown, deadline)]
        )
        .await,
        0
    );
    assert_eq!(
        sale.dump(0).await,
        before,
        "taken stays, and so does what a later walk may have left"
    );
    assert_eq!(
        sale.forget_passes(
            0,
            &[(taken, deadline + 9), (one, deadline), (two, deadline + 9)]
        )
        .await,
        2
    );
    assert_eq!(sale.dump(0).await.answers.len(), 1);
    assert_eq!(
        sale.forget_passes(0, &[(one, deadline)]).await,
        0,
        "a repeat changes nothing"
    );
}

async fn forget_walk_forgets_only_what_was_read_and_is_due(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let deadline = sale.now_ms().await + 300;
    let [gone, kept, open] = [0, 1, 2].map(|n| sale.wish(&sale.buyer_at(1, n), "k", 1));
    sale.ask_home(1, deadline, &[gone.clone(), kept.clone(), open.clone()])
        .await
        .unwrap();
    let next = sale
        .ask_next(0, deadline, std::slice::from_ref(&kept))
        .await
        .unwrap();
    let place = format!("{}:0", expires(&next));
    sale.finish_walk(
        1,
        deadline,
        &[gone.clone(), kept.clone()],
        &[("S", ""), ("E", &place)],
    )
    .await;
    let due = deadline + MARGIN_MS;
    let before = sale.dump(1).await;
    assert_eq!(
        sale.forget_walk(1, &[(&gone, due), (&kept, due), (&open, deadline)])
            .await,
        0,
        "not due yet"
    );
    sale::eventually("the margin", async || sale.now_ms().await > due).await;
    assert_eq!(
        sale.forget_walk(1, &[(&gone, due - 1), (&kept, due + 1), (&open, deadline)])
            .await,
        0,
        "not as it was read, or not final"
    );
    assert_eq!(sale.dump(1).await, before);
    assert_eq!(sale.forget_walk(1, &[(&gone, due), (&kept, due)]).await, 2);
    let dump = sale.dump(1).await;
    assert_eq!(dump.answer(gone.id), None, "sold out is forgotten");
    assert_eq!(
        dump.answer(kept.id).unwrap(),
        format!("E1:{place}"),
        "what the order holds is not"
    );
    assert_eq!(dump.walks.keys().collect::<Vec<_>>(), [&pack(&open)]);
    assert_eq!(
        sale.forget_walk(1, &[(&gone, due), (&kept, due)]).await,
        0,
        "a repeat changes nothing"
    );
}

async fn open_segment_twice_changes_nothing(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 1)).await;
    let names = sale.names(7);
    let keys = [
        &names.stock,
        &names.answers,
        &names.buyers,
        &names.outbox,
        &names.walks,
    ];
    let open = async |units: u32, epoch: u32| {
        let arguments = [
            &units.to_string(),
            "2",
            "open",
            "5",
            "6",
            &epoch.to_string(),
            "600000",
            "3",
            "x:7",
        ];
        let reply = sale
            .eval(OPEN_SEGMENT, &keys, |cmd| column(cmd, arguments))
            .await
            .unwrap();
        fields(&reply).iter().map(text).collect::<Vec<_>>()
    };
    let opened = open(10, 4).await;
    assert_eq!(opened[..3], ["opened", "4", "10"]);
    let before = sale.dump(7).await;
    assert_eq!(
        before
            .stock
            .iter()
            .map(|(field, value)| format!("{field}={value}"))
            .collect::<Vec<_>>(),
        [
            "available=10",
            "closes_ms=6",
            "epoch=4",
            "fence=0",
            "hold_ms=600000",
            &format!("last={}", opened[3]),
            "limit=2",
            "opens_ms=5",
            "segments=3",
            "state=open",
        ]
    );
    assert_eq!(open(99, 9).await, ["exists", "4", "10", &opened[3]]);
    assert_eq!(sale.dump(7).await, before);
}

async fn set_state_lets_the_higher_epoch_stand(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    let set = async |segment: u16, state: &str, epoch: u64| {
        let names = sale.names(segment);
        let arguments = [
            state,
            &epoch.to_string(),
            "0",
            "0",
            "0",
            &sale.segment(segment).to_string(),
        ];
        let reply = sale
            .eval(SET_STATE, &[&names.stock, &names.outbox], |cmd| {
                column(cmd, arguments)
            })
            .await
            .unwrap();
        format!("{} {}", status(&reply), text(&fields(&reply)[1]))
    };
    for (state, epoch, expected, stands) in [
        ("paused", 3, "set 3", "paused"),
        ("open", 2, "stale 3", "paused"),
        ("open", 3, "same 3", "paused"),
        ("open", 4, "set 4", "open"),
        ("closed", 10, "set 10", "closed"),
    ] {
        let before = sale.dump(0).await;
        assert_eq!(set(0, state, epoch).await, expected);
        let after = sale.dump(0).await;
        assert_eq!(after.stock["state"], stands);
        assert_eq!(after.stock["available"], "5");
        assert_eq!(
            after.outbox - before.outbox,
            u64::from(expected.starts_with("set")),
            "an entry if and only if something changed"
        );
    }
    assert_eq!(set(1, "open", 99).await, "missing 0");
    let states = sale.set_state(ItemState::Open, 10).await.unwrap();
    assert_eq!(states, [stock::StateSet::Same]);
    assert_eq!(
        sale.set_state(ItemState::Open, 11).await.unwrap(),
        [stock::StateSet::Set]
    );
    assert_eq!(
        sale.set_state(ItemState::Open, 5).await.unwrap(),
        [stock::StateSet::Stale]
    );
}

async fn inspect_shows_everything(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2).limit(7)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    let deadline = sale.now_ms().await + 60_000;
    let taken = sale
        .ask_home(
            0,
            deadline,
            &[sale.wish(&ann, "1", 2), sale.wish(&bob, "1", 1)],
        )
        .await
        .unwrap();
    let last = text(&fields(&taken)[4]);
    let inspect = async |segment: u16, from: &str| {
        let names = sale.names(segment);
        let keys = [
            &names.stock,
            &names.answers,
            &names.buyers,
            &names.outbox,
            &names.walks,
        ];
        sale.eval(INSPECT, &keys, |cmd| column(cmd, [from]))
            .await
            .unwrap()
    };
    assert_eq!(status(&inspect(2, "-").await), "missing");
    for (from, entries) in [("", 0), ("-", 2), (last.as_str(), 1), ("99999999999999", 0)] {
        let reply = inspect(0, from).await;
        let [shown @ .., list] = fields(&reply) else {
            panic!()
        };
        let shown: Vec<_> = shown.iter().map(text).collect();
        assert_eq!(
            shown,
            [
                "ok", "0", "open", "1", &last, "7", "2", "2", "2", "1", "0", "0", "0", "", "1"
            ],
            "available, state, epoch, last, limit, four counts, window, fence, nobody mends it, and it is whole"
        );
        assert_eq!(fields(list).len(), entries, "from {from:?}");
    }
}

/// And what is written to it later does not make it whole.
async fn a_segment_that_lost_a_key_refuses_and_says_so(site: Arc<Site>) {
    for (kind, home_refuses, next_refuses) in [
        ("answers", true, true),
        ("buyers", true, false),
        ("walks", false, false),
    ] {
        let sale = sale::open(&site, Terms::new(8, 2).limit(1)).await;
        let ann = sale.buyer_at(0, 0);
        let deadline = sale.now_ms().await + 60_000;
        let [first, second] = ["1", "2"].map(|key| [sale.wish(&ann, key, 1)]);
        assert_eq!(
            status(&sale.ask_home(0, deadline, &first).await.unwrap()),
            "ok"
        );
        let names = sale.names(0);
        let lost = match kind {
            "answers" => &names.answers,
            "buyers" => &names.buyers,
            _ => &names.walks,
        };
        let kept: Vec<u8> = sale.redis(redis::cmd("DUMP").arg(lost)).await;
        assert_eq!(sale.redis::<i64>(redis::cmd("DEL").arg(lost)).await, 1);
        let asked = [
            sale.ask_home(0, deadline, &second).await,
            sale.ask_next(0, deadline, &first).await,
        ];
        let refused = asked.map(|asked| status(&asked.unwrap()) == "missing");
        assert_eq!(refused, [home_refuses, next_refuses], "{kind}");
        // Ann has what she may have, and repeats the other.
        assert_eq!(
            sale.redis::<u64>(redis::cmd("XLEN").arg(&names.outbox))
                .await,
            2,
            "{kind}"
        );
        if kind != "walks" {
            let _: i64 = sale
                .redis(redis::cmd("HSET").arg(lost).arg("somebody").arg("1"))
                .await;
        }
        let keys = [
            &names.stock,
            &names.answers,
            &names.buyers,
            &names.outbox,
            &names.walks,
        ];
        let inspected = sale
            .eval(INSPECT, &keys, |cmd| column(cmd, [""]))
            .await
            .unwrap();
        let shown: Vec<_> = fields(&inspected).iter().take(15).map(text).collect();
        assert_eq!((&*shown[0], &*shown[14]), ("ok", "0"), "{kind}");
        let () = sale
            .redis(
                redis::cmd("RESTORE")
                    .arg(lost)
                    .arg(0)
                    .arg(kept)
                    .arg("REPLACE"),
            )
            .await;
    }
}

async fn an_empty_outbox_that_gets_something_says_so(site: Arc<Site>) {
    let stock = site.instance().await;
    let mut wakeups = stock.outbox_wakeups();
    assert_eq!(
        wakeups.recv().await.unwrap(),
        None,
        "subscribed: look everywhere once"
    );
    let sale = sale::open(&site, Terms::new(9, 2)).await;
    // Other tests share the channel.
    let mut heard = async |count: usize| {
        let mut heard = Vec::new();
        while heard.len() < count {
            let wakeup = tokio::time::timeout(std::time::Duration::from_secs(10), wakeups.recv())
                .await
                .unwrap()
                .unwrap();
            heard.extend(
                wakeup
                    .filter(|segment| segment.item == sale.item.id)
                    .map(|segment| segment.segment),
            );
        }
        heard.sort_unstable();
        heard
    };
    assert_eq!(heard(2).await, [0, 1], "opened");
    let deadline = sale.now_ms().await + 60_000;
    let (ann, bob) = (sale.buyer_at(1, 0), sale.buyer_at(0, 0));
    for key in ["1", "2", "3"] {
        sale.ask_home(1, deadline, &[sale.wish(&ann, key, 1)])
            .await
            .unwrap();
    }
    sale.ask_home(0, deadline, &[sale.wish(&bob, "1", 1)])
        .await
        .unwrap();
    assert_eq!(
        heard(2).await,
        [0, 1],
        "once for segment 1: whoever it woke reads the rest as well"
    );
}
