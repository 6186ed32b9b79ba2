//! A real Prometheus that scrapes the given targets and evaluates the alerts of the repository.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use reqwest::{Client, Url};
use serde_json::Value;
use testbed::{Daemon, free_port};
use testkit::eventually;

use super::deploy;
use crate::process::polling_client;

/// Intervals of a quarter of a second, so that a test sees in seconds what takes minutes.
const CONFIG: &str = "
global: { scrape_interval: 250ms, evaluation_interval: 250ms }
rule_files: [rules.yml]
scrape_configs:
  - job_name: stockade
    static_configs: [{ targets: [TARGETS] }]
";

pub struct Prometheus {
    client: Client,
    _process: Daemon,
    _folder: tempfile::TempDir,
    url: String,
}

impl Prometheus {
    /// Starts it, and waits until it answers. Targets are `HOST:PORT`.
    pub async fn start(targets: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = CONFIG.replace("TARGETS", &targets.join(", "));
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let rules = fs::read_to_string(deploy("prometheus/rules.yml")).unwrap();
        fs::write(folder.path().join("rules.yml"), impatient(&rules)).unwrap();
        let address = format!("127.0.0.1:{}", free_port().await);
        let command = command(folder.path().to_owned(), address.clone());
        let log = folder.path().join("prometheus.log");
        let prometheus = Self {
            _process: Daemon::start("prometheus", log, command).await.unwrap(),
            _folder: folder,
            client: polling_client(),
            url: format!("http://{address}"),
        };
        eventually("an answer of Prometheus", async || {
            let ready = prometheus.client.get(format!("{}/-/ready", prometheus.url));
            ready
                .send()
                .await
                .is_ok_and(|answer| answer.status().is_success())
        })
        .await;
        prometheus
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let url = format!("{}/api/v1/{path}", self.url);
        let url = Url::parse_with_params(&url, parameters).unwrap();
        let answer = self.client.get(url).send().await.unwrap();
        answer.json().await.unwrap()
    }

    /// The series that the expression returns.
    pub async fn query(&self, expression: &str) -> Vec<Value> {
        let answer = self.get("query", &[("query", expression)]).await;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Names of all metrics that it has scraped.
    pub async fn metrics(&self) -> BTreeSet<String> {
        let answer = self.get("label/__name__/values", &[]).await;
        let names = answer["data"].as_array().unwrap();
        names
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }

    /// Its rules, as it has loaded and evaluated them.
    pub async fn rules(&self) -> Vec<Value> {
        let answer = self.get("rules", &[]).await;
        let groups = answer["data"]["groups"].as_array().unwrap();
        groups
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap().clone())
            .collect()
    }

    /// Names of the alerts that fire now.
    pub async fn firing(&self) -> BTreeSet<String> {
        let rules = self.rules().await;
        let firing = rules.iter().filter(|rule| rule["state"] == "firing");
        firing
            .map(|rule| rule["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// The rules with each `for` cut to a second.
fn impatient(rules: &str) -> String {
    let line = |line: &str| match line.split_once("for: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: 1s\n"),
        _ => format!("{line}\n"),
    };
    rules.lines().map(line).collect()
}

fn command(folder: PathBuf, address: String) -> impl Fn() -> Command + Send + Sync + 'static {
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    move || {
        let mut command = Command::new("prometheus");
        command.args([
            option("config.file", &folder.join("prometheus.yml")),
            option("storage.tsdb.path", &folder.join("data")),
            format!("--web.listen-address={address}"),
        ]);
        command
    }
}
