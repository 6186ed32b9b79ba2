//! `release` and `release_count`: what an order had comes back, once.

use std::sync::Arc;

use domain::{Change, Quantity, TakenOrder};
use redis::Value;
use stock::Settled;

use super::{MARGIN_MS, Row, column, decided, expires, fields, ids, pack, status, text};
use crate::{
    sale::{self, Sale, Terms},
    site::{Site, on_both, tested},
};

const RELEASE_COUNT: &str = include_str!("../../../../../lua/release_count.lua");
const RELEASE: &str = include_str!("../../../../../lua/release.lua");

impl Sale {
    /// With whether the segment is the buyer's home.
    async fn release(&self, segment: u16, rows: &[(&Row, bool)]) -> redis::RedisResult<Value> {
        let names = self.names(segment);
        let orders: Vec<Row> = rows.iter().map(|(row, _)| (*row).clone()).collect();
        self.try_eval(
            RELEASE,
            &[&names.stock, &names.decisions, &names.buyers, &names.outbox],
            |cmd| {
                cmd.arg(rows.len()).arg(self.segment(segment).to_string());
                ids(cmd, &orders);
                column(cmd, orders.iter().map(|row| row.buyer.as_str()));
                column(cmd, orders.iter().map(pack));
                column(cmd, rows.iter().map(|(_, home)| u8::from(*home)));
            },
        )
        .await
    }

    /// Units left, and orders that released.
    async fn released(&self, segment: u16, rows: &[(&Row, bool)]) -> (u64, u64) {
        let reply = self.release(segment, rows).await.unwrap();
        assert_eq!((status(&reply).as_str(), fields(&reply).len()), ("ok", 5));
        assert_eq!(
            text(&fields(&reply)[3]),
            self.dump(segment).await.stock["last"]
        );
        (
            text(&fields(&reply)[2]).parse().unwrap(),
            text(&fields(&reply)[4]).parse().unwrap(),
        )
    }

    async fn release_count(&self, segment: u16, rows: &[&Row]) -> Value {
        let names = self.names(segment);
        let rows: Vec<Row> = rows.iter().map(|row| (*row).clone()).collect();
        self.eval(
            RELEASE_COUNT,
            &[
                &names.stock,
                &names.decisions,
                &names.buyers,
                &names.spillovers,
            ],
            |cmd| {
                cmd.arg(rows.len()).arg(MARGIN_MS);
                ids(cmd, &rows);
                column(cmd, rows.iter().map(|row| row.buyer.as_str()));
                column(cmd, rows.iter().map(pack));
            },
        )
        .await
    }

    async fn counts_given_back(&self, segment: u16, rows: &[&Row]) -> u64 {
        let reply = self.release_count(segment, rows).await;
        assert_eq!((status(&reply).as_str(), fields(&reply).len()), ("ok", 3));
        text(&fields(&reply)[2]).parse().unwrap()
    }

    /// Takes at home.
    pub(super) async fn take(&self, home: u16, rows: &[&Row]) {
        let rows: Vec<Row> = rows.iter().map(|row| (*row).clone()).collect();
        let reply = self
            .reserve_home(home, self.now_ms().await + 60_000, &rows)
            .await;
        assert!(
            decided(&reply, rows.len())
                .1
                .iter()
                .all(|decision| decision == "taken"),
            "home was to have enough"
        );
    }

    /// Passed at home, and taken at another segment. Returns the deadline, and the place as home is
    /// to hear of it.
    pub(super) async fn take_elsewhere(&self, home: u16, segment: u16, row: &Row) -> (i64, String) {
        let deadline = self.now_ms().await + 60_000;
        let reply = self.reserve_home(home, deadline, &[row]).await;
        assert_eq!(decided(&reply, 1).1, ["d"], "home was to be empty");
        let reply = self.reserve_next(segment, deadline, &[row]).await;
        assert_eq!(decided(&reply, 1).1, ["taken"]);
        (deadline, format!("{}:{segment}", expires(&reply)))
    }

    pub(super) async fn last_change(&self, segment: u16) -> Change {
        self.inspected(segment).await.entries.pop().unwrap().change
    }
}

impl Row {
    fn order(&self) -> TakenOrder {
        TakenOrder {
            id: self.id,
            buyer: self.buyer.clone(),
            quantity: Quantity::new(self.units).unwrap(),
        }
    }
}

