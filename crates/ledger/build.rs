//! Embeds what the ledger keeps in SQL files: the migrations, and its statements.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed=../../migrations");
    let migrations = migrations(&package.join("../../migrations"))?;
    fs::write(out.join("migrations.rs"), migrations)?;
    println!("cargo:rerun-if-changed=sql");
    let [postgres, sqlite] = ["postgres", "sqlite"].map(|name| Database::read(&package, name));
    let (postgres, sqlite) = (postgres?, sqlite?);
    postgres.check_twins(&sqlite)?;
    sqlite.check_twins(&postgres)?;
    for database in [postgres, sqlite] {
        let file = out.join(format!("sql_{}.rs", database.name));
        fs::write(file, database.code()?)?;
    }
    Ok(())
}

/// A list of `(version, description, SQL)` for each database.
///
/// `sqlx::migrate!` would do it, but sqlx's macros build both database drivers a second time.
fn migrations(folder: &Path) -> Result<String, Failure> {
    let mut code = String::new();
    for (name, database) in [("POSTGRES", "postgres"), ("SQLITE", "sqlite")] {
        writeln!(code, "const {name}: &[File] = &[")?;
        for (version, description, path) in files(&folder.join(database))? {
            writeln!(
                code,
                "    ({version}, {description:?}, include_str!({path:?})),"
            )?;
        }
        writeln!(code, "];")?;
    }
    Ok(code)
}

/// Version, description and path.
type Migration = (i64, String, PathBuf);

/// The files `VERSION_DESCRIPTION.sql` of a folder, as sqlx names them.
fn files(folder: &Path) -> Result<Vec<Migration>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let parts = name.and_then(|name| name.strip_suffix(".sql")?.split_once('_'));
        let (version, description) =
            parts.ok_or_else(|| format!("{}: expected VERSION_NAME.sql", path.display()))?;
        files.push((
            version.parse()?,
            description.replace('_', " "),
            path.clone(),
        ));
    }
    files.sort();
    Ok(files)
}

/// The statements of one database, in files `sql/DATABASE/NAME.sql`.
///
/// Each file becomes a module of the same name, and each statement a constant in it. The Rust that
/// executes them is the same for both databases, so both have the same statements.
struct Database {
    name: &'static str,
    files: Vec<StatementFile>,
}

impl Database {
    fn read(package: &Path, name: &'static str) -> Result<Self, Failure> {
        let folder = package.join("sql").join(name);
        let entries = fs::read_dir(&folder).map_err(|error| wrong(&folder, &error))?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry?.path());
        }
        paths.sort();
        let files = paths.into_iter().map(StatementFile::read);
        Ok(Self {
            name,
            files: files.collect::<Result<_, _>>()?,
        })
    }

    /// The other database has each file of this one, unless the file is apart, and each statement.
    fn check_twins(&self, other: &Self) -> Result<(), Failure> {
        for file in self.files.iter().filter(|file| !file.is_apart) {
            let mut twins = other.files.iter().filter(|twin| !twin.is_apart);
            let twin = twins.find(|twin| twin.module == file.module);
            let twin = twin.ok_or_else(|| {
                let lacks = format!("{} has no such file; is this one `-- apart`?", other.name);
                wrong(&file.path, &lacks)
            })?;
            for statement in file.statements() {
                if !twin.statements().any(|known| known.name == statement.name) {
                    let lacks = format!("{} lacks {}", twin.path.display(), statement.name);
                    return Err(file.wrong(statement.line, &lacks));
                }
            }
        }
        Ok(())
    }

    fn code(&self) -> Result<String, Failure> {
        let mut code = String::new();
        for file in &self.files {
            writeln!(code, "pub(super) mod {} {{", file.module)?;
            for statement in file.statements() {
                let mut parts = Vec::new();
                file.expand(statement, &mut Vec::new(), &mut parts)?;
                let text = match parts.as_slice() {
                    [part] => part.clone(),
                    _ => format!("concat!({})", parts.join(", ")),
                };
                writeln!(
                    code,
                    "    pub(in crate::{}) const {}: &str = {text};",
                    self.name, statement.name
                )?;
            }
            writeln!(code, "}}")?;
        }
        self.list(&mut code)?;
        Ok(code)
    }

    /// Every statement with its name: tests look at the plan of each.
    fn list(&self, code: &mut String) -> Result<(), Failure> {
        writeln!(code, "#[cfg(test)]")?;
        writeln!(code, "pub(super) const ALL: &[(&str, &str)] = &[")?;
        for file in &self.files {
            for statement in file.statements() {
                let place = format!("{}::{}", file.module, statement.name);
                writeln!(code, "    ({place:?}, {place}),")?;
            }
        }
        writeln!(code, "];")?;
        Ok(())
    }
}

/// A file of statements.
struct StatementFile {
    path: PathBuf,
    module: String,
    /// Whether the Rust that executes it is of one database only: it begins with `-- apart`. The
    /// other may have a file of this name, with statements of its own.
    is_apart: bool,
    pieces: Vec<Piece>,
}

