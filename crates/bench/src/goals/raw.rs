//! The baselines that are as bare as they can be: one script, or SQL, and nothing around it.

pub mod columns;
pub mod rows;
