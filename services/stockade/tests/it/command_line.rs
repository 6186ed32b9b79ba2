//! Settings and exit statuses.

use std::process::{Command, Output};

use crate::process::{run, stderr, stdout, stockade};

const SECRET: &str = "sixteen letters and more";

fn configured(dir: &std::path::Path) -> Command {
    let mut command = stockade(dir);
    command
        .env("REDIS_URL", "redis://127.0.0.1:1")
        .env(
            "DATABASE_URL",
            format!("sqlite://{}", dir.join("ledger.db").display()),
        )
        .env("STOCKADE_JWT_SECRET", SECRET)
        .env("STOCKADE_ADMIN_TOKEN", SECRET);
    command
}

#[track_caller]
fn assert_complains(output: &Output, of: &str) {
    assert!(stderr(output).contains(of), "{}", stderr(output));
}

#[test]
fn serving_without_secrets_is_refused_with_the_name_of_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    for missing in ["STOCKADE_JWT_SECRET", "STOCKADE_ADMIN_TOKEN"] {
        let output = run(configured(folder.path()).env_remove(missing).arg("serve"));
        assert_eq!(output.status.code(), Some(2));
        assert_complains(&output, missing);
    }
    assert!(
        !folder.path().join("ledger.db").exists(),
        "the ledger was not created"
    );
}

/// The keys of an identity provider sign tokens for many applications.
#[test]
fn keys_of_an_identity_provider_need_an_audience_and_a_shared_secret_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../order/src/auth/vectors");
    let command = |key: Option<(&str, &str)>, argument: &str| {
        let mut command = configured(folder.path());
        if let Some((variable, file)) = key {
            command.env(variable, format!("{vectors}/{file}"));
        }
        command.arg(argument);
        command
    };
    let audience = ("STOCKADE_JWT_AUDIENCE", "shop");
    let set = "STOCKADE_JWT_AUDIENCE is not set";
    for key in [
        ("STOCKADE_JWKS", "jwks.json"),
        ("STOCKADE_JWT_PUBLIC_KEY", "p256.pem"),
    ] {
        for argument in ["serve", "up"] {
            let output = run(&mut command(Some(key), argument));
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{argument}: {error}");
            assert!(error.contains(set) && error.contains(key.0), "{error}");
        }
        assert!(!folder.path().join("ledger.db").exists());
        let shown = stdout(&run(&mut command(Some(key), "config")));
        assert!(
            shown.contains(&format!("`serve` does not start. {set}")),
            "{shown}"
        );
        let shown = run(command(Some(key), "config").env(audience.0, audience.1));
        assert!(!stdout(&shown).contains("does not start"));
        // A process that admits no buyers needs none.
        let shown = run(command(Some(key), "config").env("STOCKADE_ROLES", "recorder"));
        assert!(!stdout(&shown).contains("does not start"));
        // It goes on to the next step: the ledger, whose schema is missing.
        let output = run(command(Some(key), "serve").env(audience.0, audience.1));
        let error = stderr(&output);
        assert!(error.contains("DATABASE_URL"), "{error}");
    }
    let output = run(&mut command(None, "serve"));
    let error = stderr(&output);
    assert!(
        error.contains("DATABASE_URL") && !error.contains(set),
        "{error}"
    );
}

