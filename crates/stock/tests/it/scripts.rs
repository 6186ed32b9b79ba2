//! Each file of `lua/` as a table: what is asked, what it answers, what it leaves. Run as it stands
//! in the file, with the key names that are documented, so that a change of Lua alone is noticed.
//! Here are those by which an order takes; how units come back, move, and are repaired is in files
//! of its own.

mod archive;
mod check;
mod release;
mod reopen;
mod repair;
mod transfer;

use std::{borrow::Borrow, sync::Arc};

use domain::{BuyerId, ItemState, OrderId};
use redis::{Cmd, Value};
use stock::Wakeup;
use testbed::in_time;

use crate::{
    sale::{self, Sale, Terms},
    site::{Site, on_both, tested},
};

const RESERVE_HOME: &str = include_str!("../../../../lua/reserve_home.lua");
const RESERVE_NEXT: &str = include_str!("../../../../lua/reserve_next.lua");
const DUE_SPILLOVERS: &str = include_str!("../../../../lua/due_spillovers.lua");
const RESERVE_AGAIN: &str = include_str!("../../../../lua/reserve_again.lua");
const FINISH_SPILLOVER: &str = include_str!("../../../../lua/finish_spillover.lua");
const FORGET_DECLINED: &str = include_str!("../../../../lua/forget_declined.lua");
const FORGET_SPILLOVER: &str = include_str!("../../../../lua/forget_spillover.lua");
const HALT: &str = include_str!("../../../../lua/halt_segment.lua");
const INSPECT: &str = include_str!("../../../../lua/inspect.lua");
const OPEN_SEGMENT: &str = include_str!("../../../../lua/open_segment.lua");
const SET_STATE: &str = include_str!("../../../../lua/set_state.lua");

/// The margin that these tests tell the scripts.
const MARGIN_MS: i64 = 1000;

/// An order of a batch, in columns that the test builds itself.
#[derive(Clone)]
pub struct Row {
    id: OrderId,
    buyer: BuyerId,
    units: u32,
}

