//! Costs of the parts: built-in figures, or figures of the user's machine.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Processor time in microseconds, memory in bytes, each for one order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Costs {
    pub service_us_per_recorded_order: f64,
    pub service_us_per_accepted_order: f64,
    pub service_us_per_refusal: f64,
    /// In batches of about 128, as under high load.
    pub redis_us_per_order: f64,
    /// In a batch of one order.
    pub redis_us_per_lone_order: f64,
    pub recorder_us_per_order: f64,
    pub postgres_us_per_order: f64,
    pub sqlite_us_per_order: f64,
    /// Measured maximum of one server, limited by its cores and its disk.
    pub postgres_orders_per_second_max: f64,
    pub sqlite_orders_per_second_max: f64,
    pub redis_bytes_per_order: f64,
    /// Machine that produced the figures.
    pub machine: String,
    /// Fields that the user's file does not have. The built-in figures replace them.
    pub missing: Vec<&'static str>,
}

type Field = fn(&mut Costs) -> &mut f64;

/// Fields that a goal of `make bench` measures: where its figure is in the results.
const OF_GOALS: [(&str, &str); 2] = [
    ("postgres_orders_per_second_max", "/P4/figure"),
    ("redis_bytes_per_order", "/P6/figure"),
];

/// Fields of a costs file, by name.
const FIELDS: [(&str, Field); 11] = [
    ("service_us_per_recorded_order", |costs| {
        &mut costs.service_us_per_recorded_order
    }),
    ("service_us_per_accepted_order", |costs| {
        &mut costs.service_us_per_accepted_order
    }),
    ("service_us_per_refusal", |costs| {
        &mut costs.service_us_per_refusal
    }),
    ("redis_us_per_order", |costs| &mut costs.redis_us_per_order),
    ("redis_us_per_lone_order", |costs| {
        &mut costs.redis_us_per_lone_order
    }),
    ("recorder_us_per_order", |costs| {
        &mut costs.recorder_us_per_order
    }),
    ("postgres_us_per_order", |costs| {
        &mut costs.postgres_us_per_order
    }),
    ("sqlite_us_per_order", |costs| {
        &mut costs.sqlite_us_per_order
    }),
    ("postgres_orders_per_second_max", |costs| {
        &mut costs.postgres_orders_per_second_max
    }),
    ("sqlite_orders_per_second_max", |costs| {
        &mut costs.sqlite_orders_per_second_max
    }),
    ("redis_bytes_per_order", |costs| {
        &mut costs.redis_bytes_per_order
    }),
];

impl Costs {
    /// The run of `docs/performance.md`, end to end on one machine whose two cores load generator,
    /// service, recorder, Redis and PostgreSQL shared (P1's costs, P4 and P6). The rest comes from
    /// prototypes of the same design.
    pub(super) fn built_in() -> Self {
        Self {
            service_us_per_recorded_order: 30.6,
            service_us_per_accepted_order: 28.8,
            service_us_per_refusal: 19.0,
            redis_us_per_order: 6.8,
            recorder_us_per_order: 3.4,
            postgres_us_per_order: 14.4,
            // A prototype: one EVALSHA for each order, `appendfsync always`, 19 to 23.
            redis_us_per_lone_order: 20.0,
            // A prototype: SQLite, synchronous FULL, batches of 1000, 89,000 orders a second of one
            // core.
            sqlite_us_per_order: 11.2,
            sqlite_orders_per_second_max: 89_000.0,
            postgres_orders_per_second_max: 205_000.0,
            redis_bytes_per_order: 155.0,
            machine: "2 shared cores of 2026-11-29 (AMD EPYC), Redis 7.0 with appendfsync always, PostgreSQL 15 with fsync".into(),
            missing: Vec::new(),
        }
    }