#[tested(on_both)]
async fn release_replies_in_every_case(site: Arc<Site>) {
    // Segment 1 has nothing: buyers whose home it is take at segment 0.
    let sale = sale::open(&site, Terms::new(9, 2).limit(4)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    let [cid, dan] = [0, 1].map(|n| sale.buyer_at(1, n));
    sale.take(1, &[&sale.row(&dan, "all", 4)]).await;
    let (one, two, away) = (
        sale.row(&ann, "1", 1),
        sale.row(&bob, "2", 2),
        sale.row(&cid, "away", 2),
    );
    sale.take(0, &[&one, &two]).await;
    let (deadline, place) = sale.take_elsewhere(1, 0, &away).await;
    sale.finish_spillover(1, deadline, &[&away], &[("E", &place)])
        .await;
    let (declined, never) = (sale.row(&cid, "declined", 1), sale.row(&ann, "never", 1));
    assert_eq!(sale.at_home(1, deadline, &declined).await, "d");
    assert_eq!(sale.dump(0).await.available(), 0);

    let before = sale.dumps().await;
    for (what, segment, row, home) in [
        ("an order that never asked has nothing", 0, &never, true),
        (
            "nor has one that took elsewhere anything at home",
            1,
            &away,
            true,
        ),
        ("nor has one that was declined", 1, &declined, true),
    ] {
        assert_eq!(
            sale.released(segment, &[(row, home)]).await,
            (0, 0),
            "{what}"
        );
        assert_eq!(sale.dumps().await, before, "{what}");
    }
    assert_eq!(sale.counts_given_back(1, &[&away]).await, 1);
    assert_eq!(
        sale.released(0, &[(&never, true), (&one, true), (&away, false)])
            .await,
        (3, 2),
        "a batch mixes replies"
    );
    assert_eq!(
        sale.last_change(0).await,
        Change::Released {
            orders: vec![one.order(), away.order()]
        },
        "in one entry"
    );
    let dump = sale.dump(0).await;
    for row in [&one, &away] {
        let (decision, now) = (
            dump.decision(row.id).unwrap().to_owned(),
            sale.now_ms().await,
        );
        let (units, since_ms) = decision.strip_prefix('R').unwrap().split_once(':').unwrap();
        assert_eq!(units.parse::<u32>().unwrap(), row.units);
        assert!(
            (now - 10_000..=now).contains(&since_ms.parse().unwrap()),
            "{decision}"
        );
        assert_eq!(dump.buyers.get(row.buyer.as_str()), None);
    }
    assert_eq!(
        dump.gave_back,
        [ann.to_string()].into(),
        "whose home is elsewhere is counted there"
    );

    let before = sale.dumps().await;
    assert_eq!(
        sale.released(0, &[(&one, true), (&away, false)]).await,
        (3, 0),
        "a repeat changes nothing"
    );
    assert_eq!(
        sale.released(0, &[(&one, false), (&away, true)]).await,
        (3, 0)
    );
    assert_eq!(sale.dumps().await, before);

    let known = sale.reserve_home(0, deadline, &[&one]).await;
    assert_eq!(
        decided(&known, 1),
        (3, vec![format!("a {}", dump.decision(one.id).unwrap())]),
        "released is its permanent decision"
    );
    let known = sale.reserve_next(0, deadline, &[&away]).await;
    assert_eq!(
        decided(&known, 1),
        (3, vec![format!("a {}", dump.decision(away.id).unwrap())])
    );
    sale.take(0, &[&sale.row(&bob, "again", 2)]).await;
}

#[tested(on_both)]
async fn release_at_home_gives_the_count_back_with_the_units(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(6, 1).limit(5)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    let [a1, a2, a3, b1] = [
        (&ann, "1", 1),
        (&ann, "2", 2),
        (&ann, "3", 2),
        (&bob, "1", 1),
    ]
    .map(|(buyer, key, units)| sale.row(buyer, key, units));
    sale.take(0, &[&a1, &a2, &a3, &b1]).await;
    assert_eq!(
        sale.released(0, &[(&a1, true), (&a2, true), (&b1, true)])
            .await,
        (4, 3)
    );
    let dump = sale.dump(0).await;
    assert_eq!(
        dump.buyers,
        [(ann.to_string(), 2)].into(),
        "both of her orders, in one batch, and there is no count of zero"
    );
    assert_eq!(dump.gave_back, [ann.to_string(), bob.to_string()].into());
    sale.take(0, &[&sale.row(&ann, "4", 3)]).await;
}

#[tested(on_both)]
async fn release_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let [one, two] = [0, 1].map(|n| sale.row(&sale.buyer_at(0, n), "k", 1));
    sale.take(0, &[&one, &two]).await;
    let before = sale.dumps().await;
    let twice = sale
        .release(0, &[(&one, true), (&two, true), (&one, true)])
        .await
        .unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    assert_eq!(
        status(&sale.release(2, &[(&one, true)]).await.unwrap()),
        "missing"
    );
    assert_eq!(sale.dumps().await, before);
    assert!(
        !sale.has_key(&sale.names(2).decisions).await,
        "a segment that is missing is not made by giving back"
    );
}

