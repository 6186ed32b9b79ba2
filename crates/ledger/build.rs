//! `sqlx::migrate!` embeds the migrations while compiling; without this a new file would go unnoticed.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
