//! `stockade items apply`: makes items as a file describes them.

use std::{fmt, fs, path::Path};

use anyhow::{Context, Result, bail, ensure};
use client::{Durability, Item, ItemPatch, ItemState, NewItem, Request, Wave};
use domain::GivenTime;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::{service::Service, waves::to_come};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    items: Vec<Wanted>,
}

/// An item as the file describes it. A field that is left out stays as it is.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    id: String,
    stock: u64,
    title: Option<String>,
    price: Option<u64>,
    currency: Option<String>,
    limit_per_buyer: Option<u32>,
    segments: Option<u16>,
    #[serde(default, deserialize_with = "given_time")]
    opens_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "given_time")]
    closes_at: Option<Timestamp>,
    hold_seconds: Option<u32>,
    max_hold_seconds: Option<u32>,
    max_per_order: Option<u32>,
    durability: Option<Durability>,
    #[serde(default, deserialize_with = "given_waves")]
    waves: Option<Vec<Wave>>,
    state: Option<ItemState>,
}

fn given_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let given = Option::<GivenTime>::deserialize(deserializer)?;
    Ok(given.map(|GivenTime(time)| time))
}

fn given_waves<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Wave>>, D::Error> {
    #[derive(Deserialize)]
    struct Given {
        at: GivenTime,
        units: u64,
    }

    let given = Option::<Vec<Given>>::deserialize(deserializer)?;
    let wave = |Given { at, units }| Wave { at: at.0, units };
    Ok(given.map(|waves| waves.into_iter().map(wave).collect()))
}

/// What happens to one item.
#[derive(Serialize)]
struct Change {
    item: String,
    /// Whether the item is new.
    created: bool,
    /// The fields that change.
    fields: Vec<&'static str>,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            item,
            created,
            fields,
        } = self;
        match (created, fields.as_slice()) {
            (true, _) => write!(formatter, "{item}: created"),
            (false, []) => write!(formatter, "{item}: unchanged"),
            (false, fields) => write!(formatter, "{item}: changed {}", fields.join(", ")),
        }
    }
}

/// Reads the file, compares it with every item, and only then changes any.
pub async fn apply(service: &Service, file: &Path, dry_run: bool) -> Result<()> {
    let place = || format!("{}", file.display());
    let text = fs::read_to_string(file).with_context(place)?;
    let File { items } = toml::from_str(&text).with_context(place)?;
    let mut steps = Vec::new();
    for wanted in items {
        let now = service.item(&wanted.id).await?;
        if let Some(now) = &now {
            wanted.check_fixed(now).with_context(place)?;
        }
        steps.push((wanted, now));
    }
    let mut changes = Vec::new();
    for (wanted, now) in steps {
        changes.push(wanted.change(now.as_ref()));
        if !dry_run {
            wanted.make(service, now).await?;
        }
    }
    service.report(&changes)
}

impl Service {
    async fn item(&self, id: &str) -> Result<Option<Item>> {
        let answer = self.find_one(&Request::item(id, Some(&self.token))).await?;
        let Some(answer) = answer else {
            return Ok(None);
        };
        let item = Item::read(&answer)?;
        ensure!(item.version.is_some(), "the token lacks the scope `read`");
        Ok(Some(item))
    }
}

/// Fields that one request changes.
const PATCHED: [&str; 5] = ["limit_per_buyer", "price", "opens_at", "closes_at", "waves"];

impl Wanted {
    /// Refuses a change of what cannot change.
    fn check_fixed(&self, now: &Item) -> Result<()> {
        let segments = now.segments.as_ref().map(Vec::len);
        for (field, same) in [
            (
                "title",
                self.title.as_ref().is_none_or(|title| *title == now.title),
            ),
            (
                "currency",
                self.currency
                    .as_ref()
                    .is_none_or(|currency| *currency == now.currency),
            ),
            (
                "segments",
                self.segments
                    .is_none_or(|number| segments == Some(number.into())),
            ),
            (
                "hold_seconds",
                self.hold_seconds
                    .is_none_or(|seconds| seconds == now.hold_seconds),
            ),
            (
                "max_hold_seconds",
                self.max_hold_seconds
                    .is_none_or(|seconds| seconds == now.max_hold_seconds),
            ),
            (
                "max_per_order",
                self.max_per_order.is_none() || self.max_per_order == now.max_per_order,
            ),
            (
                "durability",
                self.durability
                    .is_none_or(|durability| durability == now.durability),
            ),
        ] {
            if !same {
                bail!("{}: {field} cannot change once the item exists", self.id);
            }
        }
        Ok(())
    }

