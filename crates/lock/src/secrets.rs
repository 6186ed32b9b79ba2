//! Addresses with passwords: what of them may be shown, and what in them a client would misread.
//!
//! This crate depends on no other crate of the workspace, so that it can be packaged by itself. The
//! others can depend on it, so the one function that hides passwords is here.

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// A parameter with one of these in its name has a secret value.
const SECRET_NAMES: [&str; 9] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "signature",
];
/// A parameter has a secret value if a word of its name is one of these. Within other words they
/// mean nothing: `design`, `encode`, `author`.
const SECRET_WORDS: [&str; 6] = ["sig", "auth", "authorization", "code", "key", "jwt"];
/// What stands before the name of a parameter.
const BEFORE_NAME: &[char] = &['?', '&', ';', '#', ',', ' '];
/// What ends the hosts of a URL.
const AFTER_HOSTS: &[char] = &['/', '?', '#'];

/// The address, or list of addresses, as a log or an error may show it.
///
/// Many passwords are not encoded as a URL requires, so any character may belong to one. Where a
/// text has two readings, this function hides what is secret in either: all that stands before the
/// last `@`, and all that follows the name of a parameter such as `password`. Of a list with
/// passwords it shows only the last host.
///
/// ```
/// use lock::without_secrets;
///
/// assert_eq!(without_secrets("redis://user:pa/ss@host:6379"), "redis://***@host:6379");
/// assert_eq!(without_secrets("redis://a:1,redis://b:2"), "redis://a:1,redis://b:2");
/// assert_eq!(
///     without_secrets("postgres://db/shop?user=u&password=pa&ss"),
///     "postgres://db/shop?user=u&password=***"
/// );
/// ```
pub fn without_secrets(text: &str) -> String {
    let (head, value) = text.split_at(secret_value(text).unwrap_or(text.len()));
    let (scheme, rest) = split_scheme(head);
    // What looks like a parameter is perhaps a part of a password that ends at this `@`.
    if value.contains('@') {
        return format!("{scheme}{HIDDEN}");
    }
    let value = if value.is_empty() { "" } else { HIDDEN };
    match rest.rfind('@') {
        Some(at) => format!("{scheme}{HIDDEN}{}{value}", &rest[at..]),
        // In an address that lacks its host, the password stands where a port would.
        None if !scheme.is_empty() && !rest.split("://").all(has_ports) => {
            format!("{scheme}{HIDDEN}")
        }
        None => format!("{scheme}{rest}{value}"),
    }
}

/// A character in the user or the password of this URL that the URL must encode: as it stands
/// there, a client reads another host or another password. `None`: the URL has one reading.
///
/// `has_hosts`: the URL lists hosts with commas, after one user and password for all of them.
pub fn unencoded(url: &str, has_hosts: bool) -> Option<char> {
    let (scheme, rest) = split_scheme(url);
    // The path of a file may have any character, and no password stands before it.
    if scheme.is_empty() || scheme == "sqlite://" {
        return None;
    }
    let end = rest.find(AFTER_HOSTS).unwrap_or(rest.len());
    let (hosts, after) = rest.split_at(end);
    if has_misplaced_at(hosts, after) {
        return after.chars().next();
    }
    let credentials = hosts.rfind('@').map_or("", |at| &hosts[..at]);
    (has_hosts && credentials.contains(',')).then_some(',')
}

/// What an error expects of a URL in which [`unencoded`] has found this character.
pub fn unencoded_text(found: char) -> String {
    let mut bytes = [0; 4];
    let bytes = found.encode_utf8(&mut bytes).bytes();
    let encoded: String = bytes.map(|byte| format!("%{byte:02X}")).collect();
    // With any other character, the `@` behind it may be all that is wrong.
    let or = match found {
        ',' => "",
        _ => ", or the `@` behind it as %40 if no password ends there",
    };
    format!("{found:?} in the user or password to be encoded as {encoded}{or}")
}

/// Whether an `@` behind the hosts shows that a password went on there.
fn has_misplaced_at(hosts: &str, after: &str) -> bool {
    let (path, query) = after.split_once('?').unwrap_or((after, ""));
    // `?user=ann@shop` is a parameter. The rest of a password is none, or what precedes it is no
    // host.
    let is_parameter = |part: &str| !part.contains('@') || part.contains('=');
    let is_host = hosts.contains('@') || has_ports(hosts);
    let in_query = query.contains('@') && !(is_host && query.split('&').all(is_parameter));
    in_query || path.contains('@')
}

