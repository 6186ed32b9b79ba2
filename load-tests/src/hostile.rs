//! Hostile clients beside the buyers. What they send must be refused, and must cost the buyers
//! little.
//!
//! Each kind of attack is a function in `hostile/`. Its rate has a bound, so that a faster service
//! is attacked little more. What the attackers themselves cost is measured with a decoy
//! (`hostile/decoy.rs`).

mod comparison;
mod connections;
mod decoy;
mod pace;
mod quantities;
mod returns;
mod rounds;
mod signatures;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use client::{NewItem, Token};
use futures::future::BoxFuture;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

pub use self::comparison::{ALONE, ComparisonOptions, Pair, WARM_UP, compare, kept, median, rush};
use self::{
    decoy::{Decoy, Reply},
    pace::Pace,
};
use crate::{admin::Admin, items::Items, options::Options, target::Target, verdict::rate};

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
    /// What keeps it going at a decoy.
    reply: Reply,
}

const ATTACKS: [Attack; 7] = [
    Attack {
        name: "silent connections",
        run: |field, _| Box::pin(connections::stay_silent(field)),
        is_always_refused: true,
        is_crowd: true,
        reply: Reply::Nothing,
    },
    Attack {
        name: "half bodies",
        run: |field, _| Box::pin(connections::send_half_bodies(field)),
        is_always_refused: true,
        is_crowd: true,
        reply: Reply::Nothing,
    },
    Attack {
        name: "slow readers",
        run: |field, _| Box::pin(connections::read_in_drips(field)),
        is_always_refused: true,
        is_crowd: true,
        reply: Reply::Drips,
    },
    Attack {
        name: "unread answers",
        run: |field, _| Box::pin(connections::never_read(field)),
        is_always_refused: true,
        is_crowd: false,
        reply: Reply::Nothing,
    },
    Attack {
        name: "huge signatures",
        run: |field, _| Box::pin(signatures::sign_at_length(field)),
        is_always_refused: true,
        is_crowd: false,
        reply: Reply::Refusal("401 Unauthorized"),
    },
    Attack {
        name: "quantities above the limit",
        run: |field, number| Box::pin(quantities::ask_for_too_many(field, number)),
        is_always_refused: true,
        is_crowd: false,
        reply: Reply::Refusal("409 Conflict"),
    },
    Attack {
        name: "returns to a sold-out item",
        run: |field, number| Box::pin(returns::order_and_cancel(field, number)),
        is_always_refused: false,
        is_crowd: false,
        reply: Reply::Refusal("409 Conflict"),
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
    /// What they attack: the service, or a decoy.
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
    /// Number of clients.
    clients: u32,
    /// Connections or requests a second that all clients together have for a decoy.
    rate: Option<f64>,
    /// The crowds have opened their connections.
    has_begun: AtomicBool,
    /// Connections that were opened by crowds, and requests that were sent by others.
    attacks: AtomicU64,
    answers: Mutex<BTreeMap<&'static str, Answers>>,
}

impl Field {
    /// Counts a connection of a crowd, or a request of another attack.
    fn count(&self) {
        self.attacks.fetch_add(1, Ordering::Relaxed);
    }

    /// The rate for a decoy, once the rush begins. A crowd opens its first connections at the pace
    /// that it has beside the service.
    fn given_rate(&self) -> Option<f64> {
        self.rate.filter(|_| self.has_begun.load(Ordering::Relaxed))
    }

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
    /// What they attack instead of the service.
    decoy: Option<Decoy>,
    /// When the crowds had opened their connections.
    began: Instant,
    /// What had been counted by then.
    attacks_before: u64,
    /// A crowd that is the only attack must reach the bound, or nothing is shown.
    must_reach_bound: bool,
}

/// What hostile clients got.
#[derive(Debug, Default)]
pub struct Report {
    /// The answers to each attack.
    pub answers: BTreeMap<&'static str, Answers>,
    /// Connections that crowds opened, and requests that others sent, in each second of the run.
    pub attacks_per_second: Option<f64>,
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
        let attacks = chosen(options.attack.as_deref())?;
        let attacks: Vec<_> = attacks
            .into_iter()
            .cycle()
            .take(options.hostile as usize)
            .collect();
        let crowds = attacks.iter().filter(|attack| attack.is_crowd).count();
        let crowds = u32::try_from(crowds)?;
        let decoy = match attacks.first() {
            Some(attack) if options.decoy.is_some() => {
                Some(Decoy::start(attack.reply, decoy_bound(options)).await?)
            }
            _ => None,
        };
        let field = Arc::new(field(target, decoy.as_ref(), items, (options, crowds))?);
        if options.hostile > 0 && decoy.is_none() {
            prepare(target, admin, &field, options).await?;
        }
        let mut clients = JoinSet::new();
        for (number, attack) in attacks.iter().enumerate() {
            clients.spawn((attack.run)(Arc::clone(&field), number));
        }
        field.is_crowded(crowds).await;
        field.has_begun.store(true, Ordering::Relaxed);
        Ok(Self {
            attacks_before: field.attacks.load(Ordering::Relaxed),
            began: Instant::now(),
            must_reach_bound: options.attack.is_some() && crowds > 0 && decoy.is_none(),
            field,
            clients,
            decoy,
        })
    }

    /// Stops all clients, and judges what they got.
    pub async fn stop(mut self, admin: &Admin) -> Result<Report> {
        if self.clients.is_empty() {
            return Ok(Report::default());
        }
        let attacks = self.field.attacks.load(Ordering::Relaxed) - self.attacks_before;
        let attacks_per_second = Some(rate(attacks, self.began.elapsed().as_secs_f64()));
        self.clients.shutdown().await;
        let answers = std::mem::take(
            &mut *self
                .field
                .answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let findings = match self.decoy {
            Some(_) => Vec::new(),
            None => self.findings(&answers, admin).await?,
        };
        Ok(Report {
            answers,
            attacks_per_second,
            findings,
        })
    }

    /// What the service has done wrong.
    async fn findings(
        &self,
        answers: &BTreeMap<&'static str, Answers>,
        admin: &Admin,
    ) -> Result<Vec<String>> {
        let mut findings = wrong(answers);
        if self.must_reach_bound && !answers.values().any(|answers| answers.contains_key(CLOSED)) {
            findings.push(
                "the service has closed no connection of the crowd: its bound was not reached"
                    .into(),
            );
        }
        let audit = admin.audit(&self.field.scarce_item, SETTLE_TIMEOUT).await?;
        if !audit.ok || audit.drift > 0 || audit.oversold > 0 {
            findings.push(format!(
                "{}: drift {}, oversold {} after a storm of returns",
                self.field.scarce_item, audit.drift, audit.oversold
            ));
        }
        Ok(findings)
    }
}

/// What the clients share, of which so many are crowds.
fn field(
    target: &Target,
    decoy: Option<&Decoy>,
    items: &Items,
    (options, crowds): (&Options, u32),
) -> Result<Field> {
    let (_, item) = items.iter().next().context("a run has an item")?;
    Ok(Field {
        host: decoy.map_or_else(|| target.host.clone(), Decoy::host),
        http: reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .build()?,
        jwt_secret: target.jwt_secret.clone(),
        item: item.id.clone(),
        scarce_item: format!("{}-scarce", item.id),
        connections_each: options.hostile_connections.div_ceil(crowds.max(1)),
        open: AtomicU32::new(0),
        clients: options.hostile,
        rate: options.decoy,
        has_begun: AtomicBool::new(false),
        attacks: AtomicU64::new(0),
        answers: Mutex::default(),
    })
}

/// Creates what attacks on the service need.
async fn prepare(target: &Target, admin: &Admin, field: &Field, options: &Options) -> Result<()> {
    ensure!(
        target.host.starts_with("http://"),
        "--hostile: expected a HOST with http://, because some attacks are written to the connection"
    );
    admin
        .create(&NewItem {
            segments: Some(options.segments),
            ..NewItem::new(&field.scarce_item, UNITS_OF_STORM)
        })
        .await
}

/// Connections that a decoy holds: what the bound of the service leaves beside the virtual users.
fn decoy_bound(options: &Options) -> usize {
    let bound = options.hostile_connections.saturating_sub(options.users);
    bound.max(1) as usize
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
fn pace(field: &Arc<Field>) -> Pace {
    Pace::new(field, PACE, MissedTickBehavior::Skip)
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
    use std::{
        collections::BTreeMap,
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        },
        time::{Duration, Instant},
    };

    use tokio::time::{sleep, timeout};

    use super::{
        ATTACKS, Answers, Attack, CLOSED, Decoy, Field, Reply, chosen, decoy_bound, wrong,
    };
    use crate::options::Options;

    /// What one client shares with no one, which attacks a decoy at this rate.
    fn field_at(decoy: &Decoy, rate: f64) -> Arc<Field> {
        Arc::new(Field {
            host: decoy.host(),
            http: reqwest::Client::builder().build().unwrap(),
            jwt_secret: "a secret of thirty-two characters".into(),
            item: "item".into(),
            scarce_item: "item-scarce".into(),
            connections_each: 8,
            open: AtomicU32::new(0),
            clients: 1,
            rate: Some(rate),
            has_begun: AtomicBool::new(true),
            attacks: AtomicU64::new(0),
            answers: Mutex::default(),
        })
    }

    /// Attacks until so many connections were opened, or requests sent.
    async fn attack(attack: &Attack, field: &Arc<Field>, enough: u64) {
        let counted = async {
            while field.attacks.load(Ordering::Relaxed) < enough {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = (attack.run)(Arc::clone(field), 0) => panic!("{}: it has ended", attack.name),
            counted = timeout(testbed::timeout(), counted) => {
                counted.unwrap_or_else(|_| panic!("{}: it stands still", attack.name));
            }
        }
    }

    #[tokio::test]
    async fn every_attack_goes_on_at_its_decoy() {
        for kind in &ATTACKS {
            let decoy = Decoy::start(kind.reply, 4).await.unwrap();
            let field = field_at(&decoy, 1000.0);
            attack(kind, &field, 40).await;
            let answers = field.answers.lock().unwrap();
            let answers = answers.get(kind.name).cloned().unwrap_or_default();
            let expected = match kind.reply {
                Reply::Refusal(status) => Some(&status[..3]),
                _ => kind.is_crowd.then_some(CLOSED),
            };
            let found = expected.is_none_or(|answer| answers.contains_key(answer));
            assert!(found, "{}: {answers:?}", kind.name);
        }
    }

    #[tokio::test]
    async fn a_decoy_is_attacked_no_faster_than_the_given_rate() {
        let decoy = Decoy::start(Reply::Nothing, 4).await.unwrap();
        let field = field_at(&decoy, 100.0);
        let began = Instant::now();
        attack(&ATTACKS[0], &field, 20).await;
        assert!(began.elapsed() >= Duration::from_millis(190));
    }

    #[test]
    fn a_decoy_has_the_connections_that_buyers_leave() {
        let bound = |arguments: &[&str]| decoy_bound(&Options::for_tests(arguments));
        assert_eq!(bound(&[]), 2048 - 256);
        let few = ["--hostile-connections", "100", "--users", "40"];
        assert_eq!(bound(&few), 60);
        assert_eq!(bound(&["--hostile-connections", "100"]), 1);
    }

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
