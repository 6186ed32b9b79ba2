//! Times as a user writes them.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

use crate::Invalid;

/// A time with its offset from UTC (RFC 3339), such as `2027-07-01T10:00:00+02:00`.
///
/// An annotation behind it (RFC 9557), such as `[Europe/Berlin]`, is refused and not skipped. It
/// may contradict the offset, and then one of the two is a mistake that opens a sale an hour off.
/// Which offset a zone has is known only to a database that differs between machines, so that one
/// instance would accept what another one refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenTime(pub Timestamp);

impl GivenTime {
    const EXPECTED: &str = "a time with its offset (RFC 3339), such as 2027-07-01T10:00:00+02:00";
}

impl FromStr for GivenTime {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // Timestamps are parsed with the annotation left out of account.
        if text.contains('[') {
            let expected = format!(
                "{}, without a zone in brackets: it may contradict the offset",
                Self::EXPECTED
            );
            return Err(Invalid::new("time", expected));
        }
        text.parse()
            .map(Self)
            .map_err(|_| Invalid::new("time", Self::EXPECTED))
    }
}

impl<'de> Deserialize<'de> for GivenTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = GivenTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(GivenTime::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<GivenTime, E> {
        text.parse()
            .map_err(|error: Invalid| E::custom(format_args!("expected {}", error.expected)))
    }
}

#[cfg(test)]
mod tests {
    use serde::{
        Deserialize,
        de::{IntoDeserializer, value},
    };

    use super::GivenTime;

    const SUMMER: &str = "2027-07-01T10:00:00";

    fn deserialized<'de>(
        value: impl IntoDeserializer<'de, value::Error>,
    ) -> Result<GivenTime, value::Error> {
        GivenTime::deserialize(value.into_deserializer())
    }

    #[test]
    fn a_time_is_read_with_its_offset() {
        for (offset, hour) in [("Z", 10), ("+00:00", 10), ("+02:00", 8), ("-08:00", 18)] {
            let time: GivenTime = format!("{SUMMER}{offset}").parse().unwrap();
            let expected = format!("2027-07-01T{hour:02}:00:00Z");
            assert_eq!(time.0.to_string(), expected, "{offset}");
        }
    }

    #[test]
    fn a_zone_beside_the_offset_is_refused_and_not_skipped() {
        for annotation in [
            "+01:00[Europe/Berlin]",
            "+01:00[!Europe/Berlin]",
            "+02:00[Europe/Berlin]",
            "+01:00[No/Where]",
            "Z[Europe/Berlin]",
            "+01:00[+02:00]",
            "+02:00[u-ca=gregory]",
            "[Europe/Berlin]",
        ] {
            let text = format!("{SUMMER}{annotation}");
            let refused = text.parse::<GivenTime>().unwrap_err();
            assert!(refused.expected.contains("brackets"), "{text}: {refused}");
            let refused = deserialized(&*text).unwrap_err().to_string();
            assert!(refused.contains("brackets"), "{text}: {refused}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "tomorrow", "2027-07-01", SUMMER, "1798797600"] {
            assert!(text.parse::<GivenTime>().is_err(), "{text}");
        }
        let refused = deserialized(1_798_797_600_u64).unwrap_err().to_string();
        assert!(refused.contains("RFC 3339"), "{refused}");
    }
}
