//! `release` and `give_back_count`: what an order had comes back, once.

use std::sync::Arc;

use domain::{Change, Quantity, TakenOrder};
use redis::Value;
use stock::{InspectionEntries, walks::Settled};

use super::{
    MARGIN_MS, Wish, column, expires, fields, home_answers, ids, next_answers, pack, status, text,
};
use crate::{
    sale::{self, Sale, Terms},
    site::{Site, on_both},
};

const GIVE_BACK_COUNT: &str = include_str!("../../../../../lua/give_back_count.lua");
const RELEASE: &str = include_str!("../../../../../lua/release.lua");

on_both!(
    release_answers_every_case,
    release_at_home_gives_the_count_back_with_the_units,
    release_refuses_before_it_writes,
    give_back_count_answers_every_case,
    give_back_count_refuses_before_it_writes,
    a_count_never_falls_below_zero,
    a_walk_that_nobody_ended_ends_with_the_return_and_is_forgotten,
    units_that_come_back_are_announced,
);

impl Sale {
    /// With whether the segment is the buyer's home.
    async fn release(&self, segment: u16, wishes: &[(&Wish, bool)]) -> redis::RedisResult<Value> {
        let names = self.names(segment);
        let orders: Vec<Wish> = wishes.iter().map(|(wish, _)| (*wish).clone()).collect();
        self.eval(
            RELEASE,
            &[&names.stock, &names.answers, &names.buyers, &names.outbox],
            |cmd| {
                cmd.arg(wishes.len()).arg(self.segment(segment).to_string());
                ids(cmd, &orders);
                column(cmd, orders.iter().map(|wish| wish.buyer.as_str()));
                column(cmd, orders.iter().map(pack));
                column(cmd, wishes.iter().map(|(_, home)| u8::from(*home)));
            },
        )
        .await
    }

