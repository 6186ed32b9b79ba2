//! A real shop, django-oscar, sells ten units to forty guests who click at the same moment.
//!
//! The shop, its guests and its card processor belong to `make oscar`. This case calls the same
//! script, and judges what it has counted.

mod packages;
mod trial;

use anyhow::Result;

pub use self::trial::Trial;
use self::{packages::packages, trial::Rush};
use crate::{
    case::Case,
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::{Doing, Event},
};

/// Builds the case: its scenario and its variants.
pub fn case() -> Case {
    Case::new("real-shop", include_str!("real_shop.toml"))
        .real_time()
        .requires(packages)
        .faulty("oscar's own checkout", |env| Box::pin(run(env, "plain")))
        .does_not_help("conditional UPDATE", |env| {
            Box::pin(run(env, "conditional"))
        })
        .holds("the engine", |env| Box::pin(run(env, "stockade")))
}

async fn run(env: &TestEnv, variant: &str) -> Result<Measurements> {
    let trial = env.real_shop().await?;
    if let Some(rush) = trial.rushes(variant)?.first() {
        draw(env, rush);
    }
    judge(trial, variant)
}

/// Counts the rushes of a variant. A card that was charged, has no order and has its money not back
/// is a buyer who was charged in vain.
fn judge(trial: &Trial, variant: &str) -> Result<Measurements> {
    let counts = trial.counts(variant)?;
    let stock: u64 = trial.rushes(variant)?.iter().map(|rush| rush.units).sum();
    let [orders, charged, confirmed, held] = [
        &counts.orders,
        &counts.charged,
        &counts.confirmed,
        &counts.held,
    ]
    .map(|counts| counts.iter().sum::<u64>());
    let measurements = Measurements::new()
        .judge_sale(stock, orders, stock.saturating_sub(orders).max(held))
        .judge(Measure::ChargedInVain, charged.saturating_sub(orders), 0);
    // Only Stockade confirms orders, and each of the shop's must be one of them.
    Ok(if variant == "stockade" {
        measurements.judge(Measure::LostOrders, orders.abs_diff(confirmed), 0)
    } else {
        measurements
    })
}

/// Draws a rush: what the card processor and the guests saw, in seconds since the click.
fn draw(env: &TestEnv, rush: &Rush) {
    let processor = env.timeline.lane("card processor");
    let guests = env.timeline.lane("guests");
    guests.noted(
        Event::Note,
        format!("{} guests click", rush.answers.len()),
        0.0,
    );
    let ordered = rush.answers.iter().filter(|answer| answer.ordered).count() as u64;
    if let (Some(first), Some(last)) = (rush.charges.first(), rush.charges.last()) {
        processor.was(Doing::Working, "charges cards", *first, *last);
    }
    for (at, number) in rush.charges.iter().zip(1..) {
        // With as many orders, the orders are the harm.
        let event = if number > rush.units.max(ordered) {
            Event::Harm
        } else {
            Event::Note
        };
        processor.noted(
            event,
            format!("card {number} is charged, for {} units", rush.units),
            *at,
        );
    }
    let mut order = 0;
    for answer in &rush.answers {
        order += u64::from(answer.ordered);
        let (event, label) = match answer.ordered {
            true if order > rush.units => (
                Event::Harm,
                format!("order {order}, for {} units", rush.units),
            ),
            true => (Event::Sale, format!("order {order}")),
            false => (Event::Refused, "no order".into()),
        };
        guests.noted(event, label, answer.at);
    }
    env.timeline.ended_at(rush.end());
}

#[cfg(test)]
mod tests {
    use super::{Trial, judge};
    use crate::{case::Expected, measurements::Measurements};

    const SUMMARY: &str = r#"{
        "plain": {"orders": [24, 20], "charged": [24, 20], "confirmed": [0, 0], "held": [0, 0]},
        "conditional": {"orders": [10, 10], "charged": [23, 20], "confirmed": [0, 0], "held": [0, 0]},
        "stockade": {"orders": [10, 10], "charged": [10, 10], "confirmed": [10, 10], "held": [0, 0]}
    }"#;
    const RUSHES: &str = r#"{
        "plain": [{"units": 10, "charges": [], "answers": []}, {"units": 10, "charges": [], "answers": []}],
        "conditional": [{"units": 10, "charges": [], "answers": []}, {"units": 10, "charges": [], "answers": []}],
        "stockade": [{"units": 10, "charges": [], "answers": []}, {"units": 10, "charges": [], "answers": []}]
    }"#;

    fn judged(summary: &str, variant: &str) -> Measurements {
        judge(&Trial::parse(summary, RUSHES).unwrap(), variant).unwrap()
    }

    fn broken(summary: &str, variant: &str) -> Vec<String> {
        let measurements = judged(summary, variant);
        let broken = measurements
            .readings
            .iter()
            .filter(|reading| !reading.holds());
        broken
            .map(|reading| format!("{} {}", reading.value, reading.measure))
            .collect()
    }

    #[test]
    fn each_variant_has_the_verdict_that_it_expects() {
        let variants = super::case().variants.into_iter();
        for (variant, name) in variants.zip(["plain", "conditional", "stockade"]) {
            let holds = judged(SUMMARY, name).holds();
            assert_eq!(
                holds,
                variant.info.expected == Expected::Holds,
                "{}",
                variant.info.name
            );
        }
    }

    #[test]
    fn orders_beyond_the_stock_and_cards_without_an_order_are_counted_over_all_rushes() {
        assert_eq!(broken(SUMMARY, "plain"), ["24 units oversold"]);
        assert_eq!(
            broken(SUMMARY, "conditional"),
            ["23 buyers charged without goods"]
        );
        assert_eq!(judged(SUMMARY, "plain").units_sold, 44);
    }

    #[test]
    fn the_engine_fails_with_one_unit_too_few_or_held_and_with_one_order_unconfirmed() {
        let stockade = |from: &str, to: &str| {
            let (others, own) = SUMMARY.split_once("\"stockade\"").unwrap();
            broken(
                &format!("{others}\"stockade\"{}", own.replacen(from, to, 1)),
                "stockade",
            )
        };
        assert!(stockade("[10, 10]", "[10, 10]").is_empty());
        assert_eq!(
            stockade("\"orders\": [10, 10]", "\"orders\": [10, 9]"),
            [
                "1 units stranded",
                "1 buyers charged without goods",
                "1 lost orders"
            ]
        );
        assert_eq!(
            stockade("\"held\": [0, 0]", "\"held\": [0, 1]"),
            ["1 units stranded"]
        );
        assert_eq!(
            stockade("\"confirmed\": [10, 10]", "\"confirmed\": [9, 10]"),
            ["1 lost orders"]
        );
    }

    #[test]
    fn a_summary_without_the_variant_is_an_error() {
        let trial = Trial::parse("{}", RUSHES).unwrap();
        assert!(judge(&trial, "plain").is_err());
    }
}
