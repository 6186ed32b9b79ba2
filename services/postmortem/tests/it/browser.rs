//! The page in a real browser: what it looks like cannot be told from its text.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use postmortem::report::html::page;
use serde::Deserialize;
use tokio::{process::Command, time::timeout};

use crate::sample::played;

/// Starting it takes seconds where others build at the same time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);
/// Dark, as Chromium counts.
const DARK: &str = "--blink-settings=preferredColorScheme=0";
const LIGHT: &str = "--blink-settings=preferredColorScheme=1";

/// Put into a copy of the page: what only somebody who looks at it can say. A phone is a frame, because no window is as narrow.
const LOOK: &str = r#"<script id="look">
addEventListener("load", () => {
  const across = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const down = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  const clashes = [], cut = [];
  for (const svg of document.querySelectorAll("svg.timeline")) {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([said, a], n) => {
      if (a.left < box.left - 1 || a.right > box.right + 1 || a.top < box.top - 1 || a.bottom > box.bottom + 1) cut.push(said);
      for (const [other, b] of texts.slice(n + 1)) if (across(a, b) > 1 && down(a, b) > 4) clashes.push(said + " | " + other);
    });
  }
  const wide = [...document.querySelectorAll("body *")].filter(element => !element.closest(".scroll > *, .unseen, .skip, .rail"))
    .filter(element => element.getBoundingClientRect().right > innerWidth + 1).map(element => element.tagName + "." + element.className);
  const root = document.documentElement;
  parent.postMessage(JSON.stringify({
    scroll_width: root.scrollWidth, client_width: root.clientWidth, wide, clashes, cut,
    drawings: document.querySelectorAll("svg.timeline").length,
    scripts: document.querySelectorAll("script:not(#look)").length,
    loaded: performance.getEntriesByType("resource").map(entry => entry.name),
    background: getComputedStyle(document.body).backgroundColor,
    ends: document.querySelector("main > footer") !== null,
  }), "*");
});
</script></head>"#;

/// What was seen.
#[derive(Debug, Deserialize)]
struct Seen {
    scroll_width: u32,
    client_width: u32,
    /// What leaves the window.
    wide: Vec<String>,
    /// Labels that stand on each other.
    clashes: Vec<String>,
    /// Labels that leave their drawing.
    cut: Vec<String>,
    drawings: usize,
    scripts: usize,
    loaded: Vec<String>,
    background: String,
    ends: bool,
}

impl Seen {
    fn is_dark(&self) -> bool {
        let digits = self
            .background
            .trim_start_matches("rgb(")
            .trim_end_matches(')');
        let sum: u32 = digits
            .split(", ")
            .map(|part| {
                part.parse::<u32>()
                    .unwrap_or_else(|_| panic!("{}", self.background))
            })
            .sum();
        sum < 3 * 128
    }
}

