//! Who runs a command on the stores, for the journal.

use nix::unistd::{Uid, User, getuid};

/// The account that `sudo` was called by. It is believed of `root` alone, who may be anyone.
const CALLER_OF_SUDO: &str = "SUDO_USER";

/// The journal's name for who runs this command: `cli:` and the name of the account. No admin can
/// have such a name.
pub fn actor() -> String {
    let uid = getuid();
    let caller = std::env::var(CALLER_OF_SUDO).ok();
    let caller = caller.filter(|name| uid.is_root() && is_name(name));
    format!("cli:{}", caller.unwrap_or_else(|| name_of(uid)))
}

/// The name of an account, or its number if it has no name, as in many containers.
fn name_of(uid: Uid) -> String {
    let user = User::from_uid(uid).ok().flatten();
    let name = user.map(|user| user.name).filter(|name| is_name(name));
    name.unwrap_or_else(|| uid.to_string())
}

/// What an account may be called. Anything else must not get into a journal.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@$".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use nix::unistd::Uid;

    use super::{actor, is_name, name_of};

    #[test]
    fn the_actor_is_an_account() {
        let actor = actor();
        let name = actor.strip_prefix("cli:").unwrap();
        assert!(is_name(name), "{name:?}");
        assert_eq!(name_of(Uid::from_raw(0)), "root");
        let nameless = Uid::from_raw(2_147_480_000);
        assert_eq!(name_of(nameless), "2147480000");
    }

    #[test]
    fn only_names_get_into_the_journal() {
        for name in ["ann", "ann.smith", "www-data", "host$", "ann@shop"] {
            assert!(is_name(name), "{name:?}");
        }
        for text in ["", "ann\n", "a b", "{}", &"x".repeat(65)] {
            assert!(!is_name(text), "{text:?}");
        }
    }
}
