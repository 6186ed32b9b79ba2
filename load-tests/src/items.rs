//! The items of a run: some for each return policy of its scenarios.

use std::{collections::BTreeSet, ops::Range, time::Duration};

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
    /// Whether it has far fewer units than the others.
    pub is_scarce: bool,
    /// How long an order holds its units.
    pub hold: Duration,
}

/// All items, grouped by return policy.
#[derive(Debug)]
pub struct Items {
    all: Vec<SaleItem>,
    groups: Vec<Group>,
}

/// The items of one return policy.
#[derive(Debug)]
struct Group {
    policy: ReturnPolicy,
    numbers: Range<usize>,
    skew: Skew,
}

/// A scarce item has this part of the others' units.
const SCARCE_PART: u64 = 20;

impl Items {
    /// The items for these policies, which do not exist yet in the service.
    pub fn new(policies: BTreeSet<ReturnPolicy>, name: &str, options: &Options) -> Result<Self> {
        let (mut all, mut groups) = (Vec::new(), Vec::new());
        let of_all = policies.len();
        for policy in policies {
            let count = policy.items(options.items);
            let id = |number| match (of_all, count) {
                (1, 1) => name.to_owned(),
                (1, _) => format!("{name}-{number}"),
                _ => format!("{name}-{}-{number}", policy.name()),
            };
            let first = all.len();
            all.extend((0..count).map(|number| sale_item(id(number), number, policy, options)));
            groups.push(Group {
                policy,
                numbers: first..all.len(),
                skew: Skew::new("--item-skew", u64::from(count), options.item_skew)?,
            });
        }
        Ok(Self { all, groups })
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
        let group = self.groups.iter().find(|group| group.policy == policy);
        let Some(group) = group.or(self.groups.first()) else {
            return 0;
        };
        let within = usize::try_from(group.skew.choose(session, random)).unwrap_or(0);
        group.numbers.start + within
    }

    /// The numbers of all items that are sold together with this one.
    pub fn beside(&self, item: usize) -> Range<usize> {
        let group = self
            .groups
            .iter()
            .find(|group| group.numbers.contains(&item));
        group.map_or(item..item + 1, |group| group.numbers.clone())
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

fn sale_item(id: String, number: u32, policy: ReturnPolicy, options: &Options) -> SaleItem {
    let is_scarce = policy.is_scarce(number);
    SaleItem {
        id,
        policy,
        stock: options.stock / if is_scarce { SCARCE_PART } else { 1 },
        is_scarce,
        hold: policy.hold(options.hold()),
    }
}

fn new_item(item: &SaleItem, options: &Options) -> NewItem {
    let seconds = |time: Duration| Some(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
    NewItem {
        limit_per_buyer: Some(options.limit),
        segments: Some(options.segments),
        hold_seconds: seconds(item.hold),
        max_hold_seconds: (item.policy == ReturnPolicy::InCarts)
            .then(|| seconds(item.longest_hold()))
            .flatten(),
        durability: Some(options.durability.into()),
        ..NewItem::new(&item.id, item.stock)
    }
}

impl SaleItem {
    /// How long a hold is that a buyer has extended.
    pub fn longest_hold(&self) -> Duration {
        self.hold * 2
    }
}
