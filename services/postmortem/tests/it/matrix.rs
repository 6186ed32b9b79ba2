//! The lock matrix: that it sees what it should on real servers, that a lock that lies does not get away with it, and how it is shown.

use std::{collections::BTreeMap, process::Output, time::Duration};

use postmortem::{
    actor::Program,
    matrix::{
        contestant::Contestant,
        fault::Fault,
        report::{html::page, markdown::replaced, table::tables, words_for},
        run::{Audience, Matrix, Plan, compare},
        verdict::{Fate, Outcome},
    },
};
use serde_json::Value;
use tokio::process::Command;

struct Silent;

impl Audience for Silent {
    fn done(&self, _trials: usize, _of: usize) {}
    fn now(&self, _what: &str) {}
}

async fn compared(contestants: &[Contestant], faults: &[Fault]) -> Matrix {
    let program = Program {
        path: env!("CARGO_BIN_EXE_postmortem").into(),
        arguments: vec!["actor".into()],
    };
    let each = Duration::from_millis(100);
    let plan = Plan {
        contestants: contestants.to_vec(),
        faults: faults.to_vec(),
        loads: Vec::new(),
        each,
        program,
    };
    compare(plan, &Silent).await.unwrap()
}

/// How many were inside, and what became of the two rows.
fn seen(matrix: &Matrix) -> BTreeMap<(&'static str, &'static str), (u64, Fate, Fate)> {
    let counted = matrix.cells.iter().filter_map(|cell| match &cell.outcome {
        Outcome::Counted(counts) => {
            let fates = (
                counts.inside_at_once,
                counts.without_fence(),
                counts.with_fence(),
            );
            Some(((cell.contestant.name(), cell.fault.name()), fates))
        }
        Outcome::NotApplicable(_) => None,
    });
    counted.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_matrix_shows_what_each_lock_does_under_each_fault() {
    use Contestant::{Redis, Redlock, Rslock, SetNxDel, Sqlite};
    use Fate::{Kept, Lost, NoToken};
    let matrix = compared(
        &[SetNxDel, Rslock, Redlock, Redis, Sqlite],
        &[Fault::Pause, Fault::Restart, Fault::Partition, Fault::Kill],
    )
    .await;
    let seen = seen(&matrix);
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
    for (which, what) in expected {
        assert_eq!(seen[&which], what, "{which:?}");
    }
    assert!(
        !seen.contains_key(&("sqlite", "restart")),
        "a file has no server"
    );
    assert!(
        matrix.broken_promises().is_empty(),
        "{:?}",
        matrix.broken_promises()
    );
    let third = |contestant| match &matrix.cell(contestant, Fault::Pause).unwrap().outcome {
        Outcome::Counted(counts) => counts.third_let_in,
        Outcome::NotApplicable(_) => unreachable!("it was played"),
    };
    assert!(
        third(SetNxDel) && !third(Redlock),
        "a plain DEL frees the lock of another"
    );
    shows_all_of_it(&matrix);
}

/// The same matrix in each of its forms.
fn shows_all_of_it(matrix: &Matrix) {
    let table = tables(matrix);
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
    let page = page(matrix);
    super::page::is_well_formed(&page);
    assert_eq!(
        page.matches("<th scope=\"row\">").count(),
        matrix.contestants.len()
    );
    for loads in [
        "src=", "@import", "url(http", "<script", "http://", "https://",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
    let document = "before\n<!-- matrix: begin -->\nold\n<!-- matrix: end -->\nafter\n";
    let replaced = |file: &str, document: &str| {
        replaced(
            document,
            matrix,
            "stockade locks compare",
            &words_for(file.as_ref()),
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
        "a second run leaves no trace of the first"
    );
    assert!(replaced("a.zh-CN.md", document).unwrap().contains("无令牌"));
    assert!(replaced("a.md", "no marks").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_gives_the_same_token_twice_turns_the_verdict_red() {
    let matrix = compared(&[Contestant::SameToken], &[Fault::Pause]).await;
    let broken = matrix.broken_promises();
    assert!(
        broken
            .iter()
            .any(|broken| broken.contains("its tokens do not rise")),
        "{broken:?}"
    );
    assert_eq!(
        seen(&matrix)[&("same-token", "pause")].2,
        Fate::Kept,
        "the version at the store still lets nothing get lost"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_keeps_nobody_out_turns_the_verdict_red() {
    let matrix = compared(&[Contestant::AlwaysGranted], &[Fault::Pause]).await;
    let broken = matrix.broken_promises();
    assert!(
        broken
            .iter()
            .any(|broken| broken.contains("while nothing was broken")),
        "{broken:?}"
    );
}

async fn locks(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postmortem"))
        .args(["locks", "compare"])
        .args(arguments)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn what_there_is_not_is_refused_with_what_there_is() {
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
    for (arguments, said) in table {
        let output = locks(arguments).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(
            said.iter().all(|said| error.contains(said)),
            "{arguments:?}: {error}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_reads_both_halves() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().to_str().unwrap();
    let load = [
        "--load",
        "alone,contended,messages,wakeups",
        "--seconds",
        "0.2",
    ];
    let which = [
        "--backends",
        "redis,consul,set-nx-compare",
        "--faults",
        "pause",
        "--json",
        "--report",
        report,
    ];
    let output = locks(&[&load[..], &which[..]].concat()).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let matrix: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(matrix["as_promised"], true);
    let safety = matrix["safety"].as_array().unwrap();
    assert_eq!(safety.len(), 2);
    let naive = safety
        .iter()
        .find(|cell| cell["backend"] == "set-nx-compare")
        .unwrap();
    assert_eq!(
        (
            &naive["fault"],
            &naive["with_fence"],
            &naive["without_fence"]
        ),
        (&"pause".into(), &"no_token".into(), &"lost".into())
    );
    for of_one in matrix["load"].as_array().unwrap() {
        for which in ["alone", "contended"] {
            let timed = &of_one[which];
            assert!(
                timed["acquire_ms_p50"].as_f64() <= timed["acquire_ms_p99"].as_f64(),
                "{of_one}"
            );
            assert!(timed["per_second"].as_f64().unwrap() > 0.0, "{of_one}");
        }
        // A request each for an acquisition and a release, in one piece each.
        assert!(
            (1.5..2.5).contains(&of_one["messages"].as_f64().unwrap()),
            "{of_one}"
        );
        assert_eq!(of_one["given_twice"], 0);
        assert_eq!(of_one["polls"], of_one["backend"] == "set-nx-compare");
    }
    assert_eq!(matrix["not_compared"][0]["backend"], "consul");
    let page = std::fs::read_to_string(folder.path().join("locks.html")).unwrap();
    assert!(page.contains("no Consul server"), "{page}");
    assert!(folder.path().join("locks.json").exists());
}
