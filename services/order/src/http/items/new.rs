//! A new item, as an admin describes it.

use domain::{Durability, GivenTime, Item, ItemId, ItemState, Wave, Window};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::super::{
    Problem,
    body::{OrderUnits, Whole},
    currency,
    problem::FieldError,
    words::DurabilityWord,
};

/// Fifteen minutes: long enough to pay, short enough that abandoned units are sold again during the
/// sale.
const HOLD_SECONDS: u64 = 900;
pub(crate) const YEAR_SECONDS: u64 = 31_536_000;
pub(crate) const PRICE_MAX: u64 = 1_000_000_000_000;
const TITLE_MAX: usize = 200;
/// 9999-01-01T00:00:00Z: earlier times have a four-digit year in every time zone.
const TIMES_END_MS: i64 = 253_370_764_800_000;
const TIMES: &str = "expected a time after 1970-01-01T00:00:00Z and before the year 9999";

/// A new item. `id` and `stock` are required; all other fields have defaults.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewItem {
    /// The item's id: 1 to 64 of `A-Z a-z 0-9 . _ -`, and neither `.` nor `..`.
    #[schema(value_type = String, pattern = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$", example = "maotai")]
    #[serde(deserialize_with = "new_id")]
    id: ItemId,
    /// The title that buyers see, 200 characters at most. Default: the id.
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$"
    )]
    title: Option<String>,
    /// Units that exist.
    #[schema(value_type = u64, minimum = 0, maximum = 1_000_000_000_000_u64, example = 100)]
    stock: Whole<0, { Item::MAX_STOCK }>,
    /// The price of one unit in the currency's smallest unit. Default: 0.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_u64)]
    price: Option<Whole<0, PRICE_MAX>>,
    /// ISO 4217, three capital letters. Default: `USD`.
    #[schema(pattern = "^[A-Z]{3}$", example = "EUR")]
    currency: Option<String>,
    /// Units that one buyer may hold. Default: no limit.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    limit_per_buyer: Option<OrderUnits>,
    /// Number of segments. Default: one for each Redis master, fewer for a small stock.
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 256)]
    segments: Option<Whole<1, { Item::MAX_SEGMENTS as u64 }>>,
    /// The first moment at which it sells. Default: no start.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<GivenTime>,
    /// The first moment at which it does not sell any more. Default: no end.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<GivenTime>,
    /// Seconds for which an order holds its units. Default: 900.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31_536_000)]
    hold_seconds: Option<Whole<1, YEAR_SECONDS>>,
    /// Seconds up to which a buyer can extend the hold of an order. Default: `hold_seconds`, so that
    /// no buyer can.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31_536_000)]
    max_hold_seconds: Option<Whole<1, YEAR_SECONDS>>,
    /// Units that one order may ask for. Default: no limit.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    max_per_order: Option<OrderUnits>,
    /// Units that are added later, each at its time. Default: none.
    #[schema(max_items = 100)]
    waves: Option<Vec<NewWave>>,
    /// When an order is acknowledged: `recorded` (default), `accepted` or `replicated`.
    #[schema(value_type = Option<DurabilityWord>, example = "recorded")]
    #[serde(default, deserialize_with = "word")]
    durability: Option<Durability>,
}

/// Units that are added at a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWave {
    /// When they are added. It identifies the wave among those of the item.
    #[schema(value_type = String, format = DateTime)]
    at: GivenTime,
    /// Number of units.
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000_000_000_u64, example = 100)]
    units: Whole<1, { Item::MAX_STOCK }>,
}

/// The waves, in order. `stock`: the units that the item has or gets otherwise.
pub(crate) fn waves(new: &[NewWave], stock: u64) -> Result<Vec<Wave>, Problem> {
    let wave = |new: &NewWave| Wave {
        at: whole_ms(new.at),
        units: new.units.0,
        is_added: false,
    };
    let mut waves: Vec<_> = new.iter().map(wave).collect();
    let refused = |place: usize, expected: String| {
        Err(Problem::from(FieldError::of_row("waves", place, expected)))
    };
    if waves.len() > Item::MAX_WAVES {
        return refused(
            Item::MAX_WAVES,
            format!("expected {} waves at most", Item::MAX_WAVES),
        );
    }
    let mut total = stock;
    for (place, wave) in waves.iter().enumerate() {
        if !(1..TIMES_END_MS).contains(&wave.at.as_millisecond()) {
            return refused(place, format!("at: {TIMES}"));
        }
        if waves[..place].iter().any(|earlier| earlier.at == wave.at) {
            return refused(
                place,
                "at: expected another time than that of the other waves".into(),
            );
        }
        total = total.saturating_add(wave.units);
        if total > Item::MAX_STOCK {
            return refused(
                place,
                format!("units: expected a total of {} at most", Item::MAX_STOCK),
            );
        }
    }
    waves.sort_unstable_by_key(|wave| wave.at);
    Ok(waves)
}

