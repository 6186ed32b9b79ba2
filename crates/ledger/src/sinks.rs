//! Sinks as operators see them.

use jiff::Timestamp;

use crate::EventCursor;

/// A sink that a publisher has had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSink {
    /// `redis`, `nats` or `amqp`.
    pub name: String,
    /// The last event that its broker has acknowledged.
    pub cursor: EventCursor,
    /// When a publisher last had it.
    pub served_at: Timestamp,
}
