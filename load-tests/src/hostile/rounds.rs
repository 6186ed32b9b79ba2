//! The rounds of a comparison, the two figures that follow from them, and their table.
//!
//! *Kept* is the rate beside the attack, divided by the rate alone: what a buyer notices where one
//! machine hosts the attackers, too. *Kept of what attackers leave* is the rate beside the attack,
//! divided by the rate beside the same attack on a decoy: what the service itself has lost. Both
//! are ratios of rushes that follow each other, and each is the median of all rounds.
//!
//! The second one is judged. What attackers take from the cores that they share with the service
//! is theirs, and no service can give it back. But an attack that costs more at the decoy than at
//! the service would hide what the service loses, so a decoy that was attacked faster is a finding,
//! too.

use reporting::table::{Table, ruled};

use super::comparison::{Pair, Rush, median};

/// How much faster than the service a decoy may be attacked. Rates of one attack differ that much
/// from rush to rush.
const FASTER_AT_MOST: f64 = 1.1;
/// How much more buyers may have beside the service than beside the decoy, by chance. A decoy that
/// costs more than the service hides what the service loses.
const ABOVE_AT_MOST: f64 = 1.1;

/// Three rushes that follow each other.
pub(super) struct Round {
    /// Alone, and beside the attack on the service.
    pub pair: Pair,
    /// Beside the attack on a decoy.
    pub decoy: Rush,
}

impl Round {
    /// The share of their rate that buyers keep.
    fn kept(&self) -> f64 {
        self.pair.kept()
    }

    /// The share that they keep of the rate that attackers leave.
    fn kept_of_what_attackers_leave(&self) -> f64 {
        self.pair.beside.answers_per_second / self.decoy.answers_per_second
    }

    fn decoy_was_faster(&self) -> bool {
        self.decoy.attacks_per_second > self.pair.beside.attacks_per_second * FASTER_AT_MOST
    }

    fn is_good(&self) -> bool {
        let Pair { alone, beside } = &self.pair;
        alone.is_good && beside.is_good && self.decoy.is_good
    }
}

/// The rounds of one attack.
pub(super) struct Compared {
    pub attack: &'static str,
    pub rounds: Vec<Round>,
}

impl Compared {
    /// Whether every verdict is good.
    pub fn is_good(&self) -> bool {
        self.rounds.iter().all(Round::is_good)
    }

    fn median(&self, value: fn(&Round) -> f64) -> f64 {
        median(&self.rounds, value)
    }

    /// The rates at which the service and the decoy were attacked.
    fn attacks_per_second(&self) -> (f64, f64) {
        (
            self.median(|round| round.pair.beside.attacks_per_second),
            self.median(|round| round.decoy.attacks_per_second),
        )
    }

    fn row(&self) -> Vec<String> {
        let whole = |value: fn(&Round) -> f64| format!("{:.0}", self.median(value));
        let tenths = |value: fn(&Round) -> f64| format!("{:.1}", self.median(value));
        let beside = || self.rounds.iter().map(|round| &round.pair.beside);
        let good = beside().filter(|rush| rush.is_good).count();
        vec![
            self.attack.to_owned(),
            whole(|round| round.pair.beside.answers_per_second),
            whole(|round| round.pair.alone.answers_per_second),
            whole(|round| round.decoy.answers_per_second),
            share(&self.rounds, Round::kept),
            share(&self.rounds, Round::kept_of_what_attackers_leave),
            whole(|round| round.pair.beside.attacks_per_second),
            whole(|round| round.decoy.attacks_per_second),
            tenths(|round| round.pair.beside.latency_ms_p99),
            tenths(|round| round.pair.alone.latency_ms_p99),
            tenths(|round| round.decoy.latency_ms_p99),
            beside().map(|rush| rush.held).sum::<u64>().to_string(),
            format!("{good} of {}", self.rounds.len()),
        ]
    }
}

/// The table of all attacks.
pub(super) fn table(attacks: &[Compared]) -> Table {
    let mut table = ruled([
        "beside",
        "answers/s",
        "alone",
        "decoy",
        "kept",
        "kept of what attackers leave",
        "attacks/s",
        "decoy",
        "p99 ms",
        "alone",
        "decoy",
        "orders held",
        "good verdicts",
    ]);
    for compared in attacks {
        table.add_row(compared.row());
    }
    table
}

