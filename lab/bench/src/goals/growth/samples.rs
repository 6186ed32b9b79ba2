//! Made-up results for tests.

use super::{
    calls::{Calls, Orders},
    expiry::Expiry,
    idle::Idle,
    series::Step,
};

/// A step with another value in each field.
pub fn step(idle: Option<Idle>) -> Step {
    Step {
        open_items: 1,
        closed_items: 2,
        orders: 3,
        start_ms: 400.4,
        until_audited_cpu_ms: Some(4.5),
        idle,
        calls: Calls {
            audit_ms: 10.04,
            full_audit_ms: 10.5,
            metrics_ms: 11.0,
            metrics_bytes: 12_300,
            items_page_ms: 13.0,
            orders_page_ms: 14.0,
        },
        hot: orders(8.0),
        empty: orders(7.5),
        turns: Vec::new(),
        drift: 0,
        oversold: 0,
    }
}

/// Idle time with that of the ledger's server, if it has one.
pub fn idle(ledger: Option<f64>) -> Option<Idle> {
    Some(Idle {
        service: 5.0,
        redis: 6.0,
        ledger,
    })
}

/// A step of the series of holds.
pub fn expiry(holds: u64) -> Expiry {
    Expiry {
        holds,
        carts: 0,
        back_s: 0.8,
        quiet: orders(3.0),
        meanwhile: orders(20.0),
        drift: 0,
        oversold: 0,
    }
}

fn orders(p50_ms: f64) -> Orders {
    Orders {
        p50_ms,
        p99_ms: p50_ms + 1.0,
        max_ms: p50_ms + 2.0,
        measured: 100,
    }
}
