//! Random sequences of everything that can happen to a segment, on a real server and on a model in
//! Rust, which have to agree on every reply and at the end on every key.
//!
//! `model.rs` checks the *protocol* in every interleaving, with scripts that are as small as it
//! allows: whether an order can take twice. Here the *scripts* are checked, with everything that
//! they carry: quantities, batches, limits, windows, tokens, entries, refusals. The two meet in
//! `transitions.rs`, the table of what may become of an answer: the sequences have to take each of
//! its rows, and no other.
//!
//! | file | is |
//! |---|---|
//! | `plan` | what is tried: steps without times and ids, which shrink |
//! | `play` | a plan, made into calls and played on both |
//! | `call` | one call with all that it carries, and its form on the wire |
//! | `segment` | the model: the headers of `lua/`, in Rust |
//! | `compare` | every key, on both sides |
//! | `reply` | a reply, from a server or from the model |
//!
//! `STOCKADE_SEQUENCES` says how many (`make soak` plays many more), and `STOCKADE_SEED` where to
//! begin: a failure says which.

mod call;
mod compare;
mod plan;
mod play;
mod reply;
mod segment;

use std::{
    cell::RefCell,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use testbed::{AppendFsync, Redis};

use self::{
    plan::plan,
    play::{Player, Tally},
};
use crate::transitions::TRANSITIONS;

const SEQUENCES: u64 = 10_000;
/// Sequences of one seed. The next ones have the next seed, in whichever thread.
const BLOCK: u64 = 50;
/// Several, because each waits for the server most of the time.
const PLAYERS: u64 = 6;

/// What is left to play, and what came out so far.
struct Match {
    seed: u64,
    sequences: u64,
    begun: AtomicU64,
    failed: AtomicBool,
    tally: Mutex<Tally>,
    difference: Mutex<Option<String>>,
}

impl Match {
    fn new(seed: u64, sequences: u64) -> Self {
        let (begun, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            seed,
            sequences,
            begun,
            failed,
            tally: Mutex::default(),
            difference: Mutex::default(),
        }
    }

    /// Plays until nothing is left.
    fn play(&self, player: Player) {
        let player = RefCell::new(player);
        while !self.failed.load(Ordering::Relaxed) {
            let block = self.begun.fetch_add(1, Ordering::Relaxed);
            let left = self.sequences.saturating_sub(block * BLOCK);
            if left == 0 {
                break;
            }
            self.play_block(self.seed.wrapping_add(block), left.min(BLOCK), &player);
        }
        self.tally.lock().unwrap().add(player.into_inner().tally);
    }

    fn play_block(&self, seed: u64, sequences: u64, player: &RefCell<Player>) {
        let cases = sequences.try_into().unwrap();
        let config = Config {
            cases,
            max_shrink_iters: 4000,
            failure_persistence: None,
            ..Config::default()
        };
        let played = TestRunner::new_with_rng(config, rng(seed)).run(&plan(), |plan| {
            player.borrow_mut().play(&plan).map_err(TestCaseError::fail)
        });
        if let Err(error) = played {
            self.failed.store(true, Ordering::Relaxed);
            let repeat = format!("STOCKADE_SEED={seed} STOCKADE_SEQUENCES={BLOCK} plays it again");
            let difference = match error {
                TestError::Fail(reason, plan) => {
                    format!("{repeat}\n{plan:#?}\n{}", reason.message())
                }
                TestError::Abort(reason) => format!("{repeat}\n{}", reason.message()),
            };
            self.difference.lock().unwrap().get_or_insert(difference);
        }
    }
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: expected a whole number, found {text:?}")),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scripts_and_their_model_agree_on_every_sequence() {
    let server = Redis::builder()
        .appendfsync(AppendFsync::No)
        .start()
        .await
        .unwrap();
    let (seed, sequences) = (
        number("STOCKADE_SEED").unwrap_or_else(rand::random),
        number("STOCKADE_SEQUENCES").unwrap_or(SEQUENCES),
    );
    println!("STOCKADE_SEED={seed} STOCKADE_SEQUENCES={sequences}");
    let (played, begin) = (Match::new(seed, sequences), Instant::now());
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            for number in 0..PLAYERS {
                let player = Player::new(&server.url(), format!("item-{number}"));
                scope.spawn(|| played.play(player));
            }
        });
    });
    let (tally, seconds) = (
        played.tally.into_inner().unwrap(),
        begin.elapsed().as_secs_f64(),
    );
    println!(
        "{} sequences, {} calls, {seconds:.1} s",
        tally.sequences, tally.calls
    );
    if let Some(difference) = played.difference.into_inner().unwrap() {
        panic!("{difference}");
    }
    assert_eq!(tally.sequences, sequences);
    everything_happened(&tally);
}

/// Sequences that never reach a refusal or a transition say nothing about it. A few of them need
/// not reach all.
fn everything_happened(tally: &Tally) {
    let table = TRANSITIONS.into();
    assert!(
        tally.transitions.is_subset(&table),
        "not in the table: {:?}",
        tally.transitions.difference(&table)
    );
    if tally.sequences >= 1000 {
        let missing: Vec<_> = table.difference(&tally.transitions).collect();
        assert!(missing.is_empty(), "no sequence took {missing:?}");
        let statuses = call::SCRIPTS.iter().flat_map(|(script, source, _)| {
            statuses(source).into_iter().map(|status| (*script, status))
        });
        let missing: Vec<_> = statuses
            .filter(|status| !tally.statuses.contains(status))
            .collect();
        assert!(missing.is_empty(), "no call was answered {missing:?}");
    }
}

/// Every `{'status', ...}` that the code returns, or fills and returns in the end.
fn statuses(source: &str) -> Vec<String> {
    ["return {'", "local reply = {'"]
        .iter()
        .flat_map(|begin| source.split(begin).skip(1))
        .map(|rest| rest.split('\'').next().unwrap().to_owned())
        .collect()
}
