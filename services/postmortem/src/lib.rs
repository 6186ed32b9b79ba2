#![doc = include_str!("../README.md")]

// A play.
pub mod case;
pub mod evidence;
pub mod pace;
pub mod run;
pub mod what_if;

// What it is played with.
pub mod actor;
pub mod engine;
pub mod point;
pub mod stage;
pub mod timeline;

// All of them, and how they are shown.
mod cases;
pub mod catalogue;
pub mod cli;
pub mod report;

// Locks compared, on the same stages.
pub mod matrix;
