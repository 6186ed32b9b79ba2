//! Every key of a segment, as the server has it and as the model does.

use redis::{Connection, Value};

use super::{
    call::{Config, keys},
    reply::{Reply, list},
    segment::{Entry, Segment},
};

/// Says what differs. The entries must also lead to what is available.
pub fn compare(connection: &mut Connection, name: &str, segment: &Segment) -> Result<(), String> {
    let (found, expected) = (found(connection, name), expected(segment));
    if found != expected {
        return Err(format!(
            "{name} is {found:#?}\nand the model has {expected:#?}"
        ));
    }
    let available = segment.stock.as_ref().map_or(0, |stock| stock.available);
    if segment.replayed() != available.cast_signed() {
        return Err(format!(
            "{name} has {available} units, and its entries lead to {}",
            segment.replayed()
        ));
    }
    Ok(())
}

fn found(connection: &mut Connection, name: &str) -> Vec<Reply> {
    let [stock, decisions, buyers, outbox, spillovers] = keys(name, "sabow").try_into().unwrap();
    let mut pipe = redis::pipe();
    pipe.cmd("HGETALL")
        .arg(stock)
        .cmd("HGETALL")
        .arg(decisions)
        .cmd("HGETALL")
        .arg(buyers);
    pipe.cmd("ZRANGE")
        .arg(spillovers)
        .arg(0)
        .arg(-1)
        .arg("WITHSCORES")
        .cmd("XRANGE")
        .arg(outbox)
        .arg("-")
        .arg("+");
    let found: Vec<Value> = pipe.query(connection).unwrap();
    let mut found: Vec<Reply> = found.into_iter().map(Reply::from).collect();
    // All but the outbox have no order of their own.
    found[..4].iter_mut().for_each(sort_pairs);
    found
}

/// The keys of a segment, as they are read.
fn expected(segment: &Segment) -> Vec<Reply> {
    let Some(stock) = &segment.stock else {
        return vec![list![]; 5];
    };
    let Config {
        state,
        epoch,
        limit,
        opens_ms,
        closes_ms,
        ..
    } = &stock.config;
    let mut fields: Vec<(&str, String)> = vec![
        ("available", stock.available.to_string()),
        ("limit", limit.to_string()),
        ("state", (*state).to_owned()),
        ("opens_ms", opens_ms.to_string()),
        ("closes_ms", closes_ms.to_string()),
        ("epoch", epoch.to_string()),
        ("price", stock.config.price()),
        ("fence", stock.fence.to_string()),
        ("hold_ms", stock.hold_ms.to_string()),
        ("last", stock.last.clone()),
        ("segments", stock.segments.to_string()),
        ("gained", stock.gained.clone()),
        ("leaving", stock.leaving.to_string()),
        ("left", stock.left.clone()),
    ];
    fields.extend(
        stock
            .repairing
            .map(|token| ("repairing", token.to_string())),
    );
    fields.extend(
        stock
            .repairing
            .map(|_| ("restored", stock.restored.to_string())),
    );
    fields.extend(stock.checked.clone().map(|history| ("checked", history)));
    // With the placeholders that keep every key alive.
    let decisions = segment
        .decisions
        .iter()
        .map(|(id, decision)| (id.to_vec(), decision.text()))
        .chain([(vec![], String::new())]);
    let buyers = segment
        .buyers
        .iter()
        .map(|(field, count)| (field.clone(), count.to_string()))
        .chain([(String::new(), "0".into())]);
    let spillovers = segment
        .spillovers
        .iter()
        .map(|(packed, due_ms)| (packed.clone(), due_ms.to_string()))
        .chain([(vec![], "inf".into())]);
    let outbox: Vec<Reply> = segment.outbox.iter().map(Entry::reply).collect();
    let mut keys = vec![
        pairs(fields),
        pairs(decisions),
        pairs(buyers),
        pairs(spillovers),
    ];
    keys.iter_mut().for_each(sort_pairs);
    keys.push(outbox.into());
    keys
}

fn pairs<N: Into<Reply>, V: Into<Reply>>(pairs: impl IntoIterator<Item = (N, V)>) -> Reply {
    Reply::List(
        pairs
            .into_iter()
            .flat_map(|(name, value)| [name.into(), value.into()])
            .collect(),
    )
}

fn sort_pairs(list: &mut Reply) {
    if let Reply::List(fields) = list {
        let mut pairs: Vec<[Reply; 2]> = fields
            .chunks(2)
            .map(|pair| [pair[0].clone(), pair[1].clone()])
            .collect();
        pairs.sort_by_cached_key(|pair| format!("{pair:?}"));
        *fields = pairs.into_iter().flatten().collect();
    }
}
