//! What was played, made by hand: a case like those of the catalogue, and one that makes it hard to draw.

use postmortem::{
    case::{Story, Way},
    evidence::{Evidence, Measure},
    run::{Played, PlayedWay},
    timeline::{Doing, Event, Moment, Picture, Span},
};

/// Nobody may ever see this as anything but text.
pub const TRAP: &str = "<script>alert('&amp;')</script>";

const TOLD: Story = Story {
    title: "Ten bottles, and a `finally` that deletes any lock",
    told: "A shop sold under a lock, and the lock ran out. Everybody inside had read that a bottle was left.",
    sources: &[
        ("A post", "https://example.org/post?a&b"),
        ("A book, chapter 8", ""),
    ],
    schedule: "Two services sell; the first is stopped while it has the lock.",
    instead: "Let one atomic step check and decrement.",
};

const HARD: Story = Story {
    title: "<b>Everything</b> at once & <script>alert('&amp;')</script>",
    told: "<script>alert('&amp;')</script> is what `<script>` tells.",
    sources: &[
        (
            "<script>alert('&amp;')</script>",
            "https://example.org/\"onclick=\"alert(1)",
        ),
        ("A trap", "javascript:alert(1)"),
    ],
    schedule: "<script>alert('&amp;')</script>",
    instead: "<script>alert('&amp;')</script>",
};

/// Two cases: four ways, as told, and three, one of them not.
pub fn played() -> Vec<Played> {
    let told = vec![
        oversold(Way::faulty(
            "the lock of the story",
            "SET NX, and finally DEL",
            "it frees whatever lock is there",
        )),
        oversold(Way::does_not_help(
            "compare and delete",
            "deletes only its own lock.",
            "it runs out all the same.",
        )),
        PlayedWay {
            way: Way::holds("atomic script", "one step", "the lock does not matter"),
            evidence: Evidence::new()
                .sold(10, 10)
                .holders(2)
                .stuck(3.25)
                .judge_oversold(),
            picture: story(false),
            again_at: None,
        },
        PlayedWay {
            way: Way::holds("without a picture", "nothing is noted", "nothing happens"),
            evidence: Evidence::new().judge(Measure::LostUpdates, 0, 0),
            picture: Picture {
                end: 3.0,
                ..Picture::default()
            },
            again_at: None,
        },
    ];
    let hard = vec![
        oversold(Way::faulty(TRAP, TRAP, TRAP)),
        PlayedWay {
            way: Way::holds(
                "a remedy that fails, whose name is much longer than the names of others",
                "it is crowded",
                "it is not as told",
            ),
            evidence: Evidence::new()
                .sold(10, 4)
                .stranded(6)
                .holders(3)
                .judge_stranded()
                .judge(Measure::ZombieWrites, 12, 0),
            picture: crowd(),
            again_at: None,
        },
        PlayedWay {
            way: Way::holds("one moment", "a single sale", "nobody else is there"),
            evidence: Evidence::new().sold(1, 1).judge_oversold(),
            picture: Picture {
                lanes: vec!["a".into()],
                moments: vec![moment(0, Event::Sale, "x", 5.0)],
                end: 9.0,
                ..Picture::default()
            },
            again_at: Some("5".into()),
        },
        PlayedWay {
            way: Way::does_not_help(
                "one unit, twice",
                "two sales, long after each other",
                "nobody looks",
            ),
            evidence: Evidence::new().sold(1, 2).judge_oversold(),
            picture: Picture {
                lanes: vec!["b".into()],
                moments: vec![
                    moment(0, Event::Sale, "x", 0.5),
                    moment(0, Event::Harm, "sold once more", 30.0),
                ],
                end: 31.0,
                ..Picture::default()
            },
            again_at: None,
        },
    ];
    let case = |case, story, ways| Played {
        case,
        story,
        speed: "20".into(),
        ways,
    };
    vec![case("told", TOLD, told), case("hard", HARD, hard)]
}

fn oversold(way: Way) -> PlayedWay {
    let evidence = Evidence::new()
        .sold(10, 12)
        .holders(2)
        .stuck(31.5)
        .judge_oversold()
        .judge_stranded();
    PlayedWay {
        way,
        evidence,
        picture: story(true),
        again_at: None,
    }
}

/// Two services and a server: one lock runs out, and two units are sold that do not exist.
fn story(harm: bool) -> Picture {
    let last = if harm { Event::Harm } else { Event::Refused };
    let lanes = ["redis", "order service 1", TRAP]
        .map(str::to_owned)
        .to_vec();
    let spans = vec![
        span(0, Doing::Down, "restarts", 2.0, Some(4.0), None),
        span(1, Doing::Holding, "buyer-1", 5.0, Some(40.0), Some(15.0)),
        span(1, Doing::Stalled, "stopped", 8.0, Some(38.0), None),
        span(2, Doing::Waiting, "wants the lock", 5.0, Some(16.0), None),
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

/// Eight lanes with hundreds of moments of every kind, spans that overlap, and stock below zero.
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
    const SAID: [&str; 4] = [
        "its lock was gone",
        "token 41 was refused: the store has seen token 42 before",
        "promoted",
        TRAP,
    ];
    let lanes = (0..8)
        .map(|n| format!("an actor with a name that is long, number {n}"))
        .collect();
    let spread = |n: u32, step: f64| (f64::from(n) * step) % 60.0;
    // Most come together, as those of a rush do.
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
            SAID[n as usize % 4],
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
            "at something",
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
