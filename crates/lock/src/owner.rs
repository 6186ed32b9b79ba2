//! Who has a lock, as it is written down on a server.

/// 192 random bits.
pub(crate) fn unique() -> String {
    let bits: [u64; 3] = rand::random();
    bits.iter().map(|bits| format!("{bits:016x}")).collect()
}
