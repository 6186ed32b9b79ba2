//! The brokers that get every event.

use std::fs;

use anyhow::{Context, Result, anyhow};
use publisher::{SinkError, SinkSettings};
use stock::TlsCertificates;

use super::Layers;

/// Reads the sinks that are set. Fails if this build has no such sink, or if a URL cannot be read.
pub fn read(
    layers: &Layers,
    tls: Option<&TlsCertificates>,
    keep: std::time::Duration,
) -> Result<Vec<SinkSettings>> {
    let sinks = [
        redis(layers, tls)?,
        nats(layers, tls, keep)?,
        amqp(layers, tls)?,
    ];
    sinks
        .into_iter()
        .flatten()
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

type Found = Option<(&'static str, SinkSettings)>;

fn redis(layers: &Layers, tls: Option<&TlsCertificates>) -> Result<Found> {
    const KEY: &str = "events_redis";
    let stream = name(layers, "events_redis_stream", |_| true)?;
    let entries_max = layers.number("events_redis_entries_max", 1000..=1_000_000_000)?;
    let Some(url) = layers.url(KEY, &["redis", "rediss"])? else {
        return Ok(None);
    };
    let sink = SinkSettings::Redis {
        url,
        tls: tls.cloned(),
        stream,
        entries_max: usize::try_from(entries_max)?,
    };
    Ok(Some((KEY, sink)))
}

fn nats(
    layers: &Layers,
    tls: Option<&TlsCertificates>,
    keep: std::time::Duration,
) -> Result<Found> {
    const KEY: &str = "events_nats";
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let stream = name(layers, "events_nats_stream", is_word)?;
    let subject = name(layers, "events_nats_subject", is_word)?;
    let urls = layers.urls(KEY, &["nats", "tls"])?;
    let credentials = layers.text("events_nats_credentials").map(|path| {
        let place = layers.place("events_nats_credentials");
        fs::read_to_string(&path).with_context(|| format!("{place}: cannot read {path}"))
    });
    let sink = SinkSettings::Nats {
        urls,
        tls: tls.cloned(),
        credentials: credentials.transpose()?,
        stream,
        subject,
        keep,
    };
    Ok(layers.text(KEY).map(|_| (KEY, sink)))
}

fn amqp(layers: &Layers, tls: Option<&TlsCertificates>) -> Result<Found> {
    const KEY: &str = "events_amqp";
    let exchange = name(layers, "events_amqp_exchange", |byte| {
        byte.is_ascii_graphic()
    })?;
    let url = layers.url(KEY, &["amqp", "amqps"])?;
    let tls = tls.cloned();
    Ok(url.map(|url| (KEY, SinkSettings::Amqp { url, tls, exchange })))
}

/// A name of the broker's. One that it would refuse only later is refused here.
fn name(layers: &Layers, key: &str, is_allowed: impl Fn(u8) -> bool) -> Result<String> {
    let text = layers.text(key).unwrap_or_default();
    match (1..=127).contains(&text.len()) && text.bytes().all(is_allowed) {
        true => Ok(text),
        false => Err(layers.wrong(
            key,
            "1 to 127 of the characters that the broker's names have",
        )),
    }
}
