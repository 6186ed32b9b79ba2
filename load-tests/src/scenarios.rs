//! The scenarios, a file each.

mod carts;
mod limit_abusers;
mod retry_storm;
mod returns;
mod rush;
mod whole_life;
mod window_shoppers;

pub use self::{
    carts::CARTS, limit_abusers::LIMIT_ABUSERS, retry_storm::RETRY_STORM, returns::RETURNS,
    rush::RUSH, whole_life::WHOLE_LIFE, window_shoppers::WINDOW_SHOPPERS,
};
use crate::scenario::Scenario;

/// All scenarios.
pub static ALL: [&Scenario; 7] = [
    &RUSH,
    &RETRY_STORM,
    &LIMIT_ABUSERS,
    &WINDOW_SHOPPERS,
    &WHOLE_LIFE,
    &RETURNS,
    &CARTS,
];

/// The scenario with this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// A mix multiplies the weights of scenarios and behaviors, which requires equal sums.
    #[test]
    fn the_weights_of_every_scenario_add_up_to_a_hundred() {
        for scenario in ALL {
            assert_eq!(
                scenario
                    .behaviors
                    .iter()
                    .map(|(weight, _)| weight)
                    .sum::<u32>(),
                100,
                "{}",
                scenario.name
            );
        }
    }
}
