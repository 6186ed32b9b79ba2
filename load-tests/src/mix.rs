//! The scenarios of a run, and the behavior of each session.

use std::{collections::BTreeSet, fmt, str::FromStr};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    behaviors::{self, Behavior},
    return_policy::ReturnPolicy,
    scenario::Scenario,
    scenarios::{self, RUSH},
};

/// Scenarios with their weights.
#[derive(Debug, Clone)]
pub struct Mix {
    scenarios: Vec<(u32, &'static Scenario)>,
}

impl Mix {
    /// A single scenario.
    pub fn of(scenario: &'static Scenario) -> Self {
        Self {
            scenarios: vec![(1, scenario)],
        }
    }

    /// The name of the run.
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

    /// Whether the run fails if no unit returned and was bought again. In a mix, other scenarios
    /// may use up the requests before that happens.
    pub fn must_resell(&self) -> bool {
        matches!(self.scenarios.as_slice(), [(_, scenario)] if scenario.must_resell)
    }

    /// The return policies of the scenarios.
    pub fn policies(&self) -> BTreeSet<ReturnPolicy> {
        self.scenarios().map(|scenario| scenario.policy).collect()
    }

    /// Chooses a scenario and a behavior by random bits.
    pub fn pick(&self, random: u64) -> (&'static Scenario, &'static Behavior) {
        let total: u64 = self.behaviors().map(|(weight, ..)| weight).sum();
        let mut rest = random % total.max(1);
        for (weight, scenario, behavior) in self.behaviors() {
            match rest.checked_sub(weight) {
                Some(less) => rest = less,
                None => return (scenario, behavior),
            }
        }
        // Only reached if the mix is empty.
        (&RUSH, &behaviors::ONE_UNIT)
    }

    fn behaviors(&self) -> impl Iterator<Item = (u64, &'static Scenario, &'static Behavior)> {
        let of = |(weight, scenario): &(u32, &'static Scenario)| {
            let (weight, scenario) = (u64::from(*weight), *scenario);
            scenario
                .behaviors
                .iter()
                .map(move |(of_a_hundred, behavior)| {
                    (weight * u64::from(*of_a_hundred), scenario, behavior)
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
    let scenario = scenarios::named(name.trim()).ok_or_else(|| {
        let names: Vec<_> = scenarios::ALL
            .iter()
            .map(|scenario| scenario.name)
            .collect();
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
            let behaviors: Vec<_> = scenario
                .behaviors
                .iter()
                .map(|(weight, behavior)| format!("{weight} {}", behavior.name))
                .collect();
            let between = if at == 0 { "" } else { "; " };
            write!(
                f,
                "{between}{weight} x {} ({})",
                scenario.name,
                behaviors.join(", ")
            )?;
        }
        Ok(())
    }
}

/// Random bits that depend only on the seed and the number of the session.
pub fn random(seed: u64, session: u64) -> u64 {
    xxh3_64_with_seed(&session.to_le_bytes(), seed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Mix, random};
    use crate::{
        return_policy::ReturnPolicy,
        scenarios::{RETURNS, RUSH},
    };

    fn behaviors(mix: &Mix, seed: u64, sessions: u64) -> Vec<(&'static str, &'static str)> {
        let names = |session| {
            let (scenario, behavior) = mix.pick(random(seed, session));
            (scenario.name, behavior.name)
        };
        (0..sessions).map(names).collect()
    }

    #[test]
    fn the_seed_determines_all_behaviors() {
        let mix = Mix::of(&RUSH);
        assert_eq!(behaviors(&mix, 1, 1_000), behaviors(&mix, 1, 1_000));
        assert_ne!(behaviors(&mix, 1, 1_000), behaviors(&mix, 2, 1_000));
    }

    #[test]
    fn each_behavior_occurs_as_often_as_its_weight_says() {
        let mut counts = BTreeMap::<_, i64>::new();
        for (_, behavior) in behaviors(&Mix::of(&RUSH), 7, 100_000) {
            *counts.entry(behavior).or_default() += 1;
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
        for (scenario, _) in behaviors(&mix, 7, 100_000) {
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
            mix.policies().into_iter().collect::<Vec<_>>(),
            [
                ReturnPolicy::Final,
                ReturnPolicy::Returned,
                ReturnPolicy::Expiring
            ]
        );
    }

    #[test]
    fn an_invalid_mix_is_refused_with_what_was_expected() {
        for (text, expected) in [
            (
                "hush=1",
                "expected a scenario (rush, retry-storm, limit-abusers, window-shoppers, whole-life, returns, carts), found \"hush\"",
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
