//! The formulas: orders and refusals per second, the cores that they keep busy, and the number of
//! machines.
//!
//! Buyers arrive at a constant rate. While units are left, each arrival is an order. Afterwards
//! each request is a refusal, and a buyer who gets nothing sends several. A sale therefore has two
//! phases, and each part is planned for the phase with the higher load.
#![expect(clippy::cast_precision_loss, reason = "a plan is good to a few digits")]

use domain::Item;

/// Demand and stock of a sale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub buyers: u64,
    pub stock: u64,
    pub seconds: u64,
    /// Requests of a buyer who gets nothing.
    pub tries: u64,
}

/// Costs of an order in each part, and limits of the machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machines {
    pub service_us: f64,
    pub refusal_us: f64,
    pub redis_us: f64,
    pub recorder_us: f64,
    pub ledger_us: f64,
    /// Highest rate of orders per second of one ledger.
    pub ledger_most: f64,
    pub ledger_is_a_file: bool,
    pub redis_bytes: f64,
    pub cores_per_service: u64,
    /// Planned utilization of a core.
    pub headroom: f64,
}

/// A part of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    OrderService,
    Redis,
    Recorder,
    Ledger,
}

impl Part {
    /// Name in JSON.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::OrderService => "order_service",
            Self::Redis => "redis",
            Self::Recorder => "recorder",
            Self::Ledger => "ledger",
        }
    }
}

/// Peak load of a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub part: Part,
    /// Orders or refusals per second.
    pub per_second: f64,
    pub us_each: f64,
    /// Cores that the load keeps busy.
    pub busy_cores: f64,
    /// Load relative to the planned capacity of one instance; above 1, several are needed.
    pub of_one: f64,
}

impl Load {
    fn new(part: Part, per_second: f64, us_each: f64, cores_of_one: f64) -> Self {
        let busy_cores = per_second * us_each / 1e6;
        Self {
            part,
            per_second,
            us_each,
            busy_cores,
            of_one: busy_cores / cores_of_one,
        }
    }

    /// Orders or refusals per second that one instance is planned for. Above it, another one is
    /// needed.
    pub(super) fn most_of_one(&self) -> f64 {
        self.per_second / self.of_one
    }

    pub(super) fn needed(&self) -> u64 {
        // A tiny excess over a whole number is a rounding error.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and far below 2^64"
        )]
        let needed = (self.of_one - 1e-9).ceil().max(1.0) as u64;
        needed
    }
}

/// The plan of a sale.
#[derive(Debug)]
pub(super) struct Plan {
    pub crowd: Crowd,
    /// Placed orders: one per buyer, and at most as many as units.
    pub orders: u64,
    pub orders_per_second: f64,
    pub refusals: u64,
    pub refusals_per_second: f64,
    /// Seconds until the stock is sold.
    pub lasts_seconds: f64,
    /// Load of the order services by orders, and by refusals.
    pub service: [Load; 2],
    pub redis: Load,
    pub recorder: Load,
    pub ledger: Load,
    /// Planned orders per second of one ledger.
    pub ledger_planned_for: f64,
    pub ledger_is_a_file: bool,
    pub segments: u64,
    pub redis_bytes: f64,
}

impl Plan {
    pub(super) fn of(crowd: &Crowd, machines: &Machines) -> Self {
        let Crowd {
            buyers,
            stock,
            seconds,
            tries,
        } = *crowd;
        let orders = buyers.min(stock);
        let losers = buyers - orders;
        // All arrivals are orders while units are left. A stock that lasts less than a second
        // counts as the work of one second.
        let lasts_seconds = seconds as f64 * (orders as f64 / buyers as f64);
        let orders_per_second = orders as f64 / lasts_seconds.max(1.0);
        let refusals_per_second = if losers == 0 {
            0.0
        } else {
            buyers as f64 * tries as f64 / seconds as f64
        };
        let service = |rate, us| {
            Load::new(
                Part::OrderService,
                rate,
                us,
                machines.cores_per_service as f64 * machines.headroom,
            )
        };
        // Redis runs scripts on one core, and a recorder decodes and binds on about one.
        let on_one_core = |part, us| Load::new(part, orders_per_second, us, machines.headroom);
        let (redis, recorder) = (
            on_one_core(Part::Redis, machines.redis_us),
            on_one_core(Part::Recorder, machines.recorder_us),
        );
        let ledger_planned_for = machines.ledger_most * machines.headroom;
        let ledger = Load {
            of_one: orders_per_second / ledger_planned_for,
            ..on_one_core(Part::Ledger, machines.ledger_us)
        };
        Self {
            crowd: *crowd,
            orders,
            orders_per_second,
            refusals: losers * tries,
            refusals_per_second,
            lasts_seconds,
            service: [
                service(orders_per_second, machines.service_us),
                service(refusals_per_second, machines.refusal_us),
            ],
            segments: segments(stock, redis.needed(), recorder.needed()),
            redis,
            recorder,
            ledger,
            ledger_planned_for,
            ledger_is_a_file: machines.ledger_is_a_file,
            redis_bytes: orders as f64 * machines.redis_bytes,
        }
    }

