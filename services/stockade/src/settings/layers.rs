//! The layers of settings. A flag overrides the environment, then the user's file, then the file of
//! an earlier `up`, then the default. Errors name the origin of an invalid value.
//!
//! Secrets have no flags, because every user of the machine sees the arguments of a process. Any
//! variable may instead name a file with the value: `STOCKADE_ADMIN_TOKEN_FILE`.

use std::{fmt::Write, ops::RangeInclusive, path::Path, str::FromStr};

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgMatches, Command};
use config::{Config, File};
use lock::{unencoded, unencoded_text, without_secrets};
use stock::lists_hosts;

use super::{SETTINGS, Setting};

/// The user's own settings, in the data folder.
const USER_FILE: &str = "stockade.toml";

/// The settings of the last `up`, in the data folder. `token`, `audit` and another `serve` read
/// them.
pub const RUN_FILE: &str = "run.toml";

/// Origin of a value that is not set.
const DEFAULT: &str = "its default";

/// Settings that `lock` reads. Its help hides the others.
const LOCK_SETTINGS: [&str; 3] = ["lock_urls", "log", "log_format"];

/// Adds a flag for every setting that is not a secret.
pub fn add_flags(command: Command) -> Command {
    let with_flags = || SETTINGS.iter().filter(|setting| !setting.is_secret);
    let lock = |command: Command| {
        with_flags().fold(command, |command, setting| {
            command.arg(arg(setting).hide(!LOCK_SETTINGS.contains(&setting.key)))
        })
    };
    with_flags()
        .fold(command, |command, setting| command.arg(arg(setting)))
        .mut_subcommand("lock", lock)
}

fn arg(setting: &Setting) -> Arg {
    let default = setting
        .default
        .map(|default| format!(", default {default}"))
        .unwrap_or_default();
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name("V")
        .global(true)
        .help_heading("Settings");
    let (help, variable) = (setting.help(), setting.variable());
    arg.help(format!("{help} [{variable}{default}]"))
}

/// A value and its origin.
struct Found {
    value: String,
    place: String,
    /// Whether the value comes from the run file of an earlier `up`.
    from_run_file: bool,
}

/// The merged layers: each value with its origin.
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
            .map(|setting| Ok((setting, find(setting, flags, &user, &run, dir)?)));
        Ok(Self {
            found: found.collect::<Result<_>>()?,
        })
    }

    fn get(&self, key: &str) -> Option<&Found> {
        self.found
            .iter()
            .find(|(setting, _)| setting.key == key)
            .and_then(|(_, found)| found.as_ref())
    }

    /// Whether the value comes from the run file of an earlier `up`.
    pub fn is_from_run_file(&self, key: &str) -> bool {
        self.get(key).is_some_and(|found| found.from_run_file)
    }

    /// The value, unless it is the default.
    pub fn unless_default(&self, key: &str) -> Option<String> {
        self.get(key)
            .filter(|found| found.place != DEFAULT)
            .map(|found| found.value.clone())
    }

    /// Origin of the value.
    pub fn place(&self, key: &str) -> String {
        self.get(key).map_or(key, |found| &found.place).to_owned()
    }

    /// The value, defaults included.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(|found| found.value.clone())
    }

    /// Error that names the origin of the value, what was expected, and the value without its
    /// secrets.
    pub fn wrong(&self, key: &str, expected: &str) -> anyhow::Error {
        let secret = self
            .found
            .iter()
            .any(|(setting, _)| setting.key == key && setting.is_secret);
        match self.get(key) {
            Some(found) if !secret => anyhow!(
                "{}: expected {expected}, found {:?}",
                found.place,
                without_secrets(&found.value)
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
        if let Some(url) = &url {
            check_url(url, &self.place(key), schemes)?;
        }
        Ok(url)
    }

    /// The value as a comma-separated list of such URLs.
    pub fn urls(&self, key: &str, schemes: &[&str]) -> Result<Vec<String>> {
        self.text(key).map_or_else(
            || Ok(Vec::new()),
            |text| parse_urls(&text, &self.place(key), schemes),
        )
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

    /// Every setting with its origin, secrets hidden.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (setting, found) in &self.found {
            let (key, variable, help) = (setting.key, setting.variable(), setting.help());
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

/// Parses a comma-separated list of URLs of these schemes. `place` is the origin for errors.
pub fn parse_urls(text: &str, place: &str, schemes: &[&str]) -> Result<Vec<String>> {
    let urls: Vec<_> = text.split(',').map(|url| url.trim().to_owned()).collect();
    // At a comma in a password the list is cut, and what follows is no URL.
    let ends_a_password = |url: &String| url.contains('@') && !url.contains("://");
    if urls.iter().skip(1).any(ends_a_password) {
        return Err(anyhow!(
            "{place}: expected {}, and each URL to begin with {}",
            unencoded_text(','),
            listed(schemes)
        ));
    }
    for url in &urls {
        check_url(url, place, schemes)?;
    }
    Ok(urls)
}

/// URLs may contain a password, so the errors do not show the value.
fn check_url(url: &str, place: &str, schemes: &[&str]) -> Result<()> {
    if !has_scheme(url, schemes) {
        return Err(anyhow!(
            "{place}: expected a URL that begins with {}",
            listed(schemes)
        ));
    }
    match unencoded(url, lists_hosts(url)) {
        Some(found) => Err(anyhow!("{place}: expected {}", unencoded_text(found))),
        None => Ok(()),
    }
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
    if setting.is_secret {
        "***".into()
    } else {
        without_secrets(value)
    }
}

fn read_file(path: &Path) -> Result<Config> {
    let file = Config::builder()
        .add_source(File::from(path).required(false))
        .build();
    let file = file.with_context(|| format!("cannot read {}", path.display()))?;
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

/// Whether the value is a list or a table. Lists are written as one text with commas, as in the
/// environment.
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
) -> Result<Option<Found>> {
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
        // There is none for a secret.
        let value = flags.try_get_one::<String>(setting.key).ok().flatten();
        value.map(|value| found(value.clone(), format!("--{}", setting.flag())))
    };
    let environment = in_environment(&setting.variable())?;
    Ok(flag_value()
        .or_else(|| environment.map(|(value, place)| found(value, place)))
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
        }))
}

/// The variable, or the content of the file that `VARIABLE_FILE` names, with the name of what was
/// set.
fn in_environment(variable: &str) -> Result<Option<(String, String)>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let file_variable = format!("{variable}_FILE");
    match (set(variable), set(&file_variable)) {
        (Some(_), Some(_)) => Err(anyhow!(
            "{variable} and {file_variable} are both set: expected one of them"
        )),
        (Some(value), None) => Ok(Some((value, variable.into()))),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("{file_variable}: cannot read {path}"))?;
            Ok(Some((text.trim_end().to_owned(), file_variable)))
        }
        (None, None) => Ok(None),
    }
}
