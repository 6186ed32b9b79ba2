//! `stockade up`: runs everything in one folder, to try Stockade.

use std::{
    fmt::Write as _,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use domain::{Durability, Item, ItemId, ItemState, Quantity, Window};
use nix::sys::stat::{Mode, umask};

use crate::{
    drops,
    output::write_out,
    pages::DEMO_ITEM,
    private::Private,
    roles::{Running, StopSignal},
    secrets::{random_secret, write_secret_file},
    settings::{RUN_FILE, Settings},
};

/// File with the URL of the service, from which load tests find it.
const ADDRESS_FILE: &str = "address";

/// Starts the servers that are not configured, serves until Ctrl-C, and stops what it started. The
/// folder keeps its data.
pub async fn up(dir: &Path, mut settings: Settings) -> Result<()> {
    settings.check_audience()?;
    settings.is_trial = true;
    settings.database.migrate = true;
    // The ledger has the names of buyers. Only the user may read what this process and its servers
    // write, whatever the folder allows.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let dir = &make_folder(dir)?;
    let _lock = lock(dir)?;
    let (mut private, mut stop) = (Private::default(), StopSignal::listen()?);
    let result = serve(dir, &mut settings, &mut private, &mut stop).await;
    private.stop().await;
    result
}

async fn serve(
    dir: &Path,
    settings: &mut Settings,
    private: &mut Private,
    stop: &mut StopSignal,
) -> Result<()> {
    let start = async {
        fill_in(dir, settings, private).await?;
        Running::start(settings).await
    };
    let running = tokio::select! {
        running = start => running?,
        () = stop.received() => return Ok(()),
    };
    if let Some(address) = running.address {
        fs::write(dir.join(ADDRESS_FILE), format!("http://{address}\n"))?;
        open_demo_item(&running).await?;
        let pages = addresses(dir, settings, &running, address);
        let api_pages = operators_address(settings, &running, address)
            .map(|address| format!("API reference: http://{address}/docs\n"));
        announce(dir, address, &pages, &api_pages.unwrap_or_default())?;
    }
    stop.received().await;
    tracing::info!("stopping: finishing requests in flight");
    running.stop().await;
    Ok(())
}

fn make_folder(dir: &Path) -> Result<PathBuf> {
    // Only the user may read it: the folder will hold secrets.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("--dir: cannot create {}", dir.display()))?;
    dir.canonicalize()
        .with_context(|| format!("--dir: cannot read {}", dir.display()))
}

/// Locks the folder: two processes in one folder would start servers on the same files.
fn lock(dir: &Path) -> Result<File> {
    let file = File::create(dir.join("up.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => bail!("--dir: another `stockade up` runs in {}", dir.display()),
    }
}

/// Fills in what the user has not set: private servers, an embedded ledger, random secrets.
async fn fill_in(dir: &Path, settings: &mut Settings, private: &mut Private) -> Result<()> {
    let own = settings.own_urls.clone();
    settings.stock.redis_url = match own.redis_url {
        Some(url) => Some(url),
        None => Some(private.start_stock(dir).await?),
    };
    settings.lock.lock_urls = if own.lock_urls.is_empty() {
        private.start_lock_nodes(dir).await?
    } else {
        own.lock_urls
    };
    settings.database.database_url = own
        .database_url
        .or_else(|| Some(format!("sqlite://{}", in_url(&dir.join("ledger.db")))));
    let access = &mut settings.access;
    if access.jwt_public_key.is_none() {
        access.jwt_secret.get_or_insert_with(random_secret);
    }
    access.admin_token.get_or_insert_with(random_secret);
    access.payment_secret.get_or_insert_with(random_secret);
    let stripe = || format!("whsec_{}", random_secret());
    access.stripe_secret.get_or_insert_with(stripe);
    allow_local_webhooks(settings);
    place_operators_pages(settings);
    settings
        .retention
        .drop_exports
        .get_or_insert_with(|| dir.join(drops::EXPORTS));
    write_run_file(dir, settings)
}

/// A shop that is tried out runs on this machine. The user may have said otherwise.
fn allow_local_webhooks(settings: &mut Settings) {
    let allow = &mut settings.webhooks.webhooks_allow_private;
    allow.get_or_insert(true);
}

/// The operators' pages are where the user sees them: at the main address, if only this machine
/// reaches it, and otherwise at a free port that only this machine reaches. The user may have said
/// otherwise.
fn place_operators_pages(settings: &mut Settings) {
    let service = &mut settings.service;
    let is_said = service.operators_listen.is_some() || service.operators_at_listen.is_some();
    // Other roles have no other pages.
    if is_said || !service.roles.order {
        return;
    }
    if service.listen.ip().to_canonical().is_loopback() {
        service.operators_at_listen = Some(true);
    } else {
        service.operators_listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    }
}

/// Writes the settings of this run, so that `token`, `audit` and another `serve` find them and the
/// secrets stay the same on the next start.
fn write_run_file(dir: &Path, settings: &Settings) -> Result<()> {
    let mut text =
        String::from("# Written by `stockade up`. Your own settings belong in stockade.toml.\n");
    let mut line = |key: &str, value: Option<&str>| {
        let _ = value.map(|value| writeln!(text, "{key} = {}", toml::Value::from(value)));
    };
    let access = &settings.access;
    line("redis_url", settings.stock.redis_url.as_deref());
    line("lock_urls", Some(&settings.lock.lock_urls.join(",")));
    line("database_url", settings.database.database_url.as_deref());
    line("jwt_secret", access.jwt_secret.as_deref());
    line("admin_token", access.admin_token.as_deref());
    line("payment_secret", access.payment_secret.as_deref());
    line("stripe_secret", access.stripe_secret.as_deref());
    write_secret_file(&dir.join(RUN_FILE), &text).context("cannot write the run file")
}

async fn open_demo_item(running: &Running) -> Result<()> {
    let demo = Item {
        id: ItemId::new(DEMO_ITEM)?,
        title: "Demo: ten thousand vases".into(),
        stock: 10_000,
        price: 149_900,
        currency: "CNY".into(),
        limit_per_buyer: Some(Quantity::new(2)?),
        segments: 8,
        window: Window::default(),
        hold_seconds: 900,
        max_hold_seconds: 900,
        max_per_order: None,
        waves: Vec::new(),
        new_price: None,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    };
    if running.engine.create_item(&demo, "up").await?.is_none() {
        tracing::warn!("the item `demo` exists with other settings; keeping it");
    }
    Ok(())
}

/// The pages to open in a browser, a line each.
fn addresses(dir: &Path, settings: &Settings, running: &Running, address: SocketAddr) -> String {
    let mut lines = String::new();
    if settings.has_sale_page() {
        let _ = writeln!(lines, "Sale page: http://{address}/sale/{DEMO_ITEM}");
    }
    if settings.service.console
        && let Some(address) = operators_address(settings, running, address)
    {
        let _ = writeln!(
            lines,
            "Console:   http://{address}/console (log in with the output of the next line)"
        );
        let _ = writeln!(lines, "{} token admin", command_line(dir));
    }
    lines
}

/// Where the operators' pages are, if they are served.
fn operators_address(
    settings: &Settings,
    running: &Running,
    address: SocketAddr,
) -> Option<SocketAddr> {
    let at_listen = (settings.service.operators_at_listen == Some(true)).then_some(address);
    running.operators_address.or(at_listen)
}

/// The command line of this program with this folder.
fn command_line(dir: &Path) -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "stockade".into(), |path| path.display().to_string());
    format!(
        "{} --dir {}",
        quoted(&program),
        quoted(&dir.display().to_string())
    )
}

