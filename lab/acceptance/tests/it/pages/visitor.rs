//! A visitor of the pages without JavaScript: keeps cookies, sends forms, follows nothing.

use reqwest::{
    Client, RequestBuilder, Response,
    header::{self, HeaderMap},
    redirect::Policy,
};

/// A visitor with the cookies of its earlier answers.
pub struct Visitor {
    client: Client,
    url: String,
    cookies: Vec<(String, String)>,
}

/// What a request led to.
pub struct Answer {
    pub status: u16,
    /// Where it leads. Empty: it shows a page.
    pub location: String,
    pub headers: HeaderMap,
    pub text: String,
}

impl Visitor {
    pub fn of(url: &str) -> Self {
        Self {
            client: Client::builder().redirect(Policy::none()).build().unwrap(),
            url: url.to_owned(),
            cookies: Vec::new(),
        }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        let request = self.client.get(format!("{}{path}", self.url));
        let response = self.send(request).await;
        answer(response).await
    }

    /// A stream that goes on until it is dropped.
    pub async fn events(&mut self, path: &str) -> Response {
        let request = self.client.get(format!("{}{path}", self.url));
        let mut response = self.send(request).await;
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/event-stream"
        );
        let first = response.chunk().await.unwrap().expect("an event");
        assert!(first.starts_with(b"data: {"), "{first:?}");
        response
    }

    /// Sends a form of this service. The values need no escapes.
    pub async fn post(&mut self, path: &str, form: Vec<(&str, String)>) -> Answer {
        let origin = self.url.clone();
        self.post_from(Some(&origin), path, form).await
    }

    /// Sends a form of a page of `origin`.
    pub async fn post_from(
        &mut self,
        origin: Option<&str>,
        path: &str,
        form: Vec<(&str, String)>,
    ) -> Answer {
        let fields = form
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"));
        let mut request = self
            .client
            .post(format!("{}{path}", self.url))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(fields.collect::<Vec<_>>().join("&"));
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        let response = self.send(request).await;
        answer(response).await
    }

    pub async fn log_in(&mut self, token: &str) -> Answer {
        let form = vec![("token", token.replace(' ', "+"))];
        self.post("/console/login", form).await
    }

    async fn send(&mut self, request: RequestBuilder) -> Response {
        let cookies = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let request = request.header(header::COOKIE, cookies);
        let response = request.send().await.unwrap();
        for cookie in response.headers().get_all(header::SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.into(), value.into()));
        }
        response
    }
}

async fn answer(response: Response) -> Answer {
    let headers = response.headers().clone();
    let location = headers.get(header::LOCATION);
    Answer {
        status: response.status().as_u16(),
        location: location
            .map_or("", |value| value.to_str().unwrap())
            .to_owned(),
        text: response.text().await.unwrap(),
        headers,
    }
}

/// The value of the page's first hidden field of this name.
pub fn field(page: &str, name: &str) -> String {
    let begin = format!("name=\"{name}\" value=\"");
    let rest = page.split(&begin).nth(1);
    let rest = rest.unwrap_or_else(|| panic!("no field {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}
