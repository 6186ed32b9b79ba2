//! The binary as its users meet it: processes that are started, asked, stopped and killed.

mod command_line;
mod crashes;
mod process;
mod up;
