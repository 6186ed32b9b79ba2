//! What is sold: items on the shelves of the scenarios that run.

use std::time::Duration;

use anyhow::Result;
use reqwest::Url;

use crate::{
    admin::{Admin, NewItem},
    cli::Options,
    mix::Mix,
    scenario::{Scenario, Shelf},
    skew::Skew,
};

/// An item that is sold.
#[derive(Debug, Clone)]
pub struct OnSale {
    /// Its name.
    pub id: String,
    /// Where it stands.
    pub shelf: Shelf,
    /// Units that exist.
    pub stock: u64,
    /// How long an order holds its units.
    pub hold: Duration,
    /// Where it is shown.
    pub page: Url,
    /// Where it is ordered.
    pub counter: Url,
}

/// Every item, shelf by shelf.
#[derive(Debug)]
pub struct Items {
    all: Vec<OnSale>,
    each: usize,
    shelves: Vec<Shelf>,
    skew: Skew,
}

impl Items {
    /// The items of this mix, which do not exist yet.
    pub fn new(mix: &Mix, host: &str, name: &str, options: &Options) -> Result<Self> {
        let shelves: Vec<_> = mix.shelves().into_iter().collect();
        let all = shelves
            .iter()
            .flat_map(|shelf| (0..options.items).map(move |number| (*shelf, number)));
        let id = |shelf: Shelf, number| match (shelves.len(), options.items) {
            (1, 1) => name.to_owned(),
            (1, _) => format!("{name}-{number}"),
            _ => format!("{name}-{}-{number}", shelf.name()),
        };
        let all = all
            .map(|(shelf, number)| on_sale(host, id(shelf, number), shelf, options))
            .collect::<Result<_>>()?;
        let skew = Skew::new("--item-skew", u64::from(options.items), options.item_skew)?;
        Ok(Self {
            all,
            each: options.items as usize,
            shelves,
            skew,
        })
    }

    /// Opens all of them.
    pub async fn open(&self, admin: &Admin, options: &Options) -> Result<()> {
        for item in &self.all {
            admin.create(&new_item(item, options)).await?;
        }
        Ok(())
    }

    /// The item that a buyer of this scenario comes for.
    pub fn choose(&self, scenario: &Scenario, visit: u64, dice: u64) -> usize {
        let shelf = self
            .shelves
            .iter()
            .position(|shelf| *shelf == scenario.shelf)
            .unwrap_or(0);
        shelf * self.each + usize::try_from(self.skew.choose(visit, dice)).unwrap_or(0)
    }

    /// The item of this number.
    pub fn get(&self, item: usize) -> &OnSale {
        &self.all[item]
    }

    /// All, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &OnSale)> {
        self.all.iter().enumerate()
    }
}

fn on_sale(host: &str, id: String, shelf: Shelf, options: &Options) -> Result<OnSale> {
    let (page, counter) = (
        Url::parse(&format!("{host}/items/{id}"))?,
        Url::parse(&format!("{host}/items/{id}/orders"))?,
    );
    Ok(OnSale {
        id,
        shelf,
        stock: options.stock,
        hold: shelf.hold(options.hold()),
        page,
        counter,
    })
}

fn new_item(item: &OnSale, options: &Options) -> NewItem {
    NewItem {
        id: item.id.clone(),
        stock: item.stock,
        limit_per_buyer: options.limit,
        segments: options.segments,
        hold_seconds: u32::try_from(item.hold.as_secs()).unwrap_or(u32::MAX),
        durability: options.durability,
    }
}