#[tested(on_both)]
async fn release_count_replies_in_every_case(site: Arc<Site>) {
    // Segment 1 is home and has nothing; 0 has what they take.
    let sale = sale::open(&site, Terms::new(11, 2).limit(9)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(1, n));
    let here = sale.row(&bob, "here", 5);
    sale.take(1, &[&here]).await;
    let [notified, notified_too, unnotified] =
        [("notified", 1), ("notified-too", 2), ("unnotified", 3)]
            .map(|(key, units)| sale.row(&ann, key, units));
    for row in [&notified, &notified_too] {
        let (deadline, place) = sale.take_elsewhere(1, 0, row).await;
        sale.finish_spillover(1, deadline, &[row], &[("E", &place)])
            .await;
    }
    let (deadline, _) = sale.take_elsewhere(1, 0, &unnotified).await;
    let unsatisfiable = sale.row(&bob, "in-vain", 1);
    assert_eq!(sale.at_home(1, deadline, &unsatisfiable).await, "d");
    sale.finish_spillover(1, deadline, &[&unsatisfiable], &[("S", "")])
        .await;
    let never = sale.row(&ann, "never", 1);
    assert_eq!(sale.dump(1).await.buyers[ann.as_str()], 6);

    let before = sale.dump(1).await;
    assert_eq!(
        sale.counts_given_back(1, &[&here, &unsatisfiable, &never])
            .await,
        0,
        "taken here, sold out, and nothing"
    );
    assert_eq!(sale.dump(1).await, before);

    assert_eq!(
        sale.counts_given_back(1, &[&notified, &never, &unnotified])
            .await,
        2,
        "a batch mixes replies"
    );
    let dump = sale.dump(1).await;
    assert_eq!(
        dump.buyers[ann.as_str()],
        2,
        "both counts of hers, in one batch"
    );
    assert_eq!(dump.gave_back, [ann.to_string()].into());
    for row in [&notified, &unnotified] {
        assert!(
            dump.decision(row.id)
                .unwrap()
                .starts_with(&format!("R{}:", row.units))
        );
    }
    let due = |row: &Row| dump.spillovers[&pack(row)].clone();
    assert_eq!(
        due(&unnotified),
        (deadline + MARGIN_MS).to_string(),
        "it is final now, and is forgotten like any other"
    );
    assert_eq!(
        dump.spillovers[&pack(&notified)],
        before.spillovers[&pack(&notified)]
    );
    assert_eq!(dump.stock, before.stock, "the units are elsewhere");

    for rows in [[&notified, &unnotified], [&unnotified, &notified]] {
        assert_eq!(
            sale.counts_given_back(1, &rows).await,
            0,
            "a repeat changes nothing"
        );
        assert_eq!(sale.dump(1).await, dump);
    }
    // Home is notified too late how the spillover ended.
    let late = sale
        .finish_spillover(1, deadline, &[&unnotified], &[("E", "1:0")])
        .await;
    assert_eq!(
        (text(&fields(&late)[2]).as_str(), sale.dump(1).await),
        ("0", dump)
    );
    assert_eq!(sale.counts_given_back(1, &[&notified_too]).await, 1);
    assert_eq!(
        sale.dump(1).await.buyers.get(ann.as_str()),
        None,
        "there is no count of zero"
    );
    assert_eq!(
        sale.released(
            0,
            &[
                (&notified, false),
                (&notified_too, false),
                (&unnotified, false)
            ]
        )
        .await,
        (6, 3)
    );
}

#[tested(on_both)]
async fn release_count_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let row = sale.row(&sale.buyer_at(1, 0), "k", 1);
    sale.take_elsewhere(1, 0, &row).await;
    let before = sale.dumps().await;
    assert_eq!(status(&sale.release_count(2, &[&row]).await), "missing");
    assert_eq!(sale.dumps().await, before);
    assert!(!sale.has_key(&sale.names(2).buyers).await);
}

