//! Results that are written by hand: a case like those of the catalogue, and one that is hard to
//! draw.

use postmortem::{
    case::{Scenario, Source, VariantInfo},
    measurements::{Measure, Measurements},
    run::{CaseRun, VariantRun},
    timeline::{Doing, Event, Moment, Picture, Span},
};

/// Text that must never become markup.
pub const TRAP: &str = "<script>alert('&amp;')</script>";

fn plain() -> Scenario {
    Scenario {
        title: "Ten bottles, and a `finally` that deletes any lock".into(),
        incident: "A shop sold under a lock, and its lease expired. Every service inside had read \
                   that a bottle was left."
            .into(),
        schedule: "Two services sell; the first is stopped while it holds the lock.".into(),
        remedy: "Check and decrement in one atomic step.".into(),
        sources: vec![
            source("A post", "https://example.org/post?a&b"),
            source("A book, chapter 8", ""),
        ],
    }
}

fn hard() -> Scenario {
    Scenario {
        title: format!("<b>Everything</b> at once & {TRAP}"),
        incident: format!("{TRAP} is the text of `<script>`."),
        schedule: TRAP.into(),
        remedy: TRAP.into(),
        sources: vec![
            source(TRAP, "https://example.org/\"onclick=\"alert(1)"),
            source("A trap", "javascript:alert(1)"),
        ],
    }
}

fn source(name: &str, url: &str) -> Source {
    Source {
        name: name.into(),
        url: url.into(),
    }
}

/// Two cases of four variants each: all verdicts of the first are as expected, one of the second is
/// not.
pub fn runs() -> Vec<CaseRun> {
    let first = vec![
        oversold(VariantInfo::faulty(
            "lock with a lease",
            "SET NX, and finally DEL",
            "it deletes whichever lock it finds",
        )),
        oversold(VariantInfo::does_not_help(
            "compare and delete",
            "deletes only its own lock.",
            "the lease still expires.",
        )),
        VariantRun {
            variant: VariantInfo::holds("atomic script", "one step", "the lock does not matter"),
            measurements: Measurements::new()
                .sold(10, 10)
                .holders(2)
                .stuck(3.25)
                .judge_oversold(),
            picture: lost_lease(false),
            retry_speed: None,
        },
        VariantRun {
            variant: VariantInfo::holds(
                "without a picture",
                "nothing is recorded",
                "nothing happens",
            ),
            measurements: Measurements::new().judge(Measure::LostUpdates, 0, 0),
            picture: Picture {
                end: 3.0,
                ..Picture::default()
            },
            retry_speed: None,
        },
    ];
    let second = vec![
        oversold(VariantInfo::faulty(TRAP, TRAP, TRAP)),
        VariantRun {
            variant: VariantInfo::holds(
                "a remedy that fails, whose name is much longer than the names of others",
                "it is crowded",
                "it is not as expected",
            ),
            measurements: Measurements::new()
                .sold(10, 4)
                .stranded(6)
                .holders(3)
                .judge_stranded()
                .judge(Measure::ZombieWrites, 12, 0),
            picture: crowd(),
            retry_speed: None,
        },
        VariantRun {
            variant: VariantInfo::holds("one moment", "a single sale", "there is no other buyer"),
            measurements: Measurements::new().sold(1, 1).judge_oversold(),
            picture: Picture {
                lanes: vec!["a".into()],
                moments: vec![moment(0, Event::Sale, "x", 5.0)],
                end: 9.0,
                ..Picture::default()
            },
            retry_speed: Some("5".into()),
        },
        VariantRun {
            variant: VariantInfo::does_not_help(
                "one unit, twice",
                "two sales, long after each other",
                "nothing checks it",
            ),
            measurements: Measurements::new().sold(1, 2).judge_oversold(),
            picture: Picture {
                lanes: vec!["b".into()],
                moments: vec![
                    moment(0, Event::Sale, "x", 0.5),
                    moment(0, Event::Harm, "sold again", 30.0),
                ],
                end: 31.0,
                ..Picture::default()
            },
            retry_speed: None,
        },
    ];
    let case = |case, scenario, variants| CaseRun {
        case,
        scenario,
        speed: "20".into(),
        variants,
        skipped: None,
    };
    vec![case("plain", plain(), first), case("hard", hard(), second)]
}

