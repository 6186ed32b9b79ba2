//! Sessions of admins, in the memory of this process.

use std::{sync::Arc, time::Duration};

use moka::sync::Cache;
use order::Admin;

use crate::cookies::random_secret;

/// A working day. A session is not extended.
pub(super) const LIFETIME: Duration = Duration::from_secs(8 * 3600);
/// Sessions that are kept. Each needs a login, so only admins can fill this.
const SESSIONS_MAX: u64 = 10_000;

/// An admin who has logged in.
pub(super) struct Session {
    pub id: String,
    pub admin: Admin,
    /// Forms carry it, so that a form that another site made is refused.
    pub form_secret: String,
}

/// The sessions, by their random id.
pub(super) struct Sessions(Cache<String, Arc<Session>>);

impl Default for Sessions {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(SESSIONS_MAX)
            .time_to_live(LIFETIME);
        Self(cache.build())
    }
}

impl Sessions {
    pub(super) fn start(&self, admin: Admin) -> Arc<Session> {
        let session = Arc::new(Session {
            id: random_secret(),
            admin,
            form_secret: random_secret(),
        });
        self.0.insert(session.id.clone(), Arc::clone(&session));
        session
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.0.get(id)
    }

    pub(super) fn end(&self, id: &str) {
        self.0.invalidate(id);
    }
}
