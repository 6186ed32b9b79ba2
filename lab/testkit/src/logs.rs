//! What the code under test logs.

use tracing_subscriber::filter::LevelFilter;

/// Shows warnings and errors of the code under test together with the output of a test that fails.
///
/// A thread prints where the thread that has started it prints, so what the runtime of a test logs
/// belongs to this test. A subscriber that the process has already stays in its place.
pub fn show_logs() {
    let logs = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN);
    // The second test of a process finds the subscriber of the first.
    let _ = logs.with_test_writer().try_init();
}
