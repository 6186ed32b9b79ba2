//! What may become of the answer that a segment keeps for an id: the table that every model of a
//! segment, and the Lua, have to agree with.
//!
//! `differential.rs` sees to it that random sequences on a real server take every row of it and
//! nothing else; a model that is checked exhaustively may hold its own steps against it as well.
//! Two steps are not in it, because they may write anything: `restore_orders`, which writes what
//! the ledger has, and the loss of the keys.

/// The kind of an answer: the letter that it begins with in Redis. `-` is none.
pub type Kind = char;

/// Script, answer before, answer after.
pub const TRANSITIONS: [(&str, Kind, Kind); 18] = [
    ("reserve_home", '-', 'T'),
    ("reserve_home", '-', 'D'),
    ("reserve_home", '-', 'S'),
    ("reserve_next", '-', 'T'),
    ("reserve_next", '-', 'D'),
    ("reserve_again", 'D', 'T'),
    ("reserve_again", '-', 'T'),
    ("reserve_again", '-', 'D'),
    ("finish_spillover", 'D', 'N'),
    ("finish_spillover", 'D', 'S'),
    ("finish_spillover", 'D', 'E'),
    ("reopen_spillover", 'N', 'D'),
    ("forget_declined", 'D', '-'),
    ("forget_spillover", 'S', '-'),
    ("forget_spillover", 'N', '-'),
    ("release_count", 'E', 'R'),
    ("release_count", 'D', 'R'),
    ("release", 'T', 'R'),
];
