//! Tests that cannot check something on this machine.

use std::io::{Write, stderr};

/// Prints why a test checks nothing here, on a line that begins with `SKIPPED`. Unlike the output
/// of `eprintln!`, libtest shows it for a test that passes, and `.ci/run` counts such lines.
pub fn skipped(why: &str) {
    // The name of a test that runs alone is on the line already.
    let line = format!("\nSKIPPED: {why}\n");
    // One write, so that no other output comes between. A closed standard error has no reader to
    // tell.
    let _ = stderr().write_all(line.as_bytes());
}
