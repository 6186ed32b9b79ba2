//! Problems: how the service says why it did not do what was requested (RFC 9457).

use std::fmt;

use serde::{Deserialize, Deserializer};

use crate::{Content, Problem, Response};

/// What an answer says about the attempts of its request. `clients/answers.json` has the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The service has looked at the key, the order, the cart or the item. If an earlier attempt
    /// had taken effect, the answer would be another one.
    Decision,
    /// This attempt has changed nothing. An earlier one may have: this is decided without a look at
    /// it.
    Nothing,
    /// This attempt may have taken effect.
    Unknown,
}

macro_rules! codes {
    ($($(#[$doc:meta])+ $code:ident = $text:literal: $meaning:ident,)+) => {
        /// The stable name of a problem.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $($(#[$doc])+ $code,)+
            /// The body was no problem+json: a proxy's answer, or not a Stockade.
            Missing,
            /// A code that this version of the client does not list.
            Other(String),
        }

        impl ProblemCode {
            /// All codes that this version of the client lists.
            #[cfg(test)]
            pub(super) const LISTED: &[Self] = &[$(Self::$code,)+];

            /// What the code says. One that is not listed, or none, says nothing for certain.
            pub(crate) fn meaning(&self) -> Meaning {
                match self {
                    $(Self::$code => Meaning::$meaning,)+
                    Self::Missing | Self::Other(_) => Meaning::Unknown,
                }
            }

            /// The code as the API writes it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$code => $text,)+
                    Self::Missing => "no problem+json",
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for ProblemCode {
            fn from(text: String) -> Self {
                match &*text {
                    $($text => Self::$code,)+
                    _ => Self::Other(text),
                }
            }
        }
    };
}

mod codes;

pub use codes::ProblemCode;
use codes::RETURNS_MONEY;

impl Problem {
    pub(crate) fn read(response: &Response) -> Self {
        let problem = match response.content {
            Content::Problem => serde_json::from_slice(&response.body).ok(),
            Content::Json | Content::Other => None,
        };
        let problem = problem.unwrap_or_else(|| Self {
            status: 0,
            code: ProblemCode::Missing,
            detail: String::new(),
            field: None,
            item: None,
            is_final: None,
            state: None,
            opens_at: None,
            retry_after: None,
        });
        Self {
            status: response.status,
            retry_after: response.retry_after,
            ..problem
        }
    }

    /// Whether this is the service's own decision, which counts for all attempts of the request.
    pub(crate) fn settles_key(&self) -> bool {
        self.is_decision() && self.is_final != Some(false)
    }

    /// Whether this is the service's own decision that left no record. `final` of any other answer
    /// means nothing.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.is_decision() && self.is_final == Some(false)
    }

    fn is_decision(&self) -> bool {
        self.code.meaning() == Meaning::Decision && (400..=499).contains(&self.status)
    }

    /// Whether a report of a payment was refused so that its money must be returned.
    pub(crate) fn returns_money(&self) -> bool {
        self.settles_key() && RETURNS_MONEY.contains(&self.code)
    }

    /// Whether the request may have taken effect although it was answered with this.
    pub(crate) fn may_have_run(&self) -> bool {
        leaves_open(self.status) && self.code.meaning() != Meaning::Nothing
    }
}

/// Whether a repeat of the request is needed to know what became of it.
pub(crate) fn leaves_open(status: u16) -> bool {
    matches!(status, 408 | 500..=599)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.code)?;
        if self.detail.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.detail)
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ProblemCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::{Meaning, ProblemCode};
    use crate::{Content, Problem, Response};

    /// The table that all clients share, and the description that has all codes.
    const ANSWERS: &str = include_str!("../../../clients/answers.json");
    const DESCRIPTION: &str = include_str!("../../../docs/openapi.json");

    fn rows() -> serde_json::Map<String, Value> {
        let answers: Value = serde_json::from_str(ANSWERS).unwrap();
        answers["codes"].as_object().unwrap().clone()
    }

    fn problem(status: u16, body: &str) -> Problem {
        Problem::read(&Response {
            status,
            replayed: false,
            retry_after: None,
            version: None,
            content: Content::Problem,
            body: body.to_owned().into(),
        })
    }

    #[test]
    fn a_familiar_code_in_json_of_another_type_is_a_gateways() {
        for (status, body) in [
            (503, r#"{"code":"unavailable"}"#),
            (409, r#"{"code":"sold_out","final":false}"#),
        ] {
            for content in [Content::Json, Content::Other] {
                let response = Response {
                    status,
                    replayed: false,
                    retry_after: Some(1),
                    version: None,
                    content,
                    body: body.into(),
                };
                let problem = Problem::read(&response);
                assert_eq!(problem.code, ProblemCode::Missing, "{body}");
                assert_eq!((problem.is_final, problem.retry_after), (None, Some(1)));
                assert!(!problem.settles_key());
                assert_eq!(problem.may_have_run(), status == 503);
            }
        }
    }

    #[test]
    fn money_is_returned_for_the_codes_of_the_table() {
        let listed = ProblemCode::LISTED.iter().filter(|code| {
            let problem = problem(409, &format!(r#"{{"code":"{code}"}}"#));
            problem.returns_money()
        });
        let listed: BTreeSet<_> = listed.map(|code| code.as_str().to_owned()).collect();
        let rows = rows()
            .into_iter()
            .filter(|(_, row)| row["returns_money"] == true);
        assert_eq!(listed, rows.map(|(code, _)| code).collect());
        assert!(!problem(503, r#"{"code":"already_paid"}"#).returns_money());
    }

    #[test]
    fn every_code_of_the_description_is_classified_as_the_table_says() {
        let table = rows()
            .into_iter()
            .map(|(code, row)| (code, row["lost"].clone()));
        let table: BTreeMap<_, _> = table.collect();
        let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
        let codes = description["components"]["schemas"]["ProblemCode"]["enum"].as_array();
        let codes: BTreeSet<_> = codes
            .unwrap()
            .iter()
            .filter_map(|code| code.as_str().map(str::to_owned))
            .collect();
        assert_eq!(table.keys().cloned().collect::<BTreeSet<_>>(), codes);
        let listed = ProblemCode::LISTED.iter().map(|code| {
            let meaning = match code.meaning() {
                Meaning::Decision => "decision",
                Meaning::Nothing => "nothing",
                Meaning::Unknown => "unknown",
            };
            (code.as_str().to_owned(), Value::from(meaning))
        });
        assert_eq!(listed.collect::<BTreeMap<_, _>>(), table);
    }

    #[test]
    fn only_the_services_own_words_settle_a_key() {
        assert!(problem(409, r#"{"code":"sold_out"}"#).settles_key());
        for (status, body) in [
            (409, r#"{"code":"sold_out","final":false}"#),
            (409, r#"{"code":"later"}"#),
            (409, r#"{"code":409}"#),
            (409, r#"{"message":"sold_out"}"#),
            (409, "<html>"),
            (404, r#"{"code":"item_not_found"}"#),
            (503, r#"{"code":"sold_out"}"#),
        ] {
            assert!(!problem(status, body).settles_key(), "{status} {body}");
        }
    }

    #[test]
    fn an_answer_without_a_known_code_may_hide_an_effect() {
        for (status, body) in [
            (500, r#"{"code":"internal"}"#),
            (502, "<html>"),
            (503, r#"{"code":"outcome_unknown"}"#),
            (504, r#"{"code":"later"}"#),
        ] {
            assert!(problem(status, body).may_have_run(), "{status} {body}");
        }
        assert!(!problem(503, r#"{"code":"unavailable"}"#).may_have_run());
        assert!(!problem(408, r#"{"code":"request_timeout"}"#).may_have_run());
    }
}