impl Sale {
    fn row(&self, buyer: &BuyerId, key: &str, units: u32) -> Row {
        Row {
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
    ) -> Value {
        self.try_eval(source, keys, arguments).await.unwrap()
    }

    async fn try_eval(
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

    async fn reserve_home(
        &self,
        segment: u16,
        deadline_ms: i64,
        rows: &[impl Borrow<Row>],
    ) -> Value {
        let reply = self.try_reserve_home(segment, deadline_ms, rows).await;
        reply.unwrap()
    }

    async fn try_reserve_home(
        &self,
        segment: u16,
        deadline_ms: i64,
        rows: &[impl Borrow<Row>],
    ) -> redis::RedisResult<Value> {
        let rows = &copied(rows);
        self.try_eval(RESERVE_HOME, &self.names(segment).all(), |cmd| {
            cmd.arg(rows.len())
                .arg(deadline_ms)
                .arg(MARGIN_MS)
                .arg(self.segment(segment).to_string());
            orders(cmd, rows);
            column(cmd, rows.iter().map(|row| row.buyer.as_str()));
        })
        .await
    }

    async fn reserve_next(
        &self,
        segment: u16,
        deadline_ms: i64,
        rows: &[impl Borrow<Row>],
    ) -> Value {
        let reply = self.try_reserve_next(segment, deadline_ms, rows).await;
        reply.unwrap()
    }

    async fn try_reserve_next(
        &self,
        segment: u16,
        deadline_ms: i64,
        rows: &[impl Borrow<Row>],
    ) -> redis::RedisResult<Value> {
        let (names, rows) = (self.names(segment), &copied(rows));
        let keys = [&names.stock, &names.decisions, &names.outbox];
        self.try_eval(RESERVE_NEXT, &keys, |cmd| {
            cmd.arg(rows.len())
                .arg(deadline_ms)
                .arg(self.segment(segment).to_string());
            orders(cmd, rows);
        })
        .await
    }

    /// What home decides on an order that is alone in its batch.
    async fn at_home(&self, segment: u16, deadline_ms: i64, row: &Row) -> String {
        let reply = self.reserve_home(segment, deadline_ms, &[row]).await;
        decided(&reply, 1).1.remove(0)
    }

    /// What a further segment decides on it.
    async fn at_next(&self, segment: u16, deadline_ms: i64, row: &Row) -> String {
        let reply = self.reserve_next(segment, deadline_ms, &[row]).await;
        decided(&reply, 1).1.remove(0)
    }

    /// `ends`: outcome and place.
    async fn finish_spillover(
        &self,
        segment: u16,
        deadline_ms: i64,
        rows: &[impl Borrow<Row>],
        ends: &[(&str, &str)],
    ) -> Value {
        let (names, rows) = (self.names(segment), &copied(rows));
        self.eval(
            FINISH_SPILLOVER,
            &[
                &names.stock,
                &names.decisions,
                &names.buyers,
                &names.spillovers,
            ],
            |cmd| {
                cmd.arg(rows.len()).arg(deadline_ms).arg(MARGIN_MS);
                ids(cmd, rows);
                column(cmd, rows.iter().map(|row| row.buyer.as_str()));
                column(cmd, rows.iter().map(pack));
                column(cmd, ends.iter().map(|(outcome, _)| *outcome));
                column(cmd, ends.iter().map(|(_, place)| *place));
            },
        )
        .await
    }

    async fn due_spillovers(&self, segment: u16, at_most: usize) -> Vec<(Vec<u8>, i64, String)> {
        let names = self.names(segment);
        let reply = self
            .eval(
                DUE_SPILLOVERS,
                &[&names.decisions, &names.spillovers],
                |cmd| column(cmd, [at_most, 0]),
            )
            .await;
        let (_now_ms, list): (i64, Vec<Value>) = redis::from_redis_value(reply).unwrap();
        let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).unwrap();
        let spillover = |spillover: &[Value]| {
            (
                redis::from_redis_value(spillover[0].clone()).unwrap(),
                text(&spillover[1]).parse().unwrap(),
                text(&spillover[2]),
            )
        };
        list.chunks(3).map(spillover).collect()
    }

    async fn forget_declined(&self, segment: u16, spillovers: &[(&Row, i64)]) -> i64 {
        let names = self.names(segment);
        let fill = |cmd: &mut Cmd| {
            cmd.arg(spillovers.len());
            column(
                cmd,
                spillovers.iter().map(|(row, _)| &row.id.as_bytes()[..]),
            );
            column(cmd, spillovers.iter().map(|(_, until_ms)| *until_ms));
        };
        redis::from_redis_value(self.eval(FORGET_DECLINED, &[&names.decisions], fill).await)
            .unwrap()
    }

    async fn forget_spillover(&self, segment: u16, spillovers: &[(&Row, i64)]) -> i64 {
        let names = self.names(segment);
        let fill = |cmd: &mut Cmd| {
            cmd.arg(spillovers.len());
            column(
                cmd,
                spillovers.iter().map(|(row, _)| &row.id.as_bytes()[..]),
            );
            column(cmd, spillovers.iter().map(|(row, _)| pack(row)));
            column(cmd, spillovers.iter().map(|(_, due_ms)| *due_ms));
        };
        let reply = self
            .eval(
                FORGET_SPILLOVER,
                &[&names.decisions, &names.spillovers],
                fill,
            )
            .await;
        let (_now_ms, forgotten): (i64, i64) = redis::from_redis_value(reply).unwrap();
        forgotten
    }

    /// An order that home has declined and that is not pursued further.
    pub async fn begin_spillover(&self, buyer: &BuyerId, key: &str, units: u32, deadline_ms: i64) {
        let home = u16::try_from(buyer.stable_hash() % u64::from(self.item.segments)).unwrap();
        let reply = self
            .reserve_home(home, deadline_ms, &[self.row(buyer, key, units)])
            .await;
        assert_eq!(decided(&reply, 1).1, ["d"], "home was to be empty");
    }

    /// The same for a crowd that has its home here, for one unit each.
    pub async fn begin_spillovers(
        &self,
        home: u16,
        buyers: &[BuyerId],
        key: &str,
        deadline_ms: i64,
    ) {
        for crowd in buyers.chunks(500) {
            let rows: Vec<_> = crowd.iter().map(|buyer| self.row(buyer, key, 1)).collect();
            let reply = self.reserve_home(home, deadline_ms, &rows).await;
            assert!(
                decided(&reply, rows.len())
                    .1
                    .iter()
                    .all(|decision| decision == "d"),
                "home was to be empty"
            );
        }
    }

    /// Orders of a crowd that take one unit each at their home, in one entry.
    pub async fn take_at(&self, home: u16, buyers: &[BuyerId], key: &str, deadline_ms: i64) {
        let rows: Vec<_> = buyers.iter().map(|buyer| self.row(buyer, key, 1)).collect();
        let reply = self.reserve_home(home, deadline_ms, &rows).await;
        let decisions = decided(&reply, rows.len()).1;
        assert!(decisions.iter().all(|decision| decision == "taken"));
    }

    /// The same, one segment further.
    pub async fn continue_spillover(
        &self,
        segment: u16,
        buyer: &BuyerId,
        key: &str,
        units: u32,
        deadline_ms: i64,
    ) -> String {
        let reply = self
            .reserve_next(segment, deadline_ms, &[self.row(buyer, key, units)])
            .await;
        decided(&reply, 1).1.remove(0)
    }

    /// Asks a segment in a later round. Returns what it decides, or has decided.
    pub async fn reserve_again(
        &self,
        segment: u16,
        buyer: &BuyerId,
        key: &str,
        round: u32,
        deadline_ms: i64,
    ) -> String {
        let names = self.names(segment);
        let keys = [
            &names.stock,
            &names.decisions,
            &names.outbox,
            &names.spillovers,
        ];
        let rows = [self.row(buyer, key, 1)];
        let home = buyer.stable_hash() % u64::from(self.item.segments) == u64::from(segment);
        let reply = self
            .eval(RESERVE_AGAIN, &keys, |cmd| {
                cmd.arg(1)
                    .arg(deadline_ms)
                    .arg(MARGIN_MS)
                    .arg(self.segment(segment).to_string());
                orders(cmd, &rows);
                cmd.arg(round).arg(u8::from(home));
            })
            .await;
        decided(&reply, 1).1.remove(0)
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
            .reserve_home(home, deadline_ms, &[self.row(buyer, key, units)])
            .await;
        status(&reply)
    }
}

fn copied(rows: &[impl Borrow<Row>]) -> Vec<Row> {
    rows.iter().map(|row| Row::clone(row.borrow())).collect()
}

fn column<T: redis::ToRedisArgs>(cmd: &mut Cmd, values: impl IntoIterator<Item = T>) {
    for value in values {
        cmd.arg(value);
    }
}

fn ids(cmd: &mut Cmd, rows: &[Row]) {
    column(cmd, rows.iter().map(|row| &row.id.as_bytes()[..]));
}

/// The packed orders, which say the quantities, and the ids.
fn orders(cmd: &mut Cmd, rows: &[Row]) {
    cmd.arg(0)
        .arg(rows.iter().flat_map(pack).collect::<Vec<_>>());
    ids(cmd, rows);
}

/// As `src/outbox.rs` has it, written down a second time.
fn pack(row: &Row) -> Vec<u8> {
    let buyer = row.buyer.as_str().as_bytes();
    [
        row.id.as_bytes(),
        &row.units.to_be_bytes()[..],
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

/// Units left, and one word for each order: `taken`, or the code and the detail.
fn decided(reply: &Value, orders: usize) -> (u64, Vec<String>) {
    let fields = fields(reply);
    assert_eq!(text(&fields[0]), "ok");
    let mut decisions = vec!["taken".to_owned(); orders];
    for exception in fields[6..].chunks(3) {
        let index: usize = text(&exception[0]).parse().unwrap();
        decisions[index] = format!("{} {}", text(&exception[1]), text(&exception[2]))
            .trim_end()
            .to_owned();
    }
    (text(&fields[2]).parse().unwrap(), decisions)
}

/// When holds taken by this reply are over.
fn expires(reply: &Value) -> String {
    text(&fields(reply)[4])
}

/// The decision on an order of one unit that this reply says is taken, as it is stored.
fn taken(reply: &Value) -> String {
    format!("T1x{:x}", expires(reply).parse::<i64>().unwrap())
}

#[tested(on_both)]
async fn reserve_home_replies_in_every_case(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(6, 2).limit(2)).await;
    let [ann, bob, cid, dan] = [0, 1, 2, 3].map(|n| sale.buyer_at(0, n));
    let deadline = sale.now_ms().await + 60_000;
    let reservation = async |rows: &[Row]| sale.reserve_home(0, deadline, rows).await;

    let first = reservation(&[sale.row(&ann, "1", 1)]).await;
    assert_eq!(decided(&first, 1), (2, vec!["taken".into()]));
    let [now, entry] = [1, 3].map(|at| text(&fields(&first)[at]));
    assert_eq!(
        expires(&first).parse::<i64>().unwrap(),
        now.parse::<i64>().unwrap() + 600_000
    );
    assert_eq!(sale.dump(0).await.stock["last"], entry);
    let t1 = format!("a {}", taken(&first));

    let table: &[(&str, Vec<Row>, u64, Vec<&str>)] = &[
        (
            "a repeat changes nothing",
            vec![sale.row(&ann, "1", 1)],
            2,
            vec![&t1],
        ),
        (
            "nor does one for another quantity",
            vec![sale.row(&ann, "1", 9)],
            2,
            vec![&t1],
        ),
        (
            "the limit counts units",
            vec![sale.row(&ann, "2", 2)],
            2,
            vec!["l"],
        ),
        (
            "within a batch too",
            vec![sale.row(&bob, "1", 1), sale.row(&bob, "2", 2)],
            1,
            vec!["taken", "l"],
        ),
        (
            "a batch mixes replies",
            vec![
                sale.row(&ann, "1", 1),
                sale.row(&cid, "1", 1),
                sale.row(&dan, "1", 1),
            ],
            0,
            vec![&t1, "taken", "d"],
        ),
        (
            "the limit is checked before declining",
            vec![sale.row(&bob, "3", 2)],
            0,
            vec!["l"],
        ),
        (
            "a declined order is counted",
            vec![sale.row(&dan, "2", 2)],
            0,
            vec!["l"],
        ),
    ];
    for (what, rows, left, expected) in table {
        let (available, decisions) = decided(&reservation(rows).await, rows.len());
        assert_eq!(
            (available, decisions.iter().map(String::as_str).collect()),
            (*left, expected.clone()),
            "{what}"
        );
    }
    let declined = format!("a D1:{deadline}");
    assert_eq!(
        decided(&reservation(&[sale.row(&dan, "1", 1)]).await, 1).1,
        [declined],
        "declined is repeated"
    );
    sale.put_back(0, 1).await;
    assert_eq!(
        decided(&reservation(&[sale.row(&dan, "1", 1)]).await, 1),
        (1, vec![format!("a D1:{deadline}")]),
        "even with a unit there"
    );
    assert_eq!(
        decided(&reservation(&[sale.row(&dan, "2", 1)]).await, 1),
        (0, vec!["taken".into()]),
        "which another order takes"
    );

    assert_eq!(
        status(
            &sale
                .finish_spillover(0, deadline, &[sale.row(&dan, "1", 1)], &[("S", "")])
                .await
        ),
        "ok"
    );
    assert_eq!(
        decided(&reservation(&[sale.row(&dan, "1", 1)]).await, 1).1,
        [format!("a S1:{deadline}")]
    );
    // An order that ends elsewhere.
    assert_eq!(
        decided(&reservation(&[sale.row(&dan, "3", 1)]).await, 1).1,
        ["d"]
    );
    let next = sale
        .reserve_next(1, deadline, &[sale.row(&dan, "3", 1)])
        .await;
    let place = format!("{}:1", expires(&next));
    sale.finish_spillover(0, deadline, &[sale.row(&dan, "3", 1)], &[("E", &place)])
        .await;
    assert_eq!(
        decided(&reservation(&[sale.row(&dan, "3", 1)]).await, 1).1,
        [format!("a E1:{place}")]
    );
}

#[tested(on_both)]
async fn reserve_home_without_another_segment_replies_sold_out(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 1).limit(1)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    let deadline = sale.now_ms().await + 60_000;
    let reservation = async |row: Row| sale.at_home(0, deadline, &row).await;
    assert_eq!(reservation(sale.row(&ann, "1", 1)).await, "taken");
    assert_eq!(
        reservation(sale.row(&ann, "2", 1)).await,
        "l",
        "the limit goes before sold out"
    );
    assert_eq!(reservation(sale.row(&bob, "1", 1)).await, "s");
    assert_eq!(
        reservation(sale.row(&bob, "1", 1)).await,
        format!("a S1:{deadline}")
    );
    let dump = sale.dump(0).await;
    assert_eq!(dump.buyers.get(bob.as_str()), None, "nothing to give back");
    assert_eq!(
        dump.spillovers[&pack(&sale.row(&bob, "1", 1))],
        (deadline + MARGIN_MS).to_string(),
        "it is to be forgotten some time"
    );
}

#[tested(on_both)]
async fn reserve_home_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann = sale.buyer_at(0, 0);
    let before = sale.dumps().await;
    let row = sale.row(&ann, "1", 1);
    let now = sale.now_ms().await;
    assert_eq!(
        status(&sale.reserve_home(0, now - 100, &[&row]).await),
        "late"
    );
    let twice = sale
        .try_reserve_home(0, now + 60_000, &[&row, &row])
        .await
        .unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    assert_eq!(
        status(&sale.reserve_home(2, now + 60_000, &[row]).await),
        "missing"
    );
    assert_eq!(sale.dumps().await, before);
    assert!(
        !sale.has_key(&sale.names(2).decisions).await,
        "a segment that is missing is not made by asking"
    );
}

