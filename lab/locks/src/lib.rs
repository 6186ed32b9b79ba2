#![doc = include_str!("../README.md")]

// What is compared, and what is done to it.
pub mod backend;
pub mod fault;

// A lock, its servers, its contenders, and the rows that it protects.
mod client;
mod contender;
mod env;
mod servers;
pub mod store;

// One backend under one fault, and under load.
pub mod experiment;
pub mod load;
pub mod verdict;

// All of them, and how the results are shown.
pub mod cli;
pub mod comparison;
pub mod report;
