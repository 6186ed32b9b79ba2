//! Attacks with connections alone.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Field, pace};

/// Silent connections that a client keeps open concurrently.
const CONNECTIONS: usize = 8;
const REQUESTS_AT_ONCE: usize = 20;
/// Requests that a client sends before it stops, on one connection. Their answers are larger than
/// the buffers between the two programs.
const UNREAD_REQUESTS: usize = 20_000;

/// Opens connections and sends half of a request on each. The service closes them.
pub(super) async fn stay_silent(field: Arc<Field>) {
    let connections = (0..CONNECTIONS).map(|_| async {
        let mut pace = pace();
        loop {
            pace.tick().await;
            let closed = hold_silently(&field).await;
            field.note(
                "silent connections",
                if closed.is_ok() {
                    "closed by the service"
                } else {
                    "connection refused"
                },
            );
        }
    });
    let _: Vec<()> = futures::future::join_all(connections).await;
}

async fn hold_silently(field: &Field) -> std::io::Result<()> {
    let mut connection = connect(field).await?;
    connection.write_all(b"GET /healthz HT").await?;
    let mut rest = Vec::new();
    let _ = connection.read_to_end(&mut rest).await;
    Ok(())
}

/// Sends requests, and reads none of the answers. The service closes the connection.
pub(super) async fn never_read(field: Arc<Field>) {
    let mut pace = pace();
    loop {
        pace.tick().await;
        let answer = if fill(&field).await.is_ok() {
            "sent everything"
        } else {
            "closed by the service"
        };
        field.note("unread answers", answer);
    }
}

async fn fill(field: &Field) -> std::io::Result<()> {
    let mut connection = connect(field).await?;
    let request = format!(
        "GET /v1/items/{} HTTP/1.1\r\nhost: shop\r\n\r\n",
        field.item
    );
    let mut pace = pace();
    for number in 0..UNREAD_REQUESTS {
        if number % REQUESTS_AT_ONCE == 0 {
            pace.tick().await;
        }
        connection.write_all(request.as_bytes()).await?;
    }
    Ok(())
}

async fn connect(field: &Field) -> std::io::Result<TcpStream> {
    let address = field.host.trim_start_matches("http://");
    let address = address.split('/').next().unwrap_or_default();
    if address.contains(':') {
        TcpStream::connect(address).await
    } else {
        TcpStream::connect((address, 80)).await
    }
}
