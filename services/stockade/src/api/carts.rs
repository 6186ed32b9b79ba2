//! `stockade carts`.

use anyhow::Result;
use clap::{Args, Subcommand};
use client::{CartAmount, IdempotencyKey, NewCart, Request, Token};
use uuid::Uuid;

use super::service::Service;

const COLUMNS: [&str; 5] = ["id", "state", "amount", "currency", "expires_at"];

#[derive(Subcommand)]
pub enum CartsCommand {
    /// Places a cart: all of its lines, or none. Needs a buyer's token, or --buyer.
    Place(Place),
    /// Lists the carts of the buyer whose token is used.
    List,
    /// Shows a cart and its lines.
    Show {
        /// Id of the cart.
        cart: Uuid,
    },
    /// Cancels a held cart. The units of all lines can be bought again.
    Cancel {
        /// Id of the cart.
        cart: Uuid,
    },
    /// Has the holds of all lines last longer.
    Extend {
        /// Id of the cart.
        cart: Uuid,
        /// Length of the whole hold in seconds, counted from the first line's.
        seconds: u32,
    },
    /// Records that the money of a cart was returned, or that of one line of a confirmed cart.
    /// Units that it has can be bought again.
    Refund {
        /// Id of the cart.
        cart: Uuid,
        /// Id of the line's order. Default: all lines.
        #[arg(long)]
        line: Option<Uuid>,
    },
}

#[derive(Args)]
pub struct Place {
    /// An item, and its units unless it is one: vase or vase:2. Up to 20.
    #[arg(required = true, value_name = "ITEM[:UNITS]", value_parser = line)]
    lines: Vec<(String, u32)>,
    /// Identifies the cart: a repeat with the same key is the same cart. Default: a random key.
    #[arg(long)]
    key: Option<String>,
    /// The total of the shop in the currency's smallest unit, against which payments are checked;
    /// or `unchecked`. Default: the price of the lines. Less than that, and `unchecked`, need
    /// --buyer.
    #[arg(long, value_name = "AMOUNT|unchecked", value_parser = amount)]
    amount: Option<CartAmount>,
    /// Places it for this buyer. Needs an admin's token with the scope orders:place.
    #[arg(long, value_name = "NAME")]
    buyer: Option<String>,
}

fn amount(text: &str) -> Result<CartAmount, String> {
    match (text, text.parse()) {
        ("unchecked", _) => Ok(CartAmount::Unchecked),
        (_, Ok(amount)) => Ok(CartAmount::Of(amount)),
        _ => Err("expected a whole number of the currency's smallest unit, or unchecked".into()),
    }
}

/// No name of an item has a colon.
fn line(text: &str) -> Result<(String, u32), String> {
    let (item, units) = text.split_once(':').unwrap_or((text, "1"));
    let units = units.parse();
    let units = units.map_err(|_| "expected ITEM or ITEM:UNITS, such as vase:2")?;
    Ok((item.to_owned(), units))
}

impl Place {
    fn request(self, token: &Token) -> Result<Request> {
        let buyer = self.buyer.clone();
        let cart = self.cart()?;
        Ok(match buyer {
            Some(buyer) => Request::place_cart_for(token, &buyer, &cart),
            None => Request::place_cart(token, &cart),
        })
    }

    fn cart(self) -> Result<NewCart> {
        let add = |cart: NewCart, (item, units)| cart.with(item, units);
        let cart = self.lines.into_iter().fold(NewCart::new(), add);
        let cart = match self.key {
            Some(key) => cart.with_key(IdempotencyKey::new(key)?),
            None => cart,
        };
        Ok(match self.amount {
            Some(amount) => cart.with_amount(amount),
            None => cart,
        })
    }
}

impl CartsCommand {
    pub async fn run(self, service: &Service) -> Result<()> {
        let token = &service.token;
        let request = match self {
            Self::Place(place) => place.request(token)?,
            Self::List => {
                let request = |page: &_| Request::list_own_carts(token, page);
                return service.list(&COLUMNS, request).await;
            }
            Self::Show { cart } => Request::cart(token, cart),
            Self::Cancel { cart } => Request::cancel_cart(token, cart),
            Self::Extend { cart, seconds } => Request::extend_cart(token, cart, &seconds.into()),
            Self::Refund { cart, line: None } => Request::refund_cart(token, cart),
            Self::Refund {
                cart,
                line: Some(line),
            } => Request::refund_cart_line(token, cart, line),
        };
        service.show(&request).await
    }
}

#[cfg(test)]
mod tests {
    use client::CartAmount;

    use super::{amount, line};

    #[test]
    fn a_line_is_an_item_and_its_units() {
        assert_eq!(line("vase"), Ok(("vase".into(), 1)));
        assert_eq!(line("a.b-c:20"), Ok(("a.b-c".into(), 20)));
        assert_eq!(amount("2494"), Ok(CartAmount::Of(2494)));
        assert_eq!(amount("unchecked"), Ok(CartAmount::Unchecked));
        for text in ["", "24.94", "-1", "any"] {
            assert!(amount(text).is_err(), "{text}");
        }
        for text in ["vase:", "vase:two", "vase:-1", "vase:1:2"] {
            assert!(line(text).is_err(), "{text}");
        }
    }
}