/// Where the value of the first secret parameter begins.
fn secret_value(text: &str) -> Option<usize> {
    let mut ends = text.match_indices('=').map(|(end, _)| end);
    ends.find(|end| is_secret(&text[..*end])).map(|end| end + 1)
}

/// Whether the text ends with the name of a secret parameter.
fn is_secret(text: &str) -> bool {
    let name = text.rsplit(BEFORE_NAME).next().unwrap_or_default();
    let name = decoded(name).to_ascii_lowercase();
    let is_word = |word: &str| SECRET_WORDS.contains(&word);
    if name.split(['_', '-', '.', '[', ']']).any(is_word) {
        return true;
    }
    // `api_key` and `X-Api-Key` are `apikey`.
    let name = name.replace(['_', '-', '.'], "");
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// The text with its `%41` as `A`. Clients compare names in this form.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                decoded.push(char::from(byte));
                decoded.push_str(&part[2..]);
            }
            None => decoded.push_str(part),
        }
    }
    decoded
}

/// Splits `redis://` off.
fn split_scheme(text: &str) -> (&str, &str) {
    let is_scheme = |scheme: &str| {
        scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    };
    match text.find("://") {
        Some(end) if is_scheme(&text[..end]) => text.split_at(end + 3),
        _ => ("", text),
    }
}

