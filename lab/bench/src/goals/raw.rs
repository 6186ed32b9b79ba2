//! Minimal baselines: one script, or SQL only.

pub mod columns;
pub mod rows;
