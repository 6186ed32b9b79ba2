//! Which buyers a crowd consists of.

use std::{collections::BTreeSet, fmt, str::FromStr};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    buyers::{self, Kind},
    scenario::{self, Scenario, Shelf},
    scenarios::RUSH,
};

/// Scenarios with their weights.
#[derive(Debug, Clone)]
pub struct Mix {
    scenarios: Vec<(u32, &'static Scenario)>,
}

impl Mix {
    /// One scenario alone.
    pub fn of(scenario: &'static Scenario) -> Self {
        Self {
            scenarios: vec![(1, scenario)],
        }
    }

    /// What a run of it is called.
    pub fn name(&self) -> &'static str {
        match self.scenarios.as_slice() {
            [(_, scenario)] => scenario.name,
            _ => "mix",
        }
    }

    /// The scenarios.
    pub fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        self.scenarios.iter().map(|(_, scenario)| *scenario)
    }

    /// Whether the run has shown nothing if no unit came back and was bought again. In a mix others take their share of the requests, and it need not
    /// come to that.
    pub fn must_resell(&self) -> bool {
        matches!(self.scenarios.as_slice(), [(_, scenario)] if scenario.must_resell)
    }

    /// Where their items stand.
    pub fn shelves(&self) -> BTreeSet<Shelf> {
        self.scenarios().map(|scenario| scenario.shelf).collect()
    }

    /// The buyer that these dice say, and why the buyer comes.
    pub fn pick(&self, dice: u64) -> (&'static Scenario, &'static Kind) {
        let total: u64 = self.kinds().map(|(weight, ..)| weight).sum();
        let mut roll = dice % total.max(1);
        for (weight, scenario, kind) in self.kinds() {
            match roll.checked_sub(weight) {
                Some(rest) => roll = rest,
                None => return (scenario, kind),
            }
        }
        // Only an empty mix comes here.
        (&RUSH, &buyers::ONE_UNIT)
    }

    fn kinds(&self) -> impl Iterator<Item = (u64, &'static Scenario, &'static Kind)> {
        let of = |(weight, scenario): &(u32, &'static Scenario)| {
            let (weight, scenario) = (u64::from(*weight), *scenario);
            scenario.kinds.iter().map(move |(of_a_hundred, kind)| {
                (weight * u64::from(*of_a_hundred), scenario, kind)
            })
        };
        self.scenarios.iter().flat_map(of)
    }
}

impl FromStr for Mix {
    type Err = String;

    /// `rush=60,returns=40`; a name alone weighs 1.
    fn from_str(text: &str) -> Result<Self, String> {
        let scenarios = text
            .split(',')
            .map(weighted)
            .collect::<Result<Vec<_>, _>>()?;
        let names: BTreeSet<_> = scenarios
            .iter()
            .map(|(_, scenario)| scenario.name)
            .collect();
        if names.len() < scenarios.len() {
            return Err(format!("expected each scenario once, found {text:?}"));
        }
        let scenarios: Vec<_> = scenarios
            .into_iter()
            .filter(|(weight, _)| *weight > 0)
            .collect();
        if scenarios.is_empty() {
            Err("expected a weight above 0".into())
        } else {
            Ok(Self { scenarios })
        }
    }
}

fn weighted(part: &str) -> Result<(u32, &'static Scenario), String> {
    let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
    let scenario = scenario::named(name.trim()).ok_or_else(|| {
        let names: Vec<_> = scenario::ALL.iter().map(|scenario| scenario.name).collect();
        format!(
            "expected a scenario ({}), found {:?}",
            names.join(", "),
            name.trim()
        )
    })?;
    match weight.trim().parse() {
        Ok(weight @ 0..=1_000_000) => Ok((weight, scenario)),
        _ => Err(format!(
            "expected a weight from 0 to 1000000 for {name}, found {weight:?}"
        )),
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (weight, scenario)) in self.scenarios.iter().enumerate() {
            let kinds: Vec<_> = scenario
                .kinds
                .iter()
                .map(|(weight, kind)| format!("{weight} {}", kind.name))
                .collect();
            let between = if at == 0 { "" } else { "; " };
            write!(
                f,
                "{between}{weight} x {} ({})",
                scenario.name,
                kinds.join(", ")
            )?;
        }
        Ok(())
    }
}

/// The dice of a visit: the same for the same seed, whoever throws them and when.
pub fn dice(seed: u64, visit: u64) -> u64 {
    xxh3_64_with_seed(&visit.to_le_bytes(), seed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Mix, dice};
    use crate::{
        scenario::Shelf,
        scenarios::{RETURNS, RUSH},
    };

    fn deal(mix: &Mix, seed: u64, visits: u64) -> Vec<(&'static str, &'static str)> {
        let names = |visit| {
            let (scenario, kind) = mix.pick(dice(seed, visit));
            (scenario.name, kind.name)
        };
        (0..visits).map(names).collect()
    }

    #[test]
    fn a_seed_deals_the_same_crowd_again_and_another_seed_another() {
        let mix = Mix::of(&RUSH);
        assert_eq!(deal(&mix, 1, 1_000), deal(&mix, 1, 1_000));
        assert_ne!(deal(&mix, 1, 1_000), deal(&mix, 2, 1_000));
    }

    #[test]
    fn every_kind_comes_as_often_as_its_weight_says() {
        let mut counts = BTreeMap::<_, i64>::new();
        for (_, kind) in deal(&Mix::of(&RUSH), 7, 100_000) {
            *counts.entry(kind).or_default() += 1;
        }
        for (name, expected) in [
            ("one unit", 65_000),
            ("repeats", 15_000),
            ("two units", 10_000),
            ("over the limit", 10_000),
        ] {
            assert!(
                (counts[name] - expected).abs() < 1_000,
                "{name}: {counts:?}"
            );
        }
    }

    #[test]
    fn every_scenario_comes_as_often_as_its_weight_says() {
        let mix: Mix = "rush=60, returns=20,whole-life=20,retry-storm=0"
            .parse()
            .unwrap();
        let mut counts = BTreeMap::<_, i64>::new();
        for (scenario, _) in deal(&mix, 7, 100_000) {
            *counts.entry(scenario).or_default() += 1;
        }
        assert_eq!(counts.len(), 3, "{counts:?}");
        for (name, expected) in [
            ("rush", 60_000),
            ("returns", 20_000),
            ("whole-life", 20_000),
        ] {
            assert!(
                (counts[name] - expected).abs() < 1_000,
                "{name}: {counts:?}"
            );
        }
        assert!(!mix.must_resell() && Mix::of(&RETURNS).must_resell());
        assert_eq!(
            mix.shelves().into_iter().collect::<Vec<_>>(),
            [Shelf::Kept, Shelf::Returned, Shelf::Expiring]
        );
    }

    #[test]
    fn a_wrong_mix_is_refused_with_what_was_expected() {
        for (text, expected) in [
            (
                "hush=1",
                "expected a scenario (rush, retry-storm, limit-abusers, window-shoppers, whole-life, returns), found \"hush\"",
            ),
            (
                "rush=many",
                "expected a weight from 0 to 1000000 for rush, found \"many\"",
            ),
            ("rush=1,rush=2", "expected each scenario once"),
            ("rush=0", "expected a weight above 0"),
            ("", "expected a scenario"),
        ] {
            let error = text.parse::<Mix>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
