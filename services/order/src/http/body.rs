//! Strict JSON bodies, with errors that name the field.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
};

use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use domain::{Invalid, Quantity};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, Visitor},
};

use super::{App, Problem, request_id};

/// A JSON body of shape `T`.
pub(crate) struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let Raw(body) = Raw::from_request(request, app).await?;
        parse(&body).map(Self)
    }
}

/// The raw bytes of a body.
pub(crate) struct Raw(pub Bytes);

impl FromRequest<App> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app.body_bytes).await.map(Self)
    }
}

/// The bytes of a body of at most `max` bytes.
pub(crate) async fn read(request: Request, max: usize) -> Result<Bytes, Problem> {
    read_whole(request.into_body(), max).await
}

/// The same for any body.
pub(crate) async fn read_whole<B>(body: B, max: usize) -> Result<Bytes, Problem>
where
    B: hyper::body::Body<Data = Bytes>,
{
    request_id::reading(collect(pin!(body), max)).await
}

/// Nearly every body is a single frame, which is not copied.
async fn collect<B>(mut body: Pin<&mut B>, max: usize) -> Result<Bytes, Problem>
where
    B: hyper::body::Body<Data = Bytes>,
{
    let (mut first, mut joined) = (Bytes::new(), BytesMut::new());
    // A body that says that it has ended is not asked for what follows.
    while !body.is_end_stream() {
        let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await else {
            break;
        };
        let frame = frame.map_err(|_| Problem::invalid("body", "could not be read"))?;
        // Other frames are trailers, which mean nothing here.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.len() + joined.len() + data.len() > max {
            return Err(Problem::too_large());
        }
        if first.is_empty() {
            first = data;
        } else {
            joined.extend_from_slice(&data);
        }
    }
    if joined.is_empty() {
        return Ok(first);
    }
    Ok([first, joined.freeze()].concat().into())
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Tracking the path of a field is expensive. So only a body that was refused is parsed again
    // with it.
    serde_json::from_slice(body).or_else(|_| parse_with_paths(body))
}

fn parse_with_paths<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| refused(&error))?;
    json.end()
        .map_err(|_| Problem::invalid("body", "expected a single JSON object"))?;
    Ok(value)
}

fn refused(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let message = error.inner().to_string();
    // serde_json appends the position in the text, which is no help if a library built the body.
    let message = message
        .split(" at line ")
        .next()
        .unwrap_or_default()
        .to_owned();
    let path = error.path().to_string();
    let field = if matches!(&*path, "." | "?") {
        quoted(&message).unwrap_or("body").to_owned()
    } else {
        path
    };
    Problem::invalid(field, message)
}

/// The field in a message like "missing field `stock`".
fn quoted(message: &str) -> Option<&str> {
    let known = ["missing field", "unknown field", "duplicate field"]
        .iter()
        .any(|start| message.starts_with(start));
    known.then(|| message.split('`').nth(1)).flatten()
}

/// Units that a request asks for, or up to which one may ask.
pub(crate) type OrderUnits = Whole<1, { Quantity::MAX as u64 }>;

impl OrderUnits {
    /// The number of units.
    pub(crate) fn quantity(self) -> Result<Quantity, Invalid> {
        Quantity::new(u32::try_from(self.0).unwrap_or(u32::MAX))
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole<const MIN: u64, const MAX: u64>(pub u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number<const MIN: u64, const MAX: u64>;

        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Number<MIN, MAX> {
            type Value = u64;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
                let inside = (MIN..=MAX).contains(&number);
                inside
                    .then_some(number)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
            }
        }

        deserializer.deserialize_u64(Number::<MIN, MAX>).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, response::IntoResponse};
    use bytes::Bytes;
    use futures::stream;
    use serde::Deserialize;

    use super::{Whole, parse, read_whole};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        #[expect(dead_code, reason = "only whether it can be read matters")]
        stock: Whole<1, 9>,
    }

    fn in_frames(frames: &[&'static str]) -> Body {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| Ok::<_, std::io::Error>(Bytes::from_static(frame.as_bytes())))
            .collect();
        Body::from_stream(stream::iter(frames))
    }

    #[tokio::test]
    async fn a_body_is_read_in_one_or_several_frames_and_up_to_the_limit() {
        let whole: [&[&str]; 4] = [
            &[],
            &["abcdef"],
            &["abc", "", "def"],
            &["", "ab", "cd", "ef"],
        ];
        for frames in whole {
            let expected = frames.concat();
            let read = read_whole(in_frames(frames), 6).await.unwrap();
            assert_eq!(read, expected.as_bytes());
            if !frames.is_empty() {
                let refused = read_whole(in_frames(frames), 5).await.unwrap_err();
                assert_eq!(refused.into_response().status(), 413);
            }
        }
        let broken = stream::iter([Ok("abc"), Err(std::io::Error::other("gone"))]);
        let refused = read_whole(Body::from_stream(broken), 6).await.unwrap_err();
        assert_eq!(refused.into_response().status(), 400);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_was_expected() {
        let table = [
            ("", "body"),
            ("[]", "body"),
            ("{", "body"),
            ("{}", "stock: missing field `stock`"),
            (
                r#"{"stock":0}"#,
                "stock: invalid value: integer `0`, expected a whole number from 1 to 9",
            ),
            (r#"{"stock":-1}"#, "expected a whole number from 1 to 9"),
            (r#"{"stock":1.5}"#, "expected a whole number from 1 to 9"),
            (r#"{"stock":"1"}"#, "expected a whole number from 1 to 9"),
            (r#"{"stock":null}"#, "stock"),
            (r#"{"stock":1,"stok":1}"#, "stok: unknown field `stok`"),
            (r#"{"stock":1,"stock":2}"#, "stock: duplicate field `stock`"),
            (r#"{"stock":1} x"#, "a single JSON object"),
        ];
        for (body, expected) in table {
            let problem = parse::<Shape>(body.as_bytes()).map(|_| ()).unwrap_err();
            let text = serde_json::to_string(&problem).unwrap();
            assert!(text.contains(expected), "{body}: {text}");
            assert_eq!(problem.into_response().status(), 400);
        }
    }
}