fn announce(dir: &Path, address: SocketAddr, pages: &str, api_pages: &str) -> Result<()> {
    let stockade = command_line(dir);
    write_out(&format!(
        "ready http://{address}\n\n\
         {pages}\n\
         Next, in another terminal: place an order, show the item, and check that every unit is accounted for.\n\n\
         curl -i http://{address}/v1/items/demo/orders -H \"Authorization: Bearer $({stockade} token buyer ann)\" \
         -H 'Idempotency-Key: my-first-order' -H 'Content-Type: application/json' -d '{{\"quantity\":1}}'\n\
         curl -i http://{address}/v1/items/demo -H \"Authorization: Bearer $({stockade} token admin)\"\n\
         {stockade} audit demo\n\n\
         {api_pages}\
         Ctrl-C stops everything that this command started. The data stays in {}.\n",
        dir.display()
    ))
}

/// Quotes a text as one word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Escapes a path for use in a URL.
fn in_url(path: &Path) -> String {
    path.display()
        .to_string()
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{allow_local_webhooks, place_operators_pages};
    use crate::settings::with_flags;

    #[test]
    fn operators_pages_are_at_the_main_address_only_where_no_other_machine_reaches_it() {
        let folder = tempfile::tempdir().unwrap();
        let placed = |flags: &[&str]| {
            let mut settings = with_flags(folder.path(), flags);
            place_operators_pages(&mut settings);
            let service = settings.service;
            let own = service.operators_listen.map(|address| address.to_string());
            (service.operators_at_listen, own)
        };
        let (at_listen, apart) = ((Some(true), None), |own: &str| (None, Some(own.to_owned())));
        for (flags, expected) in [
            (&[][..], at_listen.clone()),
            (&["--listen", "[::1]:0"], at_listen.clone()),
            (&["--listen", "[::ffff:127.0.0.1]:0"], at_listen.clone()),
            (&["--listen", "0.0.0.0:8080"], apart("127.0.0.1:0")),
            (&["--listen", "192.0.2.1:80"], apart("127.0.0.1:0")),
            (&["--operators-at-listen", "off"], (Some(false), None)),
            (
                &["--listen", "0.0.0.0:80", "--operators-at-listen", "on"],
                at_listen,
            ),
            (
                &["--operators-listen", "127.0.0.1:9090"],
                apart("127.0.0.1:9090"),
            ),
        ] {
            assert_eq!(placed(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn webhooks_may_have_local_addresses_unless_the_user_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let allowed = |flags: &[&str]| {
            let mut settings = with_flags(folder.path(), flags);
            allow_local_webhooks(&mut settings);
            settings.webhooks.webhooks_allow_private
        };
        let flag = "--webhooks-allow-private";
        assert_eq!(allowed(&[]), Some(true));
        assert_eq!(allowed(&[flag, "false"]), Some(false));
        assert_eq!(allowed(&[flag, "true"]), Some(true));
        let file = folder.path().join("stockade.toml");
        fs::write(file, "webhooks_allow_private = false\n").unwrap();
        assert_eq!(allowed(&[]), Some(false), "the file");
        assert_eq!(
            allowed(&[flag, "true"]),
            Some(true),
            "a flag before the file"
        );
    }
}
