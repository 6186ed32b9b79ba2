//! The page in a real browser, which shows what the text of the page does not.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use postmortem::report::html::page;
use serde::Deserialize;
use testbed::in_time;
use tokio::process::Command;

use crate::sample::runs;

/// Value of Chromium's setting for dark pages.
const DARK: &str = "--blink-settings=preferredColorScheme=0";
const LIGHT: &str = "--blink-settings=preferredColorScheme=1";

/// Script that is added to a copy of the page and measures its layout. A phone is a frame, because
/// no window is as narrow.
const MEASURE: &str = r#"<script id="measure">
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
    scripts: document.querySelectorAll("script:not(#measure)").length,
    loaded: performance.getEntriesByType("resource").map(entry => entry.name),
    background: getComputedStyle(document.body).backgroundColor,
    ends: document.querySelector("main > footer") !== null,
  }), "*");
});
</script></head>"#;

/// Layout of the page.
#[derive(Debug, Deserialize)]
struct Layout {
    scroll_width: u32,
    client_width: u32,
    /// Elements that exceed the window.
    wide: Vec<String>,
    /// Labels that overlap.
    clashes: Vec<String>,
    /// Labels that exceed their drawing.
    cut: Vec<String>,
    drawings: usize,
    scripts: usize,
    loaded: Vec<String>,
    background: String,
    ends: bool,
}

impl Layout {
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
    /// Finds a browser on the PATH. Without one the tests are skipped with a message, except in CI.
    fn find() -> Option<Self> {
        let folders: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
        let names = ["chromium", "google-chrome", "chromium-browser"];
        let mut programs: Vec<_> = names
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
            .collect();
        programs.push("/Applications/Chromium.app/Contents/MacOS/Chromium".into());
        programs.push("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome".into());
        // A browser from a snap cannot read /tmp.
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
                "no Chromium found: scripts/setup.sh test installs it"
            );
            testbed::skipped("no Chromium found: scripts/setup.sh test installs it");
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
        // Root and many containers cannot use the sandbox, and only our own page is opened.
        command.arg("--no-sandbox");
        command
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(flags)
            .arg(format!("file://{}", file.display()));
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = in_time("the end of the browser", output).await.unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// Measures the page in a window of this width.
    async fn measure(&self, page: &str, width: u32, scheme: &str) -> Layout {
        self.write("measured.html", &page.replacen("</head>", MEASURE, 1));
        let frame = format!(
            r#"<iframe src="measured.html" style="width:{width}px;height:900px;border:0"></iframe>"#
        );
        let receive = "addEventListener('message', message => { document.querySelector('output').textContent = message.data })";
        let file = self.write(
            "window.html",
            &format!("<!doctype html><body><output></output><script>{receive}</script>{frame}"),
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
        let json = dom
            .split_once("<output>")
            .and_then(|(_, rest)| rest.split_once("</output>"))
            .expect("the page was not measured")
            .0;
        let json = json
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
    }
}

fn variants() -> usize {
    runs().iter().map(|case| case.variants.len()).sum()
}

#[tokio::test]
async fn the_page_is_complete_in_a_browser_and_loads_nothing() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let file = browser.write("index.html", &page(&runs()));
    let dom = String::from_utf8(browser.run(&file, &["--dump-dom"]).await).unwrap();
    assert_eq!(dom.matches("<svg class=\"timeline\"").count(), variants());
    assert_eq!(dom.matches("<article ").count(), variants());
    assert!(
        dom.contains("Times are seconds of scenario time."),
        "the page has its footer"
    );
    let layout = browser.measure(&page(&runs()), 1280, LIGHT).await;
    assert!(layout.ends && layout.drawings == variants(), "{layout:?}");
    assert_eq!(layout.scripts, 0, "a label has become a script");
    assert_eq!(layout.loaded, Vec::<String>::new());
}

#[tokio::test]
async fn the_page_fits_a_phone_and_a_window() {
    let Some(browser) = Browser::find() else {
        return;
    };
    for width in [390, 1280] {
        let layout = browser.measure(&page(&runs()), width, LIGHT).await;
        assert_eq!(
            (layout.client_width, layout.scroll_width),
            (width, width),
            "{layout:?}"
        );
        assert_eq!(layout.wide, Vec::<String>::new(), "at {width}");
    }
}

#[tokio::test]
async fn no_label_of_a_drawing_overlaps_another_or_is_cut() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let layout = browser.measure(&page(&runs()), 1280, LIGHT).await;
    assert_eq!(layout.clashes, Vec::<String>::new());
    assert_eq!(layout.cut, Vec::<String>::new());
}

#[tokio::test]
async fn the_page_follows_the_preference_for_a_dark_scheme() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let page = page(&runs());
    assert!(!browser.measure(&page, 1280, LIGHT).await.is_dark());
    assert!(browser.measure(&page, 1280, DARK).await.is_dark());
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
    // An empty page of this size has a few kilobytes.
    assert!(
        pictures
            .iter()
            .all(|picture| picture.starts_with(b"\x89PNG") && picture.len() > 50_000)
    );
    assert_ne!(pictures[0], pictures[1]);
}
