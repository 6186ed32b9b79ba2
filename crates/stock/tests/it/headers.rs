//! The header of each file in `lua/` says what the file does.

use std::{collections::BTreeSet, fs, path::Path};

/// A script, cut into its header's sections and its code.
struct Script {
    name: String,
    /// The first line: the flags.
    shebang: String,
    /// What it does, and which race it closes.
    summary: String,
    /// `KEYS` lines: number, name, type.
    keys: Vec<(usize, String, String)>,
    /// Numbers that the header gives to arguments.
    arguments: BTreeSet<usize>,
    argv: String,
    returns: String,
    keeps: String,
    cost: String,
    code: String,
}

const SECTIONS: [&str; 5] = ["KEYS", "ARGV", "Returns", "Keeps", "Cost"];
const TYPES: [&str; 4] = ["hash", "stream", "zset", "string"];

fn scripts() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "lua"));
    paths.sort();
    let scripts: Vec<_> = paths.iter().map(|path| parse(path)).collect();
    assert!(
        scripts.len() >= 17,
        "only {} scripts were found",
        scripts.len()
    );
    scripts
}

fn parse(path: &Path) -> Script {
    let text = fs::read_to_string(path).unwrap();
    let (shebang, rest) = text.split_once('\n').unwrap();
    let (header, code) = rest.split_once("\n\n").unwrap();
    let mut sections: [String; 6] = Default::default();
    let mut at = 0;
    for line in header.lines() {
        let line = line
            .strip_prefix("--")
            .unwrap_or_else(|| panic!("{path:?}: {line:?} in the header"))
            .trim_start();
        let begins = SECTIONS
            .iter()
            .position(|section| line.split(' ').next() == Some(section));
        at = begins.map_or(at, |section| section + 1);
        let content = begins.map_or(line, |section| line[SECTIONS[section].len()..].trim_start());
        sections[at] += &format!("{content}\n");
    }
    let [summary, keys, argv, returns, keeps, cost] = sections;
    Script {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        shebang: shebang.into(),
        summary,
        keys: keys
            .lines()
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
            .map(key)
            .collect(),
        arguments: numbered(&argv),
        argv,
        returns,
        keeps,
        cost,
        code: code.into(),
    }
}

fn key(line: &str) -> (usize, String, String) {
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_default().to_owned();
    (word().parse().unwrap(), word(), word())
}

/// `1 units   2 limit (0: none)`: a number at the beginning or after two spaces begins an argument.
fn numbered(section: &str) -> BTreeSet<usize> {
    section
        .lines()
        .flat_map(|line| line.split("  "))
        .filter_map(|part| part.trim().split(' ').next()?.parse().ok())
        .collect()
}

/// Every `WORD[n]` in the code, for which `n` is a plain number.
fn indices(code: &str, word: &str) -> Vec<usize> {
    code.match_indices(&format!("{word}["))
        .filter_map(|(at, found)| code[at + found.len()..].split(']').next()?.parse().ok())
        .collect()
}

/// `'...'` in a piece of code.
fn quoted(code: &str) -> Vec<&str> {
    code.split('\'').skip(1).step_by(2).collect()
}

/// What stands between `opening` and the bracket that closes it.
fn call<'a>(code: &'a str, opening: &str) -> Vec<&'a str> {
    code.match_indices(opening)
        .map(|(at, found)| code[at + found.len()..].split(')').next().unwrap())
        .collect()
}

#[test]
fn every_header_has_every_section() {
    for script in scripts() {
        let name = &script.name;
        assert!(
            script.shebang.starts_with("#!lua"),
            "{name}: the first line is {:?}",
            script.shebang
        );
        let lines: Vec<_> = script
            .summary
            .lines()
            .filter(|line| !line.is_empty())
            .collect();
        let first_paragraph = script.summary.split("\n\n").next().unwrap();
        assert!(
            first_paragraph.trim_end().ends_with('.'),
            "{name}: the first paragraph says what it does"
        );
        assert!(
            lines[1..]
                .iter()
                .any(|line| line.starts_with("Closes the race ")),
            "{name}: which race does it close?"
        );
        for (section, content) in
            SECTIONS[1..]
                .iter()
                .zip([&script.argv, &script.returns, &script.keeps, &script.cost])
        {
            assert!(!content.trim().is_empty(), "{name}: {section} is empty");
        }
        assert!(
            script.cost.contains("O("),
            "{name}: Cost names no order of growth"
        );
    }
}

