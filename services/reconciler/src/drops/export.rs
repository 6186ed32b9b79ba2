//! The export of a sale that is dropped: a file that is written, read again, and compared.
//!
//! Each row of the ledger is one line of JSON, and the last line has the number of rows and their
//! SHA-256. The file has its name only when it is complete, verified and on disk. Until then its
//! name ends with `.partial`, and nothing of the sale is deleted.

use std::{
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use domain::ItemId;
use jiff::Timestamp;
use ledger::{ExportedRow, Ledger, SaleTable, VerifiedExport};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{
    fs::{self, File, OpenOptions},
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, BufWriter, Lines},
};

use super::{DropError, PAUSE_FACTOR};

/// Rows that one statement reads.
const PAGE: usize = 1_000;

/// Number of rows by table, and the hash of all.
#[derive(Default)]
struct Summary {
    rows: [u64; 4],
    hash: Sha256,
}

impl Summary {
    fn add(&mut self, table: SaleTable, line: &str) {
        self.rows[table as usize] += 1;
        self.hash.update(line);
        self.hash.update("\n");
    }

    fn end(self) -> ([u64; 4], String) {
        let digits = self.hash.finalize();
        let digits = digits.iter().map(|byte| format!("{byte:02x}")).collect();
        (self.rows, digits)
    }
}

/// Writes what the sale has left into a new file of the folder, and verifies it. `None`: nothing is
/// left that has to go.
pub(super) async fn write(
    ledger: &dyn Ledger,
    item: &ItemId,
    folder: &Path,
) -> Result<Option<(PathBuf, VerifiedExport)>, DropError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| DropError::File { path, source }
    };
    fs::create_dir_all(folder).await.map_err(at(folder))?;
    let now = Timestamp::now().as_millisecond();
    let name = format!("{item}-{now}-{}.jsonl", std::process::id());
    let (path, partial) = (folder.join(&name), folder.join(format!("{name}.partial")));
    let written = write_partial(ledger, item, &partial).await;
    let verified = match written {
        Ok((rows, _)) if rows == [0; 4] => Ok(None),
        Ok(written) => verify(&partial, &written).await.map(|()| Some(written)),
        Err(error) => Err(error),
    };
    let Ok(Some((rows, sha256))) = verified else {
        // A partial file is nothing that is needed: the next attempt writes all rows again.
        let _ = fs::remove_file(&partial).await;
        return verified.map(|_| None);
    };
    fs::rename(&partial, &path).await.map_err(at(&path))?;
    let synced = async { File::open(folder).await?.sync_all().await };
    synced.await.map_err(at(folder))?;
    let export = VerifiedExport {
        file: name,
        rows,
        sha256,
    };
    Ok(Some((path, export)))
}

