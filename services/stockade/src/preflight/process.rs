//! This process: its descriptors, and the keys that it has.

use nix::sys::resource::{Resource, getrlimit};

use super::check::{Checks, Status};
use crate::{roles, settings::Settings};

const PART: &str = "process";
/// Below this a crowd finds the door closed.
const DESCRIPTORS_WARN: u64 = 16_384;
const DESCRIPTORS_FAIL: u64 = 1_024;

/// Checks what a process with these settings would have on this machine.
pub(super) async fn check(settings: &Settings, checks: &mut Checks) {
    add_descriptors(checks);
    if settings.service.roles.order {
        add_keys(settings, checks).await;
        add_payments(settings, checks);
    }
}

/// `serve` raises the soft limit to the hard one.
fn add_descriptors(checks: &mut Checks) {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let status = match hard {
        ..DESCRIPTORS_FAIL => Status::Fail,
        DESCRIPTORS_FAIL..DESCRIPTORS_WARN => Status::Warn,
        _ => Status::Ok,
    };
    let remedy = "raise LimitNOFILE, or ulimit -Hn: each connection of a buyer takes one";
    checks.add(PART, "descriptors", status, hard.to_string(), remedy);
}

async fn add_keys(settings: &Settings, checks: &mut Checks) {
    let source = match (&settings.access.jwks, &settings.access.jwt_public_key) {
        (Some(_), _) => "a key set",
        (None, Some(_)) => "a public key",
        (None, None) => "a shared secret",
    };
    let any_audience = format!("{source}, any audience");
    let set_it =
        "set STOCKADE_JWT_AUDIENCE: a token for another application of your login buys too";
    let (status, found, remedy) = match roles::buyers(settings).await {
        _ if settings.check_audience().is_err() => (Status::Fail, any_audience, set_it),
        Ok(_) if settings.access.jwt_audience.is_none() => (Status::Warn, any_audience, set_it),
        Ok(_) => (Status::Ok, source.to_owned(), ""),
        Err(error) => (
            Status::Fail,
            format!("{error:#}"),
            "without keys no buyer is admitted",
        ),
    };
    checks.add(PART, "keys of buyers' tokens", status, found, remedy);
    if settings.admins.is_empty() && settings.access.admin_token.is_none() {
        let remedy = "set STOCKADE_ADMIN_TOKEN or STOCKADE_ADMINS_FILE";
        checks.add(PART, "admins", Status::Fail, "none", remedy);
    }
}

fn add_payments(settings: &Settings, checks: &mut Checks) {
    let accepts =
        settings.access.payment_secret.is_some() || settings.access.stripe_secret.is_some();
    let (status, found) = match accepts {
        true => (Status::Ok, "accepted"),
        false => (Status::Warn, "refused"),
    };
    let remedy =
        "set STOCKADE_PAYMENT_SECRET or STOCKADE_STRIPE_SECRET: every hold expires without";
    checks.add(PART, "payments", status, found, remedy);
}