#[tested(on_both)]
async fn reserve_home_keeps_the_latest_deadline(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let row = sale.row(&sale.buyer_at(0, 0), "1", 1);
    let deadline = sale.now_ms().await + 60_000;
    for (asked, remembered) in [
        (deadline, deadline),
        (deadline + 500, deadline + 500),
        (deadline + 200, deadline + 500),
    ] {
        sale.reserve_home(0, asked, &[&row]).await;
        let dump = sale.dump(0).await;
        assert_eq!(dump.decision(row.id).unwrap(), format!("D1:{remembered}"));
        assert_eq!(dump.spillovers[&pack(&row)], remembered.to_string());
        assert_eq!(
            dump.buyers[row.buyer.as_str()],
            1,
            "a repeat is not counted"
        );
    }
    let before = sale.dump(0).await;
    let other = Row { units: 2, ..row };
    let reply = sale.reserve_home(0, deadline + 9000, &[&other]).await;
    assert_eq!(decided(&reply, 1).1, [format!("a D1:{}", deadline + 500)]);
    assert_eq!(
        sale.dump(0).await,
        before,
        "the same id for another quantity is no attempt of this order"
    );
}

#[tested(on_both)]
async fn reserve_home_outside_the_window_refuses_but_repeats(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 1)).await;
    let (ann, bob) = (sale.buyer_at(0, 0), sale.buyer_at(0, 1));
    let now = sale.now_ms().await;
    let reservation = async |row: Row| sale.reserve_home(0, now + 60_000, &[row]).await;
    let stored = taken(&reservation(sale.row(&ann, "1", 1)).await);
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
        let refused = reservation(sale.row(&bob, "1", 1)).await;
        assert_eq!(
            decided(&refused, 1),
            (1, vec![format!("n {state}:{opens_ms}:{closes_ms}")]),
        );
        assert_eq!(
            decided(&reservation(sale.row(&ann, "1", 1)).await, 1).1,
            [format!("a {stored}")]
        );
        assert_eq!(sale.dump(0).await, before);
    }
}

