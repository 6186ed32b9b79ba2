//! The program of the README, compiled and run.

use std::sync::Mutex;

use testbed::Redis;

use crate::support::{five, token};

// The README shows this file verbatim.
mod shown {
    include!("program/recount.rs");
}

#[test]
fn the_readme_shows_the_program_that_is_tested() {
    let shown = include_str!("program/recount.rs").replace("pub async fn", "async fn");
    assert!(include_str!("../../README.md").contains(&format!("```rust\n{shown}```\n")));
}

#[tokio::test]
async fn each_run_writes_once_with_a_higher_token() {
    let five = five().await;
    let row = Mutex::new(Vec::new());
    let runs = (0..3).map(|_| {
        shown::recount(five.iter().map(Redis::url).collect(), async |token| {
            row.lock().unwrap().push(token)
        })
    });
    for run in runs {
        run.await.unwrap();
    }
    let fences = row.into_inner().unwrap();
    assert!(
        fences.len() == 3 && fences[0] >= token(1) && fences.is_sorted_by(|one, next| one < next),
        "{fences:?}"
    );
}
