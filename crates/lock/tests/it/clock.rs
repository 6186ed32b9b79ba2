//! A server whose wall clock jumps by a minute.
//!
//! The clock is bent by a small library that goes in front of libc: it adds the milliseconds in the file that `CLOCK_FILE` names, which it
//! has mapped into memory, to every answer. Monotonic clocks are left alone. It is compiled by the test.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use lock::{Answer, Exclusion, LockError, Standing};
use testbed::Redis;

use crate::site::{count, is_everywhere, redlock, refused};

const MINUTE_MS: i64 = 60_000;

const SHIM: &str = r#"
use std::{ffi::{c_char, c_int, c_long, c_void}, sync::atomic::{AtomicI64, AtomicPtr, Ordering::Relaxed}};
#[repr(C)] pub struct Time { seconds: i64, fraction: i64 }
unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
}
static OFFSET: AtomicPtr<AtomicI64> = AtomicPtr::new(std::ptr::null_mut());
unsafe fn offset_ms() -> i64 { unsafe {
    if OFFSET.load(Relaxed).is_null() {
        let path = getenv(c"CLOCK_FILE".as_ptr());
        if path.is_null() { return 0; }
        let file = open(path, 0);
        if file < 0 { return 0; }
        OFFSET.store(mmap(std::ptr::null_mut(), 8, 1, 1, file, 0).cast(), Relaxed);
    }
    (*OFFSET.load(Relaxed)).load(Relaxed)
} }
#[cfg(target_arch = "x86_64")] const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")] const CLOCK_GETTIME: c_long = 113;
#[unsafe(no_mangle)] pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int { unsafe {
    let result = syscall(CLOCK_GETTIME, clock as c_long, time);
    // CLOCK_REALTIME and CLOCK_REALTIME_COARSE
    if result == 0 && (clock == 0 || clock == 5) {
        let ns = (*time).fraction + offset_ms() * 1_000_000;
        (*time).seconds += ns.div_euclid(1_000_000_000);
        (*time).fraction = ns.rem_euclid(1_000_000_000);
    }
    result as c_int
} }
#[unsafe(no_mangle)] pub unsafe extern "C" fn gettimeofday(time: *mut Time, _zone: *mut c_void) -> c_int { unsafe {
    let result = clock_gettime(0, time);
    (*time).fraction /= 1000;
    result
} }
#[unsafe(no_mangle)] pub unsafe extern "C" fn time(at: *mut i64) -> i64 { unsafe {
    let mut now = Time { seconds: 0, fraction: 0 };
    clock_gettime(0, &mut now);
    if !at.is_null() { *at = now.seconds; }
    now.seconds
} }
"#;

fn compile(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shim.rs"), folder.join("libshim.so"));
    fs::write(&source, SHIM).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "-O", "-C", "panic=abort", "--crate-type", "cdylib", "-o"])
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

async fn bent(library: &Path, clock: &Path) -> Redis {
    let builder = Redis::builder().env("LD_PRELOAD", library.to_str().unwrap()).env("CLOCK_FILE", clock.to_str().unwrap());
    builder.start().await.unwrap()
}

/// In place: the servers have the file in their memory.
fn jump(clock: &Path, by_ms: i64) {
    OpenOptions::new().write(true).open(clock).unwrap().write_all(&by_ms.to_le_bytes()).unwrap();
}

#[tokio::test]
async fn nodes_whose_clock_jumps_do_not_vote_and_nobody_gets_a_lock_that_is_held() {
    let folder = std::env::temp_dir().join(format!("lock-clock-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let library = compile(&folder);
    let clock = folder.join("clock");
    fs::write(&clock, 0_i64.to_le_bytes()).unwrap();
    let servers = [Redis::start().await.unwrap(), bent(&library, &clock).await, bent(&library, &clock).await];
    let (holder, other) = (redlock(&servers).await, redlock(&servers).await);
    let mut guard = holder.acquire("clock").await.unwrap();
    is_everywhere(&servers, "clock").await;

    jump(&clock, MINUTE_MS);
    // On two of three nodes the lock has expired a minute early. Who has seen their clocks before does not believe them.
    let error = refused(other.try_acquire("clock").await);
    let jumped =
        |answer: &Answer| matches!(answer, Answer::NotVoting(Exclusion::ClockJumped { by_ms, .. }) if (59_000..61_000).contains(by_ms));
    assert!(count(&error, jumped) >= 1, "{error}");
    let error = guard.extend().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(matches!(holder.status().await[1].standing, Standing::Excluded(Exclusion::ClockJumped { .. })));

    let next = other.acquire_within("clock", Duration::from_secs(10)).await.unwrap();
    assert!(next.token() > guard.token());
    drop(next);
    jump(&clock, -MINUTE_MS);
    let error = refused(other.try_acquire("clock backwards").await);
    assert_eq!(
        count(&error, |answer| matches!(answer, Answer::NotVoting(Exclusion::ClockJumped { by_ms, .. }) if *by_ms < 0)),
        2,
        "{error}"
    );
    fs::remove_dir_all(&folder).unwrap();
}