    /// The object `costs` of a results.json.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let place = || format!("--costs {}", path.display());
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{}: cannot read the file", place()))?;
        let results: Value = serde_json::from_str(&text)
            .with_context(|| format!("{}: expected the results.json of `make bench`", place()))?;
        Self::of(&results).with_context(place)
    }

    fn of(results: &Value) -> Result<Self> {
        let Some(given) = results.get("costs").and_then(Value::as_object) else {
            bail!("expected an object `costs`, such as the results.json of `make bench` has");
        };
        let mut costs = Self {
            machine: "a machine that the file does not name".into(),
            ..Self::built_in()
        };
        for (name, field) in FIELDS {
            let of_goal = || {
                let (_, place) = OF_GOALS.iter().find(|(goal, _)| *goal == name)?;
                results.pointer(place)
            };
            match given.get(name).or_else(of_goal) {
                None | Some(Value::Null) => costs.missing.push(name),
                Some(value) => *field(&mut costs) = positive(name, value)?,
            }
        }
        if let Some(machine) = given.get("machine").and_then(Value::as_str) {
            machine.clone_into(&mut costs.machine);
        }
        Ok(costs)
    }

    /// The figures with their names in a file.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let mut costs = self.clone();
        FIELDS
            .into_iter()
            .map(move |(name, field)| (name, *field(&mut costs)))
    }
}

fn positive(name: &str, value: &Value) -> Result<f64> {
    match value.as_f64() {
        Some(number) if number > 0.0 => Ok(number),
        _ => bail!("`costs.{name}` is {value}: expected a number above 0"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Costs, FIELDS};

    #[test]
    fn what_the_bench_measures_as_a_goal_is_taken_from_there() {
        let results = json!({ "P4": { "figure": 280_000.0 }, "P6": { "figure": 154.0 }, "costs": { "redis_us_per_order": 2.5 } });
        let costs = Costs::of(&results).unwrap();
        assert_eq!(costs.postgres_orders_per_second_max, 280_000.0);
        assert_eq!(costs.redis_bytes_per_order, 154.0);
        assert_eq!(costs.missing.len(), FIELDS.len() - 3);
        let failed = json!({ "P6": { "error": "no wrk" }, "costs": {} });
        assert_eq!(Costs::of(&failed).unwrap().missing.len(), FIELDS.len());
    }

    /// The run of `docs/performance.md`.
    const RUN: &str = include_str!("../../../../docs/figures/bench.json");

    #[test]
    fn the_built_in_costs_are_those_of_the_run_that_documents_tell() {
        let run = Costs::of(&serde_json::from_str(RUN).unwrap()).unwrap();
        for ((name, built_in), (_, measured)) in Costs::built_in().by_name().zip(run.by_name()) {
            // With one digit behind the point, or three digits.
            let rounded = (measured * 0.005).max(0.05);
            let difference = (built_in - measured).abs();
            assert!(difference <= rounded, "{name}: {built_in}, {measured}");
        }
    }

    #[test]
    fn what_a_file_does_not_say_is_built_in_and_named() {
        let costs = Costs::of(&json!({ "P1": {}, "costs": { "redis_us_per_order": 2.5, "machine": "mine", "wal": 1 } })).unwrap();
        assert_eq!((costs.redis_us_per_order, &*costs.machine), (2.5, "mine"));
        assert_eq!(costs.missing.len(), FIELDS.len() - 1);
        assert_eq!(
            costs.recorder_us_per_order,
            Costs::built_in().recorder_us_per_order
        );
    }

    #[test]
    fn a_cost_that_is_none_is_refused_by_its_name() {
        for wrong in [json!(0), json!(-1.5), json!("4"), json!([4])] {
            let error =
                Costs::of(&json!({ "costs": { "redis_us_per_order": wrong } })).unwrap_err();
            assert!(
                error.to_string().contains("costs.redis_us_per_order"),
                "{error}"
            );
        }
        assert!(
            Costs::of(&json!({ "P1": {} }))
                .unwrap_err()
                .to_string()
                .contains("`costs`")
        );
    }

    #[test]
    fn every_field_is_read_by_its_own_name() {
        let numbered: serde_json::Map<_, _> = FIELDS
            .iter()
            .zip(1..)
            .map(|((name, _), number)| ((*name).to_owned(), json!(number)))
            .collect();
        let costs = Costs::of(&json!({ "costs": numbered })).unwrap();
        assert!(costs.missing.is_empty());
        for ((name, figure), number) in costs.by_name().zip(1..) {
            assert_eq!(figure, f64::from(number), "{name}");
        }
    }
}
