//! Tests of every backend on real servers, and of the redlock protocol in every interleaving.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and print what it measured"
)]

mod acquiring;
mod arguments;
mod cancelling;
#[cfg(target_os = "linux")]
mod clock;
mod contract;
#[cfg(any(feature = "etcd", feature = "zookeeper", feature = "consul"))]
mod coordination;
mod durable;
mod faults;
mod headers;
mod holding;
mod interop;
mod losing;
mod options;
mod processes;
mod program;
#[cfg(feature = "redis")]
mod reconnecting;
mod scripts;
#[cfg(feature = "redis")]
mod single;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
mod stalls;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod store;
mod support;
mod viewing;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod wrong_server;