    /// The phase with the higher load of the order services.
    pub(super) fn busier_service(&self) -> &Load {
        let [orders, refusals] = &self.service;
        if refusals.of_one > orders.of_one {
            refusals
        } else {
            orders
        }
    }

    pub(super) fn services(&self) -> u64 {
        self.busier_service().needed()
    }

    /// The part with the highest load relative to one instance: the first that must be scaled.
    pub(super) fn bottleneck(&self) -> &Load {
        let others = [&self.redis, &self.recorder, &self.ledger];
        others
            .into_iter()
            .fold(self.busier_service(), |most, load| {
                if load.of_one > most.of_one {
                    load
                } else {
                    most
                }
            })
    }

    /// Whether the ledger is too slow. There is one, so the sale needs more time.
    pub(super) fn ledger_is_too_slow(&self) -> bool {
        self.ledger.needed() > 1
    }

    /// Seconds within which the buyers may arrive and the ledger keeps up.
    pub(super) fn seconds_for_one_ledger(&self) -> f64 {
        let seconds = self.crowd.seconds as f64;
        // A tiny excess over a whole number is a rounding error.
        seconds.max((seconds * self.ledger.of_one - 1e-9).ceil())
    }

    /// Whether the plan needs several processes, although SQLite restricts them to one machine.
    pub(super) fn has_too_many_machines_for_a_file(&self) -> bool {
        self.ledger_is_a_file && (self.services() > 1 || self.recorder.needed() > 1)
    }
}

/// One segment per master, so that every master sells, and one per recorder, which needs its own
/// rows. More segments on one server would only make batches smaller, and a small stock is not
/// worth splitting. Items that are created without a number of segments follow the same rule.
fn segments(stock: u64, masters: u64, recorders: u64) -> u64 {
    masters
        .max(recorders)
        .min(stock / 100)
        .clamp(1, Item::MAX_SEGMENTS.into())
}

#[cfg(test)]
mod tests {
    use super::{Crowd, Load, Machines, Part, Plan};

    const MACHINES: Machines = Machines {
        service_us: 12.5,
        refusal_us: 10.0,
        redis_us: 4.0,
        recorder_us: 2.0,
        ledger_us: 6.0,
        ledger_most: 200_000.0,
        ledger_is_a_file: false,
        redis_bytes: 150.0,
        cores_per_service: 2,
        headroom: 0.5,
    };

    fn plan(buyers: u64, stock: u64, seconds: u64) -> Plan {
        Plan::of(
            &Crowd {
                buyers,
                stock,
                seconds,
                tries: 3,
            },
            &MACHINES,
        )
    }

    fn needs(plan: &Plan) -> [u64; 5] {
        [
            plan.services(),
            plan.redis.needed(),
            plan.segments,
            plan.recorder.needed(),
            plan.ledger.needed(),
        ]
    }

    #[test]
    fn what_one_core_can_do_needs_one_of_each() {
        for (buyers, stock, seconds) in [
            (1, 1, 1),
            (10_000, 1000, 60),
            (1000, 1_000_000, 10),
            (20_000, 20_000, 1),
        ] {
            assert_eq!(
                needs(&plan(buyers, stock, seconds)),
                [1; 5],
                "{buyers} buyers, {stock} units, {seconds} s"
            );
        }
    }

    /// A million buyers in ten seconds are 100,000 a second, and as many orders, while the units
    /// last: a tenth of the time. Then 300,000 are refused.
    #[test]
    fn a_sale_that_was_reckoned_by_hand() {
        let plan = plan(1_000_000, 100_000, 10);
        assert_eq!((plan.orders, plan.refusals), (100_000, 2_700_000));
        assert_eq!(
            (
                plan.orders_per_second,
                plan.refusals_per_second,
                plan.lasts_seconds
            ),
            (100_000.0, 300_000.0, 1.0)
        );
        // 1.25 and 3 cores of services, whose two cores are to be half busy; 0.4 of a core of Redis
        // and 0.2 of a recorder.
        assert_eq!(plan.service.map(|load| load.needed()), [2, 3]);
        assert_eq!(needs(&plan), [3, 1, 1, 1, 1]);
        assert_eq!(
            (plan.bottleneck().part, plan.bottleneck().per_second),
            (Part::OrderService, 300_000.0)
        );
        assert!(!plan.ledger_is_too_slow(), "half of what PostgreSQL takes");
        assert_eq!(plan.seconds_for_one_ledger(), 10.0);
        assert_eq!(plan.redis_bytes, 15e6);
    }

