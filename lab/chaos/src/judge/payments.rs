//! Compares the history of each payment with the orders and the list of money that is due, both as
//! the API tells them: money that was returned confirms nothing, and money that was kept has paid
//! one order or is due.

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
    let answered = histories.iter().filter(|history| history.is_answered());
    verdict.payments += answered.count();
    let returned = histories.iter().filter(|history| history.is_returned());
    verdict.payments_returned += returned.count();
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
    let mut findings = judge_orders(history, told);
    findings.extend(judge_reports(history, told));
    findings.extend(judge_rows(history, told));
    findings
}

impl Told {
    /// The state of the order, if the payment has paid it.
    fn paid(&self, history: &PaymentHistory, order: Uuid) -> Option<OrderState> {
        let order = self.orders.get(&order)?;
        let is_own = order.payment.as_ref() == Some(&history.payment);
        is_own.then_some(order.state)
    }

    /// The orders that the payment has paid.
    fn all_paid(&self, history: &PaymentHistory) -> Vec<Uuid> {
        let orders = history.orders().into_iter();
        orders
            .filter(|order| self.paid(history, *order).is_some())
            .collect()
    }

    /// The rows of the payment in the list of money that is due.
    fn rows(&self, history: &PaymentHistory) -> Vec<&RefundDue> {
        let rows = self.due.iter();
        rows.filter(|row| row.payment.as_ref() == Some(&history.payment))
            .collect()
    }
}

/// Money that was returned confirms nothing, and a payment pays one order. What was returned
/// confirms none, whatever the note of it names, also an order that was placed afterwards and whose
/// report had no answer.
fn judge_orders(history: &PaymentHistory, told: &Told) -> Vec<String> {
    let mut findings = Vec::new();
    let paid = told.all_paid(history);
    let is_returned = history.is_returned();
    if paid.len() > 1 {
        findings.push(format!("it has paid {paid:?}"));
    }
    for order in paid {
        let is_confirmed = told.paid(history, order) == Some(OrderState::Confirmed);
        if is_confirmed && is_returned {
            findings.push(format!(
                "its money was returned, and order {order} is confirmed"
            ));
        }
    }
    findings
}

/// What was acknowledged is not forgotten.
fn judge_reports(history: &PaymentHistory, told: &Told) -> Vec<String> {
    let mut findings = Vec::new();
    let mut codes = Vec::new();
    for report in &history.reports {
        let answered = match &report.answer {
            Answer::Paid(answered) => *answered,
            Answer::Refused(code) => {
                codes.push(code.as_str());
                continue;
            }
            Answer::Unknown => continue,
        };
        let is_kept = match told.paid(history, report.order) {
            Some(OrderState::Refunded) => history.may_be_returned(),
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
    let is_settled = !told.all_paid(history).is_empty() || history.may_be_returned();
    if !codes.is_empty() && !is_settled && told.rows(history).is_empty() {
        findings.push("it was refused, and its money is not due".into());
    }
    if codes.contains(&"payment_returned") && !history.may_be_returned() {
        findings.push("it was refused as returned, and was not".into());
    }
    findings
}

/// No list asks for money that was returned, or that has paid an order, whatever its row names.
fn judge_rows(history: &PaymentHistory, told: &Told) -> Vec<String> {
    let is_noted = |row: &RefundDue| {
        let mut notes = history.notes.iter();
        notes.any(|note| note.row.as_ref() == Some(&row.id) && note.is_noted == Some(true))
    };
    let has_paid = !told.all_paid(history).is_empty();
    let is_wrong = |row: &&RefundDue| {
        let is_of_paid = row.reason == RefundReason::UnmatchedPayment && has_paid;
        is_of_paid || history.is_returned_by_provider() || is_noted(row)
    };
    let rows = told.rows(history).into_iter().filter(is_wrong);
    rows.map(|row| format!("its money is due without a reason: {row:?}"))
        .collect()
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

    /// The answers to reports, whether a note was acknowledged, the order, whether money is due,
    /// and the number of findings.
    type Case = (Vec<Answer>, Option<bool>, ListedOrder, bool, usize);

    #[test]
    fn each_wrong_end_of_a_payment_is_found() {
        let paid = || Answer::Paid(OrderState::Confirmed);
        let refused = || Answer::Refused("amount_mismatch".into());
        let confirmed = || order(OrderState::Confirmed, Some("p"));
        let held = || order(OrderState::Held, None);
        let both = vec![refused(), paid()];
        let table: [Case; 9] = [
            (vec![paid()], Some(false), confirmed(), false, 0),
            (both, Some(false), confirmed(), false, 0),
            (vec![refused()], Some(false), held(), true, 0),
            (vec![refused()], Some(true), held(), false, 0),
            // Confirmed, and returned.
            (vec![paid()], Some(true), confirmed(), false, 1),
            // Acknowledged, and forgotten.
            (vec![paid()], Some(false), held(), false, 1),
            (vec![refused()], Some(false), held(), false, 1),
            // Due twice.
            (vec![refused()], Some(false), confirmed(), true, 1),
            (vec![refused()], Some(true), held(), true, 1),
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

    #[test]
    fn a_row_and_a_note_of_another_order_are_about_the_same_money() {
        let paid = Uuid::from_u128(2);
        let mut history = PaymentHistory::new("p".into());
        history.reports = vec![
            Report {
                order: paid,
                answer: Answer::Paid(OrderState::Confirmed),
            },
            Report {
                order: ORDER,
                answer: Answer::Refused("payment_already_used".into()),
            },
        ];
        let told = |due| Told {
            orders: HashMap::from([
                (paid, order(OrderState::Confirmed, Some("p"))),
                (ORDER, order(OrderState::Held, None)),
            ]),
            due,
        };
        assert!(judge(&history, &told(Vec::new())).is_empty());
        assert_eq!(judge(&history, &told(vec![row()])).len(), 1);
        history.notes.push(Note {
            row: Some("journal-1".into()),
            payment: "p".into(),
            order: ORDER,
            is_noted: Some(true),
        });
        assert_eq!(judge(&history, &told(Vec::new())).len(), 1);
    }

    #[test]
    fn money_that_the_provider_has_returned_confirms_no_later_order_either() {
        let mut history = PaymentHistory::new("p".into());
        history.reports.push(Report {
            order: ORDER,
            answer: Answer::Unknown,
        });
        let confirmed = order(OrderState::Confirmed, Some("p"));
        let told = Told {
            orders: HashMap::from([(ORDER, confirmed)]),
            due: Vec::new(),
        };
        assert!(!history.is_answered() && judge(&history, &told).is_empty());
        history.notes.push(Note {
            row: None,
            payment: "p".into(),
            order: Uuid::from_u128(2),
            is_noted: Some(true),
        });
        assert_eq!(judge(&history, &told).len(), 1);
    }
}