#[tested(on_both)]
async fn reserve_next_replies_in_every_case(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let [ann, bob, cid] = [0, 1, 2].map(|n| sale.buyer_at(0, n));
    let deadline = sale.now_ms().await + 60_000;
    // Home gives its two units, and then declines; the order goes on to segment 1.
    let rows = [
        sale.row(&ann, "0", 2),
        sale.row(&ann, "1", 1),
        sale.row(&bob, "1", 2),
        sale.row(&cid, "1", 1),
        sale.row(&cid, "2", 1),
    ];
    assert_eq!(
        decided(&sale.reserve_home(0, deadline, &rows).await, 5).1,
        ["taken", "d", "d", "d", "d"]
    );
    let [_, ann1, bob1, cid1, cid2] = rows;
    let first = sale.reserve_next(1, deadline, &[&ann1]).await;
    let (t1, p1, p2) = (
        format!("a {}", taken(&first)),
        format!("a D1:{deadline}"),
        format!("a D2:{deadline}"),
    );
    assert_eq!(decided(&first, 1), (1, vec!["taken".into()]));
    let table: &[(&str, Vec<Row>, u64, Vec<&str>)] = &[
        ("a repeat changes nothing", vec![ann1.clone()], 1, vec![&t1]),
        (
            "two are not there, but one is",
            vec![bob1.clone(), cid1.clone()],
            0,
            vec!["d", "taken"],
        ),
        (
            "a batch mixes replies",
            vec![ann1.clone(), bob1.clone(), cid2.clone()],
            0,
            vec![&t1, &p2, "d"],
        ),
        ("declined is repeated", vec![cid2.clone()], 0, vec![&p1]),
    ];
    for (what, rows, left, expected) in table {
        let (available, decisions) =
            decided(&sale.reserve_next(1, deadline, rows).await, rows.len());
        assert_eq!(
            (available, decisions.iter().map(String::as_str).collect()),
            (*left, expected.clone()),
            "{what}"
        );
    }
    sale.put_back(1, 2).await;
    let later = sale
        .reserve_next(1, deadline + 5, &[bob1.clone(), cid2])
        .await;
    assert_eq!(
        decided(&later, 2),
        (2, vec![p2, p1]),
        "declined stays declined with units there, under the deadline that it had"
    );
    sale.set_field(&sale.names(1).stock, "state", "paused")
        .await;
}

