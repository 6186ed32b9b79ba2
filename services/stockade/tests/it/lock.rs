//! `stockade lock`, the binary, on real Redis nodes.

mod arguments;
mod backends;
mod run;
pub mod site;
mod status;
#[cfg(target_os = "linux")]
mod terminal;
