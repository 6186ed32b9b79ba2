//! `If-Match`: a change only of the version that the caller has seen (RFC 9110, 13.1.1).
//!
//! The comparison ought to be strong, and a weak tag would match nothing. Our tags are the item's
//! version and stand for its state, not for the bytes of one representation. A proxy that
//! compresses a response makes its tag weak (nginx, Cloudflare) or appends the coding (Apache): the
//! bytes have changed, the state has not. So these forms of our own tags are the same version.

use domain::ItemId;
use http::{HeaderMap, HeaderValue, header};

use super::super::{App, Problem};

const EXPECTED: &str =
    "expected the item's version in quotes, as in its ETag, or a list of several, or *";

/// What the header demands.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    /// `*`: that the item exists.
    Exists,
    /// One of these versions, at least one.
    OneOf(Vec<u64>),
}

/// The version that a change of the item demands. `None`: any.
pub(crate) async fn if_match(
    app: &App,
    id: &ItemId,
    headers: &HeaderMap,
) -> Result<Option<u64>, Problem> {
    match condition(headers)? {
        None | Some(Condition::Exists) => Ok(None),
        Some(Condition::OneOf(versions)) => one_of(app, id, &versions).await.map(Some),
    }
}

/// The same for a change that needs a version: `*` is the one that the item has now.
pub(crate) async fn required_if_match(
    app: &App,
    id: &ItemId,
    headers: &HeaderMap,
) -> Result<u64, Problem> {
    match condition(headers)? {
        None => Err(Problem::if_match_required()),
        Some(Condition::Exists) => version(app, id).await?.ok_or_else(Problem::item_not_found),
        Some(Condition::OneOf(versions)) => one_of(app, id, &versions).await,
    }
}

/// The version among these that the item has. The change itself compares it once more, so a single
/// one is not looked up. If it has none of them, the latest: the change is refused with the version
/// of the item, or found to be a repeat.
async fn one_of(app: &App, id: &ItemId, versions: &[u64]) -> Result<u64, Problem> {
    let latest = versions.iter().copied().max().unwrap_or_default();
    if versions.len() == 1 {
        return Ok(latest);
    }
    let now = version(app, id).await?;
    Ok(now.filter(|now| versions.contains(now)).unwrap_or(latest))
}

async fn version(app: &App, id: &ItemId) -> Result<Option<u64>, Problem> {
    Ok(app.engine.item(id).await?.map(|item| item.version))
}

/// The header, which may come several times: the lists are one list then.
fn condition(headers: &HeaderMap) -> Result<Option<Condition>, Problem> {
    if !headers.contains_key(header::IF_MATCH) {
        return Ok(None);
    }
    let (mut exists, mut versions) = (false, Vec::new());
    for line in headers.get_all(header::IF_MATCH) {
        let line = line.to_str().map_err(|_| malformed())?;
        // Our tags have no comma, and another tag than ours is refused, whatever is in it. Empty
        // elements of a list do not count (RFC 9110, 5.6.1).
        for tag in line.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            match tag {
                "*" => exists = true,
                tag => versions.push(version_of(tag).ok_or_else(malformed)?),
            }
        }
    }
    versions.sort_unstable();
    versions.dedup();
    match (exists, versions.is_empty()) {
        (true, true) => Ok(Some(Condition::Exists)),
        (false, false) => Ok(Some(Condition::OneOf(versions))),
        // `*` among tags says nothing, and neither does an empty header.
        _ => Err(malformed()),
    }
}

fn malformed() -> Problem {
    Problem::invalid("If-Match", EXPECTED)
}

/// The version in a tag of ours, whatever a proxy has made of it. Callers may leave the quotes out.
fn version_of(tag: &str) -> Option<u64> {
    let strong = tag.strip_prefix("W/");
    let opaque = strong.unwrap_or(tag);
    let quoted = opaque.strip_prefix('"').map(|rest| rest.strip_suffix('"'));
    let text = match quoted {
        Some(inside) => without_coding(inside?),
        None if strong.is_none() => opaque,
        None => return None,
    };
    // `parse` would take a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Apache names the coding behind the tag: `"3-gzip"`. Jetty does so with two hyphens.
fn without_coding(tag: &str) -> &str {
    const CODINGS: [&str; 4] = ["gzip", "br", "zstd", "deflate"];
    match tag.rsplit_once('-') {
        Some((version, coding)) if CODINGS.contains(&coding) => {
            version.strip_suffix('-').unwrap_or(version)
        }
        _ => tag,
    }
}

/// The item's version as `ETag`, for a later `If-Match`.
pub(crate) fn etag(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{Condition, condition, etag};

    fn read(lines: &[&str]) -> Result<Option<Condition>, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::IF_MATCH, HeaderValue::from_str(line).unwrap());
        }
        condition(&headers).map_err(|problem| {
            let problem = serde_json::to_value(problem).unwrap();
            assert_eq!(problem["field"], "If-Match", "{lines:?}");
            problem["detail"].as_str().unwrap().to_owned()
        })
    }

    #[test]
    fn our_own_tags_are_known_whatever_a_proxy_has_made_of_them() {
        for tag in [
            "\"3\"",
            "W/\"3\"",
            "3",
            " \"3\" ",
            "\"3-gzip\"",
            "\"3-br\"",
            "\"3--gzip\"",
            "W/\"3-gzip\"",
            "\"3\", W/\"3\"",
        ] {
            assert_eq!(read(&[tag]), Ok(Some(Condition::OneOf(vec![3]))), "{tag}");
        }
        let own = etag(u64::MAX);
        let own = own.to_str().unwrap();
        assert_eq!(read(&[own]), Ok(Some(Condition::OneOf(vec![u64::MAX]))));
    }

    #[test]
    fn a_list_is_one_header_or_several() {
        let both = Ok(Some(Condition::OneOf(vec![2, 3])));
        for lines in [
            &["\"2\", \"3\""][..],
            &["\"3\",\"2\""],
            &["W/\"2\" , \"3\""],
            &["\"2\"", "\"3\""],
            &["\"2\", , \"3\",", ""],
        ] {
            assert_eq!(read(lines), both, "{lines:?}");
        }
        assert_eq!(read(&["*"]), Ok(Some(Condition::Exists)));
        assert_eq!(read(&["*", "*"]), Ok(Some(Condition::Exists)));
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn what_is_no_tag_of_ours_is_refused_by_the_headers_name() {
        for line in [
            "",
            "x",
            "\"x\"",
            "\"\"",
            "\"3",
            "3\"",
            "\"\"3\"\"",
            "W/3",
            "w/\"3\"",
            "-1",
            "+1",
            "\"+1\"",
            "\"3-x\"",
            "\"3\" \"4\"",
            ",",
            "\"3\", x",
            "*, \"3\"",
            "\"18446744073709551616\"",
        ] {
            assert!(read(&[line]).is_err(), "{line}");
        }
    }
}
