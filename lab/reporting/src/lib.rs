//! How bench, locks, post-mortems, chaos and load tests show what they have measured.
//!
//! Chaos and load tests judge Stockade from outside, so this crate depends on none of ours.
//!
//! | module | has |
//! |---|---|
//! | [`table`] | tables for a terminal, and rows in Markdown |
//! | [`number`] | numbers as text |
//! | [`statistics`] | the median, percentiles and the spread of what was measured repeatedly |
//! | [`machine`] | the machine that produced the figures |
//! | [`chart`] | curves as a self-contained SVG |
//! | [`files`] | files of results, and the command that wrote them |

pub mod chart;
pub mod files;
pub mod machine;
pub mod number;
pub mod statistics;
pub mod table;
