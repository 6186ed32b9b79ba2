//! A cheap keep-alive connection. Requests are bytes that were encoded before the clock started,
//! and of an answer it reads only the status. With a client library, ten thousand connections or
//! tens of thousands of requests a second would cost the driver more than the service.

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Limit of an answer; every answer of the service is shorter.
const ANSWER_BYTES_MAX: usize = 4096;

/// A connection that waits for each answer before the next request.
pub struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    /// Opens a connection.
    pub async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            answer: Vec::new(),
        })
    }

    /// Sends the request and returns the status of the answer, once it is complete.
    pub async fn send(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                bail!("the service closed the connection before the answer was complete");
            }
            if let Some(status) = status_of_whole(&self.answer)? {
                return Ok(status);
            }
            if self.answer.len() > ANSWER_BYTES_MAX {
                bail!("an answer is longer than {ANSWER_BYTES_MAX} bytes");
            }
        }
    }
}

/// The request for one unit.
pub fn order_request(item: &str, token: &str, key: &str) -> Vec<u8> {
    let body = r#"{"quantity":1}"#;
    let length = body.len();
    format!(
        "POST /v1/items/{item}/orders HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The status, if head and body are complete.
fn status_of_whole(answer: &[u8]) -> Result<Option<u16>> {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end]).context("the head of an answer is not UTF-8")?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok())
        .context("the answer is not HTTP/1.1")?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length
        .context("an answer without content-length")?
        .1
        .trim()
        .parse()?;
    Ok((answer.len() >= end + 4 + length).then_some(status))
}

#[cfg(test)]
mod tests {
    use super::{order_request, status_of_whole};

    #[test]
    fn an_answer_counts_once_it_is_complete() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(status_of_whole(answer).unwrap(), Some(201));
        for length in 0..answer.len() {
            assert_eq!(
                status_of_whole(&answer[..length]).unwrap(),
                None,
                "{length} bytes"
            );
        }
        assert!(status_of_whole(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn a_request_states_the_length_of_its_body() {
        let request = String::from_utf8(order_request("vase", "TOKEN", "key-1")).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("POST /v1/items/vase/orders HTTP/1.1\r\n")
                && head.contains("Bearer TOKEN\r\n"),
            "{head}"
        );
        assert!(
            head.contains(&format!("Content-Length: {}", body.len()))
                && body == r#"{"quantity":1}"#
        );
    }
}
