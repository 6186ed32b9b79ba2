//! Assembles the pages for people: the console, and the sale page of `up`.

use std::sync::Arc;

use anyhow::Result;
use domain::ItemId;
use order::{Credentials, Engine, PaymentKey};
use pages::{Shop, console_router, sale_router};
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// The item that `up` creates and the sale page shows first.
pub const DEMO_ITEM: &str = "demo";

/// Adds the console, unless it is switched off.
pub fn with_console(
    router: axum::Router,
    settings: &Settings,
    engine: &Arc<Engine>,
    credentials: &Arc<Credentials>,
    stop: &CancellationToken,
) -> axum::Router {
    if !settings.service.console {
        return router;
    }
    router.merge(console_router(
        Arc::clone(engine),
        Arc::clone(credentials),
        stop.clone(),
    ))
}

/// Adds the sale page, if this is `up` and it can issue tokens of buyers.
pub fn with_sale_page(
    api: axum::Router,
    settings: &Settings,
    engine: &Arc<Engine>,
    stop: &CancellationToken,
) -> Result<axum::Router> {
    let (Some(jwt_secret), Some(payment_secret), true) = (
        &settings.access.jwt_secret,
        &settings.access.payment_secret,
        settings.has_sale_page(),
    ) else {
        return Ok(api);
    };
    let shop = Shop {
        api: api.clone(),
        jwt_secret: jwt_secret.as_bytes().to_vec(),
        token_policy: settings.access.token_policy(),
        payments: PaymentKey::new(
            payment_secret.as_bytes(),
            settings.access.payment_window_seconds,
        ),
    };
    let first = ItemId::new(DEMO_ITEM)?;
    let pages = sale_router(Arc::clone(engine), shop, &first, stop.clone());
    Ok(api.merge(pages))
}
