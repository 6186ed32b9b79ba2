//! The words of the API's enums in its description, taken from the enums themselves.

use std::borrow::Cow;

use domain::{CartState, Durability, ItemState, OrderState};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, schema::Type},
};

use super::{codes::Code, life::AMOUNT_MAX, lists::query::Format};

/// The amount of a cart whose payments the shop checks.
pub(crate) const UNCHECKED: &str = "unchecked";

/// The amount of a new cart.
pub(crate) struct CartAmountWord;

impl PartialSchema for CartAmountWord {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(0_u64))
            .maximum(Some(AMOUNT_MAX));
        let word = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some([UNCHECKED]));
        OneOfBuilder::new().item(number).item(word).into()
    }
}

impl ToSchema for CartAmountWord {
    fn name() -> Cow<'static, str> {
        "CartAmount".into()
    }
}

macro_rules! words {
    ($($(#[doc = $doc:literal])* $shape:ident is $name:literal: $words:expr;)*) => {$(
        $(#[doc = $doc])*
        pub(crate) struct $shape;

        impl PartialSchema for $shape {
            fn schema() -> RefOr<Schema> {
                let words: Vec<&'static str> = $words;
                let schema = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(concat!($($doc),*).trim()))
                    .enum_values(Some(words));
                schema.build().into()
            }
        }

        impl ToSchema for $shape {
            fn name() -> Cow<'static, str> {
                $name.into()
            }
        }
    )*};
}

words! {
    /// The state of an order.
    OrderStateWord is "OrderState": OrderState::ALL.iter().map(|state| state.as_str()).collect();
    /// The state of a cart.
    CartStateWord is "CartState": CartState::ALL.iter().map(|state| state.as_str()).collect();
    /// How payments of a cart are checked, if not against its amount.
    AmountCheckWord is "AmountCheck": vec![UNCHECKED];
    /// The state of an item.
    ItemStateWord is "ItemState": ItemState::ALL.iter().map(|state| state.as_str()).collect();
    /// The states that an item can be set to. It is archived by a call of its own.
    SettableStateWord is "SettableState": ItemState::ALL
        .iter()
        .filter(|state| **state != ItemState::Archived)
        .map(|state| state.as_str())
        .collect();
    /// When an order is acknowledged.
    DurabilityWord is "Durability": Durability::ALL.iter().map(|word| word.as_str()).collect();
    /// How a list can be written.
    ListFormatWord is "ListFormat": Format::ALL.iter().map(|format| format.word()).collect();
    /// How a list can be written whose rows do not fit into a table.
    RowsFormatWord is "RowsFormat": Format::ALL
        .iter()
        .filter(|format| **format != Format::Csv)
        .map(|format| format.word())
        .collect();
    /// The code of a problem.
    ProblemCode is "ProblemCode": Code::ALL.iter().map(|code| code.as_str()).collect();
}
