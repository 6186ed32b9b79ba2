//! A setting is declared once, with `settings!`: its name, type, default and description, and the
//! [kind](super::kinds) of its value. From that come the variable, the flag and the key of the file,
//! `--help`, `stockade config`, and the tables of `docs/settings.md`.

/// What is said about a setting.
pub struct Setting {
    /// Key in a file, with the unit last.
    pub key: &'static str,
    /// Default value, if it has one.
    pub default: Option<&'static str>,
    /// Whether output hides the value.
    pub is_secret: bool,
    /// Description in Markdown, line by line.
    pub lines: &'static [&'static str],
}

impl Setting {
    /// Environment variable. The stores have names that other programs know as well.
    pub fn variable(&self) -> String {
        let name = self.key.to_ascii_uppercase();
        match self.key {
            "redis_url" | "lock_urls" | "database_url" => name,
            _ => format!("STOCKADE_{name}"),
        }
    }

    /// Flag, without its dashes.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Description as the settings page has it.
    pub fn text(&self) -> String {
        let lines: Vec<_> = self.lines.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }

    /// Description for a terminal: links have only their text.
    pub fn help(&self) -> String {
        without_links(&self.text())
    }
}

/// `[text](target)` becomes `text`.
fn without_links(markdown: &str) -> String {
    let (mut plain, mut rest) = (String::new(), markdown);
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        let (text, after) = of_link(link).unwrap_or(("[", link));
        plain.push_str(text);
        rest = after;
    }
    plain + rest
}

/// The text of a link, and what follows it. `None`: the bracket before it begins no link.
fn of_link(link: &str) -> Option<(&str, &str)> {
    let (text, target) = link.split_once("](")?;
    let (_, after) = target.split_once(')')?;
    (!text.contains('[')).then_some((text, after))
}

/// The default, if the declaration has one.
pub(super) fn default(texts: &[&'static str]) -> Option<&'static str> {
    texts.first().copied()
}

/// Declares a group of settings: `key: Type = default, kind;`, below its description. It makes a
/// struct with their values, a function for each that reads it alone, and `declared`, the list.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $group:ident {
            $(
                $(#[doc = $line:literal])+
                $key:ident: $type:ty $(= $default:literal)?, $kind:expr;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone)]
        pub struct $group {
            $(
                $(#[doc = $line])+
                pub $key: $type,
            )+
        }

        impl $group {
            /// The settings of this group.
            pub(super) fn declared() -> Vec<$crate::settings::declaration::Setting> {
                vec![$({
                    let kind: $crate::settings::kinds::Kind<$type> = $kind;
                    $crate::settings::declaration::Setting {
                        key: stringify!($key),
                        default: $crate::settings::declaration::default(&[$(concat!($default))?]),
                        is_secret: kind.is_secret,
                        lines: &[$($line),+],
                    }
                }),+]
            }

            /// Reads all of them. Fails on the first invalid one.
            pub fn read(layers: &$crate::settings::Layers) -> anyhow::Result<Self> {
                Ok(Self {
                    $($key: Self::$key(layers)?,)+
                })
            }

            $(
                $(#[doc = $line])+
                pub fn $key(layers: &$crate::settings::Layers) -> anyhow::Result<$type> {
                    let kind: $crate::settings::kinds::Kind<$type> = $kind;
                    kind.read(layers, stringify!($key))
                }
            )+
        }
    };
}

pub(super) use settings;

#[cfg(test)]
mod tests {
    use super::without_links;

    #[test]
    fn a_terminal_shows_the_text_of_a_link() {
        for (markdown, plain) in [
            ("no link", "no link"),
            (
                "it [is closed](operations.md#slow) at [a](b)",
                "it is closed at a",
            ),
            (
                "an open [ bracket and [one](x)",
                "an open [ bracket and one",
            ),
            ("`redis://[::1]:6379`", "`redis://[::1]:6379`"),
        ] {
            assert_eq!(without_links(markdown), plain);
        }
    }
}
