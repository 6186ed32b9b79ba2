//! Refused arguments, and the origin of the nodes.

use super::test_env::{code, five, lock_run, name, stockade, urls};
use crate::process::{run, stderr, stdout};

#[test]
fn wrong_input_is_refused_by_the_name_of_its_place() {
    let good = "redis://127.0.0.1:1";
    let table: &[(&[&str], &[&str])] = &[
        (
            &["run", "x", "--", "true"],
            &["--nodes", "LOCK_URLS", "redis://HOST:PORT"],
        ),
        (&["status", "x"], &["--nodes", "LOCK_URLS"]),
        (
            &["run", "x", "--nodes", "", "--", "true"],
            &["--nodes", "redis://"],
        ),
        (
            &["run", "x", "--nodes", "10.0.0.1:6379", "--", "true"],
            &["--nodes", "redis://"],
        ),
        (
            &["status", "x", "--nodes", "http://u:pass-word@host"],
            &["--nodes", "redis://"],
        ),
        (
            &["status", "x", "--nodes", "redis://u:pass-word@ho st:1"],
            &["--nodes", "redis://"],
        ),
        (
            &["status", "x", "--nodes", "redis://u:pass-word,x@host:1"],
            &["--nodes", "redis://"],
        ),
        (
            &[
                "status",
                "x",
                "--nodes",
                "redis://u:pass-word@127.0.0.1:1,redis://127.0.0.1:1",
            ],
            &["--nodes", "each of them once"],
        ),
        (&["run", "", "--nodes", good, "--", "true"], &["NAME"]),
        (&["status", "", "--nodes", good], &["NAME"]),
        (
            &["run", "x:fence", "--nodes", good, "--", "true"],
            &["NAME", "not allowed"],
        ),
        (
            &["status", "x:fence", "--nodes", good],
            &["NAME", "not allowed"],
        ),
        (
            &["run", "x", "--nodes", good, "--lease", "1ms", "--", "true"],
            &["--lease", "20 ms"],
        ),
        (
            &["run", "x", "--nodes", good, "--lease", "soon", "--", "true"],
            &["--lease", "expected seconds"],
        ),
        (
            &["run", "x", "--nodes", good, "--wait=-1", "--", "true"],
            &["--wait", "expected seconds"],
        ),
        (
            &["run", "x", "--nodes", good, "--grace", "1y", "--", "true"],
            &["--grace", "expected seconds"],
        ),
        (
            &[
                "run",
                "x",
                "--nodes",
                good,
                "--longest-lease",
                "1",
                "--",
                "true",
            ],
            &["--longest-lease", "lease"],
        ),
        (
            &[
                "run",
                "x",
                "--nodes",
                good,
                "--backend",
                "paper",
                "--",
                "true",
            ],
            &["--backend", "redlock", "paper"],
        ),
        (
            &[
                "status",
                "x",
                "--nodes",
                "redis://u:pass-word@host?durable=maybe",
            ],
            &["--nodes", "durable=maybe", "durable=true or durable=false"],
        ),
        (&["run", "x", "--nodes", good, "--"], &["COMMAND"]),
        (&["run", "x", "--nodes", good, "true"], &["true"]),
        (&["run"], &["NAME"]),
        (&[], &["run", "status"]),
    ];
    for (arguments, expected) in table {
        let output = run(stockade().arg("lock").args(*arguments));
        let error = stderr(&output);
        assert_eq!(code(&output), 2, "{arguments:?}: {error}");
        assert!(
            expected.iter().all(|expected| error.contains(expected)),
            "{arguments:?}: {error}"
        );
        assert!(
            !error.contains("pass-word") && stdout(&output).is_empty(),
            "{arguments:?}: {error}"
        );
    }
    let output = run(stockade()
        .args(["lock", "status", "x"])
        .env("LOCK_URLS", "http://u:pass-word@host"));
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("LOCK_URLS: expected") && !stderr(&output).contains("pass-word"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn nodes_come_from_the_flag_over_the_environment_over_the_folder() {
    let (servers, name) = (five().await, name("nodes"));
    let (good, bad) = (urls(servers), "redis://127.0.0.1:1");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("run.toml"),
        format!("lock_urls = \"{good}\"\n"),
    )
    .unwrap();
    let command = ["--", "true"];
    let run_in = |flag: &[&str], variable: &str, dir: &std::path::Path| {
        let mut stockade = crate::process::stockade(dir);
        stockade
            .env("LOCK_URLS", variable)
            .args(["lock", "run", &name])
            .args(flag)
            .args(command);
        code(&run(&mut stockade))
    };
    let nowhere = std::path::Path::new("/nonexistent");
    assert_eq!(run_in(&[], &good, nowhere), 0);
    assert_eq!(run_in(&["--nodes", &good], bad, nowhere), 0);
    assert_eq!(run_in(&["--nodes", bad], &good, nowhere), 69);
    assert_eq!(run_in(&["--lock-urls", &good], bad, nowhere), 0);
    assert_eq!(run_in(&[], "", folder.path()), 0);
    assert_eq!(run_in(&[], bad, folder.path()), 69);
}

#[tokio::test]
async fn settings_that_are_not_about_locks_do_not_matter() {
    let (servers, name) = (five().await, name("settings"));
    let output = run(lock_run(servers, &name, &[], &["true"])
        .env("DATABASE_URL", "nonsense")
        .env("STOCKADE_BATCH_MAX", "many"));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn the_help_has_examples_and_every_exit_status() {
    for (arguments, expected) in [
        (
            &["lock", "--help"][..],
            &["run", "status", "Examples", "LOCK_URLS"][..],
        ),
        (
            &["lock", "run", "--help"],
            &[
                "Examples",
                "STOCKADE_LOCK_TOKEN",
                "  69  ",
                "  74  ",
                "  75  ",
                " 126  ",
                " 127  ",
            ],
        ),
        (&["lock", "status", "--help"], &["Examples", "--json", "69"]),
        (&["help"], &["lock"]),
    ] {
        let text = stdout(&run(stockade().args(arguments)));
        assert!(
            expected.iter().all(|expected| text.contains(expected)),
            "{arguments:?}: {text}"
        );
        assert!(
            arguments[0] != "lock" || !text.contains("--batch-max"),
            "what is not about locks: {text}"
        );
    }
}
