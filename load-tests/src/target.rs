//! The address of the service, and the secrets that it shares with its clients.

use std::{env, fs, io::ErrorKind, path::Path};

use anyhow::{Context, Result, bail, ensure};

/// The default address of `stockade serve`.
const DEFAULT_HOST: &str = "http://127.0.0.1:8080";

/// The files in the service's folder that may contain its secrets, in order of precedence.
const SETTINGS_FILES: [&str; 2] = ["run.toml", "stockade.toml"];

/// A running service.
pub struct Target {
    /// `http://` or `https://`, without a slash at the end.
    pub host: String,
    /// Signs the tokens of buyers.
    pub jwt_secret: String,
    /// Authorizes admins.
    pub admin_token: String,
    /// Signs payments. Only scenarios that pay need it.
    pub payment_secret: Option<String>,
}

impl Target {
    /// The service at `host`, or the one that runs in the folder `dir`.
    pub fn find(host: Option<&str>, dir: &Path, pays: bool) -> Result<Self> {
        let payment_secret = || {
            find_secret(
                "payment_secret",
                env::var("STOCKADE_PAYMENT_SECRET").ok(),
                "STOCKADE_PAYMENT_SECRET",
                dir,
            )
        };
        Ok(Self {
            payment_secret: pays.then(payment_secret).transpose()?,
            host: find_host(host, dir)?,
            jwt_secret: find_secret(
                "jwt_secret",
                env::var("STOCKADE_JWT_SECRET").ok(),
                "STOCKADE_JWT_SECRET",
                dir,
            )?,
            admin_token: find_secret(
                "admin_token",
                env::var("STOCKADE_ADMIN_TOKEN").ok(),
                "STOCKADE_ADMIN_TOKEN",
                dir,
            )?,
        })
    }
}

fn find_host(host: Option<&str>, dir: &Path) -> Result<String> {
    // `make` passes HOST even if it is empty.
    let given = host
        .map(str::trim)
        .filter(|host| !host.is_empty())
        .map(str::to_owned);
    let host = match given {
        Some(host) => host,
        None => read(&dir.join("address"))?.map_or_else(
            || DEFAULT_HOST.to_owned(),
            |address| address.trim().to_owned(),
        ),
    };
    ensure!(
        host.starts_with("http://") || host.starts_with("https://"),
        "HOST: expected a URL such as {DEFAULT_HOST}, found {host:?}"
    );
    Ok(host.trim_end_matches('/').to_owned())
}

fn find_secret(
    key: &str,
    from_environment: Option<String>,
    variable: &str,
    dir: &Path,
) -> Result<String> {
    if let Some(secret) = from_environment.filter(|secret| !secret.is_empty()) {
        return Ok(secret);
    }
    for file in SETTINGS_FILES {
        if let Some(secret) = secret_in(&dir.join(file), key)? {
            return Ok(secret);
        }
    }
    bail!(
        "no {key}: neither {variable} nor a file in {} has one; is `stockade up` running, with this --dir?",
        dir.display()
    );
}

fn secret_in(path: &Path, key: &str) -> Result<Option<String>> {
    let Some(text) = read(path)? else {
        return Ok(None);
    };
    let settings: toml::Table =
        toml::from_str(&text).map_err(|_| anyhow::anyhow!("{}: not TOML", path.display()))?;
    Ok(settings
        .get(key)
        .and_then(toml::Value::as_str)
        .filter(|secret| !secret.is_empty())
        .map(str::to_owned))
}

/// The text of the file, if the file exists.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{find_host, find_secret};

    #[test]
    fn the_address_is_given_or_found_or_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let host = |given| find_host(given, dir.path());
        assert_eq!(host(None).unwrap(), "http://127.0.0.1:8080");
        fs::write(dir.path().join("address"), "http://127.0.0.1:4711\n").unwrap();
        assert_eq!(host(None).unwrap(), "http://127.0.0.1:4711");
        assert_eq!(host(Some("")).unwrap(), "http://127.0.0.1:4711");
        assert_eq!(
            host(Some("https://shop.example/")).unwrap(),
            "https://shop.example"
        );
        assert!(
            host(Some("shop.example"))
                .unwrap_err()
                .to_string()
                .contains("HOST")
        );
    }

    #[test]
    fn a_missing_secret_is_named_with_the_places_to_put_it() {
        let dir = tempfile::tempdir().unwrap();
        let secret = |given: Option<&str>| {
            find_secret(
                "admin_token",
                given.map(str::to_owned),
                "STOCKADE_ADMIN_TOKEN",
                dir.path(),
            )
        };
        let text = secret(None).unwrap_err().to_string();
        assert!(
            text.contains("admin_token")
                && text.contains("STOCKADE_ADMIN_TOKEN")
                && text.contains("stockade up"),
            "{text}"
        );
        fs::write(
            dir.path().join("stockade.toml"),
            "admin_token = \"theirs\"\n",
        )
        .unwrap();
        assert_eq!(secret(None).unwrap(), "theirs");
        fs::write(dir.path().join("run.toml"), "admin_token = \"run's\"\n").unwrap();
        assert_eq!(secret(None).unwrap(), "run's");
        assert_eq!(secret(Some("given")).unwrap(), "given");
    }
}
