//! Embeds the migrations: a list of `(version, description, SQL)` for each database.
//!
//! `sqlx::migrate!` would do it, but sqlx's macros build both database drivers a second time.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../../migrations");
    let migrations = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../migrations");
    let mut code = String::new();
    for (name, folder) in [("POSTGRES", "postgres"), ("SQLITE", "sqlite")] {
        writeln!(code, "const {name}: &[File] = &[")?;
        for (version, description, path) in files(&migrations.join(folder))? {
            writeln!(
                code,
                "    ({version}, {description:?}, include_str!({path:?})),"
            )?;
        }
        writeln!(code, "];")?;
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("migrations.rs"), code)?;
    Ok(())
}

/// Version, description and path.
type Migration = (i64, String, PathBuf);

/// The files `VERSION_DESCRIPTION.sql` of a folder, as sqlx names them.
fn files(folder: &Path) -> Result<Vec<Migration>, Box<dyn Error>> {
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
