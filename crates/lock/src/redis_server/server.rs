//! One Redis server: how it is connected to and asked, and how it reports that a lock was released.
//!
//! What a reader could get wrong: a request that timed out is not undone. Its connection stays, and
//! whatever is sent on it later is carried out later; that is why a release that follows a late
//! acquire frees what the acquire took.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{
    Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisError,
    TlsCertificates, aio::ConnectionManagerConfig, io::tcp::TcpSettings,
};
use tokio::time::timeout;

use super::{Reply, Script, Wakeups, address::Address, connection::Connection};
use crate::{
    error::{Answer, InvalidArgument},
    secrets::without_secrets,
    validate::expect_duration,
};

/// How long a server is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// For an answer.
    pub answer: Duration,
    /// For a connection.
    pub connect: Duration,
    /// For a server that hangs.
    pub hang: Duration,
}

impl Timeouts {
    /// Without a setting, an answer is waited for a twentieth of the lease, within bounds.
    pub(crate) fn new(
        setting: &'static str,
        answer: Option<Duration>,
        lease: Duration,
        hang: Duration,
    ) -> Result<Self, InvalidArgument> {
        let answer = answer
            .unwrap_or((lease / 20).clamp(Duration::from_millis(10), Duration::from_millis(500)));
        expect_duration(
            answer > Duration::ZERO && answer < lease,
            setting,
            answer,
            "expected less than the lease",
        )?;
        Ok(Self {
            answer,
            connect: answer.max(Duration::from_secs(1)),
            hang: hang.max(answer),
        })
    }
}

pub(crate) struct Server {
    pub label: String,
    /// Whether its URL says `durable=true`.
    pub is_declared_durable: bool,
    connection: Connection,
    timeouts: Timeouts,
}

impl Server {
    pub(crate) fn new(
        url: &str,
        tls: Option<&TlsCertificates>,
        timeouts: Timeouts,
        wakeups: &Arc<Wakeups>,
    ) -> Result<Self, InvalidArgument> {
        let refused = || InvalidArgument::Url {
            found: without_secrets(url),
            expected: "redis://HOST:PORT or rediss://HOST:PORT",
        };
        let address = Address::parse(url)?;
        let info = address
            .url
            .as_str()
            .into_connection_info()
            .map_err(|_| refused())?;
        let label = info.addr().to_string();
        // Servers push what they publish only in RESP3.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        // Replies to small requests must not wait for one another (Nagle).
        let info = info
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(settings);
        let client = match tls {
            Some(tls) if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) => {
                Client::build_with_tls(info, tls.clone())
                    .map_err(|error| InvalidArgument::Certificates(error.to_string()))?
            }
            _ => Client::open(info).map_err(|_| refused())?,
        };
        let heard = Arc::downgrade(wakeups);
        // Every request has its timeout; the one of the connection only ends the wait for
        // a server that hangs.
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(timeouts.connect))
            .set_response_timeout(Some(timeouts.hang))
            .set_number_of_retries(0)
            .set_push_sender(move |push| {
                if let Some(wakeups) = heard.upgrade() {
                    wakeups.heard(push);
                }
                Ok::<_, RedisError>(())
            })
            .set_automatic_resubscription();
        let connection = Connection::new(client, config, Arc::downgrade(wakeups));
        let connection = connection.map_err(|_| refused())?;
        Ok(Self {
            label,
            is_declared_durable: address.is_declared_durable,
            connection,
            timeouts,
        })
    }

    /// Runs a script, and says when it was sent.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<(Instant, Reply), Answer> {
        let sent = Instant::now();
        let reply = timeout(
            self.timeouts.answer,
            script.run(&self.connection, keys, arguments),
        )
        .await;
        let reply = reply.map_err(|_| self.timed_out())?;
        Ok((sent, reply.map_err(failed)?))
    }

    fn timed_out(&self) -> Answer {
        self.connection.note_timeout();
        Answer::TimedOut
    }

    /// How long an answer is waited for.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.timeouts.answer
    }

    /// Asks without a hurry.
    pub(crate) async fn query<T: redis::FromRedisValue>(
        &self,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Answer> {
        let mut connection = &self.connection;
        let asked = pipeline.query_async(&mut connection);
        timeout(self.timeouts.answer.max(self.timeouts.connect), asked)
            .await
            .map_err(|_| self.timed_out())?
            .map_err(failed)
    }

    pub(crate) async fn subscribe(&self, channel: &str) -> Result<(), Answer> {
        timeout(self.timeouts.answer, self.connection.subscribe(channel))
            .await
            .map_err(|_| self.timed_out())?
            .map_err(failed)
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<(), Answer> {
        timeout(self.timeouts.answer, self.connection.unsubscribe(channel))
            .await
            .map_err(|_| self.timed_out())?
            .map_err(failed)
    }
}

fn failed(error: RedisError) -> Answer {
    match error.kind() {
        _ if error.is_timeout() => Answer::TimedOut,
        ErrorKind::UnexpectedReturnType => Answer::Unreadable(error.to_string()),
        _ => Answer::Failed(Arc::new(error)),
    }
}