/// A statement, which begins with `-- name: NAME`, or a fragment of statements, which begins with
/// `-- fragment: NAME`.
struct Piece {
    name: String,
    is_fragment: bool,
    line: usize,
    sql: String,
}

impl StatementFile {
    fn read(path: PathBuf) -> Result<Self, Failure> {
        let name = path.file_name().and_then(|name| name.to_str());
        let module = name.and_then(|name| name.strip_suffix(".sql"));
        let module = module.filter(|name| is_name(name, |c| c.is_ascii_lowercase()));
        let module = module.ok_or_else(|| wrong(&path, &"expected a file lower_case.sql"))?;
        let text = fs::read_to_string(&path).map_err(|error| wrong(&path, &error))?;
        let mut file = Self {
            module: module.to_owned(),
            path,
            is_apart: text.lines().next() == Some("-- apart"),
            pieces: Vec::new(),
        };
        for (number, line) in (1..).zip(text.lines()) {
            file.add(number, line.trim())?;
        }
        let empty = file.pieces.iter().find(|piece| piece.sql.is_empty());
        if let Some(empty) = empty {
            return Err(file.wrong(empty.line, &format!("{} has no SQL", empty.name)));
        }
        Ok(file)
    }

    /// Comments and the ends of lines give reasons and shape to the file. No database needs them.
    fn add(&mut self, number: usize, line: &str) -> Result<(), Failure> {
        for (heading, is_fragment) in [("-- name:", false), ("-- fragment:", true)] {
            if let Some(name) = line.strip_prefix(heading) {
                return self.begin(number, name.trim(), is_fragment);
            }
        }
        if line.is_empty() || line.starts_with("--") {
            return Ok(());
        }
        if line.contains("--") {
            return Err(self.wrong(number, "a comment needs a line of its own"));
        }
        let Some(piece) = self.pieces.last_mut() else {
            return Err(self.wrong(number, "SQL before the first `-- name:`"));
        };
        if !piece.sql.is_empty() {
            piece.sql.push(' ');
        }
        piece.sql.push_str(line);
        Ok(())
    }

    fn begin(&mut self, line: usize, name: &str, is_fragment: bool) -> Result<(), Failure> {
        if !is_name(name, |c| c.is_ascii_uppercase()) {
            return Err(self.wrong(line, &format!("{name:?} is not a NAME_IN_CAPITALS")));
        }
        if let Some(known) = self.pieces.iter().find(|piece| piece.name == name) {
            let twice = format!("{name} stands in line {}, too", known.line);
            return Err(self.wrong(line, &twice));
        }
        self.pieces.push(Piece {
            name: name.to_owned(),
            is_fragment,
            line,
            sql: String::new(),
        });
        Ok(())
    }

    fn statements(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| !piece.is_fragment)
    }

    /// Appends the arguments of `concat!` that make up a piece. `within`: the pieces that use it.
    fn expand<'f>(
        &'f self,
        piece: &'f Piece,
        within: &mut Vec<&'f str>,
        parts: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if within.contains(&piece.name.as_str()) {
            return Err(self.wrong(piece.line, &format!("{} contains itself", piece.name)));
        }
        within.push(&piece.name);
        let mut rest = piece.sql.as_str();
        while let Some((before, name, after)) = placeholder(rest) {
            add_literal(before, parts);
            if name.ends_with('!') {
                parts.push(format!("{name}()"));
            } else {
                let mut fragments = self.pieces.iter().filter(|piece| piece.is_fragment);
                let fragment = fragments.find(|fragment| fragment.name == name);
                let fragment = fragment.ok_or_else(|| {
                    let unknown = format!("{} uses an unknown fragment {name}", piece.name);
                    self.wrong(piece.line, &unknown)
                })?;
                self.expand(fragment, within, parts)?;
            }
            rest = after;
        }
        add_literal(rest, parts);
        within.pop();
        Ok(())
    }

    fn wrong(&self, line: usize, what: &str) -> Failure {
        format!("{}:{line}: {what}", self.path.display()).into()
    }
}

fn wrong(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    format!("{}: {what}", path.display()).into()
}

fn add_literal(text: &str, parts: &mut Vec<String>) {
    if !text.is_empty() {
        parts.push(format!("{text:?}"));
    }
}

fn is_name(text: &str, is_letter: impl Fn(char) -> bool) -> bool {
    text.starts_with(&is_letter)
        && text
            .chars()
            .all(|c| is_letter(c) || c.is_ascii_digit() || c == '_')
}

/// The first `{FRAGMENT}` or `{macro!}`, with the text before it and behind it. Other braces belong
/// to the SQL.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    for (open, _) in text.match_indices('{') {
        let inner = &text[open + 1..];
        let close = inner.find('}')?;
        let name = &inner[..close];
        let word = name.strip_suffix('!').unwrap_or(name);
        if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic() || c == '_') {
            return Some((&text[..open], name, &inner[close + 1..]));
        }
    }
    None
}
