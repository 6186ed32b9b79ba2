//! Which service the commands call, with which token, and how they print its answers.

use std::{env, fs, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use client::{Client, Page, PageRequest, Request, Response, RetryPolicy, Token};
use reqwest::redirect::Policy;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::table;
use crate::{
    http,
    output::write_out,
    settings::{self, Layers},
};

/// Rows of a page: the most that the service gives.
const PAGE_ROWS: u16 = 1000;
/// Time after which a request is not repeated.
const RETRY_DEADLINE: Duration = Duration::from_secs(3);
/// As the client has them by itself.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// The file in which `up` writes its address.
const ADDRESS_FILE: &str = "address";
const TOKEN_VARIABLE: &str = "STOCKADE_TOKEN";

/// Arguments of every command for a running service.
#[derive(Args)]
#[command(after_help = "The token is that of STOCKADE_TOKEN, or else STOCKADE_ADMIN_TOKEN.")]
pub struct ServiceArguments {
    /// Address of the service. Default: the one of `stockade up` in --dir, or
    /// http://127.0.0.1:8080.
    #[arg(long, global = true, env = "STOCKADE_URL", value_name = "URL")]
    url: Option<String>,
    /// Print JSON, as the API answers it.
    #[arg(long, global = true)]
    json: bool,
}

/// A running service, and the token of the admin who calls it.
pub struct Service {
    client: Client,
    pub token: Token,
    json: bool,
}

impl Service {
    /// The service that the arguments, or the folder of `up`, name.
    pub fn find(arguments: &ServiceArguments, dir: &Path, layers: &Layers) -> Result<Self> {
        let url = match &arguments.url {
            Some(url) => url.clone(),
            None => fs::read_to_string(dir.join(ADDRESS_FILE))
                .map_or_else(|_| DEFAULT_URL.into(), |url| url.trim().to_owned()),
        };
        let Some(token) = env::var(TOKEN_VARIABLE)
            .ok()
            .or(layers.secret("admin_token")?)
        else {
            bail!(
                "neither {TOKEN_VARIABLE} nor STOCKADE_ADMIN_TOKEN is set: expected the token of an admin"
            );
        };
        Ok(Self {
            client: client(url, layers)?,
            token: Token::bearer(token).with_context(|| TOKEN_VARIABLE)?,
            json: arguments.json,
        })
    }

    /// The answer to a request, which is repeated while its outcome is unknown.
    pub async fn call(&self, request: &Request) -> Result<Response> {
        Ok(self.client.send(request).await.result?)
    }

    /// The answer, or `None` if the service knows nothing of this name.
    pub async fn find_one(&self, request: &Request) -> Result<Option<Response>> {
        match self.client.send(request).await.result {
            Ok(response) => Ok(Some(response)),
            Err(client::Error::Refused(problem)) if problem.status == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Prints what one request answers.
    pub async fn show(&self, request: &Request) -> Result<()> {
        self.print(&self.call(request).await?)
    }

    /// Prints what a request answers that must not be repeated.
    pub async fn show_once(&self, request: &Request) -> Result<()> {
        let answer = self.client.send_once(request).await?;
        self.print(&answer.into_success()?)
    }

    fn print(&self, answer: &Response) -> Result<()> {
        let answer: Value = answer.json()?;
        let text = if self.json {
            serde_json::to_string_pretty(&answer)?
        } else {
            table::fields(&answer)
        };
        write_out(&format!("{text}\n"))
    }

    /// The pages of a list.
    pub fn pages<R: Fn(&PageRequest) -> Request>(&self, request: R) -> Pages<'_, R> {
        Pages {
            service: self,
            request,
            next: Some(PageRequest::default().limit(PAGE_ROWS)),
            took: Duration::ZERO,
        }
    }

    /// Prints a whole list.
    pub async fn list(
        &self,
        columns: &[&str],
        request: impl Fn(&PageRequest) -> Request,
    ) -> Result<()> {
        let (mut rows, mut pages) = (Vec::new(), self.pages(request));
        while let Some(page) = pages.next().await? {
            rows.extend(page);
        }
        self.rows(columns, &rows)
    }

    /// Prints these rows.
    pub fn rows(&self, columns: &[&str], rows: &[Value]) -> Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(rows)?
        } else {
            table::rows(rows, columns)
        };
        write_out(&format!("{text}\n"))
    }

    /// Prints lines about what was done, or all of it as JSON.
    pub fn report<T: serde::Serialize + std::fmt::Display>(&self, done: &[T]) -> Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(done)?
        } else {
            done.iter().map(T::to_string).collect::<Vec<_>>().join("\n")
        };
        write_out(&format!("{text}\n"))
    }
}

/// A client that gives up while someone still waits at the terminal.
fn client(url: String, layers: &Layers) -> Result<Client> {
    let retry = RetryPolicy {
        deadline: RETRY_DEADLINE,
        ..RetryPolicy::default()
    };
    let builder = Client::builder([url]).retry(retry);
    let Some(authority) = http::authority(settings::tls(layers)?.as_ref()) else {
        return Ok(builder.build()?);
    };
    let http = http::client(Some(&authority))?
        .timeout(ATTEMPT_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .build()
        .context("STOCKADE_TLS_CA")?;
    Ok(builder.http(http).build()?)
}

/// The pages of a list, one after the other. Between two of them the ledger has as long for orders as
/// the last page took: a list of millions is read beside a sale.
pub struct Pages<'a, R> {
    service: &'a Service,
    request: R,
    next: Option<PageRequest>,
    took: Duration,
}

impl<R: Fn(&PageRequest) -> Request> Pages<'_, R> {
    /// The rows of the next page.
    pub async fn next(&mut self) -> Result<Option<Vec<Value>>> {
        let Some(page) = self.next.take() else {
            return Ok(None);
        };
        sleep(self.took).await;
        let began = Instant::now();
        let answer: Page<Value> = self.service.call(&(self.request)(&page)).await?.json()?;
        self.took = began.elapsed();
        self.next = answer.next.map(|next| page.after(Some(next)));
        Ok(Some(answer.data))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::{Json, Router, routing::get};
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    const PAGES: usize = 3;
    const PAGE_TIME: Duration = Duration::from_millis(50);
    /// When each page was asked for, and when its answer was ready.
    static READ: Mutex<Vec<[Instant; 2]>> = Mutex::new(Vec::new());

    async fn slow_page() -> Json<Value> {
        let began = Instant::now();
        sleep(PAGE_TIME).await;
        let mut read = READ.lock().unwrap();
        read.push([began, Instant::now()]);
        let next = (read.len() < PAGES).then_some("more");
        Json(json!({ "data": [read.len()], "next": next }))
    }

    #[tokio::test]
    async fn pages_leave_the_ledger_as_much_time_as_they_take() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let router = Router::new().fallback(get(slow_page));
        tokio::spawn(async { axum::serve(server, router).await });
        let service = Service {
            client: Client::builder([url]).build().unwrap(),
            token: Token::bearer("admin").unwrap(),
            json: true,
        };

        let mut pages = service.pages(|page| Request::list_items(&service.token, page));
        let mut rows = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            rows.extend(page);
        }

        assert_eq!(rows, [1, 2, 3]);
        for pair in READ.lock().unwrap().windows(2) {
            let [[_, answered], [asked, _]] = [pair[0], pair[1]];
            assert!(asked - answered >= PAGE_TIME, "{pair:?}");
        }
    }
}
