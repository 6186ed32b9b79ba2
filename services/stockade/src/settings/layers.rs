//! Flags over environment over the user's file over what `up` wrote over defaults; and errors that name the place of a wrong value.

use std::{fmt::Write, ops::RangeInclusive, path::Path, str::FromStr};

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgMatches, Command};
use config::{Config, File};

use super::table::{SETTINGS, Setting};

/// The user's own settings, in the data folder.
const USER_FILE: &str = "stockade.toml";

/// What `up` runs with, in the data folder, so that `token`, `audit` and another `serve` find it.
pub const RUN_FILE: &str = "run.toml";

/// The place of a value that nobody has set.
const DEFAULT: &str = "its default";

/// What `lock` reads; its help is silent about the others.
const OF_THE_LOCK: [&str; 2] = ["lock_urls", "log"];

/// Adds a flag for every setting.
pub fn add_flags(command: Command) -> Command {
    let lock = |command: Command| {
        SETTINGS.iter().fold(command, |command, setting| {
            command.arg(arg(setting).hide(!OF_THE_LOCK.contains(&setting.key)))
        })
    };
    SETTINGS
        .iter()
        .fold(command, |command, setting| command.arg(arg(setting)))
        .mut_subcommand("lock", lock)
}

fn arg(setting: &Setting) -> Arg {
    let default = setting
        .default
        .map(|default| format!(", default {default}"))
        .unwrap_or_default();
    let arg = Arg::new(setting.key)
        .long(flag(setting))
        .value_name("V")
        .global(true)
        .help_heading("Settings");
    arg.help(format!("{} [{}{default}]", setting.help, setting.variable))
}

fn flag(setting: &Setting) -> String {
    setting.key.replace('_', "-")
}

/// A value and where it stood.
struct Found {
    value: String,
    place: String,
    /// It is what an earlier `up` ran with, not what the user says.
    from_run_file: bool,
}

/// The layers, merged, each value with the place that it came from.
pub struct Layers {
    found: Vec<(&'static Setting, Option<Found>)>,
}

impl Layers {
    /// Reads the files in `dir`, the environment and the flags.
    pub fn read(dir: &Path, flags: &ArgMatches) -> Result<Self> {
        let user = read_file(&dir.join(USER_FILE))?;
        let run = read_file(&dir.join(RUN_FILE))?;
        let found = SETTINGS
            .iter()
            .map(|setting| (setting, find(setting, flags, &user, &run, dir)))
            .collect();
        Ok(Self { found })
    }

    fn get(&self, key: &str) -> Option<&Found> {
        self.found
            .iter()
            .find(|(setting, _)| setting.key == key)
            .and_then(|(_, found)| found.as_ref())
    }

    /// Whether the value is what an earlier `up` ran with, not what the user says.
    pub fn is_from_run_file(&self, key: &str) -> bool {
        self.get(key).is_some_and(|found| found.from_run_file)
    }

    /// The value as it stands, if somebody has set it.
    pub fn unless_default(&self, key: &str) -> Option<String> {
        self.get(key)
            .filter(|found| found.place != DEFAULT)
            .map(|found| found.value.clone())
    }

    /// Where the value stands.
    pub fn place(&self, key: &str) -> String {
        self.get(key).map_or(key, |found| &found.place).to_owned()
    }

    /// The value as it stands.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(|found| found.value.clone())
    }

    /// Says that the value is not what was `expected`, and where it stands.
    pub fn wrong(&self, key: &str, expected: &str) -> anyhow::Error {
        let secret = self
            .found
            .iter()
            .any(|(setting, _)| setting.key == key && setting.secret);
        match self.get(key) {
            Some(found) if !secret => anyhow!(
                "{}: expected {expected}, found {:?}",
                found.place,
                found.value
            ),
            Some(found) => anyhow!("{}: expected {expected}", found.place),
            None => anyhow!("{key}: expected {expected}"),
        }
    }

    /// The value as a `T`.
    pub fn parse<T: FromStr>(&self, key: &str, expected: &str) -> Result<T> {
        let text = self.text(key).unwrap_or_default();
        text.parse().map_err(|_| self.wrong(key, expected))
    }

    /// The value as a whole number in `range`.
    pub fn number(&self, key: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let number = self.parse(key, &expected)?;
        range
            .contains(&number)
            .then_some(number)
            .ok_or_else(|| self.wrong(key, &expected))
    }

    /// The value as a URL of one of these schemes.
    pub fn url(&self, key: &str, schemes: &[&str]) -> Result<Option<String>> {
        let url = self.text(key);
        match &url {
            Some(url) if !has_scheme(url, schemes) => Err(self.wrong_url(key, schemes)),
            _ => Ok(url),
        }
    }

    /// The value as a comma-separated list of such URLs.
    pub fn urls(&self, key: &str, schemes: &[&str]) -> Result<Vec<String>> {
        self.text(key).map_or_else(
            || Ok(Vec::new()),
            |text| parse_urls(&text, &self.place(key), schemes),
        )
    }

    fn wrong_url(&self, key: &str, schemes: &[&str]) -> anyhow::Error {
        wrong_url(&self.place(key), schemes)
    }

