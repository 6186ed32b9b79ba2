//! Events as they leave the engine: their envelope, and their delivery to webhooks.
//!
//! | module | contents |
//! |---|---|
//! | `envelope` | an event as CloudEvents 1.0 JSON |
//! | `signature` | secrets and signatures of Standard Webhooks |
//! | `target` | which addresses a webhook may have |
//! | `sender` | one signed request to a webhook |
//!
//! This crate must not know table names or routes of the API.

mod envelope;
mod sender;
mod signature;
mod target;

pub use envelope::{CloudEvent, SOURCE, TYPE_PREFIX};
pub use sender::{SendError, Sender};
pub use signature::{Secret, SecretError};
pub use target::{Target, TargetError, TargetPolicy};