    fn change(&self, now: Option<&Item>) -> Change {
        let fields = now.map(|now| self.differences(now)).unwrap_or_default();
        Change {
            item: self.id.clone(),
            created: now.is_none(),
            fields,
        }
    }

    fn differences(&self, now: &Item) -> Vec<&'static str> {
        let differs = |wanted: Option<Timestamp>, now| wanted.is_some() && wanted != now;
        [
            ("stock", self.stock_with_waves(now) != now.stock),
            (
                "limit_per_buyer",
                self.limit_per_buyer.is_some() && self.limit_per_buyer != now.limit_per_buyer,
            ),
            ("price", self.price.is_some_and(|price| price != now.price)),
            ("opens_at", differs(self.opens_at, now.opens_at)),
            ("closes_at", differs(self.closes_at, now.closes_at)),
            ("waves", self.waves_differ(now)),
            ("state", self.state.is_some_and(|state| state != now.state)),
        ]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
    }

    /// The stock that the item is to have: units of waves that were added come on top of the
    /// file's.
    fn stock_with_waves(&self, now: &Item) -> u64 {
        let added = now.waves.iter().flatten().filter(|wave| wave.added);
        added.fold(self.stock, |stock, wave| stock.saturating_add(wave.units))
    }

    /// Whether the waves that are to come are others than those of the file that were not added
    /// yet.
    fn waves_differ(&self, now: &Item) -> bool {
        let Some(wanted) = &self.waves else {
            return false;
        };
        let added = now.waves.iter().flatten().filter(|wave| wave.added);
        let added: Vec<_> = added.map(|wave| wave.at).collect();
        let wanted = wanted.iter().filter(|wave| !added.contains(&wave.at));
        let by_time = |waves: Vec<Wave>| {
            let waves = waves.into_iter().map(|wave| (wave.at, wave.units));
            waves.collect::<std::collections::BTreeMap<_, _>>()
        };
        by_time(wanted.copied().collect()) != by_time(to_come(now))
    }

    /// Creates or changes the item. Each change names the version that was read, so that an
    /// operator who changes the item meanwhile is not overruled.
    async fn make(&self, service: &Service, now: Option<Item>) -> Result<()> {
        let now = match now {
            Some(now) => now,
            None => self.create(service).await?,
        };
        let differences = self.differences(&now);
        let mut now = now;
        if differences.iter().any(|field| PATCHED.contains(field)) {
            let request = Request::patch_item(&service.token, &self.id, &self.patch(), now.version);
            now = self.changed(service, &request).await?;
        }
        if let (true, Some(version)) = (differences.contains(&"stock"), now.version) {
            let request = Request::set_stock(
                &service.token,
                &self.id,
                self.stock_with_waves(&now),
                version,
            );
            now = self.changed(service, &request).await?;
        }
        if let Some(state) = self.state.filter(|state| *state != now.state) {
            let request = Request::set_state(&service.token, &self.id, state, now.version);
            self.changed(service, &request).await?;
        }
        Ok(())
    }

    async fn create(&self, service: &Service) -> Result<Item> {
        let Self {
            id,
            stock,
            title,
            price,
            currency,
            limit_per_buyer,
            segments,
            opens_at,
            closes_at,
            hold_seconds,
            max_hold_seconds,
            max_per_order,
            durability,
            waves,
            state: _,
        } = self.clone();
        let new = NewItem {
            id,
            stock,
            title,
            price,
            currency,
            limit_per_buyer,
            segments,
            opens_at,
            closes_at,
            hold_seconds,
            max_hold_seconds,
            max_per_order,
            waves: waves.unwrap_or_default(),
            durability,
        };
        self.changed(service, &Request::create_item(&service.token, &new))
            .await
    }

    /// The item after a request that changes it.
    async fn changed(&self, service: &Service, request: &Request) -> Result<Item> {
        let answer = service
            .call(request)
            .await
            .with_context(|| self.id.clone())?;
        Ok(Item::read(&answer)?)
    }

    fn patch(&self) -> ItemPatch {
        let patch = ItemPatch::default();
        let patch = match self.limit_per_buyer {
            Some(limit) => patch.limit_per_buyer(Some(limit)),
            None => patch,
        };
        let patch = match self.price {
            Some(price) => patch.price(price),
            None => patch,
        };
        let patch = match self.opens_at {
            Some(time) => patch.opens_at(Some(time)),
            None => patch,
        };
        let patch = match self.closes_at {
            Some(time) => patch.closes_at(Some(time)),
            None => patch,
        };
        match &self.waves {
            Some(waves) => patch.waves(waves.clone()),
            None => patch,
        }
    }
}