#[tested(on_both)]
async fn a_count_never_falls_below_zero(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let (here, elsewhere) = (sale.row(&ann, "here", 2), sale.row(&ann, "elsewhere", 2));
    sale.take(1, &[&here]).await;
    sale.take_elsewhere(1, 0, &elsewhere).await;
    // A count was lost.
    sale.set_field(&sale.names(1).buyers, ann.as_str(), 1).await;
    assert_eq!(sale.counts_given_back(1, &[&elsewhere]).await, 1);
    assert_eq!(sale.dump(1).await.buyers.get(ann.as_str()), None);
    assert_eq!(sale.released(1, &[(&here, true)]).await, (2, 1));
    assert_eq!(sale.dump(1).await.buyers.get(ann.as_str()), None);
    assert_eq!(sale.released(0, &[(&elsewhere, false)]).await, (2, 1));
}

#[tested(on_both)]
async fn an_abandoned_spillover_ends_with_the_release_and_is_forgotten(site: Arc<Site>) {
    // The ring of home 1 is 1, 2, 0, and only segment 0 has a unit.
    let sale = sale::open(&site, Terms::new(1, 3).limit(1)).await;
    let ann = sale.buyer_at(1, 0);
    let row = sale.row(&ann, "k", 1);
    let deadline = sale.now_ms().await + 1500;
    assert_eq!(sale.at_home(1, deadline, &row).await, "d");
    for (segment, decision) in [(2, "d"), (0, "taken")] {
        assert_eq!(sale.at_next(segment, deadline, &row).await, decision);
    }
    // The caller has died. The ledger has the order, and its buyer cancels it.
    let back = sale.to_return(&ann, "k", 1, 0);
    assert_eq!(
        sale.at_first()
            .release(std::slice::from_ref(&back))
            .await
            .unwrap(),
        1
    );
    let home = sale.dump(1).await;
    assert!(home.decision(row.id).unwrap().starts_with("R1:"));
    assert_eq!((home.buyers.len(), home.spillovers.len()), (0, 1));
    assert_eq!(
        sale.at_first().settle_spillovers().await.unwrap(),
        Settled::default(),
        "another attempt of hers has time until the deadline"
    );
    let mut forgotten = 0;
    sale::eventually("the spillover being forgotten", async || {
        let settled = sale.at_first().settle_spillovers().await.unwrap();
        assert_eq!(
            settled.finished, 0,
            "a released order is not reserved again"
        );
        forgotten += settled.forgotten;
        forgotten == 1
    })
    .await;
    assert!(sale.now_ms().await > deadline);
    let [zero, one, two] = sale.dumps().await.try_into().unwrap();
    assert_eq!(
        two.decision(row.id),
        None,
        "the segment that declined it has forgotten it"
    );
    assert!(one.spillovers.is_empty());
    for dump in [zero, one] {
        assert!(
            dump.decision(row.id).unwrap().starts_with("R1:"),
            "released is its permanent decision"
        );
    }
    assert_eq!(sale.at_first().release(&[back]).await.unwrap(), 0);
    assert_eq!(sale.order(&ann, "k", 1).await, stock::Outcome::Released);
}

#[tested(on_both)]
async fn units_that_come_back_are_announced(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let [one, two] = ["1", "2"].map(|key| sale.row(&sale.buyer_at(0, 0), key, 1));
    sale.take(0, &[&one, &two]).await;
    let (mut returned, mut outbox) = (
        sale.listen("stockade:returned", 0).await,
        sale.listen("stockade:outbox", 0).await,
    );
    // The recorder has recorded everything, and sleeps.
    let last = sale.dump(0).await.stock["last"].parse().unwrap();
    sale.trim(0, last).await;
    sale.released(0, &[(&one, true)]).await;
    sale.released(0, &[(&one, true)]).await;
    sale.released(0, &[(&two, true)]).await;
    let name = sale.segment(0).to_string();
    assert_eq!(
        [returned.next().await, returned.next().await],
        [format!("{name} 1"), format!("{name} 2")],
        "a repeat has no news"
    );
    assert_eq!(outbox.next().await, name);
    sale.stock
        .configure(&domain::Item {
            epoch: 2,
            ..sale.item.clone()
        })
        .await
        .unwrap();
    assert_eq!(
        outbox.next().await,
        name,
        "the next message is that of another change: the woken recorder reads on"
    );
}