/// What is wrong with the figures. Each attack must leave the buyers this share of what attackers
/// leave.
pub(super) fn findings(attacks: &[Compared], keep: f64) -> Vec<String> {
    let mut findings = Vec::new();
    for compared in attacks {
        let attack = compared.attack;
        let kept = compared.median(Round::kept_of_what_attackers_leave);
        let (service, decoy) = compared.attacks_per_second();
        let rates = format!(
            "the decoy was attacked {decoy:.1} times/s and the service {service:.1} times/s"
        );
        if kept < keep {
            findings.push(format!(
                "{attack}: buyers kept {:.1} % of what attackers leave, expected at least {:.1} %; {rates}",
                kept * 100.0,
                keep * 100.0
            ));
        }
        if kept > ABOVE_AT_MOST {
            findings.push(format!(
                "{attack}: buyers had {:.1} % of what they had beside the decoy, so the decoy costs more than the service, and what attackers leave is not known; {rates}",
                kept * 100.0
            ));
        }
        let faster = compared
            .rounds
            .iter()
            .filter(|round| round.decoy_was_faster());
        if decoy > service * FASTER_AT_MOST || faster.count() * 3 > compared.rounds.len() {
            findings.push(format!(
                "{attack}: {rates}, so what attackers leave is not known"
            ));
        }
    }
    findings
}

/// The median of a share in percent, with the lowest and the highest.
fn share(rounds: &[Round], value: fn(&Round) -> f64) -> String {
    let shares = rounds.iter().map(value);
    let lowest = shares.clone().fold(f64::INFINITY, f64::min);
    let highest = shares.fold(f64::NEG_INFINITY, f64::max);
    format!(
        "{:.0} % ({:.0} to {:.0})",
        median(rounds, value) * 100.0,
        lowest * 100.0,
        highest * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::{Compared, Pair, Round, Rush, findings, share, table};

    /// A round with these rates of the buyers: alone, beside the attack, and beside a decoy.
    fn round(alone: f64, beside: f64, decoy: f64) -> Round {
        Round {
            pair: Pair {
                alone: Rush::for_tests(alone, 0.0),
                beside: Rush::for_tests(beside, 1000.0),
            },
            decoy: Rush::for_tests(decoy, 1000.0),
        }
    }

    fn compared(rounds: Vec<Round>) -> Vec<Compared> {
        let attack = "half bodies";
        vec![Compared { attack, rounds }]
    }

    #[test]
    fn each_figure_is_of_the_rushes_of_one_round() {
        // Each round is of a machine that is twice as fast as before.
        let rounds = [
            (100.0, 70.0, 80.0),
            (200.0, 160.0, 160.0),
            (400.0, 360.0, 400.0),
        ];
        let rounds = rounds.map(|(alone, beside, decoy)| round(alone, beside, decoy));
        assert_eq!(share(&rounds, Round::kept), "80 % (70 to 90)");
        assert_eq!(
            share(&rounds, Round::kept_of_what_attackers_leave),
            "90 % (88 to 100)"
        );
    }

    #[test]
    fn the_table_has_both_figures_and_both_rates_of_the_attack() {
        let mut round = round(1000.0, 700.0, 800.0);
        round.decoy.attacks_per_second = 987.0;
        let table = table(&compared(vec![round])).to_string();
        for cell in [
            "half bodies",
            "70 % (70 to 70)",
            "88 % (88 to 88)",
            "987",
            "1 of 1",
        ] {
            assert!(table.contains(cell), "{cell}: {table}");
        }
        let rows = table.lines().filter(|line| line.contains('%')).count();
        assert_eq!(rows, 1, "{table}");
    }

    #[test]
    fn buyers_must_keep_a_share_of_what_attackers_leave_and_not_of_all() {
        let found = |alone, beside, decoy| {
            let compared = compared(vec![round(alone, beside, decoy)]);
            findings(&compared, 0.9).len()
        };
        assert_eq!(found(1000.0, 720.0, 800.0), 0);
        assert_eq!(found(1000.0, 700.0, 800.0), 1);
        assert_eq!(found(1000.0, 890.0, 1000.0), 1);
        assert_eq!(found(850.0, 890.0, 850.0), 0, "chance");
        assert_eq!(found(800.0, 890.0, 800.0), 1, "the decoy costs more");
    }

    #[test]
    fn a_decoy_that_was_attacked_faster_than_the_service_shows_nothing() {
        let found = |service, decoy| {
            let mut round = round(1000.0, 900.0, 900.0);
            round.pair.beside.attacks_per_second = service;
            round.decoy.attacks_per_second = decoy;
            findings(&compared(vec![round]), 0.9).len()
        };
        assert_eq!(found(1000.0, 1050.0), 0);
        assert_eq!(found(1000.0, 1200.0), 1);
        assert_eq!(found(1000.0, 500.0), 0, "it costs the service more");
    }

    #[test]
    fn a_verdict_that_is_not_good_counts_also_beside_a_decoy() {
        assert!(compared(vec![round(1.0, 1.0, 1.0)])[0].is_good());
        let mut round = round(1.0, 1.0, 1.0);
        round.decoy.is_good = false;
        assert!(!compared(vec![round])[0].is_good());
    }
}
