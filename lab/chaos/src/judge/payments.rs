//! Compares the history of each payment with the orders and the list of money that is due, both as the
//! API tells them: money that was returned confirms nothing, and money that was kept has paid one order or
//! is due.

use std::collections::HashMap;

use anyhow::{Context, Result};
use client::{ListedOrder, OrderState, RefundDue, RefundReason};
use futures::TryStreamExt;
use uuid::Uuid;

use crate::{
    api::Api,
    history::{Answer, PaymentHistory},
    verdict::Verdict,
};

/// What the API tells of the payments of an item.
struct Told {
    orders: HashMap<Uuid, ListedOrder>,
    due: Vec<RefundDue>,
}

/// Adds everything that is wrong with the payments of an item.
pub async fn judge_payments(
    api: &Api,
    item: &str,
    histories: &[PaymentHistory],
    verdict: &mut Verdict,
) {
    verdict.payments += histories.len();
    match read(api, item).await {
        Ok(told) => {
            for history in histories {
                let wrong = judge(history, &told).into_iter();
                let all = wrong.chain(history.contradictions.iter().cloned());
                let name = &history.payment;
                verdict
                    .findings
                    .extend(all.map(|finding| format!("payment {name}: {finding}: {history:?}")));
            }
        }
        Err(error) => {
            let finding = format!("{item}: the payments could not be read: {error:#}");
            verdict.findings.push(finding);
        }
    }
}

async fn read(api: &Api, item: &str) -> Result<Told> {
    let api = api.retrying_for(testbed::timeout())?;
    let orders = api.admin.all_item_orders(item, None);
    let orders: Vec<_> = orders.try_collect().await.context("the orders")?;
    let due = api.admin.all_refunds_due();
    let due: Vec<_> = due.try_collect().await.context("the money that is due")?;
    let by_id = orders.into_iter().map(|order| (order.id, order));
    Ok(Told {
        orders: by_id.collect(),
        due,
    })
}

fn judge(history: &PaymentHistory, told: &Told) -> Vec<String> {
    let mut findings = Vec::new();
    let orders = history.orders();
    let state = |order: &Uuid| {
        let order = told.orders.get(order)?;
        let is_own = order.payment.as_ref() == Some(&history.payment);
        is_own.then_some(order.state)
    };
    let paid: Vec<_> = orders
        .iter()
        .filter(|order| state(order).is_some())
        .collect();
    if paid.len() > 1 {
        findings.push(format!("it has paid {paid:?}"));
    }
    for order in &orders {
        if history.is_returned_for(*order) && state(order) == Some(OrderState::Confirmed) {
            findings.push(format!(
                "its money was returned, and order {order} is confirmed"
            ));
        }
    }
    for report in &history.reports {
        let Answer::Paid(answered) = report.answer else {
            continue;
        };
        let is_refunded = history
            .notes
            .iter()
            .any(|note| note.is_noted != Some(false));
        let is_kept = match state(&report.order) {
            Some(OrderState::Refunded) => is_refunded,
            Some(now) => now == answered,
            None => false,
        };
        if !is_kept {
            let order = told.orders.get(&report.order);
            findings.push(format!(
                "its answer was {answered}, and the order is {order:?}"
            ));
        }
    }
    let rows: Vec<_> = told
        .due
        .iter()
        .filter(|row| row.payment.as_ref() == Some(&history.payment))
        .collect();
    for row in &rows {
        let is_noted = |note: &&crate::history::Note| {
            note.row.as_ref() == Some(&row.id) && note.is_noted == Some(true)
        };
        let is_of_paid =
            row.reason == RefundReason::UnmatchedPayment && state(&row.order).is_some();
        if is_of_paid
            || history.is_returned_by_provider()
            || history.notes.iter().any(|note| is_noted(&note))
        {
            findings.push(format!("its money is due without a reason: {row:?}"));
        }
    }
    let codes: Vec<_> = history
        .reports
        .iter()
        .filter_map(|report| match &report.answer {
            Answer::Refused(code) => Some(code.as_str()),
            _ => None,
        })
        .collect();
    let is_forgotten = !codes.is_empty() && paid.is_empty() && rows.is_empty();
    if is_forgotten && !history.may_be_returned() {
        findings.push("it was refused, and its money is not due".into());
    }
    if codes.contains(&"payment_returned") && !history.may_be_returned() {
        findings.push("it was refused as returned, and was not".into());
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use client::{ListedOrder, OrderState, RefundDue};
    use serde_json::json;
    use uuid::Uuid;

    use super::{Told, judge};
    use crate::history::{Answer, Note, PaymentHistory, Report};

    const ORDER: Uuid = Uuid::from_u128(1);

    fn order(state: OrderState, payment: Option<&str>) -> ListedOrder {
        let order = json!({
            "id": ORDER, "item": "vase", "state": state, "quantity": 1, "amount": 1999, "currency": "EUR",
            "payment": payment, "created_at": null, "expires_at": "2026-01-01T00:00:00Z", "version": 1,
        });
        serde_json::from_value(order).unwrap()
    }

    fn row() -> RefundDue {
        let row = json!({
            "id": "journal-1", "reason": "unmatched_payment", "order": ORDER, "item": "vase", "buyer": null,
            "state": "held", "quantity": null, "payment": "p", "amount": 1998, "currency": "EUR",
            "reported_at": null, "idempotency_key": "k",
        });
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn each_wrong_end_of_a_payment_is_found() {
        let (paid, refused) = (
            Answer::Paid(OrderState::Confirmed),
            Answer::Refused("amount_mismatch".into()),
        );
        let confirmed = || order(OrderState::Confirmed, Some("p"));
        let table: [(Vec<Answer>, Option<bool>, ListedOrder, bool, usize); 9] = [
            (vec![paid.clone()], Some(false), confirmed(), false, 0),
            (
                vec![refused.clone(), paid.clone()],
                Some(false),
                confirmed(),
                false,
                0,
            ),
            (
                vec![refused.clone()],
                Some(false),
                order(OrderState::Held, None),
                true,
                0,
            ),
            (
                vec![refused.clone()],
                Some(true),
                order(OrderState::Held, None),
                false,
                0,
            ),
            // Confirmed, and returned.
            (vec![paid.clone()], Some(true), confirmed(), false, 1),
            // Acknowledged, and forgotten.
            (
                vec![paid],
                Some(false),
                order(OrderState::Held, None),
                false,
                1,
            ),
            (
                vec![refused.clone()],
                Some(false),
                order(OrderState::Held, None),
                false,
                1,
            ),
            // Due twice.
            (vec![refused.clone()], Some(false), confirmed(), true, 1),
            (
                vec![refused],
                Some(true),
                order(OrderState::Held, None),
                true,
                1,
            ),
        ];
        for (answers, is_noted, order, is_due, wrong) in table {
            let mut history = PaymentHistory::new("p".into());
            let reports = answers.into_iter().map(|answer| Report {
                order: ORDER,
                answer,
            });
            history.reports.extend(reports);
            history.notes.push(Note {
                row: Some("journal-1".into()),
                payment: "p".into(),
                order: ORDER,
                is_noted,
            });
            let told = Told {
                orders: HashMap::from([(ORDER, order)]),
                due: if is_due { vec![row()] } else { Vec::new() },
            };
            let findings = judge(&history, &told);
            assert_eq!(findings.len(), wrong, "{history:?}: {findings:?}");
        }
    }
}