#[test]
fn the_keys_of_a_header_are_those_of_the_code() {
    for script in scripts() {
        let (name, count) = (&script.name, script.keys.len());
        let numbers: Vec<_> = script.keys.iter().map(|(number, ..)| *number).collect();
        assert_eq!(
            numbers,
            (1..=count).collect::<Vec<_>>(),
            "{name}: numbers of the keys"
        );
        let used = indices(&script.code, "KEYS");
        assert_eq!(used, numbers, "{name}: each key is named once, in order");
        let locals: Vec<_> = script
            .keys
            .iter()
            .map(|(_, local, _)| local.as_str())
            .collect();
        let keys: Vec<_> = numbers
            .iter()
            .map(|number| format!("KEYS[{number}]"))
            .collect();
        let naming = format!("local {} = {}\n", locals.join(", "), keys.join(", "));
        assert!(
            script.code.starts_with(&naming),
            "{name}: expected it to begin with {naming}"
        );
        for (_, local, kind) in &script.keys {
            assert!(
                TYPES.contains(&kind.as_str()),
                "{name}: {local} is a {kind:?}"
            );
            assert_eq!(
                *kind,
                type_in_keys_rs(local),
                "{name}: the type of {local} in keys.rs"
            );
        }
    }
}

/// What the documentation above `pub stock: String` begins with: `/// hash: ...`.
fn type_in_keys_rs(key: &str) -> String {
    let field = format!("    pub {key}: String,\n");
    let source = include_str!("../../src/keys.rs");
    let above = source.split(&field).next().unwrap().lines().rev();
    let mut kinds = above.filter_map(|line| {
        let (kind, _) = line.trim().strip_prefix("/// ")?.split_once(':')?;
        TYPES.contains(&kind).then(|| kind.to_owned())
    });
    kinds.next().unwrap()
}

#[test]
fn each_key_is_used_as_its_type_says() {
    for script in scripts() {
        for (_, local, kind) in &script.keys {
            let commands: BTreeSet<_> = call(&script.code, "redis.call(")
                .into_iter()
                .filter_map(|arguments| {
                    let (command, rest) = arguments.split_once(',')?;
                    (rest.trim().split(',').next()?.trim() == local)
                        .then(|| command.trim_matches('\''))
                })
                .collect();
            let letter = match kind.as_str() {
                "hash" => "H",
                "stream" => "X",
                "zset" => "Z",
                "string" => "SET",
                other => panic!("{other}"),
            };
            assert!(!commands.is_empty(), "{}: {local} is not used", script.name);
            let fits = |command: &&str| command.starts_with(letter) || *command == "UNLINK";
            assert!(
                commands.iter().all(fits),
                "{}: {local} is a {kind}: {commands:?}",
                script.name
            );
        }
    }
}

#[test]
fn the_arguments_of_a_header_are_those_of_the_code() {
    for script in scripts() {
        let name = &script.name;
        let used: BTreeSet<_> = indices(&script.code, "ARGV").into_iter().collect();
        let last = script.arguments.last().copied().unwrap_or(0);
        assert_eq!(
            script.arguments,
            (1..=last).collect(),
            "{name}: numbers of the arguments"
        );
        assert_eq!(
            used, script.arguments,
            "{name}: arguments that the code reads by number"
        );
        // Columns begin after the last of them.
        let columns = script.code.contains("0 + i]") || script.code.contains("unpack(ARGV");
        assert_eq!(
            columns,
            script.argv.contains("columns of n"),
            "{name}: columns"
        );
    }
}

#[test]
fn every_status_that_the_code_returns_is_in_the_header() {
    for script in scripts() {
        let name = &script.name;
        let replies = script.code.match_indices("return {'");
        let built_first = script.code.match_indices("local reply = {'");
        let statuses: Vec<_> = replies
            .chain(built_first)
            .map(|(at, found)| quoted(&script.code[at + found.len() - 1..])[0])
            .collect();
        for status in &statuses {
            assert!(
                script.returns.contains(&format!("'{status}'")),
                "{name}: {status:?} is not in Returns"
            );
        }
        // `'ok'` stands after a bracket or a bar; an apostrophe does not.
        let documented = script
            .returns
            .match_indices("{'")
            .chain(script.returns.match_indices("| '"));
        for status in documented.map(|(at, _)| quoted(&script.returns[at..])[0]) {
            assert!(
                statuses.contains(&status),
                "{name}: Returns has {status:?}, the code does not"
            );
        }
    }
}

#[test]
fn every_exception_that_the_code_returns_is_in_the_header_and_in_reserve_rs() {
    let reserve_rs = include_str!("../../src/script/reserve.rs");
    for script in scripts()
        .into_iter()
        .filter(|script| script.name.starts_with("reserve_"))
    {
        let name = &script.name;
        // `local CODE_A, CODE_B = 'a', 'b'`, and each of them is used.
        let constants = script
            .code
            .lines()
            .find_map(|line| line.strip_prefix("local CODE_"))
            .unwrap();
        let codes: BTreeSet<_> = quoted(constants).into_iter().collect();
        let (names, _) = constants.split_once(" = ").unwrap();
        for constant in format!("CODE_{names}").split(", ") {
            let uses = script.code.matches(constant).count();
            assert!(uses >= 2, "{name}: {constant} is not used");
        }
        assert!(codes.len() >= 2, "{name}: {codes:?}");
        let documented: BTreeSet<_> = script
            .returns
            .lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(code, _)| code.trim())
            .filter(|code| code.len() == 1)
            .collect();
        assert_eq!(codes, documented, "{name}");
        for code in codes {
            assert!(
                reserve_rs.contains(&format!("b\"{code}\" =>")),
                "{name}: reserve.rs does not read {code:?}"
            );
        }
    }
}

