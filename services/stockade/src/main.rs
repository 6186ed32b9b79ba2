//! The `stockade` binary: the command line, and the roles that a process runs.

mod account;
mod api;
mod archive;
mod audit;
mod buyers;
mod cli;
mod dedicated_runtime;
mod drops;
mod health;
mod heartbeat;
mod http;
mod item_lock;
mod key_set;
mod lock;
mod log;
mod output;
mod pages;
mod plan;
mod preflight;
mod private;
mod reconcile;
mod roles;
mod secrets;
mod settings;
mod up;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // rustls panics when it finds two providers, so one is installed before the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match cli::run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stockade: {error:#}");
            ExitCode::from(2)
        }
    }
}
