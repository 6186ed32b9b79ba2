//! `stockade items waves`: units that are added to an item later.

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use client::{Item, ItemPatch, Request, Wave};
use domain::{GivenTime, Invalid};

use super::service::Service;

const COLUMNS: [&str; 3] = ["at", "units", "added"];

#[derive(Subcommand)]
pub enum WavesCommand {
    /// Shows the waves of an item, those that were added and those that are to come.
    Show {
        /// Id of the item.
        item: String,
    },
    /// Replaces the waves that are to come. Without any, none is to come.
    Set {
        /// Id of the item.
        item: String,
        /// A time and units, such as 2027-01-01T10:00:00Z=500.
        #[arg(value_name = "TIME=UNITS", value_parser = wave)]
        waves: Vec<Wave>,
    },
    /// Adds waves to those that are to come.
    Add {
        /// Id of the item.
        item: String,
        /// A time and units, such as 2027-01-01T10:00:00Z=500.
        #[arg(required = true, value_name = "TIME=UNITS", value_parser = wave)]
        waves: Vec<Wave>,
    },
}

/// `TIME=UNITS`.
pub fn wave(text: &str) -> Result<Wave, String> {
    let expected = || "expected TIME=UNITS, such as 2027-01-01T10:00:00Z=500".to_owned();
    let (at, units) = text.split_once('=').ok_or_else(expected)?;
    let at: GivenTime = at.parse().map_err(|error: Invalid| {
        let told = expected();
        format!("{told}: TIME is {}", error.expected)
    })?;
    Ok(Wave {
        at: at.0,
        units: units.parse().map_err(|_| expected())?,
    })
}

/// The waves of an item that are to come.
pub fn to_come(item: &Item) -> Vec<Wave> {
    let waves = item.waves.iter().flatten().filter(|wave| !wave.added);
    waves
        .map(|wave| Wave {
            at: wave.at,
            units: wave.units,
        })
        .collect()
}

impl WavesCommand {
    /// `add` names the version that was read, so that it overrules no other change.
    pub async fn run(self, service: &Service) -> Result<()> {
        let (item, change) = match self {
            Self::Show { item } => (item, None),
            Self::Set { item, waves } => (item, Some((waves, None))),
            Self::Add { item, waves } => {
                let now = read(service, &item).await?;
                let all = [to_come(&now), waves].concat();
                (item, Some((all, now.version)))
            }
        };
        if let Some((waves, version)) = change {
            let patch = ItemPatch::default().waves(waves);
            let request = Request::patch_item(&service.token, &item, &patch, version);
            service.call(&request).await?;
        }
        let request = Request::item(&item, Some(&service.token));
        let answer: serde_json::Value = service.call(&request).await?.json()?;
        let waves = answer["waves"].as_array().cloned();
        service.rows(
            &COLUMNS,
            &waves.context("the token lacks the scope `read`")?,
        )
    }
}

async fn read(service: &Service, item: &str) -> Result<Item> {
    let request = Request::item(item, Some(&service.token));
    let item = Item::read(&service.call(&request).await?)?;
    ensure!(item.version.is_some(), "the token lacks the scope `read`");
    Ok(item)
}

#[cfg(test)]
mod tests {
    use super::wave;

    #[test]
    fn a_wave_is_a_time_and_units() {
        let read = wave("2027-01-01T10:00:00Z=500").unwrap();
        assert_eq!((read.at.as_second(), read.units), (1_798_797_600, 500));
        for text in [
            "",
            "500",
            "2027-01-01=500",
            "2027-01-01T10:00:00Z=",
            "now=5",
            "2027-07-01T10:00:00+01:00[Europe/Berlin]=5",
        ] {
            let error = wave(text).unwrap_err();
            assert!(error.starts_with("expected TIME=UNITS"), "{text}");
        }
    }
}
