//! Injects faults into everything that Stockade runs on during a sale, and proves that nothing was
//! lost, oversold or stranded.
//!
//! A seed determines the [`Plan`] of a run. The plan consists of batches. Each batch has a test
//! environment of real servers and processes, in which it runs up to twelve rounds. A round starts
//! a workload, injects one fault, measures the time to heal, and waits until no order is held. It
//! then compares the history of what clients were promised with the ledger.
//!
//! This crate judges Stockade from outside. It uses the program, the HTTP API, and the tables of
//! the ledger, which it reads without the service. Of the workspace it may use only `testbed`,
//! `client`, `judge` and `reporting`, because a finding must not depend on the code under test.
//!
//! | module | does |
//! |---|---|
//! | [`cli`] | parses the command line |
//! | [`plan`] | derives faults and times from the seed |
//! | [`fault`] | lists the faults and where each can be injected |
//! | [`mod@env`] | starts servers and processes |
//! | [`inject`] | injects and ends a fault |
//! | [`api`] | has clients for buyers, admins and the payment provider |
//! | [`workload`] | runs the sessions of the buyers |
//! | [`history`] | records what clients were promised, and derives the allowed states |
//! | [`ledger_view`] | reads the ledger's tables |
//! | [`subscribers`] | has receivers of webhooks and brokers, and what they have got |
//! | [`monitor`] | polls the ledger for overselling during a round |
//! | [`returns`] | notes when the units of orders that have ended are back |
//! | [`heal`] | measures the time to heal |
//! | [`judge`] | compares the history with the ledger |
//! | [`verdict`] | holds the result of a round |
//! | [`mod@run`] | runs batches and rounds |
//! | [`report`] | prints the table and writes `summary.json` |

pub mod api;
pub mod cli;
pub mod env;
pub mod fault;
pub mod heal;
pub mod history;
pub mod inject;
pub mod judge;
pub mod ledger_view;
pub mod monitor;
pub mod plan;
pub mod report;
pub mod returns;
pub mod run;
pub mod subscribers;
pub mod verdict;
pub mod workload;

pub use env::EnvConfig;
pub use fault::{Fault, Topology};
pub use plan::Plan;
pub use report::Report;
pub use run::run;
pub use subscribers::BrokerKind;