#[test]
fn a_script_that_says_that_it_only_reads_only_reads() {
    const WRITES: [&str; 10] = [
        "HSET", "HDEL", "HINCRBY", "XADD", "XTRIM", "ZADD", "ZREM", "DEL", "UNLINK", "PUBLISH",
    ];
    for script in scripts() {
        let calls = ["redis.call(", "redis.pcall("]
            .into_iter()
            .flat_map(|opening| call(&script.code, opening));
        let writes = calls
            .into_iter()
            .any(|arguments| WRITES.contains(&quoted(arguments)[0]));
        assert_eq!(
            script.shebang.contains("no-writes"),
            !writes,
            "{}",
            script.name
        );
        assert_eq!(
            script.keeps.contains("everything: it only reads"),
            !writes,
            "{}",
            script.name
        );
    }
}

#[test]
fn scripts_publish_on_the_channel_that_keys_rs_names() {
    let keys_rs = include_str!("../../src/keys.rs");
    let channels = ["OUTBOX_CHANNEL", "RETURNED_CHANNEL"].map(|constant| {
        let (_, channel) = keys_rs
            .split_once(&format!("{constant}: &str = \""))
            .unwrap();
        channel.split('"').next().unwrap()
    });
    let mut published = BTreeSet::new();
    for script in scripts() {
        for arguments in call(&script.code, "redis.pcall('PUBLISH', ") {
            published.insert(quoted(arguments)[0].to_owned());
        }
    }
    assert_eq!(published, channels.map(str::to_owned).into());
    // A refused message must not leave a script half done.
    assert!(
        scripts()
            .iter()
            .all(|script| !script.code.contains("redis.call('PUBLISH'"))
    );
}

#[test]
fn scripts_mark_a_buyer_who_gave_back_as_keys_rs_does() {
    let keys_rs = include_str!("../../src/keys.rs");
    let (_, mark) = keys_rs.split_once("RELEASED_MARK: char = ").unwrap();
    let mark = format!("{} .. ", mark.split(';').next().unwrap());
    let marking: Vec<_> = scripts()
        .into_iter()
        .filter(|script| script.code.contains(&mark))
        .map(|script| script.name)
        .collect();
    assert_eq!(marking, ["release", "release_count"]);
}

#[test]
fn no_script_builds_a_key_name() {
    for script in scripts() {
        for (_, local, _) in &script.keys {
            assert!(
                !script.code.contains(&format!("{local} .. ")),
                "{}: {local}",
                script.name
            );
        }
        for kind in ["stock:", "decisions:", "buyers:", "outbox:{", "spillovers:"] {
            assert!(!script.code.contains(kind), "{}: {kind}", script.name);
        }
    }
}

/// Each typed call passes as many keys as the header has, in the same order.
#[test]
fn the_calls_in_rust_pass_the_keys_of_the_header() {
    let sources = [
        include_str!("../../src/script/reserve.rs"),
        include_str!("../../src/script/release.rs"),
        include_str!("../../src/script/repair.rs"),
        include_str!("../../src/script/archive.rs"),
        include_str!("../../src/script/check.rs"),
        include_str!("../../src/script/open.rs"),
        include_str!("../../src/script/spillover.rs"),
        include_str!("../../src/script/transfer.rs"),
    ]
    .concat();
    for script in scripts() {
        let constant = script.name.to_uppercase();
        let function = format!("pub(crate) async fn {}(", script.name);
        let body = sources
            .split(&function)
            .nth(1)
            .unwrap_or_else(|| panic!("no function {function}"))
            .split("\n}\n")
            .next()
            .unwrap();
        assert!(
            body.contains(&constant),
            "{}: {constant} is not run",
            script.name
        );
        // Either `let names = [&*keys.stock, &keys.answers, ...];` or the list in the call itself.
        let list = body
            .split('[')
            .find(|piece| piece.contains("keys."))
            .unwrap()
            .split(']')
            .next()
            .unwrap();
        let passed: Vec<_> = list
            .split(',')
            .map(|name| {
                name.trim()
                    .trim_start_matches(['&', '*'])
                    .trim_start_matches("keys.")
            })
            // What stands behind a trailing comma.
            .filter(|name| !name.is_empty())
            .collect();
        let named: Vec<_> = script
            .keys
            .iter()
            .map(|(_, local, _)| local.as_str())
            .collect();
        assert_eq!(passed, named, "{}", script.name);
    }
}

#[test]
fn every_script_is_loaded_before_the_first_order() {
    let registry = include_str!("../../src/script.rs");
    for script in scripts() {
        assert!(
            registry.contains(&format!(
                "{} = \"{}\"",
                script.name.to_uppercase(),
                script.name
            )),
            "{}",
            script.name
        );
    }
}
