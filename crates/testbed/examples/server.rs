//! Starts a PostgreSQL server (`server postgres DATABASE`) or a Redis server (`server redis`) in a temporary folder, prints its URL, and
//! stops it when standard input ends. For scripts that need a server and have none.

use std::io::Read;

#[tokio::main]
async fn main() -> testbed::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("postgres"), Some(database)) => {
            let server = testbed::Postgres::start().await?;
            announce(&server.create_database(&database).await?).await;
        }
        (Some("redis"), None) => {
            let server = testbed::Redis::start().await?;
            announce(&server.url()).await;
        }
        _ => eprintln!("usage: server postgres DATABASE | server redis"),
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what the script reads")]
async fn announce(url: &str) {
    println!("{url}");
    let until_it_ends = || std::io::stdin().read_to_end(&mut Vec::new());
    let _ = tokio::task::spawn_blocking(until_it_ends).await;
}
