//! Hostile clients beside the buyers. What they send must be refused, and must cost the buyers
//! little.
//!
//! Each kind of attack is a function in `hostile/`. Its rate is fixed, so that a faster service is
//! not attacked more.

mod comparison;
mod connections;
mod quantities;
mod returns;
mod signatures;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use client::{NewItem, Token};
use futures::future::BoxFuture;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

pub use self::comparison::{ALONE, ComparisonOptions, Pair, WARM_UP, compare, kept, median, rush};
use crate::{admin::Admin, items::Items, options::Options, target::Target};

/// Time between two requests of a hostile client.
const PACE: Duration = Duration::from_millis(100);
/// Units of the item that is always sold out. Storms of returns need some.
const UNITS_OF_STORM: u64 = 4;
/// Limit for a crowd to open its connections before the rush begins.
const CROWD_TIMEOUT: Duration = Duration::from_secs(15);
/// What the clients of a crowd note when the service has closed a connection without an answer, to
/// make room for another one.
const CLOSED: &str = "closed by the service";
/// The same at a time limit, which says nothing about the bound.
const LATER: &str = "closed at a time limit";
/// Limit for the last returned units to arrive.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A hostile client does not wait longer for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A kind of attack.
struct Attack {
    /// The name in the verdict.
    name: &'static str,
    /// Attacks until the future is dropped.
    run: fn(Arc<Field>, usize) -> BoxFuture<'static, ()>,
    /// Whether a success is a wrong answer.
    is_always_refused: bool,
    /// Whether it is a crowd of connections, which reaches the bound of the service.
    is_crowd: bool,
}

const ATTACKS: [Attack; 7] = [
    Attack {
        name: "silent connections",
        run: |field, _| Box::pin(connections::stay_silent(field)),
        is_always_refused: true,
        is_crowd: true,
    },
    Attack {
        name: "half bodies",
        run: |field, _| Box::pin(connections::send_half_bodies(field)),
        is_always_refused: true,
        is_crowd: true,
    },
    Attack {
        name: "slow readers",
        run: |field, _| Box::pin(connections::read_in_drips(field)),
        is_always_refused: true,
        is_crowd: true,
    },
    Attack {
        name: "unread answers",
        run: |field, _| Box::pin(connections::never_read(field)),
        is_always_refused: true,
        is_crowd: false,
    },
    Attack {
        name: "huge signatures",
        run: |field, _| Box::pin(signatures::sign_at_length(field)),
        is_always_refused: true,
        is_crowd: false,
    },
    Attack {
        name: "quantities above the limit",
        run: |field, number| Box::pin(quantities::ask_for_too_many(field, number)),
        is_always_refused: true,
        is_crowd: false,
    },
    Attack {
        name: "returns to a sold-out item",
        run: |field, number| Box::pin(returns::order_and_cancel(field, number)),
        is_always_refused: false,
        is_crowd: false,
    },
];

/// The attacks of a run: the one of this name, or all.
fn chosen(name: Option<&str>) -> Result<Vec<&'static Attack>> {
    let chosen = |attack: &&Attack| name.is_none_or(|name| name == attack.name);
    let attacks: Vec<_> = ATTACKS.iter().filter(chosen).collect();
    let known = ATTACKS.map(|attack| attack.name).join(", ");
    ensure!(!attacks.is_empty(), "--attack: expected one of {known}");
    Ok(attacks)
}

/// How often an attack got each answer: a status, or what became of the connection.
pub type Answers = BTreeMap<String, u64>;

/// What hostile clients share.
struct Field {
    host: String,
    http: reqwest::Client,
    jwt_secret: String,
    /// An item that the buyers buy.
    item: String,
    /// An item of which there is always too little.
    scarce_item: String,
    /// Connections that each client of a crowd keeps open.
    connections_each: u32,
    /// Connections of crowds that are open.
    open: AtomicU32,
    answers: Mutex<BTreeMap<&'static str, Answers>>,
}

impl Field {
    fn note(&self, attack: &'static str, answer: impl Into<String>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers
            .entry(attack)
            .or_default()
            .entry(answer.into())
            .or_default() += 1;
    }

    /// Waits until so many clients have opened their connections, or the service admits no more.
    async fn is_crowded(&self, clients: u32) {
        let all = clients * self.connections_each;
        let crowded = async {
            while self.open.load(Ordering::Relaxed) < all && !self.is_at_bound() {
                tokio::time::sleep(PACE).await;
            }
        };
        let _ = tokio::time::timeout(CROWD_TIMEOUT, crowded).await;
    }

    fn is_at_bound(&self) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.values().any(|answers| answers.contains_key(CLOSED))
    }

    fn token(&self, name: &str) -> Token {
        Token::mint_buyer(&self.jwt_secret, name, TOKEN_LIFETIME)
    }
}

/// Hostile clients, until they are stopped.
pub struct HostileClients {
    field: Arc<Field>,
    clients: JoinSet<()>,
    /// A crowd that is the only attack must reach the bound, or nothing is shown.
    must_reach_bound: bool,
}

