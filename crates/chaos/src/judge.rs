//! Holds what was acknowledged against what there is, when all is quiet.

mod books;

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    book::{Entry, Offer, Placed},
    crowd::Moved,
    shop::{Audit, Reply, Shop, insist},
    stage::Stage,
    view::Numbers,
};

/// How long holds may take to end, units to come back and transfers to arrive.
const QUIET_WITHIN: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Buyers of the rest, at a time.
const AT_ONCE: usize = 32;
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// What came of a round.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Acknowledgements: orders placed, paid, cancelled, refunded.
    pub acknowledged: usize,
    /// Of these, what is not so.
    pub lost: usize,
    /// Orders that only Redis was known to have, and that went with what Redis lost. Their level allows it.
    pub lost_by_level: usize,
    /// Units sold beyond the stock, or beyond a buyer's limit.
    pub oversold: u64,
    /// Units that nobody has and nobody gets.
    pub stranded: u64,
    /// From the end of the fault until all was well; nothing if it did not get well.
    pub healed_after: Option<Duration>,
    /// Everything that should not be, in words.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.lost == 0 && self.oversold == 0 && self.stranded == 0
    }
}

/// A round, as the judge gets it.
pub struct Case<'a> {
    /// Where.
    pub stage: &'a Stage,
    /// What there was to buy; the first is the one whose stock was moved.
    pub offers: &'a [Arc<Offer>],
    /// Everybody's books.
    pub entries: &'a [Entry],
    /// What became of the stock of the first.
    pub moved: &'a Moved,
    /// Whether Redis may have lost what it had acknowledged.
    pub redis_may_lose: bool,
}

impl Case<'_> {
    /// Waits until all is quiet, and judges.
    pub async fn judge(&self, verdict: &mut Verdict) {
        verdict.acknowledged = self.entries.iter().map(Entry::acknowledgements).sum();
        for entry in self.entries {
            let about = || {
                format!(
                    "{} of {}, key {}",
                    describe(&entry.placed),
                    entry.buyer,
                    entry.key
                )
            };
            verdict.findings.extend(
                entry
                    .contradictions
                    .iter()
                    .map(|what| format!("{}: {}: {what}", entry.offer.item, about())),
            );
        }
        for offer in self.offers {
            let quiet = self.until_quiet(offer).await;
            match self.stage.view.orders(&offer.item).await {
                Ok(rows) => books::judge(offer, self.entries, &rows, self.redis_may_lose, verdict),
                Err(error) => verdict.findings.push(format!(
                    "{}: the ledger could not be read: {error:#}",
                    offer.item
                )),
            }
            match quiet {
                Ok((numbers, audit)) => self.judge_rest(offer, numbers, &audit, verdict).await,
                Err((units, why)) => {
                    verdict.stranded += units.max(1);
                    verdict.findings.insert(
                        0,
                        format!("{}: not quiet after {QUIET_WITHIN:?}: {why}", offer.item),
                    );
                    let open = self.stage.view.open_transactions().await;
                    verdict.findings.extend(
                        open.into_iter()
                            .map(|open| format!("open in the ledger: {open}")),
                    );
                }
            }
        }
    }

    /// No order is held any more, nothing is under way, and the identity holds; or how many units are not where they should be, and why.
    async fn until_quiet(&self, offer: &Offer) -> Result<(Numbers, Audit), (u64, String)> {
        let until = Instant::now() + QUIET_WITHIN;
        loop {
            let numbers = self
                .stage
                .view
                .numbers(&offer.item)
                .await
                .unwrap_or_default();
            let audit = self.stage.shop.audit(&offer.item).await;
            let settled =
                numbers.held_orders + numbers.returns + numbers.transfers == 0 && numbers.stock > 0;
            let units = match audit {
                Reply::Done(audit) if settled && audit.is_quiet() => return Ok((numbers, audit)),
                Reply::Done(ref audit) => {
                    audit.returning + audit.in_transit + audit.in_flight + audit.drift
                }
                _ => 0,
            };
            if Instant::now() > until {
                return Err((units, format!("{numbers:?}, audit {audit:?}")));
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    async fn judge_rest(
        &self,
        offer: &Offer,
        numbers: Numbers,
        audit: &Audit,
        verdict: &mut Verdict,
    ) {
        let oversold = u64::try_from(numbers.sold - numbers.stock)
            .unwrap_or(0)
            .max(audit.oversold);
        if oversold > 0 {
            verdict.oversold += oversold;
            verdict
                .findings
                .push(format!("{}: {numbers:?}, audit {}", offer.item, audit.text));
        }
        if let Some(wrong) = self.wrong_stock(offer, numbers) {
            verdict.findings.push(wrong);
        }
        let rest = audit.stock.saturating_sub(audit.confirmed);
        let bought = buy(&self.stage.shop, offer, rest).await;
        // More, if it took so long that holds ended meanwhile.
        if bought < rest {
            verdict.stranded += rest - bought;
            let Audit {
                stock,
                confirmed,
                text,
                ..
            } = audit;
            let item = &offer.item;
            verdict
                .findings
                .push(format!("{item}: {stock} units, {confirmed} of them paid, and {bought} of the rest could be bought; audit {text}"));
        }
    }

    /// The stock is what it was, and what was added, less what was taken back, of which nobody was told how much it was.
    fn wrong_stock(&self, offer: &Offer, numbers: Numbers) -> Option<String> {
        let none = Moved::default();
        let moved = if offer.item == self.offers[0].item {
            self.moved
        } else {
            &none
        };
        let most = offer.stock + moved.added + moved.perhaps_added;
        let least = (offer.stock + moved.added).saturating_sub(moved.wanted_back);
        let stock = u64::try_from(numbers.stock).unwrap_or(0);
        (!(least..=most).contains(&stock)).then(|| {
            format!(
                "{}: {stock} units exist, and it should be {least} to {most}",
                offer.item
            )
        })
    }
}

fn describe(placed: &Placed) -> String {
    match placed {
        Placed::Acknowledged(id) => format!("order {id}"),
        Placed::Refused(code) => format!("an order that was refused ({code})"),
        Placed::Unknown => "an order".into(),
    }
}

/// Fresh buyers of one unit each, a few more than there are units; how many got one.
async fn buy(shop: &Arc<Shop>, offer: &Offer, units: u64) -> u64 {
    let (mut buyers, mut bought) = (JoinSet::new(), 0);
    for number in 0..units + 3 {
        if buyers.len() >= AT_ONCE {
            bought += u64::from(
                buyers
                    .join_next()
                    .await
                    .is_some_and(|got| got.unwrap_or(false)),
            );
        }
        let (shop, item) = (Arc::clone(shop), offer.item.clone());
        buyers.spawn(async move {
            let Ok(buyer) = shop.buyer(format!("last-{number}")) else {
                return false;
            };
            let reply = insist(Instant::now() + ANSWERED_WITHIN, || {
                shop.place(&buyer, &item, "last", 1)
            })
            .await;
            matches!(reply, Reply::Done(_))
        });
    }
    bought
        + buyers
            .join_all()
            .await
            .into_iter()
            .filter(|got| *got)
            .count() as u64
}
