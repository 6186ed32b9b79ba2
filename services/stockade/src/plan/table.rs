//! The plan as a table for people, and as JSON for programs.
#![expect(clippy::cast_precision_loss, reason = "a plan is good to a few digits")]

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde_json::{Map, Value, json};

use super::{
    arithmetic::{Load, Part, Plan},
    costs::Costs,
};

/// The plan as a table and in sentences.
pub(super) fn table(plan: &Plan, costs: &Costs) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["part", "work", "cost", "busy", "needed"]);
    let [orders, refusals] = &plan.service;
    table.add_row(row(
        "order service, while units last",
        orders,
        "orders/s",
        services(orders),
    ));
    if plan.refusals > 0 {
        table.add_row(row(
            "order service, sold out",
            refusals,
            "refusals/s",
            services(refusals),
        ));
    }
    table.add_row(row("Redis", &plan.redis, "orders/s", masters(plan)));
    table.add_row(row(
        "recorder",
        &plan.recorder,
        "orders/s",
        count(plan.recorder.needed(), "recorder"),
    ));
    table.add_row(row(
        ledger(plan),
        &plan.ledger,
        "orders/s",
        ledger_needed(plan),
    ));
    let sentences = [
        how_long(plan),
        format!(
            "Redis holds {} for the {} orders of the sale.",
            size(plan.redis_bytes),
            number(plan.orders as f64)
        ),
        bottleneck(plan),
        growth(plan),
        of_costs(costs),
    ];
    let warning = warning(plan).into_iter();
    format!(
        "{table}\n{}",
        sentences
            .into_iter()
            .chain(warning)
            .collect::<Vec<_>>()
            .join("\n")
    )
}

fn row(part: &str, load: &Load, unit: &str, needed: String) -> [String; 5] {
    let busy = if load.busy_cores < 0.005 {
        "0.01 cores or less".into()
    } else {
        format!("{:.2} cores", load.busy_cores)
    };
    [
        part.into(),
        format!("{} {unit}", number(load.per_second)),
        format!("{:.1} µs", load.us_each),
        busy,
        needed,
    ]
}

fn services(load: &Load) -> String {
    count(load.needed(), "order service")
}

fn masters(plan: &Plan) -> String {
    format!(
        "{}, {} for the item",
        count(plan.redis.needed(), "master"),
        count(plan.segments, "segment")
    )
}

fn ledger(plan: &Plan) -> &'static str {
    if plan.ledger_is_a_file {
        "SQLite"
    } else {
        "PostgreSQL"
    }
}

/// An installation has one ledger, so a sale that is too fast for it needs more time.
fn ledger_needed(plan: &Plan) -> String {
    match plan.ledger_is_too_slow() {
        false => "1".into(),
        true => format!("1, for {}", slower_buyers(plan)),
    }
}

