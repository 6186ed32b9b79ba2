//! The items of a run: some for each return policy of its scenarios.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use client::NewItem;

use crate::{admin::Admin, options::Options, return_policy::ReturnPolicy, skew::Skew};

/// An item of the run.
#[derive(Debug, Clone)]
pub struct SaleItem {
    /// The name.
    pub id: String,
    /// What may happen to its units.
    pub policy: ReturnPolicy,
    /// Number of units that exist.
    pub stock: u64,
    /// How long an order holds its units.
    pub hold: Duration,
}

/// All items, grouped by return policy.
#[derive(Debug)]
pub struct Items {
    all: Vec<SaleItem>,
    per_policy: usize,
    policies: Vec<ReturnPolicy>,
    skew: Skew,
}

impl Items {
    /// The items for these policies, which do not exist yet in the service.
    pub fn new(policies: BTreeSet<ReturnPolicy>, name: &str, options: &Options) -> Result<Self> {
        let policies: Vec<_> = policies.into_iter().collect();
        let id = |policy: ReturnPolicy, number| match (policies.len(), options.items) {
            (1, 1) => name.to_owned(),
            (1, _) => format!("{name}-{number}"),
            _ => format!("{name}-{}-{number}", policy.name()),
        };
        let all = policies
            .iter()
            .flat_map(|policy| (0..options.items).map(move |number| (*policy, number)));
        let all = all
            .map(|(policy, number)| sale_item(id(policy, number), policy, options))
            .collect();
        let skew = Skew::new("--item-skew", u64::from(options.items), options.item_skew)?;
        Ok(Self {
            all,
            per_policy: options.items as usize,
            policies,
            skew,
        })
    }

    /// Creates all items.
    pub async fn create(&self, admin: &Admin, options: &Options) -> Result<()> {
        for item in &self.all {
            admin.create(&new_item(item, options)).await?;
        }
        Ok(())
    }

    /// The number of the item that a session of a scenario with this policy buys.
    pub fn choose(&self, policy: ReturnPolicy, session: u64, random: u64) -> usize {
        let policy = self
            .policies
            .iter()
            .position(|of_item| *of_item == policy)
            .unwrap_or(0);
        let within = usize::try_from(self.skew.choose(session, random)).unwrap_or(0);
        policy * self.per_policy + within
    }

    /// The item with this number.
    pub fn get(&self, item: usize) -> &SaleItem {
        &self.all[item]
    }

    /// All items with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &SaleItem)> {
        self.all.iter().enumerate()
    }
}

fn sale_item(id: String, policy: ReturnPolicy, options: &Options) -> SaleItem {
    SaleItem {
        id,
        policy,
        stock: options.stock,
        hold: policy.hold(options.hold()),
    }
}

fn new_item(item: &SaleItem, options: &Options) -> NewItem {
    NewItem {
        limit_per_buyer: Some(options.limit),
        segments: Some(options.segments),
        hold_seconds: Some(u32::try_from(item.hold.as_secs()).unwrap_or(u32::MAX)),
        durability: Some(options.durability.into()),
        ..NewItem::new(&item.id, item.stock)
    }
}