#[tested(on_both)]
async fn reserve_next_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann = sale.buyer_at(0, 0);
    let (now, row) = (sale.now_ms().await, sale.row(&ann, "1", 1));
    let before = sale.dumps().await;
    assert_eq!(
        status(&sale.reserve_next(1, now - 100, &[&row]).await),
        "late"
    );
    assert!(
        sale.try_reserve_next(1, now + 60_000, &[&row, &row])
            .await
            .unwrap_err()
            .to_string()
            .contains("twice")
    );
    assert_eq!(
        status(&sale.reserve_next(2, now + 60_000, &[&row]).await),
        "missing"
    );
    assert_eq!(sale.dumps().await, before);

    sale.set_field(&sale.names(1).stock, "state", "paused")
        .await;
    let reply = sale.reserve_next(1, now + 60_000, &[row]).await;
    assert_eq!(
        decided(&reply, 1),
        (1, vec!["d".into()]),
        "a paused segment declines"
    );
}

#[tested(on_both)]
async fn finish_spillover_settles_once(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2).limit(3)).await;
    let ann = sale.buyer_at(1, 0);
    let deadline = sale.now_ms().await + 60_000;
    let (gone, kept, missed) = (
        sale.row(&ann, "gone", 2),
        sale.row(&ann, "kept", 1),
        sale.row(&ann, "missed", 1),
    );
    assert_eq!(
        decided(&sale.reserve_home(1, deadline, &[&gone, &kept]).await, 2).1,
        ["d", "d"]
    );
    let next = sale.reserve_next(0, deadline, &[&gone, &kept]).await;
    assert_eq!(decided(&next, 2).1, ["d", "taken"]);
    let place = format!("{}:0", expires(&next));

    let before = sale.dump(1).await;
    let now = sale.now_ms().await;
    assert_eq!(
        status(
            &sale
                .finish_spillover(1, now - 100, &[&gone], &[("S", "")])
                .await
        ),
        "late"
    );
    assert_eq!(
        sale.dump(1).await,
        before,
        "a late outcome may be that of an earlier spillover"
    );

    let spillovers = [gone.clone(), kept.clone(), missed];
    let ends = [("S", ""), ("E", place.as_str()), ("S", "")];
    for changed in ["2", "0", "0"] {
        assert_eq!(
            text(&fields(&sale.finish_spillover(1, deadline, &spillovers, &ends).await)[2]),
            changed
        );
        let dump = sale.dump(1).await;
        assert_eq!(
            dump.buyers[ann.as_str()],
            1,
            "given back once for the one, kept for the other"
        );
        assert_eq!(dump.decision(gone.id).unwrap(), format!("S2:{deadline}"));
        assert_eq!(dump.decision(kept.id).unwrap(), format!("E1:{place}"));
        assert_eq!(
            dump.decisions.len(),
            2,
            "an order that never asked gets no decision"
        );
        assert!(
            dump.spillovers
                .values()
                .all(|due| *due == (deadline + MARGIN_MS).to_string())
        );
    }
    // The other attempt ended otherwise, or so it says: the first one stands.
    sale.finish_spillover(1, deadline, &[&gone, &kept], &[("E", &place), ("S", "")])
        .await;
    assert_eq!(
        sale.dump(1).await.decision(kept.id).unwrap(),
        format!("E1:{place}")
    );
    assert_eq!(
        sale.dump(1).await.decision(gone.id).unwrap(),
        format!("S2:{deadline}")
    );
}