struct Browser {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Browser {
    /// The one on the PATH. Where there is none a reader is told so; who checks a change must have one.
    fn find() -> Option<Self> {
        let folders: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
        let names = ["chromium", "google-chrome", "chromium-browser"];
        let mut programs: Vec<_> = names
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
            .collect();
        programs.push("/Applications/Chromium.app/Contents/MacOS/Chromium".into());
        programs.push("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome".into());
        // What a snap brings does not see /tmp.
        let is_snap = |program: &Path| {
            program
                .canonicalize()
                .is_ok_and(|program| program.ends_with("snap"))
        };
        let Some(program) = programs
            .into_iter()
            .find(|program| program.is_file() && !is_snap(program))
        else {
            assert!(
                env::var_os("CI").is_none(),
                "no Chromium here: scripts/setup.sh test installs it"
            );
            eprintln!("SKIPPED: no Chromium here: scripts/setup.sh test installs it");
            return None;
        };
        Some(Self {
            program,
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    async fn run(&self, file: &Path, flags: &[&str]) -> Vec<u8> {
        let profile = tempfile::tempdir_in(&self.folder).unwrap();
        let mut command = Command::new(&self.program);
        command.args([
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ]);
        // A sandbox is not to be had by root, nor in many containers, and the only page that is looked at is our own.
        command.arg("--no-sandbox");
        command
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(flags)
            .arg(format!("file://{}", file.display()));
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(ANSWERS_WITHIN, output)
            .await
            .expect("it answers")
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// What is seen in a window of this width.
    async fn look(&self, page: &str, width: u32, scheme: &str) -> Seen {
        self.write("looked-at.html", &page.replacen("</head>", LOOK, 1));
        let frame = format!(
            r#"<iframe src="looked-at.html" style="width:{width}px;height:900px;border:0"></iframe>"#
        );
        let hear = "addEventListener('message', said => { document.querySelector('output').textContent = said.data })";
        let file = self.write(
            "window.html",
            &format!("<!doctype html><body><output></output><script>{hear}</script>{frame}"),
        );
        let dom = self
            .run(
                &file,
                &[
                    "--dump-dom",
                    "--virtual-time-budget=10000",
                    "--window-size=1400,1000",
                    scheme,
                ],
            )
            .await;
        let dom = String::from_utf8(dom).unwrap();
        let said = dom
            .split_once("<output>")
            .and_then(|(_, rest)| rest.split_once("</output>"))
            .expect("it was looked at")
            .0;
        let said = said
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

fn ways() -> usize {
    played().iter().map(|case| case.ways.len()).sum()
}

#[tokio::test]
async fn the_page_is_complete_in_a_browser_and_loads_nothing() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let file = browser.write("index.html", &page(&played()));
    let dom = String::from_utf8(browser.run(&file, &["--dump-dom"]).await).unwrap();
    assert_eq!(dom.matches("<svg class=\"timeline\"").count(), ways());
    assert_eq!(dom.matches("<article ").count(), ways());
    assert!(
        dom.contains("Times are seconds of the story."),
        "it ends as it should"
    );
    let seen = browser.look(&page(&played()), 1280, LIGHT).await;
    assert!(seen.ends && seen.drawings == ways(), "{seen:?}");
    assert_eq!(seen.scripts, 0, "what a label says has become a script");
    assert_eq!(seen.loaded, Vec::<String>::new());
}

#[tokio::test]
async fn it_is_no_wider_than_a_phone_or_a_window() {
    let Some(browser) = Browser::find() else {
        return;
    };
    for width in [390, 1280] {
        let seen = browser.look(&page(&played()), width, LIGHT).await;
        assert_eq!(
            (seen.client_width, seen.scroll_width),
            (width, width),
            "{seen:?}"
        );
        assert_eq!(seen.wide, Vec::<String>::new(), "at {width}");
    }
}

#[tokio::test]
async fn no_label_of_a_drawing_stands_on_another_or_is_cut() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let seen = browser.look(&page(&played()), 1280, LIGHT).await;
    assert_eq!(seen.clashes, Vec::<String>::new());
    assert_eq!(seen.cut, Vec::<String>::new());
}

#[tokio::test]
async fn it_is_dark_for_those_who_want_it_dark() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let page = page(&played());
    assert!(!browser.look(&page, 1280, LIGHT).await.is_dark());
    assert!(browser.look(&page, 1280, DARK).await.is_dark());
    let file = browser.write("index.html", &page);
    let mut pictures = Vec::new();
    for scheme in [LIGHT, DARK] {
        let picture = browser.folder.path().join("picture.png");
        browser
            .run(
                &file,
                &[
                    &format!("--screenshot={}", picture.display()),
                    "--window-size=1280,2000",
                    scheme,
                ],
            )
            .await;
        pictures.push(fs::read(&picture).unwrap());
        fs::remove_file(&picture).unwrap();
    }
    // An empty page of this size is a few kilobytes.
    assert!(
        pictures
            .iter()
            .all(|picture| picture.starts_with(b"\x89PNG") && picture.len() > 50_000)
    );
    assert_ne!(pictures[0], pictures[1]);
}
