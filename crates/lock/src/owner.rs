//! The owner of a lock, as the servers store it.

/// 192 random bits.
pub(crate) fn unique() -> String {
    let bits: [u64; 3] = rand::random();
    bits.iter().map(|bits| format!("{bits:016x}")).collect()
}