/// What hostile clients got.
#[derive(Debug, Default)]
pub struct Report {
    /// The answers to each attack.
    pub answers: BTreeMap<&'static str, Answers>,
    /// Descriptions of everything that is wrong.
    pub findings: Vec<String>,
}

impl HostileClients {
    /// Starts as many clients as the options say; the kinds of attack have equal shares.
    pub async fn start(
        target: &Target,
        admin: &Admin,
        items: &Items,
        options: &Options,
    ) -> Result<Self> {
        let (_, item) = items.iter().next().context("a run has an item")?;
        let scarce_item = format!("{}-scarce", item.id);
        let attacks = chosen(options.attack.as_deref())?;
        let attacks: Vec<_> = attacks
            .into_iter()
            .cycle()
            .take(options.hostile as usize)
            .collect();
        let crowds = attacks.iter().filter(|attack| attack.is_crowd).count();
        let crowds = u32::try_from(crowds)?;
        let field = Arc::new(Field {
            host: target.host.clone(),
            http: reqwest::Client::builder()
                .timeout(REQUEST_TIMEOUT)
                .build()?,
            jwt_secret: target.jwt_secret.clone(),
            item: item.id.clone(),
            scarce_item,
            connections_each: options.hostile_connections.div_ceil(crowds.max(1)),
            open: AtomicU32::new(0),
            answers: Mutex::default(),
        });
        let mut clients = JoinSet::new();
        if options.hostile > 0 {
            ensure!(
                target.host.starts_with("http://"),
                "--hostile: expected a HOST with http://, because some attacks are written to the connection"
            );
            admin
                .create(&NewItem {
                    segments: Some(options.segments),
                    ..NewItem::new(&field.scarce_item, UNITS_OF_STORM)
                })
                .await?;
        }
        for (number, attack) in attacks.iter().enumerate() {
            clients.spawn((attack.run)(Arc::clone(&field), number));
        }
        field.is_crowded(crowds).await;
        Ok(Self {
            field,
            clients,
            must_reach_bound: options.attack.is_some() && crowds > 0,
        })
    }

    /// Stops all clients, and judges what they got.
    pub async fn stop(mut self, admin: &Admin) -> Result<Report> {
        if self.clients.is_empty() {
            return Ok(Report::default());
        }
        self.clients.shutdown().await;
        let audit = admin.audit(&self.field.scarce_item, SETTLE_TIMEOUT).await?;
        let answers = std::mem::take(
            &mut *self
                .field
                .answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let mut findings = wrong(&answers);
        if self.must_reach_bound && !answers.values().any(|answers| answers.contains_key(CLOSED)) {
            findings.push(
                "the service has closed no connection of the crowd: its bound was not reached"
                    .into(),
            );
        }
        if !audit.ok || audit.drift > 0 || audit.oversold > 0 {
            findings.push(format!(
                "{}: drift {}, oversold {} after a storm of returns",
                self.field.scarce_item, audit.drift, audit.oversold
            ));
        }
        Ok(Report { answers, findings })
    }
}

/// The answers that no attack may get.
fn wrong(answers: &BTreeMap<&'static str, Answers>) -> Vec<String> {
    let mut findings = Vec::new();
    for attack in &ATTACKS {
        for (answer, count) in answers.get(attack.name).into_iter().flatten() {
            let is_success = attack.is_always_refused && answer.starts_with('2');
            if is_success || answer == "500" {
                findings.push(format!("{}: {count} x {answer}", attack.name));
            }
        }
    }
    findings
}

/// A clock for the requests of one client.
fn pace() -> tokio::time::Interval {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    pace
}

/// The answer to a request, for the report.
async fn answer(request: reqwest::RequestBuilder) -> String {
    match request.send().await {
        Ok(response) => response.status().as_u16().to_string(),
        Err(error) if error.is_timeout() => "no answer".into(),
        Err(_) => "connection closed".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{ATTACKS, Answers, chosen, wrong};

    #[test]
    fn an_attack_is_chosen_by_its_name() {
        assert_eq!(chosen(None).unwrap().len(), ATTACKS.len());
        let named = chosen(Some("half bodies")).unwrap();
        assert!(named.len() == 1 && named[0].is_crowd);
        let unknown = chosen(Some("half heads")).map(|_| ()).unwrap_err();
        assert!(unknown.to_string().contains("half bodies"), "{unknown}");
    }

    #[test]
    fn a_success_or_a_broken_server_is_wrong_and_a_refusal_is_not() {
        let answers = |answer: &str| Answers::from([(answer.to_owned(), 3)]);
        for attack in &ATTACKS {
            let found = |answer| wrong(&BTreeMap::from([(attack.name, answers(answer))]));
            for answer in ["400", "409", "413", "429", "503", "connection closed"] {
                assert!(found(answer).is_empty(), "{}: {answer}", attack.name);
            }
            assert_eq!(found("500"), [format!("{}: 3 x 500", attack.name)]);
            assert_eq!(found("201").is_empty(), !attack.is_always_refused);
        }
    }
}
