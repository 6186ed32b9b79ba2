//! `stockade up`: everything in one folder, to try it.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use domain::{Durability, Item, ItemId, ItemState, Quantity, Window};
use rand::distr::{Alphanumeric, SampleString};

use crate::{
    cli::write_out,
    private::Private,
    roles::{self, Running},
    settings::{RUN_FILE, Settings},
};

/// Where we serve, for load tests that find it by the folder.
const ADDRESS_FILE: &str = "address";

/// Starts what is missing, serves until Ctrl-C, and stops what it started. The folder keeps its data.
pub async fn up(dir: &Path, mut settings: Settings) -> Result<()> {
    let dir = &make_folder(dir)?;
    let _lock = lock(dir)?;
    let mut private = Private::default();
    let result = serve(dir, &mut settings, &mut private).await;
    private.stop().await;
    result
}

async fn serve(dir: &Path, settings: &mut Settings, private: &mut Private) -> Result<()> {
    fill_in(dir, settings, private).await?;
    let running = Running::start(settings).await?;
    if let Some(address) = running.address {
        fs::write(dir.join(ADDRESS_FILE), format!("http://{address}\n"))?;
        open_demo_item(&running).await?;
        announce(dir, address)?;
    }
    roles::asked_to_stop().await?;
    tracing::info!("ending: finishing what was taken");
    running.stop().await;
    Ok(())
}

fn make_folder(dir: &Path) -> Result<PathBuf> {
    // It will hold secrets.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("--dir: {} cannot be made", dir.display()))?;
    dir.canonicalize()
        .with_context(|| format!("--dir: {} cannot be read", dir.display()))
}

/// Two of us in one folder would each start servers on the same files.
fn lock(dir: &Path) -> Result<File> {
    let file = File::create(dir.join("up.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => bail!("--dir: another `stockade up` runs in {}", dir.display()),
    }
}

/// What the user has not set: private servers, an embedded ledger, random secrets.
async fn fill_in(dir: &Path, settings: &mut Settings, private: &mut Private) -> Result<()> {
    let own = settings.own_urls.clone();
    settings.redis_url = match own.redis_url {
        Some(url) => Some(url),
        None => Some(private.start_stock(dir).await?),
    };
    settings.lock_urls = if own.lock_urls.is_empty() {
        private.start_lock_nodes(dir).await?
    } else {
        own.lock_urls
    };
    settings.database_url = own
        .database_url
        .or_else(|| Some(format!("sqlite://{}", in_url(&dir.join("ledger.db")))));
    if settings.jwt_public_key.is_none() {
        settings.jwt_secret.get_or_insert_with(random_secret);
    }
    settings.admin_token.get_or_insert_with(random_secret);
    settings.payment_secret.get_or_insert_with(random_secret);
    write_run_file(dir, settings)
}

fn random_secret() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), 43) // 256 bits
}

/// Keeps what we run with, so that `token`, `audit` and another `serve` find it, and so that the secrets are the same next time.
fn write_run_file(dir: &Path, settings: &Settings) -> Result<()> {
    let mut text =
        String::from("# Written by `stockade up`. Your own settings belong in stockade.toml.\n");
    let mut line = |key: &str, value: Option<&str>| {
        let _ = value.map(|value| writeln!(text, "{key} = {}", toml::Value::from(value)));
    };
    line("redis_url", settings.redis_url.as_deref());
    line("lock_urls", Some(&settings.lock_urls.join(",")));
    line("database_url", settings.database_url.as_deref());
    line("jwt_secret", settings.jwt_secret.as_deref());
    line("admin_token", settings.admin_token.as_deref());
    line("payment_secret", settings.payment_secret.as_deref());
    let (path, unfinished) = (dir.join(RUN_FILE), dir.join("run.toml.unfinished"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, path).context("the run file could not be written")
}

async fn open_demo_item(running: &Running) -> Result<()> {
    let demo = Item {
        id: ItemId::new("demo")?,
        title: "Demo: ten thousand vases".into(),
        stock: 10_000,
        price_cents: 149_900,
        currency: "CNY".into(),
        limit_per_buyer: Some(Quantity::new(2)?),
        segments: 8,
        window: Window::default(),
        hold_seconds: 900,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    };
    if running.engine.create_item(&demo).await?.is_none() {
        tracing::warn!("the item `demo` is another one than ours; it stays as it is");
    }
    Ok(())
}

fn announce(dir: &Path, address: SocketAddr) -> Result<()> {
    let program = std::env::current_exe()
        .map_or_else(|_| "stockade".into(), |path| path.display().to_string());
    let stockade = format!(
        "{} --dir {}",
        quoted(&program),
        quoted(&dir.display().to_string())
    );
    write_out(&format!(
        "ready http://{address}\n\n\
         Try, from another terminal (API: http://{address}/docs):\n\n\
         curl -i http://{address}/items/demo/orders -H \"Authorization: Bearer $({stockade} token buyer ann)\" \
         -H 'Idempotency-Key: my-first-order' -H 'Content-Type: application/json' -d '{{\"quantity\":1}}'\n\
         curl -i http://{address}/items/demo -H \"Authorization: Bearer $({stockade} token admin)\"\n\
         {stockade} audit demo\n\n\
         Ctrl-C stops everything that was started; {} keeps the data.\n",
        dir.display()
    ))
}

/// As a shell reads it as one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A path as part of a URL.
fn in_url(path: &Path) -> String {
    path.display()
        .to_string()
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23")
}
