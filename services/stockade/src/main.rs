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
    refuse_huge_pages();
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

/// The allocator asks for huge pages, of which every part is resident as soon as one is touched. The buffers of a connection are mostly empty: 10,000 of them
/// took 260 MB with huge pages and take 165 MB without, at the same speed (docs/performance.md). Servers that we start inherit it; Redis advises it for itself. A
/// system that does not know the call stays as it is.
fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
}