#[tested(on_both)]
async fn finish_spillover_changes_only_declined_decisions(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let row = sale.row(&sale.buyer_at(0, 0), "1", 1);
    let deadline = sale.now_ms().await + 60_000;
    sale.reserve_home(0, deadline, &[&row]).await;
    let before = sale.dump(0).await;
    let reply = sale
        .finish_spillover(0, deadline, &[row], &[("S", "")])
        .await;
    assert_eq!(text(&fields(&reply)[2]), "0");
    assert_eq!(sale.dump(0).await, before, "the units were taken at home");
}

#[tested(on_both)]
async fn due_spillovers_lists_what_is_due(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let now = sale.now_ms().await;
    let rows = [0, 1, 2, 3].map(|n| sale.row(&sale.buyer_at(0, n), "k", 1));
    for (row, due) in rows
        .iter()
        .zip([now + 2_000, now + 1_500, now + 60_000, now + 1_000])
    {
        sale.reserve_home(0, due, &[row]).await;
    }
    sale::eventually("three spillovers falling due", async || {
        sale.due_spillovers(0, 10).await.len() == 3
    })
    .await;
    let due = |n: usize, due: i64| (pack(&rows[n]), due, format!("D1:{due}"));
    assert_eq!(
        sale.due_spillovers(0, 10).await,
        [
            due(3, now + 1_000),
            due(1, now + 1_500),
            due(0, now + 2_000)
        ],
        "the oldest first"
    );
    assert_eq!(sale.due_spillovers(0, 2).await.len(), 2);
    sale.delete_fields(&sale.names(0).decisions, &[&rows[3].id.as_bytes()[..]])
        .await;
    assert_eq!(
        sale.due_spillovers(0, 1).await,
        [(pack(&rows[3]), now + 1_000, String::new())],
        "without a decision"
    );
    // The audit counts her spillover by its answer.
    sale.delete_fields(&sale.names(0).buyers, &[rows[3].buyer.as_str()])
        .await;
}

