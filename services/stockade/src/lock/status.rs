//! `stockade lock status`: the state of a lock on every node, as a table or as JSON.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, builder::NonEmptyStringValueParser};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use lock::{
    Durability, Exclusion, FencingToken, Holder, LockError, LockView, NodeStatus, NodeView,
    RedlockBuilder, Standing, Verdict,
};
use serde_json::{Value, json};

use super::{UNAVAILABLE, options::Servers, seconds::Seconds};
use crate::{output::write_out, settings::Layers};

const COLUMNS: &str = "\
Columns: `holder` is the holder of the lock on that node (an owner's random name, or the number of sharing owners); `token` the last token that the \
node accepted for the name, which stays after a release; `remaining` the rest of the lease on that node; `guards` whether the node's votes count, the \
reason if not, and whether a node with `durable=true` in its URL is durable by its settings. The last line is the state by a quorum of nodes. One status \
call cannot detect a clock that has jumped; clients that watch the node do.

Exit status: 0 a quorum of nodes answered and votes, whether the lock is held or free; 69 no quorum; 2 an argument is invalid.

Examples:
  stockade lock status nightly-report --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  stockade lock status nightly-report --json";

/// Shows the state of a lock on every node, without waiting and without changing it.
#[derive(Args)]
#[command(after_help = COLUMNS)]
pub struct Status {
    /// Name of the lock.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Servers of the lock, comma-separated. Default: LOCK_URLS.
    #[arg(long, value_name = "URLS")]
    nodes: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Prints the state and returns the exit status.
pub async fn status(status: &Status, layers: &Layers) -> Result<u8> {
    let servers = Servers::find(status.nodes.as_deref(), layers, "redlock")?;
    let builder = RedlockBuilder::new(&servers.urls);
    let builder = match &servers.tls {
        Some(tls) => builder.tls(tls.clone()),
        None => builder,
    };
    let redlock = builder
        .build_without_waiting()
        .map_err(|error| servers.wrong(&error))?;
    let view = redlock
        .view(&status.name)
        .await
        .map_err(|error| match error {
            LockError::Invalid(argument) => servers.wrong(&argument),
            error => error.into(),
        })?;
    let text = if status.json {
        serde_json::to_string_pretty(&json(&status.name, &view))?
    } else {
        table(&view)
    };
    write_out(&format!("{text}\n"))?;
    Ok(if view.verdict() == Verdict::NoQuorum {
        UNAVAILABLE
    } else {
        0
    })
}

fn table(view: &LockView) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["node", "holder", "token", "remaining", "guards"]);
    for node in &view.nodes {
        table.add_row(row(node));
    }
    format!("{table}\n{}", sentence(view))
}

fn row(node: &NodeView) -> [String; 5] {
    let nothing = || "-".to_owned();
    let holder = match &node.holder {
        Some(Holder::Owner(owner)) => owner.clone(),
        Some(Holder::Shared(owners)) => format!("shared by {}", owners.len()),
        None => nothing(),
    };
    let remaining = match (node.remaining, &node.holder) {
        (Some(remaining), _) => Seconds(remaining).to_string(),
        (None, Some(_)) => "no lease".into(),
        (None, None) => nothing(),
    };
    let token = node.token.map_or_else(nothing, |token| token.to_string());
    [
        node.status.node.clone(),
        holder,
        token,
        remaining,
        guards(&node.status),
    ]
}

fn guards(node: &NodeStatus) -> String {
    let votes = match &node.standing {
        Standing::Voting => "votes".into(),
        // The remaining wait is unknown here: only a client that watches the node measures it.
        Standing::Excluded(Exclusion::Forgot { .. }) => {
            "does not vote: new or restarted, may have forgotten locks".into()
        }
        Standing::Excluded(exclusion) => format!("does not vote: {exclusion}"),
        Standing::Unreachable(answer) => return format!("does not answer: {answer}"),
        _ => "unknown".into(),
    };
    match &node.durability {
        Durability::NotDeclared => votes,
        durability => format!("{votes}; {durability}"),
    }
}

fn sentence(view: &LockView) -> String {
    match view.verdict() {
        Verdict::Held { holder, token, remaining } => {
            let holder = match holder {
                Holder::Owner(_) => "held by a quorum".into(),
                Holder::Shared(owners) => format!("shared by {}, each by a quorum", owners.len()),
            };
            let token = token.map_or_else(|| "no token".into(), |token| format!("token {token}"));
            let remaining = remaining.map_or_else(|| "no lease".into(), |remaining| format!("{} left", Seconds(remaining)));
            format!("{holder}: {token}, {remaining}")
        }
        Verdict::Undecided => "undecided: no quorum shows a holder, but with the nodes that do not answer or vote there may be one".into(),
        Verdict::Free => "free".into(),
        Verdict::NoQuorum => format!("no quorum: {} of {} nodes vote, {} are needed", voting(view), view.nodes.len(), view.quorum),
    }
}

fn voting(view: &LockView) -> usize {
    view.nodes
        .iter()
        .filter(|node| matches!(node.status.standing, Standing::Voting))
        .count()
}

fn json(name: &str, view: &LockView) -> Value {
    let (state, held) = match view.verdict() {
        Verdict::Held {
            holder,
            token,
            remaining,
        } => ("held", held(Some(&holder), token, remaining)),
        Verdict::Undecided => ("undecided", held(None, None, None)),
        Verdict::Free => ("free", held(None, None, None)),
        Verdict::NoQuorum => ("no_quorum", held(None, None, None)),
    };
    let nodes: Vec<_> = view.nodes.iter().map(node).collect();
    merged(
        json!({ "name": name, "state": state, "quorum": view.quorum, "voting": voting(view), "nodes": nodes }),
        held,
    )
}

fn node(node: &NodeView) -> Value {
    let votes = matches!(node.status.standing, Standing::Voting);
    let answers = !matches!(node.status.standing, Standing::Unreachable(_));
    let durable = node.status.durability == Durability::Confirmed;
    let guards = guards(&node.status);
    let about = json!({
        "node": node.status.node,
        "answers": answers,
        "votes": votes,
        "durable": durable,
        "guards": guards,
    });
    merged(
        about,
        held(node.holder.as_ref(), node.token, node.remaining),
    )
}

/// `owners` is empty if the lock is free. `shared` is true if further owners may join.
fn held(
    holder: Option<&Holder>,
    token: Option<FencingToken>,
    remaining: Option<Duration>,
) -> Value {
    let (shared, owners): (_, Vec<_>) = match holder {
        Some(Holder::Owner(owner)) => (false, vec![owner]),
        Some(Holder::Shared(owners)) => (true, owners.iter().collect()),
        None => (false, Vec::new()),
    };
    let remaining_ms =
        remaining.map(|remaining| u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX));
    json!({ "owners": owners, "shared": shared, "token": token.map(FencingToken::get), "remaining_ms": remaining_ms })
}

fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
