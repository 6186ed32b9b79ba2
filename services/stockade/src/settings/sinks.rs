//! The brokers that get every event.

use std::{fs, time::Duration};

use anyhow::{Context, Result, anyhow};
use publisher::{SinkError, SinkSettings};
use stock::TlsCertificates;

use super::{
    Layers,
    declaration::settings,
    kinds::{Kind, number, read_by, url, urls},
};

settings! {
    /// The brokers that get every event, and under which names they keep them.
    Sinks {
        /// `redis://` or `rediss://` URL of the server whose stream gets every event, a
        /// [sink](events.md#sinks). Unset: none
        events_redis: Option<String>, url(&["redis", "rediss"]);
        /// key of that stream
        events_redis_stream: String = "stockade:events", name(|_| true);
        /// entries that it keeps; Redis removes older ones in steps, so there may be some more
        events_redis_entries_max: usize = 100000, number(1000..=1_000_000_000);
        /// `nats://` or `tls://` URLs of the NATS cluster whose JetStream gets every event,
        /// comma-separated; needs a build with `--features nats`. Unset: none
        events_nats: Vec<String>, urls(&["nats", "tls"]);
        /// path of the credentials file (`.creds`) of the user that publishes; it is read at the
        /// start. Unset: the user of the URL, or none
        events_nats_credentials: Option<String>, read_by(content);
        /// its stream; a publisher creates it if it is missing
        events_nats_stream: String = "stockade", name(is_of_a_word);
        /// the first word of the subjects; the kind and the item follow
        events_nats_subject: String = "stockade", name(is_of_a_word);
        /// `amqp://` or `amqps://` URL of the broker that gets every event; needs a build with
        /// `--features amqp`. Unset: none
        events_amqp: Option<String>, url(&["amqp", "amqps"]);
        /// its exchange, of the type `topic`; a publisher creates it if it is missing
        events_amqp_exchange: String = "stockade", name(|byte| byte.is_ascii_graphic());
    }
}

/// A name of the broker's. One that it would refuse only later is refused here.
fn name(is_allowed: fn(u8) -> bool) -> Kind<String> {
    read_by(move |layers, key| {
        let text = layers.text(key).unwrap_or_default();
        match (1..=127).contains(&text.len()) && text.bytes().all(is_allowed) {
            true => Ok(text),
            false => Err(layers.wrong(
                key,
                "1 to 127 of the characters that the broker's names have",
            )),
        }
    })
}

fn is_of_a_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn content(layers: &Layers, key: &str) -> Result<Option<String>> {
    let content = layers.text(key).map(|path| {
        let place = layers.place(key);
        fs::read_to_string(&path).with_context(|| format!("{place}: cannot read {path}"))
    });
    content.transpose()
}

/// Reads the sinks that are set. Fails if this build has no such sink, or if a URL cannot be read.
pub fn read(
    layers: &Layers,
    tls: Option<&TlsCertificates>,
    keep: Duration,
) -> Result<Vec<SinkSettings>> {
    let set = Sinks::read(layers)?;
    let sinks = [
        ("events_redis", set.redis(tls)),
        ("events_nats", set.nats(tls, keep)),
        ("events_amqp", set.amqp(tls)),
    ];
    sinks
        .into_iter()
        .filter_map(|(key, sink)| Some((key, sink?)))
        .map(|(key, sink)| match sink.check() {
            Ok(()) => Ok(sink),
            Err(error) => Err(wrong(layers, key, &error)),
        })
        .collect()
}

/// Names the origin of the URL, and not the URL, which may have a password.
fn wrong(layers: &Layers, key: &str, error: &SinkError) -> anyhow::Error {
    anyhow!("{}: {error}", layers.place(key))
}

impl Sinks {
    fn redis(&self, tls: Option<&TlsCertificates>) -> Option<SinkSettings> {
        Some(SinkSettings::Redis {
            url: self.events_redis.clone()?,
            tls: tls.cloned(),
            stream: self.events_redis_stream.clone(),
            entries_max: self.events_redis_entries_max,
        })
    }

    fn nats(&self, tls: Option<&TlsCertificates>, keep: Duration) -> Option<SinkSettings> {
        (!self.events_nats.is_empty()).then(|| SinkSettings::Nats {
            urls: self.events_nats.clone(),
            tls: tls.cloned(),
            credentials: self.events_nats_credentials.clone(),
            stream: self.events_nats_stream.clone(),
            subject: self.events_nats_subject.clone(),
            keep,
        })
    }

    fn amqp(&self, tls: Option<&TlsCertificates>) -> Option<SinkSettings> {
        Some(SinkSettings::Amqp {
            url: self.events_amqp.clone()?,
            tls: tls.cloned(),
            exchange: self.events_amqp_exchange.clone(),
        })
    }
}