#[tested(on_both)]
async fn forget_declined_drops_only_records_up_to_the_known_deadline(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let deadline = sale.now_ms().await + 60_000;
    let rows = [0, 1, 2].map(|n| sale.row(&sale.buyer_at(1, n), "k", 1));
    sale.reserve_home(1, deadline, &rows).await;
    let reply = sale.reserve_next(0, deadline, &rows).await;
    assert_eq!(decided(&reply, 3).1, ["taken", "d", "d"]);
    let [taken, one, two] = &rows;
    let unknown = sale.row(&sale.buyer_at(1, 3), "k", 1);
    let before = sale.dump(0).await;
    assert_eq!(
        sale.forget_declined(
            0,
            &[(taken, deadline), (one, deadline - 1), (&unknown, deadline)]
        )
        .await,
        0
    );
    assert_eq!(
        sale.dump(0).await,
        before,
        "taken stays, and so does what a later spillover may have left"
    );
    assert_eq!(
        sale.forget_declined(
            0,
            &[(taken, deadline + 9), (one, deadline), (two, deadline + 9)]
        )
        .await,
        2
    );
    assert_eq!(sale.dump(0).await.decisions.len(), 1);
    assert_eq!(
        sale.forget_declined(0, &[(one, deadline)]).await,
        0,
        "a repeat changes nothing"
    );
}

#[tested(on_both)]
async fn forget_spillover_forgets_only_what_was_listed_and_is_due(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let deadline = sale.now_ms().await + 1500;
    let [gone, kept, open] = [0, 1, 2].map(|n| sale.row(&sale.buyer_at(1, n), "k", 1));
    sale.reserve_home(1, deadline, &[&gone, &kept, &open]).await;
    let next = sale.reserve_next(0, deadline, &[&kept]).await;
    let place = format!("{}:0", expires(&next));
    sale.finish_spillover(1, deadline, &[&gone, &kept], &[("S", ""), ("E", &place)])
        .await;
    let due = deadline + MARGIN_MS;
    let before = sale.dump(1).await;
    assert_eq!(
        sale.forget_spillover(1, &[(&gone, due), (&kept, due), (&open, deadline)])
            .await,
        0,
        "not due yet"
    );
    sale::eventually("the margin", async || sale.now_ms().await > due).await;
    assert_eq!(
        sale.forget_spillover(1, &[(&gone, due - 1), (&kept, due + 1), (&open, deadline)])
            .await,
        0,
        "not as it was read, or not final"
    );
    assert_eq!(sale.dump(1).await, before);
    assert_eq!(
        sale.forget_spillover(1, &[(&gone, due), (&kept, due)])
            .await,
        2
    );
    let dump = sale.dump(1).await;
    assert_eq!(dump.decision(gone.id), None, "sold out is forgotten");
    assert_eq!(
        dump.decision(kept.id).unwrap(),
        format!("E1:{place}"),
        "what the order holds is not"
    );
    assert_eq!(dump.spillovers.keys().collect::<Vec<_>>(), [&pack(&open)]);
    assert_eq!(
        sale.forget_spillover(1, &[(&gone, due), (&kept, due)])
            .await,
        0,
        "a repeat changes nothing"
    );
}

#[tested(on_both)]
async fn open_segment_twice_changes_nothing(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 1)).await;
    let names = sale.names(7);
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
            "",
        ];
        let reply = sale
            .eval(OPEN_SEGMENT, &names.all(), |cmd| column(cmd, arguments))
            .await;
        fields(&reply).iter().map(text).collect::<Vec<_>>()
    };
    let opened = open(10, 4).await;
    assert_eq!(opened[..3], ["opened", "4", "10"]);
    let before = sale.dump(7).await;
    assert_eq!(
        before.fields(),
        [
            "available=10",
            &format!("checked={}", before.stock["checked"]),
            "closes_ms=6",
            "epoch=4",
            "fence=0",
            &format!("gained={}", opened[3]),
            "hold_ms=600000",
            &format!("last={}", opened[3]),
            "leaving=0",
            &format!("left={}", opened[3]),
            "limit=2",
            "opens_ms=5",
            "price=",
            "segments=3",
            "state=open",
        ]
    );
    assert_eq!(open(99, 9).await, ["exists", "4", "10", &opened[3]]);
    assert_eq!(sale.dump(7).await, before);
}

#[tested(on_both)]
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
            "",
        ];
        let reply = sale
            .eval(SET_STATE, &[&names.stock, &names.outbox], |cmd| {
                column(cmd, arguments)
            })
            .await;
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

