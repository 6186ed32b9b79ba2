//! The lock against real servers, and its protocol in every interleaving.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at whatever goes wrong, and say what it measured"
)]

mod acquiring;
mod arguments;
mod cancelling;
#[cfg(target_os = "linux")]
mod clock;
mod contract;
#[cfg(any(feature = "etcd", feature = "zookeeper", feature = "consul"))]
mod coordination;
mod faults;
mod headers;
mod holding;
mod interop;
mod losing;
mod model;
mod options;
mod processes;
mod program;
mod scripts;
#[cfg(feature = "redis")]
mod single;
mod site;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod store;
mod viewing;
