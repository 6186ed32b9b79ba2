//! The program of the README, compiled and run.

use std::sync::Mutex;

use testbed::Redis;

use crate::site::{five, token};

// What the README shows, word for word.
mod shown {
    include!("program/recount.rs");
}

#[test]
fn the_readme_shows_what_is_run() {
    let shown = include_str!("program/recount.rs").replace("pub async fn", "async fn");
    assert!(include_str!("../../README.md").contains(&format!("```rust\n{shown}```\n")));
}

#[tokio::test]
async fn it_writes_once_for_each_run_and_each_time_above_the_last() {
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
