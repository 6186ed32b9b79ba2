//! Kinds of values: how each is read, and what it must be.

use std::{ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use anyhow::Result;

use super::{Layers, duration};

/// Reads the value of the setting with this key.
type Reader<T> = dyn Fn(&Layers, &str) -> Result<T>;

/// How the value of a setting is read.
pub struct Kind<T> {
    /// Whether output hides the value.
    pub is_secret: bool,
    reader: Box<Reader<T>>,
}

impl<T: 'static> Kind<T> {
    /// Reads the value of the setting with this key.
    pub fn read(&self, layers: &Layers, key: &str) -> Result<T> {
        (self.reader)(layers, key)
    }

    fn map<U>(self, convert: impl Fn(T) -> U + 'static) -> Kind<U> {
        let Self { is_secret, reader } = self;
        Kind {
            is_secret,
            reader: Box::new(move |layers, key| reader(layers, key).map(&convert)),
        }
    }
}

/// A value that only its setting has.
pub fn read_by<T>(reader: impl Fn(&Layers, &str) -> Result<T> + 'static) -> Kind<T> {
    Kind {
        is_secret: false,
        reader: Box::new(reader),
    }
}

/// `None` unless it is set.
pub fn optional<T: 'static>(kind: Kind<T>) -> Kind<Option<T>> {
    let Kind { is_secret, reader } = kind;
    Kind {
        is_secret,
        reader: Box::new(move |layers, key| {
            let is_set = layers.text(key).is_some();
            is_set.then(|| reader(layers, key)).transpose()
        }),
    }
}

/// A whole number. The range must lie within that of its type.
pub fn number<T: TryFrom<u64> + 'static>(range: RangeInclusive<u64>) -> Kind<T> {
    read_by(move |layers, key| {
        let number = layers.number(key, range.clone())?;
        T::try_from(number).map_err(|_| layers.wrong(key, "a smaller number"))
    })
}

/// A whole number of milliseconds.
pub fn ms(range: RangeInclusive<u64>) -> Kind<Duration> {
    number(range).map(Duration::from_millis)
}

/// A whole number of seconds.
pub fn seconds(range: RangeInclusive<u64>) -> Kind<Duration> {
    number(range).map(Duration::from_secs)
}

/// A whole number of days.
pub fn days(range: RangeInclusive<u64>) -> Kind<Duration> {
    number(range).map(|days: u64| Duration::from_secs(days * 86_400))
}

/// A long duration with its unit, such as `30d`.
pub fn duration() -> Kind<Duration> {
    read_by(|layers, key| {
        duration::parse(&layers.text(key).unwrap_or_default())
            .ok_or_else(|| layers.wrong(key, duration::EXPECTED))
    })
}

/// `on` or `off`.
pub fn switch() -> Kind<bool> {
    read_by(|layers, key| match layers.text(key).as_deref() {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err(layers.wrong(key, "on or off")),
    })
}

/// What its type can parse. `expected` tells it to the operator.
pub fn parsed<T: FromStr + 'static>(expected: &'static str) -> Kind<T> {
    read_by(move |layers, key| layers.parse(key, expected))
}

/// Any text.
pub fn text() -> Kind<String> {
    read_by(|layers, key| Ok(layers.text(key).unwrap_or_default()))
}

/// A path. Whether anything is there is not looked at.
pub fn path() -> Kind<PathBuf> {
    text().map(PathBuf::from)
}

/// A secret that cannot be guessed, if it is set.
pub fn secret() -> Kind<Option<String>> {
    Kind {
        is_secret: true,
        ..read_by(|layers, key| layers.secret(key))
    }
}

/// A URL of one of these schemes, if it is set.
pub fn url(schemes: &'static [&'static str]) -> Kind<Option<String>> {
    read_by(move |layers, key| layers.url(key, schemes))
}

/// A comma-separated list of such URLs.
pub fn urls(schemes: &'static [&'static str]) -> Kind<Vec<String>> {
    read_by(move |layers, key| layers.urls(key, schemes))
}

/// A comma-separated list. Each entry must be one that `parse` reads.
pub fn list<T: 'static>(expected: &'static str, parse: fn(&str) -> Option<T>) -> Kind<Vec<T>> {
    read_by(move |layers, key| {
        let Some(text) = layers.text(key) else {
            return Ok(Vec::new());
        };
        text.split(',')
            .map(|entry| parse(entry.trim()))
            .collect::<Option<_>>()
            .ok_or_else(|| layers.wrong(key, expected))
    })
}
