//! A test double of Consul: sessions, keys and blocking queries, as far as a lock and its operator
//! use them.
//!
//! It was written from Consul's documentation and source, because no Consul server was available.
//! It was never compared with a real one:
//!
//! | behaviour | source |
//! |---|---|
//! | a session ends by its TTL, no earlier; release and delete; lock-delay | <https://developer.hashicorp.com/consul/docs/automate/session> |
//! | create, renew (404 if it has ended), destroy (200 in any case), info; TTL from 10 s to 86400 s; lock-delay above 0 | <https://developer.hashicorp.com/consul/api-docs/session> |
//! | acquire, release, `LockIndex`, `ModifyIndex`, a write that locks do not hinder, 404 | <https://developer.hashicorp.com/consul/api-docs/kv> |
//! | `index`, `wait` (5 minutes, at most 10, a sixteenth more), `X-Consul-Index` | <https://developer.hashicorp.com/consul/api-docs/features/blocking> |
//! | a session ends after *twice* its TTL; a new leader restarts all TTLs and knows no lock-delay | `agent/consul/session_ttl.go`, `state/session.go` |
//! | an acquire during the lock-delay returns `false`; with an ended session it fails with 500 | `agent/consul/kvs_endpoint.go`, `state/kvs.go` |
//! | a missing key has the index of the last change of any key; keys are refused but for `a-zA-Z0-9,-_./` | `agent/consul/kvs_endpoint.go`, `agent/kvs_endpoint.go` |
//!
//! Not covered: values, flags, health checks, ACLs, namespaces, several servers and their
//! consistency.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, put},
};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::{sleep, timeout},
};

const TTL_MULTIPLIER: u32 = 2;
const TTL_MAX: Duration = Duration::from_secs(86_400);
const LOCK_DELAY_DEFAULT: Duration = Duration::from_secs(15);
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);
const WAIT_DEFAULT: Duration = Duration::from_secs(300);
const WAIT_MAX: Duration = Duration::from_secs(600);
const TICK: Duration = Duration::from_millis(5);

/// Runs on its own threads, because the threads of a test end with the test.
pub struct Consul {
    shared: Arc<Shared>,
    port: u16,
    runtime: Option<Runtime>,
}

struct Shared {
    store: Mutex<Store>,
    changes: watch::Sender<u64>,
    session_ttl_min: Duration,
    acquires: AtomicUsize,
}

/// The data, which survives a restart, and the clocks of the leader, which do not.
#[derive(Default)]
struct Store {
    /// Index of the last write.
    index: u64,
    /// Index of the last write to any key.
    keys_index: u64,
    keys: HashMap<String, Entry>,
    sessions: HashMap<String, Session>,
    delays: HashMap<String, Instant>,
}

#[derive(Clone, Default)]
struct Entry {
    created: u64,
    modified: u64,
    locked: u64,
    session: Option<String>,
}

struct Session {
    ttl: Duration,
    lock_delay: Duration,
    deletes: bool,
    created: u64,
    ends: Option<Instant>,
}

type Parameters = Query<HashMap<String, String>>;

impl Consul {
    /// Starts a server with this `session_ttl_min`.
    pub fn start(session_ttl_min: Duration) -> Self {
        let (changes, _) = watch::channel(0);
        // Raft has written a few entries before the first client connects.
        let store = Mutex::new(Store {
            index: 10,
            keys_index: 0,
            ..Store::default()
        });
        let shared = Arc::new(Shared {
            store,
            changes,
            session_ttl_min,
            acquires: AtomicUsize::new(0),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let runtime = Some(serve(listener, Arc::clone(&shared)));
        Self {
            shared,
            port,
            runtime,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Number of acquire requests so far.
    pub fn acquires(&self) -> usize {
        self.shared.acquires.load(Ordering::SeqCst)
    }

    pub fn sessions(&self) -> usize {
        self.shared.store().sessions.len()
    }

    /// Closes all connections immediately.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Restarts on the same port, with a new leader.
    pub async fn restart(&mut self) {
        self.kill();
        let listener = loop {
            match std::net::TcpListener::bind(("127.0.0.1", self.port)) {
                Ok(listener) => break listener,
                Err(_) => sleep(TICK).await,
            }
        };
        let mut store = self.shared.store();
        store.delays.clear();
        store.sessions.values_mut().for_each(Session::renew);
        drop(store);
        self.runtime = Some(serve(listener, Arc::clone(&self.shared)));
    }
}

impl Drop for Consul {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) -> Runtime {
    listener.set_nonblocking(true).unwrap();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let api = Router::new()
        .route("/v1/session/create", put(create_session))
        .route("/v1/session/renew/{id}", put(renew_session))
        .route("/v1/session/destroy/{id}", put(destroy_session))
        .route("/v1/session/info/{id}", get(read_session))
        .route(
            "/v1/kv/{*key}",
            get(read_key).put(write_key).delete(delete_key),
        )
        .with_state(Arc::clone(&shared));
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, api).await.unwrap();
    });
    runtime.spawn(async move {
        loop {
            sleep(TICK).await;
            shared.change(Store::end_sessions);
        }
    });
    runtime
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }

