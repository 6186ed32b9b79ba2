//! The binary: every role in one process or one each, and the command line.

mod apart;
mod audit;
mod cli;
mod item_lock;
mod lock;
mod plan;
mod private;
mod reconcile;
mod roles;
mod settings;
mod up;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // One provider for every TLS connection, before the first is made; two of them panic.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match cli::run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stockade: {error:#}");
            ExitCode::from(2)
        }
    }
}