fn oversold(variant: VariantInfo) -> VariantRun {
    let measurements = Measurements::new()
        .sold(10, 12)
        .holders(2)
        .stuck(31.5)
        .judge_oversold()
        .judge_stranded();
    VariantRun {
        variant,
        measurements,
        picture: lost_lease(true),
        retry_speed: None,
    }
}

/// Two services and a server: one lease expires, and two units are sold that do not exist.
fn lost_lease(harm: bool) -> Picture {
    let last = if harm { Event::Harm } else { Event::Refused };
    let lanes = ["redis", "order service 1", TRAP]
        .map(str::to_owned)
        .to_vec();
    let spans = vec![
        span(0, Doing::Down, "restarts", 2.0, Some(4.0), None),
        span(1, Doing::Holding, "buyer-1", 5.0, Some(40.0), Some(15.0)),
        span(1, Doing::Stalled, "stopped", 8.0, Some(38.0), None),
        span(
            2,
            Doing::Waiting,
            "waits for the lock",
            5.0,
            Some(16.0),
            None,
        ),
        span(2, Doing::Holding, TRAP, 16.0, None, Some(26.0)),
    ];
    let mut moments: Vec<_> = (0..10)
        .map(|n| moment(1 + n % 2, Event::Sale, "sold", f64::from(n as u32) * 0.3))
        .collect();
    moments.extend([
        moment(1, Event::Fault, "stopped (SIGSTOP)", 8.0),
        moment(2, last, TRAP, 39.0),
        moment(1, last, "buyer-1: -2 left", 39.2),
        moment(1, Event::Expired, "its lock was gone", 40.0),
    ]);
    let stock = (0..=10_u32)
        .map(|n| (f64::from(n) * 0.3, 10 - i64::from(n)))
        .collect();
    Picture {
        lanes,
        spans,
        moments,
        stock,
        end: 42.0,
    }
}

/// Eight lanes with hundreds of events of every kind, overlapping bars, and stock below zero.
fn crowd() -> Picture {
    const KINDS: [Event; 8] = [
        Event::Write,
        Event::Sale,
        Event::Harm,
        Event::Stolen,
        Event::Expired,
        Event::Refused,
        Event::Fault,
        Event::Note,
    ];
    const LABELS: [&str; 4] = [
        "its lock was gone",
        "token 41 was refused: the store has seen token 42 before",
        "promoted",
        TRAP,
    ];
    let lanes = (0..8)
        .map(|n| format!("an actor with a name that is long, number {n}"))
        .collect();
    let spread = |n: u32, step: f64| (f64::from(n) * step) % 60.0;
    // Most events are close together, as in a rush.
    let rush = (0..600_u32).map(|n| {
        moment(
            n as usize % 8,
            Event::Sale,
            "sold",
            20.0 + f64::from(n) * 0.02,
        )
    });
    let moments = (0..400_u32).map(|n| {
        let (lane, kind) = (n as usize * 5 % 8, KINDS[(n * n / 3) as usize % 8]);
        moment(
            lane,
            if kind == Event::Harm && n % 10 > 0 {
                Event::Sale
            } else {
                kind
            },
            LABELS[n as usize % 4],
            spread(n, 7.3),
        )
    });
    let doings = [
        Doing::Holding,
        Doing::Waiting,
        Doing::Stalled,
        Doing::Working,
        Doing::Down,
    ];
    let spans = (0..120_u32).map(|n| {
        let from = spread(n, 11.9);
        span(
            n as usize % 8,
            doings[n as usize % 5],
            "an activity",
            from,
            Some(from + f64::from(n % 7)),
            Some(from + 2.0),
        )
    });
    let stock = (0..80_u32)
        .map(|n| (f64::from(n) * 0.7, 10 - i64::from(n % 50)))
        .collect();
    Picture {
        lanes,
        spans: spans.collect(),
        moments: moments.chain(rush).collect(),
        stock,
        end: 60.0,
    }
}

fn span(
    lane: usize,
    doing: Doing,
    label: &str,
    from: f64,
    to: Option<f64>,
    valid_until: Option<f64>,
) -> Span {
    Span {
        lane,
        doing,
        label: label.into(),
        from,
        to,
        valid_until,
    }
}

fn moment(lane: usize, event: Event, label: &str, at: f64) -> Moment {
    Moment {
        lane,
        event,
        label: label.into(),
        at,
    }
}
