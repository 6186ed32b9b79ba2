//! A reply in a form that can be compared and read, from a server or from the model.

use std::fmt;

use redis::Value;

/// What a script answers, or a model of it.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    /// An error that the script raised itself.
    Refused(&'static str),
    /// Anything that no script should answer.
    Strange(String),
}

/// The one error that a script raises on purpose.
pub const TWICE: Reply = Reply::Refused("order id twice in one batch");

impl Reply {
    pub fn of(value: redis::RedisResult<Value>) -> Self {
        match value {
            Ok(value) => value.into(),
            Err(error) if error.to_string().contains("order id twice in one batch") => TWICE,
            Err(error) => Self::Strange(error.to_string()),
        }
    }

    /// The field at `at` of a list.
    pub fn field(&self, at: usize) -> Option<&Self> {
        match self {
            Self::List(fields) => fields.get(at),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Int(number) => Self::Number(number),
            Value::BulkString(text) => Self::Text(text),
            Value::SimpleString(text) => Self::Text(text.into_bytes()),
            Value::Array(fields) => Self::List(fields.into_iter().map(Self::from).collect()),
            other => Self::Strange(format!("{other:?}")),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "'{}'", text.escape_ascii()),
            Self::List(fields) => f.debug_list().entries(fields).finish(),
            Self::Refused(why) => write!(f, "error: {why}"),
            Self::Strange(what) => write!(f, "strange: {what}"),
        }
    }
}

macro_rules! from_number {
    ($($type:ty),+) => {
        $(impl From<$type> for Reply {
            fn from(number: $type) -> Self {
                Self::Number(number.try_into().unwrap())
            }
        })+
    };
}

from_number!(i64, u64, usize);

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Vec<u8>> for Reply {
    fn from(text: Vec<u8>) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Reply>> for Reply {
    fn from(fields: Vec<Reply>) -> Self {
        Self::List(fields)
    }
}

/// A list of fields.
macro_rules! list {
    ($($field:expr),* $(,)?) => {
        $crate::differential::reply::Reply::List(vec![$($crate::differential::reply::Reply::from($field)),*])
    };
}
pub(crate) use list;
