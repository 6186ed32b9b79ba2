//! `stockade-lab locks compare`: what it finds on real servers, whether it detects locks that break
//! their promises, and how it shows the results.

use std::{collections::BTreeMap, process::Output, time::Duration};

use locks::{
    backend::Backend,
    comparison::{Comparison, Plan, Progress, compare},
    fault::Fault,
    report::{html::page, labels_for, markdown::replaced, table::tables},
    verdict::{Integrity, Outcome},
};
use postmortem::program::Program;
use serde_json::Value;
use tokio::process::Command;

struct Silent;

impl Progress for Silent {
    fn experiments(&self, _done: usize, _total: usize) {}
    fn now(&self, _what: &str) {}
}

async fn compared(backends: &[Backend], faults: &[Fault]) -> Comparison {
    let program = Program {
        path: env!("CARGO_BIN_EXE_stockade-lab").into(),
        arguments: vec!["locks".into()],
    };
    let plan = Plan {
        backends: backends.to_vec(),
        faults: faults.to_vec(),
        loads: Vec::new(),
        load_duration: Duration::from_millis(100),
        program,
    };
    compare(plan, &Silent).await.unwrap()
}

/// Concurrent holders and the state of both rows, by backend and fault.
fn results(
    comparison: &Comparison,
) -> BTreeMap<(&'static str, &'static str), (u64, Integrity, Integrity)> {
    let counted = comparison
        .cells
        .iter()
        .filter_map(|cell| match &cell.outcome {
            Outcome::Counted(counts) => {
                let result = (
                    counts.concurrent_holders,
                    counts.without_fence(),
                    counts.with_fence(),
                );
                Some(((cell.backend.name(), cell.fault.name()), result))
            }
            Outcome::NotApplicable(_) => None,
        });
    counted.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_comparison_shows_what_each_lock_does_under_each_fault() {
    use Backend::{Redis, Redlock, Rslock, SetNxDel, Sqlite};
    use Integrity::{Kept, Lost, NoToken};
    let comparison = compared(
        &[SetNxDel, Rslock, Redlock, Redis, Sqlite],
        &[Fault::Pause, Fault::Restart, Fault::Partition, Fault::Kill],
    )
    .await;
    let results = results(&comparison);
    let expected = [
        (("set-nx-del", "pause"), (2, Lost, NoToken)),
        (("set-nx-del", "restart"), (2, Lost, NoToken)),
        (("set-nx-del", "partition"), (2, Lost, NoToken)),
        (("set-nx-del", "kill"), (1, Kept, NoToken)),
        (("rslock", "pause"), (2, Lost, NoToken)),
        (("rslock", "restart"), (2, Lost, NoToken)),
        (("redlock", "pause"), (2, Lost, Kept)),
        (("redlock", "restart"), (1, Kept, Kept)),
        (("redlock", "partition"), (1, Kept, Kept)),
        (("redlock", "kill"), (1, Kept, Kept)),
        (("redis", "pause"), (2, Lost, Kept)),
        (("redis", "restart"), (2, Lost, Kept)),
        (("redis", "partition"), (1, Kept, Kept)),
        (("sqlite", "pause"), (2, Lost, Kept)),
    ];
    for (experiment, result) in expected {
        assert_eq!(results[&experiment], result, "{experiment:?}");
    }
    assert!(
        !results.contains_key(&("sqlite", "restart")),
        "a file has no server"
    );
    let broken = comparison.broken_promises();
    assert!(broken.is_empty(), "{broken:?}");
    let third_acquired = |backend| {
        let cell = comparison.cell(backend, Fault::Pause).unwrap();
        match &cell.outcome {
            Outcome::Counted(counts) => counts.third_acquired,
            Outcome::NotApplicable(_) => unreachable!("every lock can have this fault"),
        }
    };
    assert!(
        third_acquired(SetNxDel) && !third_acquired(Redlock),
        "a plain DEL releases the lock of another holder"
    );
    every_report_shows_the_comparison(&comparison);
}

fn every_report_shows_the_comparison(comparison: &Comparison) {
    let table = tables(comparison);
    assert!(
        table
            .lines()
            .filter(|line| line.contains('\u{2502}'))
            .all(|line| line.chars().count() <= 120),
        "{table}"
    );
    assert!(
        table.contains("lost/no token")
            && table.contains("two + a third")
            && table.contains("a file has no server"),
        "{table}"
    );
    let page = page(comparison);
    super::page::is_well_formed(&page);
    assert_eq!(
        page.matches("<th scope=\"row\">").count(),
        comparison.backends.len()
    );
    for loads in [
        "src=", "@import", "url(http", "<script", "http://", "https://",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
    let document =
        "before\n<!-- locks compare: begin -->\nold\n<!-- locks compare: end -->\nafter\n";
    let replaced = |file: &str, document: &str| {
        replaced(
            document,
            comparison,
            "stockade-lab locks compare",
            &labels_for(file.as_ref()),
        )
    };
    let once = replaced("a.md", document).unwrap();
    assert!(
        once.starts_with("before\n") && once.ends_with("after\n") && !once.contains("old"),
        "{once}"
    );
    assert_eq!(
        replaced("a.md", &once).unwrap(),
        once,
        "a second run replaces all of the first"
    );
    assert!(replaced("a.zh-CN.md", document).unwrap().contains("无令牌"));
    assert!(replaced("a.md", "no marks").is_err());
}

/// A comparison that finds this broken promise.
async fn broken_by(backend: Backend, promise: &str) -> Comparison {
    let comparison = compared(&[backend], &[Fault::Pause]).await;
    let broken = comparison.broken_promises();
    assert!(
        broken.iter().any(|broken| broken.contains(promise)),
        "{broken:?}"
    );
    comparison
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_grants_the_same_token_twice_breaks_a_promise() {
    let comparison = broken_by(Backend::SameToken, "its tokens do not rise").await;
    assert_eq!(
        results(&comparison)[&("same-token", "pause")].2,
        Integrity::Kept,
        "the version check at the store still prevents lost updates"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_excludes_no_contender_breaks_a_promise() {
    let broken = "granted to a second contender before any fault";
    broken_by(Backend::AlwaysGranted, broken).await;
}

async fn locks_compare(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stockade-lab"))
        .args(["locks", "compare"])
        .args(arguments)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn an_unknown_value_is_refused_with_the_list_of_known_ones() {
    let table: [(&[&str], [&str; 3]); 7] = [
        (
            &["--faults", "pause,paus"],
            ["--faults", "paus", "expected pause, failover"],
        ),
        (
            &["--load", "heavy"],
            [
                "--load",
                "heavy",
                "expected alone, contended, messages, wakeups",
            ],
        ),
        (
            &["--backends", "redlok"],
            ["--backends", "redlok", "expected setnx-expire"],
        ),
        (
            &["--faults", "off,pause"],
            ["--faults", "off", "stands alone"],
        ),
        (
            &["--faults", "off", "--load", "off"],
            ["--faults off", "--load off", "nothing is left"],
        ),
        (&["--seconds", "0"], ["--seconds", "0", "0.1 to 600"]),
        (
            &["--markdown", "/nonexistent"],
            ["--markdown", "/nonexistent", "No such file"],
        ),
    ];
    for (arguments, expected) in table {
        let output = locks_compare(arguments).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(
            expected.iter().all(|expected| error.contains(expected)),
            "{arguments:?}: {error}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_and_report_contain_faults_and_load() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().to_str().unwrap();
    let load = [
        "--load",
        "alone,contended,messages,wakeups",
        "--seconds",
        "0.2",
    ];
    let rest = [
        "--backends",
        "redis,consul,set-nx-compare",
        "--faults",
        "pause",
        "--json",
        "--report",
        report,
    ];
    let output = locks_compare(&[&load[..], &rest[..]].concat()).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(comparison["as_promised"], true);
    let safety = comparison["safety"].as_array().unwrap();
    assert_eq!(safety.len(), 2);
    let hand_written = safety
        .iter()
        .find(|cell| cell["backend"] == "set-nx-compare")
        .unwrap();
    assert_eq!(
        (
            &hand_written["fault"],
            &hand_written["with_fence"],
            &hand_written["without_fence"]
        ),
        (&"pause".into(), &"no_token".into(), &"lost".into())
    );
    for figures in comparison["load"].as_array().unwrap() {
        for load in ["alone", "contended"] {
            let timings = &figures[load];
            assert!(
                timings["acquire_ms_p50"].as_f64() <= timings["acquire_ms_p99"].as_f64(),
                "{figures}"
            );
            assert!(timings["per_second"].as_f64().unwrap() > 0.0, "{figures}");
        }
        // One message for the acquisition and one for the release.
        assert!(
            (1.5..2.5).contains(&figures["messages"].as_f64().unwrap()),
            "{figures}"
        );
        assert_eq!(figures["given_twice"], 0);
        assert_eq!(figures["polls"], figures["backend"] == "set-nx-compare");
    }
    assert_eq!(comparison["not_compared"][0]["backend"], "consul");
    let page = std::fs::read_to_string(folder.path().join("locks.html")).unwrap();
    assert!(page.contains("no Consul server"), "{page}");
    assert!(folder.path().join("locks.json").exists());
}