/// Whether each host at the beginning of this text has a port, or nothing, behind its colon.
fn has_ports(text: &str) -> bool {
    let hosts = text.split(AFTER_HOSTS).next().unwrap_or_default();
    hosts.split(',').all(|host| {
        // The address of IPv6 has colons of its own.
        let host = match host.strip_prefix('[') {
            Some(address) => address.split_once(']').map_or(host, |(_, port)| port),
            None => host,
        };
        let port = host.split_once(':').map_or("", |(_, port)| port);
        port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::{unencoded, unencoded_text, without_secrets};

    #[test]
    fn what_is_no_secret_is_shown() {
        for shown in [
            "nonsense",
            "127.0.0.1:8080",
            "info,sqlx::postgres::notice=warn",
            "redis://host",
            "redis://host:6379/2?protocol=resp3",
            "rediss://[2001:db8::1]:6379#insecure",
            "redis+sentinel://a:1,b:2/shop",
            "redis://a:1,redis://b:2?durable=true,redis://c",
            "postgres:///shop?host=/run/postgresql&user=ann",
            "sqlite:///var/lib/stockade/ledger.db",
            "https://shop.example/?author=ann&encoding=gzip&design=7&zipcode=8",
            "https://shop.example,https://shop.example:8443",
        ] {
            assert_eq!(without_secrets(shown), shown);
        }
    }

    #[test]
    fn the_host_and_the_parameters_are_shown_without_the_secrets() {
        for (text, shown) in [
            ("redis://user:secret@host:1", "redis://***@host:1"),
            ("redis://:secret@[::1]:1/2", "redis://***@[::1]:1/2"),
            ("redis://u:se/cr#et?@host", "redis://***@host"),
            ("redis://u:se,cr@et@host", "redis://***@host"),
            (
                "redis://u:secret@a:1,redis://u:secret@b:2",
                "redis://***@b:2",
            ),
            (
                "redis+cluster://u:secret@a:1,b:2",
                "redis+cluster://***@a:1,b:2",
            ),
            ("u:secret@host:1", "***@host:1"),
            ("redis://user:secret", "redis://***"),
            ("redis://a:1,redis://u:secret", "redis://***"),
            (
                "postgres://db/shop?user=u&sslpassword=secret&x=y",
                "postgres://db/shop?user=u&sslpassword=***",
            ),
            (
                "postgres://db/shop?p%61ssword=secret",
                "postgres://db/shop?p%61ssword=***",
            ),
            (
                "nats://host?auth_token=secret",
                "nats://host?auth_token=***",
            ),
            ("https://host/?api_key=secret", "https://host/?api_key=***"),
            (
                "https://host/?x=y&ApiKey=secret",
                "https://host/?x=y&ApiKey=***",
            ),
            (
                "https://host/?X-Api-Key=secret",
                "https://host/?X-Api-Key=***",
            ),
            (
                "https://host/?access_token=secret&x=y",
                "https://host/?access_token=***",
            ),
            (
                "https://blob/?se=7&sig=secret",
                "https://blob/?se=7&sig=***",
            ),
            (
                "https://s3/?X-Amz-Signature=secret",
                "https://s3/?X-Amz-Signature=***",
            ),
            ("https://host/?auth=secret", "https://host/?auth=***"),
            (
                "https://host/back?code=secret",
                "https://host/back?code=***",
            ),
            // The user, or a parameter of a user's address.
            ("redis://u:1?password=2@host", "redis://***"),
            ("postgres://db/shop?password=se@cret", "postgres://***"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }

    /// Letters of the secrets are upper case, which nothing else in the addresses has.
    fn secret() -> impl Strategy<Value = String> {
        let parts = [
            "Q",
            "XY",
            "Z",
            "7",
            "/",
            "#",
            "?",
            "@",
            ":",
            ",",
            " ",
            "&",
            ";",
            "=",
            "%",
            "%2F",
            "[",
            "]",
            "+",
            "\\",
            "\"",
            "\n",
            "\u{e9}",
            "://",
            ",redis://",
            "?password=",
            "&token=",
        ];
        vec(select(parts.to_vec()), 1..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn no_secret_is_ever_shown(
            user in secret(),
            password in secret(),
            host in select(vec!["db", "db.shop.example:6379", "[2001:db8::1]:1"]),
            scheme in select(vec!["redis", "rediss+cluster", "postgres", "nats", "http"]),
        ) {
            let of_user = format!("{scheme}://{user}:{password}@{host}");
            for text in [
                of_user.clone(),
                format!("{of_user}/0?durable=true"),
                format!("{of_user},b:2/shop"),
                format!("{of_user},{of_user}"),
                format!("{scheme}://{host},{of_user}"),
                format!("{of_user}?password={password}"),
                format!("{scheme}://:{password}@{host}"),
                format!("ann:{password}@{host}"),
                format!("{scheme}://{host}?password={password}"),
                format!("{scheme}://{host}/shop?sslmode=require&PassWord={password}&x=y"),
                format!("{scheme}://{host}/shop?x=y&ssl%70assword={password}"),
                format!("{scheme}://u@{host}/shop?auth_token={password}#x"),
            ] {
                let shown = without_secrets(&text);
                prop_assert!(!shown.contains(['Q', 'X', 'Y', 'Z']), "{text:?}: {shown:?}");
                prop_assert_eq!(without_secrets(&shown), shown, "the mask hides no mask");
            }
        }

        #[test]
        fn an_encoded_password_has_one_reading(
            password in "[A-Za-z0-9%!$'()*+=._~-]{1,16}",
            has_hosts in any::<bool>(),
        ) {
            for text in [
                format!("redis://u:{password}@a:1/2"),
                format!("redis+sentinel://:{password}@a:1,b/shop?x=y@z"),
            ] {
                prop_assert_eq!(unencoded(&text, has_hosts), None, "{}", text);
            }
        }
    }

    #[test]
    fn a_character_that_a_client_would_misread_is_found() {
        for (url, has_hosts, found) in [
            ("redis://u:pa/ss@host:1", false, Some('/')),
            ("redis://u:12/ss@host:1", false, Some('/')),
            ("redis://u:pa#ss@host:1", false, Some('#')),
            ("redis://u:pa?ss@host:1", false, Some('?')),
            ("redis://u:12?ss@host:1", false, Some('?')),
            ("redis://u:pa?s=s@host:1", false, Some('?')),
            ("redis://u:p@a/ss@host:1", false, Some('/')),
            ("redis+cluster://u:pa,ss@a:1,b:2", true, Some(',')),
            ("redis+cluster://u:p@a:1,u:p@b:2", true, Some(',')),
            // These have one reading.
            ("redis://u:pa,ss@host:1", false, None),
            ("postgres://u:p@ss@host/shop", false, None),
            ("redis://u:pa%2Css@a:1", true, None),
            ("postgres:///shop?user=ann@shop.example", false, None),
            (
                "postgres://db:5432/shop?user=ann@x&host=/run/x",
                false,
                None,
            ),
            ("sqlite:///home/ann@shop/ledger.db", false, None),
            ("nonsense@x/y@z", false, None),
        ] {
            assert_eq!(unencoded(url, has_hosts), found, "{url}");
        }
        assert!(unencoded_text(',').ends_with("encoded as %2C"));
    }
}