    /// Wakes the blocking queries.
    fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store();
        let before = store.index;
        let result = change(&mut store);
        if store.index != before {
            self.changes.send_replace(store.index);
        }
        result
    }
}

impl Session {
    fn renew(&mut self) {
        self.ends = (!self.ttl.is_zero()).then(|| Instant::now() + TTL_MULTIPLIER * self.ttl);
    }

    fn shown(&self, id: &str) -> Value {
        json!([{
            "ID": id,
            "Name": "lock",
            "Node": "double",
            "LockDelay": self.lock_delay.as_nanos() as u64,
            "Behavior": if self.deletes { "delete" } else { "release" },
            "TTL": format!("{:?}", self.ttl),
            "NodeChecks": [],
            "ServiceChecks": null,
            "CreateIndex": self.created,
            "ModifyIndex": self.created,
        }])
    }
}

impl Store {
    fn next(&mut self) -> u64 {
        self.index += 1;
        self.index
    }

    fn end_sessions(&mut self) {
        let now = Instant::now();
        let ended: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.ends.is_some_and(|ends| ends <= now))
            .collect();
        for id in ended
            .into_iter()
            .map(|(id, _)| id.clone())
            .collect::<Vec<_>>()
        {
            self.destroy(&id);
        }
    }

    /// Releases or deletes the keys of the session, and starts the lock-delay.
    fn destroy(&mut self, id: &str) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        let index = self.next();
        let held = |entry: &Entry| entry.session.as_deref() == Some(id);
        let keys: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, entry)| held(entry))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.keys_index = index;
            if session.deletes {
                self.keys.remove(&key);
            } else if let Some(entry) = self.keys.get_mut(&key) {
                (entry.session, entry.modified) = (None, index);
            }
            if !session.lock_delay.is_zero() {
                self.delays
                    .insert(key, Instant::now() + session.lock_delay.min(LOCK_DELAY_MAX));
            }
        }
    }

    fn acquire(&mut self, key: &str, id: &str) -> Result<bool, String> {
        if self
            .delays
            .get(key)
            .is_some_and(|until| *until > Instant::now())
        {
            return Ok(false);
        }
        if !self.sessions.contains_key(id) {
            return Err(format!("invalid session {id:?}"));
        }
        let mut entry = self.keys.get(key).cloned().unwrap_or_default();
        match &entry.session {
            Some(holder) if holder == id => {}
            Some(_) => return Ok(false),
            None => entry.locked += 1,
        }
        entry.session = Some(id.to_owned());
        self.set(key, entry);
        Ok(true)
    }

    fn release(&mut self, key: &str, id: &str) -> bool {
        let Some(entry) = self
            .keys
            .get(key)
            .filter(|entry| entry.session.as_deref() == Some(id))
        else {
            return false;
        };
        let entry = Entry {
            session: None,
            ..entry.clone()
        };
        self.set(key, entry);
        true
    }

    fn set(&mut self, key: &str, mut entry: Entry) {
        let index = self.next();
        entry.created = if entry.created == 0 {
            index
        } else {
            entry.created
        };
        entry.modified = index;
        self.keys_index = index;
        self.keys.insert(key.to_owned(), entry);
    }

    /// The index, and the entry if the key exists.
    fn read(&self, key: &str) -> (u64, Option<Entry>) {
        match self.keys.get(key) {
            Some(entry) => (entry.modified, Some(entry.clone())),
            None => (self.keys_index.max(1), None),
        }
    }
}

async fn create_session(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let Ok(asked) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "Request decode failed").into_response();
    };
    let given = |field: &str| asked[field].as_str().map(go_duration);
    let (ttl, lock_delay) = (
        given("TTL").unwrap_or(Some(Duration::ZERO)),
        given("LockDelay").unwrap_or(Some(LOCK_DELAY_DEFAULT)),
    );
    let (Some(ttl), Some(lock_delay)) = (ttl, lock_delay) else {
        return (
            StatusCode::BAD_REQUEST,
            "Request decode failed: invalid duration",
        )
            .into_response();
    };
    if !ttl.is_zero() && !(shared.session_ttl_min..=TTL_MAX).contains(&ttl) {
        let refusal = format!(
            "Invalid Session TTL '{}', must be between [{:?}=24h0m0s]",
            ttl.as_nanos(),
            shared.session_ttl_min
        );
        return (StatusCode::INTERNAL_SERVER_ERROR, refusal).into_response();
    }
    let deletes = match asked["Behavior"].as_str() {
        None | Some("release") => false,
        Some("delete") => true,
        Some(other) => {
            return (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Invalid Behavior setting '{other}'"),
            )
                .into_response();
        }
    };
    let bits: u128 = rand::random();
    let hex = format!("{bits:032x}");
    let id = format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    );
    shared.change(|store| {
        let mut session = Session {
            ttl,
            lock_delay,
            deletes,
            created: store.next(),
            ends: None,
        };
        session.renew();
        store.sessions.insert(id.clone(), session);
    });
    Json(json!({ "ID": id })).into_response()
}