#[test]
fn an_invalid_value_is_refused_with_its_origin_and_the_expected_value() {
    let table = [
        ("REDIS_URL", "http://x", "redis://"),
        (
            "DATABASE_URL",
            "mysql://x",
            "postgres:// or postgresql:// or sqlite://",
        ),
        ("DATABASE_URL", "sqlite::memory:", "sqlite://PATH"),
        ("DATABASE_URL", "sqlite://:memory:", "sqlite://PATH"),
        ("LOCK_URLS", "redis://a,b", "redis://"),
        ("STOCKADE_LISTEN", "everywhere", "ADDRESS:PORT"),
        ("STOCKADE_OPERATORS_AT_LISTEN", "yes", "on or off"),
        ("STOCKADE_RATE_PER_PEER", "many", "requests per second"),
        ("STOCKADE_RATE_EXEMPT_PEERS", "10.0.0.0/40", "networks"),
        ("STOCKADE_TRUSTED_PROXIES", "everyone", "networks"),
        ("STOCKADE_ROLES", "order,cook", "order, recorder"),
        ("STOCKADE_JWT_SECRET", "short", "16 characters"),
        ("STOCKADE_ADMIN_TOKEN", "short", "16 characters"),
        (
            "STOCKADE_ORDER_TIMEOUT_MS",
            "soon",
            "a whole number from 50 to 60000",
        ),
        (
            "STOCKADE_JWT_LEEWAY_SECONDS",
            "601",
            "a whole number from 0 to 600",
        ),
        ("STOCKADE_BATCH_MAX", "0", "a whole number from 1 to 2000"),
        ("STOCKADE_BODY_BYTES_MAX", "-1", "a whole number"),
        ("STOCKADE_LOG", "stock=loud", "a filter"),
        ("STOCKADE_LOG_FORMAT", "xml", "text or json"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (variable, value, expected) in table {
        let output = run(configured(folder.path()).env(variable, value).arg("config"));
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{variable}: {error}");
        assert!(
            error.contains(variable) && error.contains(expected),
            "{error}"
        );
        assert!(
            !value.contains("short") || !error.contains(value),
            "a secret is not shown: {error}"
        );
    }
    let output = run(stockade(folder.path()).args(["config", "--batch-max", "many"]));
    assert_complains(
        &output,
        "--batch-max: expected a whole number from 1 to 2000",
    );
    std::fs::write(
        folder.path().join("stockade.toml"),
        "batch_max = \"many\"\n",
    )
    .unwrap();
    let output = run(stockade(folder.path()).arg("config"));
    assert!(
        stderr(&output).contains("batch_max in ") && stderr(&output).contains("stockade.toml"),
        "{}",
        stderr(&output)
    );
    for wrong in [
        "roles = [\"recorder\"]",
        "batch_max = [1]",
        "[listen]\nport = 1",
    ] {
        std::fs::write(folder.path().join("stockade.toml"), wrong).unwrap();
        let output = run(stockade(folder.path()).arg("config"));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert_complains(&output, "stockade.toml");
    }
    std::fs::write(folder.path().join("stockade.toml"), "batch_maximum = 3\n").unwrap();
    let output = run(stockade(folder.path()).arg("config"));
    assert_complains(&output, "batch_maximum");
}

#[test]
fn a_flag_overrides_the_environment_then_the_file_then_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let batch_max = |command: &mut Command| {
        let output = run(command);
        stdout(&output)
            .lines()
            .find_map(|line| line.strip_prefix("batch_max = ").map(str::to_owned))
            .unwrap()
    };
    assert_eq!(batch_max(stockade(folder.path()).arg("config")), "\"256\"");
    std::fs::write(folder.path().join("stockade.toml"), "batch_max = 1\n").unwrap();
    assert_eq!(batch_max(stockade(folder.path()).arg("config")), "\"1\"");
    assert_eq!(
        batch_max(
            stockade(folder.path())
                .arg("config")
                .env("STOCKADE_BATCH_MAX", "2")
        ),
        "\"2\""
    );
    assert_eq!(
        batch_max(
            stockade(folder.path())
                .args(["config", "--batch-max", "3"])
                .env("STOCKADE_BATCH_MAX", "2")
        ),
        "\"3\""
    );
}

#[test]
fn the_effective_settings_are_shown_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = configured(folder.path());
    let output = run(command
        .env("REDIS_URL", "redis://user:a-password@host:1")
        .arg("config"));
    let text = stdout(&output);
    assert!(
        output.status.success()
            && text.contains("redis://***@host:1")
            && text.contains("jwt_secret = \"***\""),
        "{text}"
    );
    assert!(
        !text.contains(SECRET) && !text.contains("a-password"),
        "{text}"
    );
    for url in [
        "postgres://u:pa,ss-word@localhost/db",
        "postgres://localhost/db?user=u&password=pa,ss-word",
        "postgres://u:p@ss-word@localhost/db",
    ] {
        let output = run(configured(folder.path())
            .env("DATABASE_URL", url)
            .arg("config"));
        let text = stdout(&output);
        assert!(text.contains("***") && !text.contains("ss-word"), "{text}");
    }
}

