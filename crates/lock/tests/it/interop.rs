//! Other libraries on the same nodes: they exclude us and we them.
//!
//! `peers` has what each library sends, and where that was read; rslock is here in person as well.

mod peers;
mod raw;
mod rslock;