#[tested(on_both)]
async fn inspect_shows_everything(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2).limit(7)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    let deadline = sale.now_ms().await + 60_000;
    let taken = sale
        .reserve_home(
            0,
            deadline,
            &[sale.row(&ann, "1", 2), sale.row(&bob, "1", 1)],
        )
        .await;
    let last = text(&fields(&taken)[3]);
    let opened = sale.dump(0).await.stock["gained"].clone();
    let inspect = async |segment: u16, from: &str, at_most: &str| {
        let names = sale.names(segment);
        sale.eval(INSPECT, &names.all(), |cmd| column(cmd, [from, at_most]))
            .await
    };
    assert_eq!(status(&inspect(2, "-", "9").await), "missing");
    for (from, at_most, entries) in [
        ("", "9", 0),
        ("-", "9", 2),
        ("-", "1", 1),
        (last.as_str(), "9", 1),
        ("99999999999999", "9", 0),
    ] {
        let reply = inspect(0, from, at_most).await;
        assert_eq!(status(&reply), "ok");
        let list = shown(&reply, "entries");
        let expected = [
            ("available", "0"),
            ("state", "open"),
            ("epoch", "1"),
            ("last", &last),
            ("limit", "7"),
            ("decisions", "2"),
            ("buyers", "2"),
            ("outbox", "2"),
            ("spillovers", "1"),
            ("opens_ms", "0"),
            ("closes_ms", "0"),
            ("price", ""),
            ("fence", "0"),
            ("repairing", ""),
            ("whole", "1"),
            ("gained", &opened),
            ("leaving", "0"),
            ("left", &opened),
        ];
        for (name, value) in expected {
            assert_eq!(text(shown(&reply, name)), value, "{name}");
        }
        let [history, checked] = ["history", "checked"].map(|name| text(shown(&reply, name)));
        assert_eq!(history, checked, "a new segment is marked");
        assert_eq!(history.is_empty(), from.is_empty());
        assert_eq!(fields(&reply).len(), 1 + 2 * (expected.len() + 3));
        assert_eq!(fields(list).len(), entries, "from {from:?}");
    }
}

/// The value of the field `name` in a reply of `inspect`.
fn shown<'a>(reply: &'a Value, name: &str) -> &'a Value {
    let pairs = fields(reply)[1..].chunks(2);
    let mut named = pairs.filter(|pair| text(&pair[0]) == name);
    &named.next().unwrap()[1]
}

/// And what is written to it later does not make it whole.
#[tested(on_both)]
async fn a_segment_that_lost_a_key_replies_missing(site: Arc<Site>) {
    for (kind, home_refuses, next_refuses) in [
        ("decisions", true, true),
        ("buyers", true, false),
        ("spillovers", false, false),
    ] {
        let sale = sale::open(&site, Terms::new(8, 2).limit(1)).await;
        let ann = sale.buyer_at(0, 0);
        let deadline = sale.now_ms().await + 60_000;
        let [first, second] = ["1", "2"].map(|key| [sale.row(&ann, key, 1)]);
        assert_eq!(status(&sale.reserve_home(0, deadline, &first).await), "ok");
        let names = sale.names(0);
        let lost = match kind {
            "decisions" => &names.decisions,
            "buyers" => &names.buyers,
            _ => &names.spillovers,
        };
        let kept: Vec<u8> = sale.redis(redis::cmd("DUMP").arg(lost)).await;
        assert_eq!(sale.redis::<i64>(redis::cmd("DEL").arg(lost)).await, 1);
        let asked = [
            sale.try_reserve_home(0, deadline, &second).await,
            sale.try_reserve_next(0, deadline, &first).await,
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
        if kind != "spillovers" {
            sale.set_field(lost, "another", "1").await;
        }
        let inspected = sale
            .eval(INSPECT, &names.all(), |cmd| column(cmd, ["", "1"]))
            .await;
        assert_eq!(status(&inspected), "ok", "{kind}");
        assert_eq!(text(shown(&inspected, "whole")), "0", "{kind}");
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

#[tested(on_both)]
async fn the_first_entry_of_a_drained_outbox_sends_a_wake_up(site: Arc<Site>) {
    let stock = site.instance().await;
    let mut wakeups = stock.outbox_wakeups();
    assert_eq!(wakeups.recv().await.unwrap(), Wakeup::Subscribed);
    let sale = sale::open(&site, Terms::new(9, 2)).await;
    // Other tests share the channel.
    let mut heard = async |count: usize| {
        let mut heard = Vec::new();
        while heard.len() < count {
            let wakeup = in_time("a wakeup", wakeups.recv()).await.unwrap();
            if let Wakeup::Entries(segment) = wakeup
                && segment.item == sale.item.id
            {
                heard.push(segment.segment);
            }
        }
        heard.sort_unstable();
        heard
    };
    assert_eq!(heard(2).await, [0, 1], "opened");
    let deadline = sale.now_ms().await + 60_000;
    let (ann, bob) = (sale.buyer_at(1, 0), sale.buyer_at(0, 0));
    for key in ["1", "2", "3"] {
        sale.reserve_home(1, deadline, &[sale.row(&ann, key, 1)])
            .await;
    }
    sale.reserve_home(0, deadline, &[sale.row(&bob, "1", 1)])
        .await;
    assert_eq!(
        heard(2).await,
        [0, 1],
        "once for segment 1: the recorder that it woke reads the rest as well"
    );
}