    /// Units left, and orders that gave back.
    async fn released(&self, segment: u16, wishes: &[(&Wish, bool)]) -> (u64, u64) {
        let reply = self.release(segment, wishes).await.unwrap();
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

    async fn give_back_count(&self, segment: u16, wishes: &[&Wish]) -> Value {
        let names = self.names(segment);
        let wishes: Vec<Wish> = wishes.iter().map(|wish| (*wish).clone()).collect();
        self.eval(
            GIVE_BACK_COUNT,
            &[&names.stock, &names.answers, &names.buyers, &names.walks],
            |cmd| {
                cmd.arg(wishes.len()).arg(MARGIN_MS);
                ids(cmd, &wishes);
                column(cmd, wishes.iter().map(|wish| wish.buyer.as_str()));
                column(cmd, wishes.iter().map(pack));
            },
        )
        .await
        .unwrap()
    }

    async fn counts_given_back(&self, segment: u16, wishes: &[&Wish]) -> u64 {
        let reply = self.give_back_count(segment, wishes).await;
        assert_eq!((status(&reply).as_str(), fields(&reply).len()), ("ok", 3));
        text(&fields(&reply)[2]).parse().unwrap()
    }

    /// Takes at home.
    pub(super) async fn take(&self, home: u16, wishes: &[&Wish]) {
        let wishes: Vec<Wish> = wishes.iter().map(|wish| (*wish).clone()).collect();
        let reply = self
            .ask_home(home, self.now_ms().await + 60_000, &wishes)
            .await
            .unwrap();
        assert!(
            home_answers(&reply, wishes.len())
                .1
                .iter()
                .all(|answer| answer == "taken"),
            "home was to have enough"
        );
    }

    /// Passed at home, and taken at another segment. Returns the deadline, and the place as home is to hear of it.
    pub(super) async fn take_elsewhere(
        &self,
        home: u16,
        segment: u16,
        wish: &Wish,
    ) -> (i64, String) {
        let deadline = self.now_ms().await + 60_000;
        let reply = self
            .ask_home(home, deadline, std::slice::from_ref(wish))
            .await
            .unwrap();
        assert_eq!(home_answers(&reply, 1).1, ["p"], "home was to be empty");
        let reply = self
            .ask_next(segment, deadline, std::slice::from_ref(wish))
            .await
            .unwrap();
        assert_eq!(next_answers(&reply, 1).1, ["taken"]);
        (deadline, format!("{}:{segment}", expires(&reply)))
    }

    pub(super) async fn last_change(&self, segment: u16) -> Change {
        self.stock
            .inspect(&self.segment(segment), InspectionEntries::All)
            .await
            .unwrap()
            .entries
            .pop()
            .unwrap()
            .change
    }
}

impl Wish {
    fn order(&self) -> TakenOrder {
        TakenOrder {
            id: self.id,
            buyer: self.buyer.clone(),
            quantity: Quantity::new(self.units).unwrap(),
        }
    }
}

async fn release_answers_every_case(site: Arc<Site>) {
    // Segment 1 has nothing: whoever is at home there takes at segment 0.
    let sale = sale::open(&site, Terms::new(9, 2).limit(4)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    let [cid, dan] = [0, 1].map(|n| sale.buyer_at(1, n));
    sale.take(1, &[&sale.wish(&dan, "all", 4)]).await;
    let (one, two, away) = (
        sale.wish(&ann, "1", 1),
        sale.wish(&bob, "2", 2),
        sale.wish(&cid, "away", 2),
    );
    sale.take(0, &[&one, &two]).await;
    let (deadline, place) = sale.take_elsewhere(1, 0, &away).await;
    sale.finish_walk(1, deadline, std::slice::from_ref(&away), &[("E", &place)])
        .await;
    let (passed, never) = (sale.wish(&cid, "passed", 1), sale.wish(&ann, "never", 1));
    assert_eq!(
        home_answers(
            &sale
                .ask_home(1, deadline, std::slice::from_ref(&passed))
                .await
                .unwrap(),
            1
        )
        .1,
        ["p"]
    );
    assert_eq!(sale.dump(0).await.available(), 0);

    let before = sale.dumps().await;
    for (what, segment, wish, home) in [
        ("an order that never asked has nothing", 0, &never, true),
        (
            "nor has one that took elsewhere anything at home",
            1,
            &away,
            true,
        ),
        ("nor has one that was passed", 1, &passed, true),
    ] {
        assert_eq!(
            sale.released(segment, &[(wish, home)]).await,
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
        "a batch mixes answers"
    );
    assert_eq!(
        sale.last_change(0).await,
        Change::Released {
            orders: vec![one.order(), away.order()]
        },
        "in one entry"
    );
    let dump = sale.dump(0).await;
    for wish in [&one, &away] {
        let (answer, now) = (
            dump.answer(wish.id).unwrap().to_owned(),
            sale.now_ms().await,
        );
        let (units, since_ms) = answer.strip_prefix('R').unwrap().split_once(':').unwrap();
        assert_eq!(units.parse::<u32>().unwrap(), wish.units);
        assert!(
            (now - 10_000..=now).contains(&since_ms.parse().unwrap()),
            "{answer}"
        );
        assert_eq!(dump.buyers.get(wish.buyer.as_str()), None);
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

    let known = sale
        .ask_home(0, deadline, std::slice::from_ref(&one))
        .await
        .unwrap();
    assert_eq!(
        home_answers(&known, 1),
        (3, vec![format!("a {}", dump.answer(one.id).unwrap())]),
        "released is its answer for good"
    );
    let known = sale
        .ask_next(0, deadline, std::slice::from_ref(&away))
        .await
        .unwrap();
    assert_eq!(
        next_answers(&known, 1),
        (3, vec![format!("a {}", dump.answer(away.id).unwrap())])
    );
    sale.take(0, &[&sale.wish(&bob, "again", 2)]).await;
}

async fn release_at_home_gives_the_count_back_with_the_units(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(6, 1).limit(5)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(0, n));
    let [a1, a2, a3, b1] = [
        (&ann, "1", 1),
        (&ann, "2", 2),
        (&ann, "3", 2),
        (&bob, "1", 1),
    ]
    .map(|(buyer, key, units)| sale.wish(buyer, key, units));
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
    sale.take(0, &[&sale.wish(&ann, "4", 3)]).await;
}

async fn release_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let [one, two] = [0, 1].map(|n| sale.wish(&sale.buyer_at(0, n), "k", 1));
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
    let exists: u64 = sale
        .redis(redis::cmd("EXISTS").arg(sale.names(2).answers))
        .await;
    assert_eq!(
        exists, 0,
        "a segment that is missing is not made by giving back"
    );
}

async fn give_back_count_answers_every_case(site: Arc<Site>) {
    // Segment 1 is home and has nothing; 0 has what they take.
    let sale = sale::open(&site, Terms::new(11, 2).limit(9)).await;
    let [ann, bob] = [0, 1].map(|n| sale.buyer_at(1, n));
    let here = sale.wish(&bob, "here", 5);
    sale.take(1, &[&here]).await;
    let [told, told_too, untold] = [("told", 1), ("told-too", 2), ("untold", 3)]
        .map(|(key, units)| sale.wish(&ann, key, units));
    for wish in [&told, &told_too] {
        let (deadline, place) = sale.take_elsewhere(1, 0, wish).await;
        sale.finish_walk(1, deadline, std::slice::from_ref(wish), &[("E", &place)])
            .await;
    }
    let (deadline, _) = sale.take_elsewhere(1, 0, &untold).await;
    let in_vain = sale.wish(&bob, "in-vain", 1);
    assert_eq!(
        home_answers(
            &sale
                .ask_home(1, deadline, std::slice::from_ref(&in_vain))
                .await
                .unwrap(),
            1
        )
        .1,
        ["p"]
    );
    sale.finish_walk(1, deadline, std::slice::from_ref(&in_vain), &[("S", "")])
        .await;
    let never = sale.wish(&ann, "never", 1);
    assert_eq!(sale.dump(1).await.buyers[ann.as_str()], 6);

    let before = sale.dump(1).await;
    assert_eq!(
        sale.counts_given_back(1, &[&here, &in_vain, &never]).await,
        0,
        "taken here, sold out, and nothing"
    );
    assert_eq!(sale.dump(1).await, before);

    assert_eq!(
        sale.counts_given_back(1, &[&told, &never, &untold]).await,
        2,
        "a batch mixes answers"
    );
    let dump = sale.dump(1).await;
    assert_eq!(
        dump.buyers[ann.as_str()],
        2,
        "both counts of hers, in one batch"
    );
    assert_eq!(dump.gave_back, [ann.to_string()].into());
    for wish in [&told, &untold] {
        assert!(
            dump.answer(wish.id)
                .unwrap()
                .starts_with(&format!("R{}:", wish.units))
        );
    }
    let due = |wish: &Wish| dump.walks[&pack(wish)].clone();
    assert_eq!(
        due(&untold),
        (deadline + MARGIN_MS).to_string(),
        "it is final now, and is forgotten like any other"
    );
    assert_eq!(dump.walks[&pack(&told)], before.walks[&pack(&told)]);
    assert_eq!(dump.stock, before.stock, "the units are elsewhere");

    for wishes in [[&told, &untold], [&untold, &told]] {
        assert_eq!(
            sale.counts_given_back(1, &wishes).await,
            0,
            "a repeat changes nothing"
        );
        assert_eq!(sale.dump(1).await, dump);
    }
    // Home hears too late how the walk ended.
    let late = sale
        .finish_walk(1, deadline, std::slice::from_ref(&untold), &[("E", "1:0")])
        .await;
    assert_eq!(
        (text(&fields(&late)[2]).as_str(), sale.dump(1).await),
        ("0", dump)
    );
    assert_eq!(sale.counts_given_back(1, &[&told_too]).await, 1);
    assert_eq!(
        sale.dump(1).await.buyers.get(ann.as_str()),
        None,
        "there is no count of zero"
    );
    assert_eq!(
        sale.released(0, &[(&told, false), (&told_too, false), (&untold, false)])
            .await,
        (6, 3)
    );
}

async fn give_back_count_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let wish = sale.wish(&sale.buyer_at(1, 0), "k", 1);
    sale.take_elsewhere(1, 0, &wish).await;
    let before = sale.dumps().await;
    assert_eq!(status(&sale.give_back_count(2, &[&wish]).await), "missing");
    assert_eq!(sale.dumps().await, before);
    let exists: u64 = sale
        .redis(redis::cmd("EXISTS").arg(sale.names(2).buyers))
        .await;
    assert_eq!(exists, 0);
}

async fn a_count_never_falls_below_zero(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let ann = sale.buyer_at(1, 0);
    let (here, elsewhere) = (sale.wish(&ann, "here", 2), sale.wish(&ann, "elsewhere", 2));
    sale.take(1, &[&here]).await;
    sale.take_elsewhere(1, 0, &elsewhere).await;
    // Somebody has lost a count.
    let _: i64 = sale
        .redis(
            redis::cmd("HSET")
                .arg(sale.names(1).buyers)
                .arg(ann.as_str())
                .arg(1),
        )
        .await;
    assert_eq!(sale.counts_given_back(1, &[&elsewhere]).await, 1);
    assert_eq!(sale.dump(1).await.buyers.get(ann.as_str()), None);
    assert_eq!(sale.released(1, &[(&here, true)]).await, (2, 1));
    assert_eq!(sale.dump(1).await.buyers.get(ann.as_str()), None);
    assert_eq!(sale.released(0, &[(&elsewhere, false)]).await, (2, 1));
}

async fn a_walk_that_nobody_ended_ends_with_the_return_and_is_forgotten(site: Arc<Site>) {
    // The ring of home 1 is 1, 2, 0, and only segment 0 has a unit.
    let sale = sale::open(&site, Terms::new(1, 3).limit(1)).await;
    let ann = sale.buyer_at(1, 0);
    let wish = sale.wish(&ann, "k", 1);
    let deadline = sale.now_ms().await + 1500;
    assert_eq!(
        home_answers(
            &sale
                .ask_home(1, deadline, std::slice::from_ref(&wish))
                .await
                .unwrap(),
            1
        )
        .1,
        ["p"]
    );
    for (segment, answer) in [(2, "p"), (0, "taken")] {
        assert_eq!(
            next_answers(
                &sale
                    .ask_next(segment, deadline, std::slice::from_ref(&wish))
                    .await
                    .unwrap(),
                1
            )
            .1,
            [answer]
        );
    }
    // Whoever asked has died. The ledger has the order, and its buyer cancels it.
    let back = sale.to_return(&ann, "k", 1, 0);
    assert_eq!(
        sale.at_first()
            .give_back(std::slice::from_ref(&back))
            .await
            .unwrap(),
        1
    );
    let home = sale.dump(1).await;
    assert!(home.answer(wish.id).unwrap().starts_with("R1:"));
    assert_eq!((home.buyers.len(), home.walks.len()), (0, 1));
    assert_eq!(
        sale.at_first().settle_walks().await.unwrap(),
        Settled::default(),
        "another attempt of hers has time until the deadline"
    );
    let mut forgotten = 0;
    sale::eventually("the walk being forgotten", async || {
        let settled = sale.at_first().settle_walks().await.unwrap();
        assert_eq!(
            settled.finished, 0,
            "nobody walks for an order that was given back"
        );
        forgotten += settled.forgotten;
        forgotten == 1
    })
    .await;
    assert!(sale.now_ms().await > deadline);
    let [zero, one, two] = sale.dumps().await.try_into().unwrap();
    assert_eq!(two.answer(wish.id), None, "what passed it has forgotten it");
    assert!(one.walks.is_empty());
    for dump in [zero, one] {
        assert!(
            dump.answer(wish.id).unwrap().starts_with("R1:"),
            "released is its answer for good"
        );
    }
    assert_eq!(sale.at_first().give_back(&[back]).await.unwrap(), 0);
    assert_eq!(
        sale.order(&ann, "k", 1).await.unwrap(),
        stock::Outcome::Released
    );
}

async fn units_that_come_back_are_announced(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let [one, two] = ["1", "2"].map(|key| sale.wish(&sale.buyer_at(0, 0), key, 1));
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
        "the next message is that of another change: whoever was woken reads on"
    );
}
