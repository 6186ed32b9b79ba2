//! `stockade lock`, the binary, on real Redis nodes.

mod arguments;
mod backends;
mod run;
mod status;
#[cfg(target_os = "linux")]
mod terminal;
pub mod test_env;
