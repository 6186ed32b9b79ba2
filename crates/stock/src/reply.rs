//! Reads a script's reply field by field. An error names what was expected and what was found.

use redis::Value;

use crate::StockError;

/// The fields of a reply, taken from the front.
pub(crate) struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    pub(crate) fn new(value: Value) -> Result<Self, StockError> {
        match value {
            Value::Array(fields) => Ok(Self(fields.into_iter())),
            other => Err(unexpected("an array", &other)),
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, StockError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            Some(Value::BulkString(text)) => parse_int(&text)
                .ok_or_else(|| unexpected("a whole number", &Value::BulkString(text))),
            other => Err(unexpected("a whole number", &other.unwrap_or(Value::Nil))),
        }
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, StockError> {
        let number = self.int()?;
        u64::try_from(number)
            .map_err(|_| unexpected("a number not below zero", &Value::Int(number)))
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StockError> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            other => Err(unexpected("a string", &other.unwrap_or(Value::Nil))),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StockError> {
        String::from_utf8(self.bytes()?)
            .map_err(|error| StockError::Unreadable(format!("expected text: {error}")))
    }

    pub(crate) fn parse<T: std::str::FromStr>(&mut self) -> Result<T, StockError> {
        let text = self.text()?;
        text.parse().map_err(|_| {
            StockError::Unreadable(format!(
                "expected a {}, found {text:?}",
                std::any::type_name::<T>()
            ))
        })
    }

    pub(crate) fn list(&mut self) -> Result<Self, StockError> {
        Self::new(self.0.next().unwrap_or(Value::Nil))
    }

    pub(crate) fn value(&mut self) -> Option<Value> {
        self.0.next()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

fn parse_int(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unexpected(expected: &str, found: &Value) -> StockError {
    StockError::Unreadable(format!("expected {expected}, found {found:?}"))
}