impl NewItem {
    pub(crate) fn into_item(self, masters: u16) -> Result<Item, Problem> {
        let window = Window {
            opens_at: self.opens_at.map(whole_ms),
            closes_at: self.closes_at.map(whole_ms),
        };
        check_window(window)?;
        let stock = self.stock.0;
        let hold_seconds = narrow(self.hold_seconds.map_or(HOLD_SECONDS, |hold| hold.0));
        Ok(Item {
            hold_seconds,
            max_hold_seconds: max_hold(
                self.max_hold_seconds.map(|max| narrow(max.0)),
                hold_seconds,
            )?,
            max_per_order: self
                .max_per_order
                .map(|units| units.quantity())
                .transpose()?,
            waves: waves(&self.waves.unwrap_or_default(), stock)?,
            new_price: None,
            title: title(self.title, &self.id)?,
            price: self.price.map_or(0, |price| price.0),
            currency: currency::checked(self.currency.unwrap_or_else(|| "USD".into()))?,
            limit_per_buyer: self
                .limit_per_buyer
                .map(|units| units.quantity())
                .transpose()?,
            segments: self.segments.map_or_else(
                || default_segments(stock, masters),
                |segments| narrow(segments.0),
            ),
            window,
            durability: self.durability.unwrap_or(Durability::Recorded),
            state: ItemState::Open,
            epoch: 1,
            version: 1,
            stock,
            id: self.id,
        })
    }
}

/// Converts a number that `Whole` has checked.
fn narrow<T: TryFrom<u64> + Default>(number: u64) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Redis and the ledger store milliseconds. A fraction that is not stored must not make a repeat of
/// the request look different.
pub(crate) fn whole_ms(GivenTime(time): GivenTime) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

pub(crate) fn check_window(window: Window) -> Result<(), Problem> {
    for (field, time) in [
        ("opens_at", window.opens_at),
        ("closes_at", window.closes_at),
    ] {
        // The scripts read 0 as "no limit".
        if time.is_some_and(|time| !(1..TIMES_END_MS).contains(&time.as_millisecond())) {
            return Err(Problem::invalid(field, TIMES));
        }
    }
    match (window.opens_at, window.closes_at) {
        (Some(opens_at), Some(closes_at)) if closes_at <= opens_at => Err(Problem::invalid(
            "closes_at",
            "expected a time after opens_at",
        )),
        _ => Ok(()),
    }
}

fn max_hold(max: Option<u32>, hold_seconds: u32) -> Result<u32, Problem> {
    // An extended hold keeps units from other buyers: the shop has to allow it.
    let max = max.unwrap_or(hold_seconds);
    (max >= hold_seconds).then_some(max).ok_or_else(|| {
        let expected = format!("expected at least hold_seconds, which is {hold_seconds}");
        Problem::invalid("max_hold_seconds", expected)
    })
}

fn title(title: Option<String>, id: &ItemId) -> Result<String, Problem> {
    let title = title.unwrap_or_else(|| id.to_string());
    let fits =
        (1..=TITLE_MAX).contains(&title.chars().count()) && !title.chars().any(char::is_control);
    fits.then_some(title).ok_or_else(|| {
        Problem::invalid(
            "title",
            format_args!("expected 1 to {TITLE_MAX} characters, no control characters"),
        )
    })
}

/// Several segments, so that each master gets one: a hash slot is linear in the key, and segments 0
/// and 1 of any item lie in the same half of the slots.
const SEGMENTS_PER_MASTER: u16 = 4;

/// Segments on one server only shorten its batches; on several servers they let all of them sell. A
/// small stock is not worth splitting: an order for two units would find single ones.
fn default_segments(stock: u64, masters: u16) -> u16 {
    let worthwhile = u16::try_from(stock / 100).unwrap_or(u16::MAX).max(1);
    let useful = if masters > 1 {
        masters.saturating_mul(SEGMENTS_PER_MASTER)
    } else {
        1
    };
    useful.min(Item::MAX_SEGMENTS).min(worthwhile)
}

/// Reads the id of a new item.
fn new_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ItemId, D::Error> {
    let text = String::deserialize(deserializer)?;
    ItemId::addressable(text)
        .map_err(|invalid| serde::de::Error::custom(format_args!("expected {}", invalid.expected)))
}

/// Reads an enum from its name; the error lists the names.
fn word<'de, D: Deserializer<'de>, T: std::str::FromStr<Err = domain::Invalid>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| {
        text.parse().map_err(|error: T::Err| {
            serde::de::Error::custom(format_args!("expected {}", error.expected))
        })
    })
    .transpose()
}
