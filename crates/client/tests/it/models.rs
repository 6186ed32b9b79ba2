//! The models, against the description of the API: the same fields, and the same words.

use std::collections::BTreeSet;

use client::{
    AmountCheck, Audit, Cart, CartLine, CartState, Durability, Event, Item, ItemState, ItemWave,
    Items, JournalEntry, ListedItem, ListedOrder, Order, OrderState, OrdersChecked, OrdersFault,
    RefundDue, RefundReason, Segment, SegmentAudit, ServiceJournalEntry, Wave,
};
use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};
use serde_json::Value;

const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");
/// What an answer has and this client does not read, by schema.
const LEFT_OUT: [(&str, &[&str]); 5] = [
    ("AuditReport", &["refund_due_orders"]),
    ("CartBody", &["code", "item", "payment"]),
    ("CloudEvent", &["datacontenttype", "source", "specversion"]),
    (
        "OrderBody",
        &[
            "buyer",
            "cart",
            "created_at",
            "currency",
            "payment",
            "price",
            "version",
        ],
    ),
    ("SegmentBody", &["spillovers"]),
];

/// Gives a type no value, and keeps the names that it asks for: of its fields, or of its variants.
struct Names<'a>(&'a mut Vec<&'static str>);

impl Names<'_> {
    fn keep<T>(self, names: &'static [&'static str]) -> Result<T, Error> {
        self.0.extend_from_slice(names);
        Err(Error::custom("only the names count"))
    }
}

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.keep(fields)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.keep(variants)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.keep(&[])
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

fn names<T: DeserializeOwned>() -> BTreeSet<&'static str> {
    let mut names = Vec::new();
    assert!(T::deserialize(Names(&mut names)).is_err());
    names.into_iter().collect()
}

fn schema(name: &str) -> Value {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    description["components"]["schemas"][name].clone()
}

#[track_caller]
fn has_the_fields<T: DeserializeOwned>(name: &str) {
    let mut known = names::<T>();
    for (_, fields) in LEFT_OUT.iter().filter(|(schema, _)| *schema == name) {
        for field in *fields {
            assert!(known.insert(field), "{name}: {field} is not left out");
        }
    }
    let schema = schema(name);
    let properties = schema["properties"].as_object().unwrap();
    let described: BTreeSet<_> = properties.keys().map(String::as_str).collect();
    assert_eq!(known, described, "{name}");
}

#[track_caller]
fn has_the_words<T: DeserializeOwned>(name: &str) {
    let schema = schema(name);
    let words = schema["enum"].as_array().unwrap();
    let described: BTreeSet<_> = words.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(names::<T>(), described, "{name}");
}

#[test]
fn the_models_and_the_description_have_the_same_fields() {
    has_the_fields::<Audit>("AuditReport");
    has_the_fields::<Cart>("CartBody");
    has_the_fields::<CartLine>("LineBody");
    has_the_fields::<Event>("CloudEvent");
    has_the_fields::<Item>("ItemBody");
    has_the_fields::<ItemWave>("WaveBody");
    has_the_fields::<Items>("ItemsBody");
    has_the_fields::<JournalEntry>("JournalRow");
    has_the_fields::<ListedItem>("ItemRow");
    has_the_fields::<ListedOrder>("OrderRow");
    has_the_fields::<Order>("OrderBody");
    has_the_fields::<OrdersChecked>("OrdersChecked");
    has_the_fields::<OrdersFault>("OrdersFault");
    has_the_fields::<RefundDue>("RefundRow");
    has_the_fields::<Segment>("SegmentBody");
    has_the_fields::<SegmentAudit>("SegmentReport");
    has_the_fields::<ServiceJournalEntry>("ActRow");
    has_the_fields::<Wave>("NewWave");
    has_the_fields::<Wave>("NextWave");
}

#[test]
fn the_words_are_those_of_the_description() {
    has_the_words::<AmountCheck>("AmountCheck");
    has_the_words::<CartState>("CartState");
    has_the_words::<Durability>("Durability");
    has_the_words::<ItemState>("ItemState");
    has_the_words::<OrderState>("OrderState");
    has_the_words::<RefundReason>("RefundReason");
}
