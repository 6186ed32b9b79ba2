//! A lock with fencing around a file: only the latest holder of the lock can write.
//!
//! Start lock servers in one terminal, and run this in another:
//!
//! ```sh
//! make up
//! export LOCK_URLS=$(sed -n 's/^lock_urls = "\(.*\)"/\1/p' .stockade/run.toml)
//! cargo run -p lock --example fenced_file
//! ```
//!
//! A holder can be paused after it has checked its lock and before it writes. Its lease ends
//! meanwhile, another holder writes, and the late write would overwrite the newer content. No lock
//! can prevent that. The file can: every holder gets a higher token, and the file refuses lower
//! ones.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    env,
    error::Error,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use lock::{FencingToken, Lock, RedlockBuilder};
use tokio::task::spawn_blocking;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let urls = env::var("LOCK_URLS").map_err(|_| "set LOCK_URLS: see the head of this example")?;
    let file = FencedFile::new(&env::temp_dir().join("fenced_file.txt"));

    // `build` waits until a quorum of the nodes votes. Nodes that are new and not durable vote only
    // after the longest lease, because they may have forgotten a lock.
    let lock = RedlockBuilder::new(urls.split(',')).build().await?;

    // The first holder. Its token is higher than that of every earlier holder of this name.
    let first = lock.acquire("fenced-file").await?;
    let old_token = first.token();
    println!("the first holder has token {old_token}");
    println!(
        "  {:?}",
        file.write(old_token, "written by the first holder")?
    );
    // The release stands for a lease that ends while its holder is paused.
    first.release().await?;

    // The second holder. `run` extends the lease while the body runs, and drops the body when the
    // lock is lost. The write blocks its thread, so it runs on another one.
    let mut second = lock.acquire("fenced-file").await?;
    println!("the second holder has token {}", second.token());
    let writer = file.clone();
    let outcome = second
        .run(|held| spawn_blocking(move || writer.write(held.token(), "written by the second")))
        .await???;
    println!("  {outcome:?}");
    // `release` fails with `Lost` if the lock was lost before. Then another holder may have
    // written.
    second.release().await?;

    // The first holder continues, and still has its old token. The file refuses the late write.
    println!("the first holder wakes up");
    println!("  {:?}", file.write(old_token, "a late write")?);
    println!("content: {:?}", file.read()?.map(|(_, content)| content));
    Ok(())
}

/// A text file whose first line is the highest token that has written it.
#[derive(Clone)]
struct FencedFile {
    path: PathBuf,
}

/// Result of a write.
#[derive(Debug)]
#[expect(dead_code, reason = "printed with `Debug`")]
enum Outcome {
    /// The content was replaced.
    Written,
    /// A later holder has written. The caller must stop: the lock is no longer its own.
    Refused { fence: FencingToken },
}

impl FencedFile {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Replaces the content, unless a holder with a higher token has written.
    fn write(&self, token: FencingToken, content: &str) -> io::Result<Outcome> {
        // Comparison and write must be one step, or two writers could both pass the comparison. The
        // system releases this lock when the process ends, so it cannot be left behind.
        let guard = File::create(self.path.with_extension("lock"))?;
        guard.lock()?;

        // The same token may write again: its holder retries, or writes several times.
        if let Some((fence, _)) = self.read()?
            && token < fence
        {
            return Ok(Outcome::Refused { fence });
        }

        // Token and content are replaced together. A crash leaves either the old or the new file.
        let unfinished = self.path.with_extension("unfinished");
        fs::write(&unfinished, format!("{token}\n{content}"))?;
        File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        Ok(Outcome::Written)
    }

    /// Token and content, or `None` before the first write.
    fn read(&self) -> io::Result<Option<(FencingToken, String)>> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let token_and_content = text.split_once('\n').and_then(|(token, content)| {
            let token = FencingToken::new(token.parse().ok()?)?;
            Some((token, content.to_owned()))
        });
        token_and_content
            .map(Some)
            .ok_or_else(|| io::Error::other("expected a fencing token in the first line"))
    }
}