async fn write_partial(
    ledger: &dyn Ledger,
    item: &ItemId,
    path: &Path,
) -> Result<([u64; 4], String), DropError> {
    let failed = |source| DropError::File {
        path: path.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .await
        .map_err(failed)?;
    let (mut file, mut summary) = (BufWriter::new(file), Summary::default());
    for table in SaleTable::ALL {
        let mut after = None;
        loop {
            let started = Instant::now();
            let page = ledger.export_page(item, table, after, PAGE).await?;
            let pause = started.elapsed() * PAUSE_FACTOR;
            for row in &page.rows {
                let line = to_line(table, row);
                summary.add(table, &line);
                file.write_all(line.as_bytes()).await.map_err(failed)?;
                file.write_all(b"\n").await.map_err(failed)?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
            tokio::time::sleep(pause).await;
        }
    }
    let (rows, sha256) = summary.end();
    let end = end_line(item, rows, &sha256);
    let ended = async {
        file.write_all(end.as_bytes()).await?;
        file.flush().await?;
        file.into_inner().sync_all().await
    };
    ended.await.map_err(failed)?;
    Ok((rows, sha256))
}

/// Reads the file as it was written, from its name on.
async fn verify(path: &Path, written: &([u64; 4], String)) -> Result<(), DropError> {
    let (mut reader, mut summary) = (Reader::open(path).await?, Summary::default());
    while let Some((table, row)) = reader.next().await? {
        summary.add(table, &to_line(table, &row));
    }
    if summary.end() != *written {
        return Err(DropError::Differs {
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn to_line(table: SaleTable, row: &ExportedRow) -> String {
    format!(
        r#"{{"table":"{}","key":"{:032x}","row":{}}}"#,
        table.as_str(),
        row.key,
        row.document
    )
}

fn end_line(item: &ItemId, rows: [u64; 4], sha256: &str) -> String {
    let mut counts = json!({});
    for (table, rows) in SaleTable::ALL.into_iter().zip(rows) {
        counts[table.as_str()] = rows.into();
    }
    let end = json!({ "end": { "item": item, "rows": counts, "sha256": sha256 } });
    format!("{end}\n")
}

/// The row of a line. `None`: it is none.
fn from_line(line: &str) -> Option<(SaleTable, ExportedRow)> {
    let rest = line.strip_prefix(r#"{"table":""#)?;
    let (table, rest) = rest.split_once(r#"","key":""#)?;
    let (key, rest) = rest.split_once(r#"","row":"#)?;
    let table = SaleTable::ALL
        .into_iter()
        .find(|one| one.as_str() == table)?;
    let row = ExportedRow {
        key: u128::from_str_radix(key, 16).ok()?,
        document: rest.strip_suffix('}')?.to_owned(),
    };
    Some((table, row))
}

/// The rows of an export.
pub(super) struct Reader {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
}

impl Reader {
    pub(super) async fn open(path: &Path) -> Result<Self, DropError> {
        let opened = File::open(path).await;
        let file = opened.map_err(|source| DropError::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            lines: BufReader::new(file).lines(),
        })
    }

    /// The next row. `None`: this was the last one.
    ///
    /// # Errors
    ///
    /// `DropError::Differs` if a line is no row, or the last line is missing.
    pub(super) async fn next(&mut self) -> Result<Option<(SaleTable, ExportedRow)>, DropError> {
        let line = self.lines.next_line().await;
        let line = line.map_err(|source| match source.kind() {
            // Bytes that are no text.
            io::ErrorKind::InvalidData => self.differs(),
            _ => DropError::File {
                path: self.path.clone(),
                source,
            },
        })?;
        match line {
            Some(line) if line.starts_with(r#"{"end":"#) => Ok(None),
            Some(line) => from_line(&line).map(Some).ok_or_else(|| self.differs()),
            None => Err(self.differs()),
        }
    }

    fn differs(&self) -> DropError {
        DropError::Differs {
            path: self.path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ledger::{ExportedRow, SaleTable};

    use super::{DropError, Reader, Summary, end_line, from_line, to_line, verify};

    fn row(key: u128, document: &str) -> ExportedRow {
        let document = document.into();
        ExportedRow { key, document }
    }

    #[test]
    fn a_line_has_its_row() {
        for (table, row) in [
            (SaleTable::Orders, row(u128::MAX, r#"{"a": {"b": "\"}"}}"#)),
            (SaleTable::Events, row(0, r#"{"row":"x","key":"y"}"#)),
        ] {
            let line = to_line(table, &row);
            assert_eq!(from_line(&line), Some((table, row)));
            assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
        }
        for other in ["", "{}", r#"{"table":"carts","key":"1","row":{}}"#] {
            assert_eq!(from_line(other), None, "{other}");
        }
        for (at, table) in SaleTable::ALL.into_iter().enumerate() {
            assert_eq!(table as usize, at);
        }
    }

    /// A row that is missing, changed, doubled or cut, and a file without its end.
    #[tokio::test]
    async fn a_file_that_differs_from_what_was_read_is_no_export() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vase.jsonl");
        let lines: Vec<_> = (1..4)
            .map(|key| to_line(SaleTable::Orders, &row(key, r#"{"quantity":1}"#)))
            .collect();
        let mut summary = Summary::default();
        lines
            .iter()
            .for_each(|line| summary.add(SaleTable::Orders, line));
        let written = summary.end();
        let end = end_line(&"vase".parse().unwrap(), written.0, &written.1);
        let whole = format!("{}\n{end}", lines.join("\n"));
        std::fs::write(&path, &whole).unwrap();
        verify(&path, &written).await.unwrap();
        let (first, rest) = whole.split_once('\n').unwrap();
        for other in [
            rest.to_owned(),
            format!("{first}\n{whole}"),
            whole.replacen("\"quantity\":1", "\"quantity\":2", 1),
            whole.replacen("\"quantity\":1}}", "\"quan", 1),
            whole.replace(&end, ""),
            String::new(),
        ] {
            std::fs::write(&path, &other).unwrap();
            let verified = verify(&path, &written).await;
            assert!(
                matches!(verified, Err(DropError::Differs { .. })),
                "{other}"
            );
        }
        assert!(Reader::open(&folder.path().join("none")).await.is_err());
    }
}