    /// The value as a secret that cannot be guessed.
    pub fn secret(&self, key: &str) -> Result<Option<String>> {
        let secret = self.text(key);
        match &secret {
            Some(secret) if secret.len() < 16 => {
                Err(self.wrong(key, "a secret of 16 characters or more"))
            }
            _ => Ok(secret),
        }
    }

    /// Every setting with its place, secrets hidden.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (setting, found) in &self.found {
            let Setting {
                key,
                variable,
                help,
                ..
            } = setting;
            let _ = match found {
                Some(found) => writeln!(
                    text,
                    "# {help} [{variable}; from {}]\n{key} = {:?}\n",
                    found.place,
                    shown(setting, &found.value)
                ),
                None => writeln!(text, "# {help} [{variable}; not set]\n# {key} =\n"),
            };
        }
        text
    }
}

/// A comma-separated list of URLs of one of these schemes, which stood in this place.
pub fn parse_urls(text: &str, place: &str, schemes: &[&str]) -> Result<Vec<String>> {
    let urls: Vec<_> = text.split(',').map(|url| url.trim().to_owned()).collect();
    urls.iter()
        .all(|url| has_scheme(url, schemes))
        .then_some(urls)
        .ok_or_else(|| wrong_url(place, schemes))
}

/// URLs may hold a password, so the wrong one is not shown.
fn wrong_url(place: &str, schemes: &[&str]) -> anyhow::Error {
    anyhow!(
        "{place}: expected a URL that begins with {}",
        listed(schemes)
    )
}

fn listed(schemes: &[&str]) -> String {
    schemes
        .iter()
        .map(|scheme| format!("{scheme}://"))
        .collect::<Vec<_>>()
        .join(" or ")
}

fn has_scheme(url: &str, schemes: &[&str]) -> bool {
    url.split_once(':')
        .is_some_and(|(scheme, _)| schemes.contains(&scheme))
}

fn shown(setting: &Setting, value: &str) -> String {
    match setting.key {
        _ if setting.secret => "***".into(),
        "lock_urls" => value
            .split(',')
            .map(without_password)
            .collect::<Vec<_>>()
            .join(","),
        _ => without_password(value),
    }
}

/// Hides what stands before the last `@`, and whatever a parameter with `password` in its name holds.
fn without_password(url: &str) -> String {
    let (address, parameters) = url
        .split_once('?')
        .map_or((url, None), |(address, parameters)| {
            (address, Some(parameters))
        });
    let mut shown = match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            format!("{}***{}", &address[..scheme + 3], &address[at..])
        }
        _ => address.to_owned(),
    };
    let hidden = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("password") => format!("{name}=***"),
        _ => parameter.to_owned(),
    };
    if let Some(parameters) = parameters {
        shown.push('?');
        shown.push_str(
            &parameters
                .split('&')
                .map(hidden)
                .collect::<Vec<_>>()
                .join("&"),
        );
    }
    shown
}

fn read_file(path: &Path) -> Result<Config> {
    let file = Config::builder()
        .add_source(File::from(path).required(false))
        .build();
    let file = file.with_context(|| format!("{} cannot be read", path.display()))?;
    let unknown = file
        .cache
        .clone()
        .into_table()
        .unwrap_or_default()
        .into_keys()
        .find(|key| SETTINGS.iter().all(|setting| setting.key != key));
    if let Some(setting) = SETTINGS
        .iter()
        .find(|setting| is_of_another_kind(&file, setting.key))
    {
        return Err(anyhow!(
            "{} in {}: expected a text or a number, found a list or a table",
            setting.key,
            path.display()
        ));
    }
    match unknown {
        Some(key) => {
            let keys: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
            Err(anyhow!(
                "{}: there is no setting {key:?}; expected one of {}",
                path.display(),
                keys.join(", ")
            ))
        }
        None => Ok(file),
    }
}

/// Lists are written as one text with commas, as in the environment.
fn is_of_another_kind(file: &Config, key: &str) -> bool {
    !matches!(
        file.get_string(key),
        Ok(_) | Err(config::ConfigError::NotFound(_))
    )
}

fn find(
    setting: &Setting,
    flags: &ArgMatches,
    user: &Config,
    run: &Config,
    dir: &Path,
) -> Option<Found> {
    let found = |value: String, place: String| Found {
        value,
        place,
        from_run_file: false,
    };
    let in_file = |file: &Config, name: &str| {
        let place = format!("{} in {}", setting.key, dir.join(name).display());
        file.get_string(setting.key)
            .ok()
            .map(|value| found(value, place))
    };
    let flag_value = || {
        flags
            .get_one::<String>(setting.key)
            .map(|value| found(value.clone(), format!("--{}", flag(setting))))
    };
    let variable = || {
        std::env::var(setting.variable)
            .ok()
            .filter(|value| !value.is_empty())
    };
    flag_value()
        .or_else(|| variable().map(|value| found(value, setting.variable.into())))
        .or_else(|| in_file(user, USER_FILE))
        .or_else(|| {
            in_file(run, RUN_FILE).map(|found| Found {
                from_run_file: true,
                ..found
            })
        })
        .or_else(|| {
            setting
                .default
                .map(|value| found(value.into(), DEFAULT.into()))
        })
}