    #[test]
    fn a_sale_without_end_needs_many_of_each_and_one_unit_none_of_them() {
        let all = plan(10_000_000, 10_000_000, 10);
        // A million orders a second: 12.5, 4, 2 and 6 cores, at half.
        assert_eq!(needs(&all), [13, 8, 8, 4, 10]);
        assert!(all.ledger_is_too_slow());
        assert_eq!(all.seconds_for_one_ledger(), 100.0);
        assert_eq!(plan(10_000_000, 1, 10).orders_per_second, 1.0);
        assert_eq!(plan(10_000_000, 1, 10).segments, 1);
    }

    #[test]
    fn one_of_each_is_enough_up_to_what_it_is_planned_for_and_not_above() {
        // Half of a core at 4 and at 2 µs, and half of what the ledger takes.
        let plan_of = |orders| plan(orders, orders, 1);
        let small = plan_of(1000);
        let parts = [&small.redis, &small.recorder, &small.ledger];
        for (load, expected) in parts.into_iter().zip([125_000.0, 250_000.0, 100_000.0]) {
            let most = Load::most_of_one(load);
            assert!((most - expected).abs() < 0.001, "{load:?}: {most}");
        }
        let redis = |orders| plan_of(orders).redis.needed();
        assert_eq!([125_000, 125_001, 250_001].map(redis), [1, 2, 3]);
        let ledger = |orders| plan_of(orders).ledger.needed();
        assert_eq!([100_000, 100_001].map(ledger), [1, 2]);
    }

    #[test]
    fn where_units_outlast_the_crowd_nobody_is_refused() {
        let plan = plan(1000, 1_000_000_000, 10);
        assert_eq!(
            (plan.orders, plan.refusals, plan.refusals_per_second),
            (1000, 0, 0.0)
        );
        assert_eq!((plan.orders_per_second, plan.lasts_seconds), (100.0, 10.0));
    }

    #[test]
    fn the_part_that_is_nearest_to_its_end_is_the_bottleneck() {
        let of = |machines: Machines| {
            Plan::of(
                &Crowd {
                    buyers: 100_000,
                    stock: 100_000,
                    seconds: 1,
                    tries: 1,
                },
                &machines,
            )
            .bottleneck()
            .part
        };
        assert_eq!(of(MACHINES), Part::OrderService);
        assert_eq!(
            of(Machines {
                redis_us: 40.0,
                ..MACHINES
            }),
            Part::Redis
        );
        assert_eq!(
            of(Machines {
                recorder_us: 40.0,
                ..MACHINES
            }),
            Part::Recorder
        );
        assert_eq!(
            of(Machines {
                ledger_most: 10_000.0,
                ..MACHINES
            }),
            Part::Ledger
        );
        assert_eq!(
            of(Machines {
                cores_per_service: 64,
                ledger_most: 150_000.0,
                ..MACHINES
            }),
            Part::Ledger
        );
    }

    #[test]
    fn a_file_is_not_shared_by_several_machines() {
        let machines = Machines {
            ledger_is_a_file: true,
            ..MACHINES
        };
        let is_too_much = |buyers| {
            Plan::of(
                &Crowd {
                    buyers,
                    stock: buyers,
                    seconds: 1,
                    tries: 1,
                },
                &machines,
            )
            .has_too_many_machines_for_a_file()
        };
        assert_eq!([10_000, 100_000].map(is_too_much), [false, true]);
    }

    /// Every number of a grid from one to a million million, held against its neighbours.
    #[test]
    fn more_buyers_more_units_or_less_time_never_need_less() {
        let steps: Vec<u64> = (0..=12)
            .flat_map(|power| [10_u64.pow(power), 3 * 10_u64.pow(power) + 1])
            .filter(|n| *n <= 1_000_000_000_000)
            .collect();
        let seconds = [1, 2, 7, 60, 3600];
        let is_no_less = |less: Plan, more: Plan, what: &str| {
            let (less_needs, more_needs) = (needs(&less), needs(&more));
            assert!(
                less_needs
                    .iter()
                    .zip(more_needs)
                    .all(|(less, more)| *less <= more),
                "{what}: {less:?} {less_needs:?} {more:?} {more_needs:?}"
            );
        };
        for pair in steps.windows(2) {
            for other in &steps {
                for time in seconds {
                    is_no_less(
                        plan(pair[0], *other, time),
                        plan(pair[1], *other, time),
                        "buyers",
                    );
                }
                for times in seconds.windows(2) {
                    is_no_less(
                        plan(pair[0], *other, times[1]),
                        plan(pair[0], *other, times[0]),
                        "time",
                    );
                }
            }
        }
    }
}