#[test]
fn no_output_shows_a_password_and_an_error_says_how_to_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let output_of = |variable: &str, url: &str| {
        let output = run(configured(folder.path())
            .env("STOCKADE_LOCK", "redlock")
            .env(variable, url)
            .arg("config"));
        let text = stdout(&output) + &stderr(&output);
        assert!(!text.contains("Zq7") && !text.contains("Yw9"), "{text}");
        (output.status.success(), text)
    };
    for (variable, url, encoded) in [
        ("REDIS_URL", "redis://u:Zq7/Yw9@host:1", "%2F"),
        ("REDIS_URL", "redis://u:Zq7#Yw9@host:1", "%23"),
        ("REDIS_URL", "redis+cluster://u:Zq7,Yw9@a:1,b:2", "%2C"),
        ("LOCK_URLS", "redis://u:Zq7,Yw9@a:1,redis://b:2", "%2C"),
        ("LOCK_URLS", "redis://u:Zq7?Yw9@a:1", "%3F"),
        ("DATABASE_URL", "postgres://u:Zq7/Yw9@localhost/db", "%2F"),
        ("STOCKADE_EVENTS_REDIS", "redis://u:Zq7/Yw9@host", "%2F"),
    ] {
        let (succeeded, text) = output_of(variable, url);
        assert!(!succeeded, "{url}");
        assert!(text.contains(variable) && text.contains(encoded), "{text}");
    }
    for (variable, url, shown) in [
        (
            "REDIS_URL",
            "redis://u:Zq7,@:Yw9@host:1",
            "redis://***@host:1",
        ),
        (
            "REDIS_URL",
            "redis+cluster://u:Zq7%2CYw9@a:1,b:2",
            "redis+cluster://***@a:1,b:2",
        ),
        (
            "LOCK_URLS",
            "redis://u:Zq7%2FYw9@a:1,redis://u:Zq7%2FYw9@b:2",
            "redis://***@b:2",
        ),
        (
            "DATABASE_URL",
            "postgres://localhost/db?user=u&password=Zq7&Yw9",
            "postgres://localhost/db?user=u&password=***",
        ),
    ] {
        let (succeeded, text) = output_of(variable, url);
        assert!(succeeded && text.contains(shown), "{text}");
    }
    // It must have none, so it is not shown either.
    let (succeeded, text) = output_of("STOCKADE_JWKS", "https://u:Zq7-Yw9@issuer/keys");
    assert!(!succeeded && text.contains("STOCKADE_JWKS"), "{text}");
}

#[test]
fn a_ledger_that_cannot_be_reached_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(configured(folder.path())
        .env("DATABASE_URL", "postgres://unknown@127.0.0.1:1/none")
        .arg("migrate"));
    assert_eq!(output.status.code(), Some(2));
    assert_complains(&output, "DATABASE_URL");
}

#[test]
fn who_stops_reading_is_not_told_of_a_defect() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = configured(folder.path())
        .arg("config")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn with_the_json_format_every_line_of_the_log_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let logged = |format: &str| {
        let output = run(configured(folder.path())
            .env("STOCKADE_LOG", "debug")
            .env("STOCKADE_LOG_FORMAT", format)
            .arg("migrate"));
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let lines = logged("json");
    assert!(!lines.is_empty(), "the driver logs its statements");
    for line in lines.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect(line);
        for field in ["timestamp", "level", "target"] {
            assert!(entry[field].is_string(), "no {field} in {line}");
        }
    }
    let text = logged("text");
    let first = text.lines().next().unwrap();
    assert!(
        !first.starts_with('{') && first.contains("DEBUG"),
        "{first}"
    );
}