async fn renew_session(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    match shared.store().sessions.get_mut(&id) {
        Some(session) => {
            session.renew();
            Json(session.shown(&id)).into_response()
        }
        None => (
            StatusCode::NOT_FOUND,
            format!("Session id '{id}' not found"),
        )
            .into_response(),
    }
}

async fn destroy_session(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    shared.change(|store| store.destroy(&id));
    Json(true).into_response()
}

async fn read_session(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    let store = shared.store();
    let shown = store
        .sessions
        .get(&id)
        .map_or(json!([]), |session| session.shown(&id));
    ([("X-Consul-Index", store.index.to_string())], Json(shown)).into_response()
}

async fn read_key(
    State(shared): State<Arc<Shared>>,
    Path(key): Path<String>,
    Query(asked): Parameters,
) -> Response {
    if let Err(refusal) = check(&key) {
        return refusal;
    }
    let index = asked
        .get("index")
        .map_or(Ok(0), |index| index.parse::<u64>());
    let wait = asked
        .get("wait")
        .map_or(Some(WAIT_DEFAULT), |wait| go_duration(wait));
    let (Ok(index), Some(wait)) = (index, wait) else {
        return (StatusCode::BAD_REQUEST, "Invalid index or wait").into_response();
    };
    let wait = wait
        .min(WAIT_MAX)
        .mul_f64(1.0 + rand::random_range(0.0..1.0) / 16.0);
    let mut changes = shared.changes.subscribe();
    let changed = async {
        while index > 0 && shared.store().read(&key).0 <= index && changes.changed().await.is_ok() {
        }
    };
    let _ = timeout(wait, changed).await;
    let (index, entry) = shared.store().read(&key);
    let headers = [
        ("X-Consul-Index", index.to_string()),
        ("X-Consul-Knownleader", "true".into()),
        ("X-Consul-Lastcontact", "0".into()),
    ];
    let Some(entry) = entry else {
        return (StatusCode::NOT_FOUND, headers).into_response();
    };
    let mut shown = json!({
        "LockIndex": entry.locked,
        "Key": key,
        "Flags": 0,
        "Value": null,
        "CreateIndex": entry.created,
        "ModifyIndex": entry.modified,
    });
    // A key without a holder has no `Session` field.
    if let Some(session) = entry.session {
        shown["Session"] = json!(session);
    }
    (headers, Json(json!([shown]))).into_response()
}

async fn write_key(
    State(shared): State<Arc<Shared>>,
    Path(key): Path<String>,
    Query(asked): Parameters,
) -> Response {
    if let Err(refusal) = check(&key) {
        return refusal;
    }
    match (asked.get("acquire"), asked.get("release")) {
        (Some(_), Some(_)) => (StatusCode::BAD_REQUEST, "Conflicting flags").into_response(),
        (Some(session), None) => {
            shared.acquires.fetch_add(1, Ordering::SeqCst);
            match shared.change(|store| store.acquire(&key, session)) {
                Ok(acquired) => Json(acquired).into_response(),
                Err(refusal) => (StatusCode::INTERNAL_SERVER_ERROR, refusal).into_response(),
            }
        }
        (None, Some(session)) => {
            Json(shared.change(|store| store.release(&key, session))).into_response()
        }
        // A plain write succeeds whatever session holds the key, and keeps the holder.
        (None, None) => {
            shared.change(|store| {
                let entry = store.keys.get(&key).cloned().unwrap_or_default();
                store.set(&key, entry);
            });
            Json(true).into_response()
        }
    }
}

async fn delete_key(State(shared): State<Arc<Shared>>, Path(key): Path<String>) -> Response {
    shared.change(|store| {
        if store.keys.remove(&key).is_some() {
            store.keys_index = store.next();
        }
    });
    Json(true).into_response()
}

#[allow(clippy::result_large_err, reason = "the error is the response itself")]
fn check(key: &str) -> Result<(), Response> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b",-_./".contains(&byte);
    let ends = [
        ".js", ".css", ".html", ".xml", ".json", ".txt", ".log", ".gz", ".png",
    ];
    if key.starts_with('/')
        || key.contains("../")
        || !key.bytes().all(plain)
        || ends.iter().any(|end| key.ends_with(end))
    {
        return Err((StatusCode::BAD_REQUEST, "key contains invalid character").into_response());
    }
    Ok(())
}

/// Parses one number with one unit; Go accepts more.
fn go_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let number = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(60 * number)),
        "h" => Some(Duration::from_secs(3600 * number)),
        _ => None,
    }
}