fn slower_buyers(plan: &Plan) -> String {
    let seconds = number(plan.seconds_for_one_ledger());
    format!("buyers who arrive over {seconds} s")
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn how_long(plan: &Plan) -> String {
    let rate = number(plan.orders_per_second);
    if plan.refusals == 0 {
        let left = plan.crowd.stock - plan.orders;
        if left == 0 {
            return format!(
                "There is a unit for every buyer: the last one is sold after {} s at {rate} orders/s.",
                plan.crowd.seconds
            );
        }
        return format!(
            "The stock outlasts the crowd: {} units are left after {} s at {rate} orders/s.",
            number(left as f64),
            plan.crowd.seconds
        );
    }
    let lasts = if plan.lasts_seconds < 1.0 {
        "less than a second".into()
    } else {
        format!("{:.1} s", plan.lasts_seconds)
    };
    format!(
        "The stock lasts {lasts} at {rate} orders/s; {} requests are refused after that, {} a second.",
        number(plan.refusals as f64),
        number(plan.refusals_per_second)
    )
}

fn bottleneck(plan: &Plan) -> String {
    let load = plan.bottleneck();
    let (name, remedy) = match load.part {
        Part::OrderService => (
            "the order service",
            "more of them, or more cores for each".into(),
        ),
        Part::Redis => (
            "Redis",
            "more masters, each with a segment of the item".into(),
        ),
        Part::Recorder => (
            "the recorder",
            "more of them, each with separate segments".into(),
        ),
        Part::Ledger => (
            "the ledger",
            format!(
                "{}, because an installation has one ledger",
                slower_buyers(plan)
            ),
        ),
    };
    let share = 100.0 * load.of_one;
    match load.needed() {
        1 => format!(
            "The bottleneck is {name}, and one is enough: it has {share:.0} % of the work that one is planned for."
        ),
        _ => format!(
            "The bottleneck is {name}: it has {share:.0} % of the work that one is planned for. What helps: {remedy}."
        ),
    }
}

/// When another instance of each part is needed, and what must be decided before the sale.
fn growth(plan: &Plan) -> String {
    let most = |load: &Load| number(load.most_of_one().floor());
    let [orders, _] = &plan.service;
    format!(
        "Add an order service for every {} orders/s, a master with a segment for every {}, and a recorder with a segment for every {}. \
         An installation has one ledger, which is planned for {}. An item keeps its number of segments: create it with one for each master \
         that the cluster may grow to during the sale.",
        most(orders),
        most(&plan.redis),
        most(&plan.recorder),
        most(&plan.ledger),
    )
}

fn of_costs(costs: &Costs) -> String {
    let lone = format!(
        "An order that comes to Redis alone, and not in a batch, costs {} µs there.",
        costs.redis_us_per_lone_order
    );
    let missing = match &*costs.missing {
        [] => String::new(),
        missing => format!(
            " Not in the file, and therefore built in: {}.",
            missing.join(", ")
        ),
    };
    format!("Costs: {}. {lone}{missing}", costs.machine)
}

fn warning(plan: &Plan) -> Option<String> {
    plan.has_too_many_machines_for_a_file()
        .then(|| "SQLite is a file on one machine, and several services cannot share it: use --ledger postgres.".into())
}

/// Groups thousands, and shows one decimal for numbers below 10 that are not whole.
fn number(number: f64) -> String {
    if number > 0.0 && number < 10.0 && number.fract() > 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn size(bytes: f64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut size, mut at) = (bytes, 0);
    while size >= 1000.0 && at + 1 < units.len() {
        size /= 1000.0;
        at += 1;
    }
    format!("{size:.0} {}", units[at])
}

/// The plan for programs: the names stay.
pub(super) fn json(plan: &Plan, costs: &Costs) -> Value {
    let [orders, refusals] = &plan.service;
    let by_name: Map<String, Value> = costs
        .by_name()
        .map(|(name, figure)| (name.to_owned(), json!(figure)))
        .collect();
    json!({
        "buyers": plan.crowd.buyers,
        "stock": plan.crowd.stock,
        "seconds": plan.crowd.seconds,
        "orders": plan.orders,
        "orders_per_second": plan.orders_per_second,
        "refusals": plan.refusals,
        "refusals_per_second": plan.refusals_per_second,
        "stock_lasts_seconds": plan.lasts_seconds,
        "services": plan.services(),
        "redis_masters": plan.redis.needed(),
        "segments": plan.segments,
        "recorders": plan.recorder.needed(),
        "ledger": if plan.ledger_is_a_file { "sqlite" } else { "postgres" },
        "ledger_is_enough": !plan.ledger_is_too_slow(),
        "seconds_for_one_ledger": plan.seconds_for_one_ledger(),
        "ledger_orders_per_second_planned_for": plan.ledger_planned_for,
        "orders_per_second_of_one": {
            "order_service": orders.most_of_one(),
            "redis_master": plan.redis.most_of_one(),
            "recorder": plan.recorder.most_of_one(),
            "ledger": plan.ledger.most_of_one(),
        },
        "redis_bytes": plan.redis_bytes,
        "busy_cores": {
            "order_service_orders": orders.busy_cores,
            "order_service_refusals": refusals.busy_cores,
            "redis": plan.redis.busy_cores,
            "recorder": plan.recorder.busy_cores,
            "ledger": plan.ledger.busy_cores,
        },
        "bottleneck": plan.bottleneck().part.as_str(),
        "bottleneck_of_one": plan.bottleneck().of_one,
        "warning": warning(plan),
        "costs": by_name,
        "costs_machine": costs.machine,
        "costs_built_in": costs.missing,
    })
}

#[cfg(test)]
mod tests {
    use super::{number, size};

    #[test]
    fn numbers_are_grouped() {
        let table = [
            (0.0, "0"),
            (0.5, "0.5"),
            (1.0, "1"),
            (9.96, "10.0"),
            (999.6, "1,000"),
            (16_666.7, "16,667"),
            (1e12, "1,000,000,000,000"),
        ];
        for (value, expected) in table {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn sizes_have_a_unit() {
        let table = [
            (141.0, "141 bytes"),
            (1500.0, "2 kB"),
            (15e6, "15 MB"),
            (141e12, "141 TB"),
            (141e15, "141000 TB"),
        ];
        for (value, expected) in table {
            assert_eq!(size(value), expected);
        }
    }
}
