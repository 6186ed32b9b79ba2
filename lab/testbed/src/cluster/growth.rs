//! A new shard joins, and slots move to it while clients use them.

use std::time::Instant;

use redis::cmd;
use tokio::time::sleep;

use super::{Member, POLL_INTERVAL, RedisCluster, fail_after, introduce};
use crate::{Result, timeout};

/// A slot whose keys are moving from one master to another. Until [`RedisCluster::end_migration`]
/// both answer for it: the source for keys that it still has, the target for those that a client
/// was redirected to.
#[derive(Debug)]
pub struct Migration {
    slot: u16,
    from: usize,
    to: usize,
}

impl RedisCluster {
    /// Adds a master without slots, with as many replicas as the others have. Returns its index in
    /// [`RedisCluster::nodes`], which is followed by its replicas.
    pub async fn grow(&mut self) -> Result<usize> {
        let master = self.nodes.len();
        for _ in 0..=self.replicas_per_master {
            self.start_node().await?;
        }
        let replicas_before = self.replicas();
        self.grown += 1;
        let mut members = self.members().await?;
        introduce(&mut members, master).await?;
        self.until_all(&mut members, replicas_before).await?;
        let id = members[master].id().await?;
        for replica in &mut members[master + 1..] {
            let _: () = replica
                .query(cmd("CLUSTER").arg("REPLICATE").arg(&id))
                .await?;
        }
        self.until_all(&mut members, self.replicas()).await?;
        // A master without slots takes no write that its replicas could confirm.
        for replica in &self.nodes[master + 1..] {
            replica.has_a_master().await?;
        }
        Ok(master)
    }

    /// The index of the first master that [`RedisCluster::grow`] has added.
    pub fn first_grown(&self) -> Option<usize> {
        (self.grown > 0).then_some(self.masters * (1 + self.replicas_per_master))
    }

    /// The slot of a key.
    pub async fn slot_of(&self, key: &[u8]) -> Result<u16> {
        let mut member = self.member(0).await?;
        member.query(cmd("CLUSTER").arg("KEYSLOT").arg(key)).await
    }

    /// Keys that match this pattern, of all masters.
    pub async fn keys_like(&self, pattern: &str) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for mut member in self.members().await? {
            if member.node.is_master().await? {
                let found: Vec<Vec<u8>> = member.query(cmd("KEYS").arg(pattern)).await?;
                keys.extend(found);
            }
        }
        Ok(keys)
    }

    /// The master that serves the slot.
    pub async fn owner_of(&self, slot: u16) -> Result<usize> {
        let deadline = Instant::now() + timeout();
        loop {
            for (index, member) in self.members().await?.iter_mut().enumerate() {
                let view: String = member.query(cmd("CLUSTER").arg("NODES")).await?;
                if serves(&view, slot) {
                    return Ok(index);
                }
            }
            fail_after(deadline, || format!("no node serves slot {slot}"))?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Begins to move a slot to another master. From now on the source redirects requests for keys
    /// that it does not have, and answers TRYAGAIN if it has only some of a request's keys.
    pub async fn begin_migration(&self, slot: u16, to: usize) -> Result<Migration> {
        let from = self.owner_of(slot).await?;
        let (mut source, mut target) = (self.member(from).await?, self.member(to).await?);
        let (source_id, target_id) = (source.id().await?, target.id().await?);
        target.set_slot(slot, "IMPORTING", &source_id).await?;
        source.set_slot(slot, "MIGRATING", &target_id).await?;
        Ok(Migration { slot, from, to })
    }

    /// The keys that the source still has.
    pub async fn keys_to_migrate(&self, migration: &Migration) -> Result<Vec<Vec<u8>>> {
        let mut source = self.member(migration.from).await?;
        let mut keys = cmd("CLUSTER");
        keys.arg("GETKEYSINSLOT").arg(migration.slot).arg(1000);
        source.query(&keys).await
    }

    /// Moves one key, if it still exists.
    pub async fn migrate_key(&self, migration: &Migration, key: &[u8]) -> Result<()> {
        let mut source = self.member(migration.from).await?;
        let mut migrate = cmd("MIGRATE");
        migrate
            .arg("127.0.0.1")
            .arg(self.nodes[migration.to].port())
            .arg(key)
            .arg(0)
            .arg(1000 * timeout().as_secs());
        source.query(&migrate).await
    }

    /// Moves the keys that are left, and makes the target the slot's only master.
    pub async fn end_migration(&mut self, migration: Migration) -> Result<()> {
        loop {
            let keys = self.keys_to_migrate(&migration).await?;
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.migrate_key(&migration, &key).await?;
            }
        }
        let Migration { slot, from, to } = migration;
        let id = self.member(to).await?.id().await?;
        // The target first: the source would otherwise lose a slot that the target does not serve.
        let others = (0..self.nodes.len()).filter(|node| *node != to && *node != from);
        for node in [to, from].into_iter().chain(others) {
            self.name_owner(node, slot, &id).await?;
        }
        if self.shard_of_slot(slot).contains(&to) {
            self.moved.remove(&slot);
        } else {
            self.moved.insert(slot);
        }
        Ok(())
    }

    /// Names the slot's owner to a master. A replica refuses that, and a master that has lost its
    /// last slot may become one at any time, also after it was asked.
    async fn name_owner(&self, node: usize, slot: u16, owner: &str) -> Result<()> {
        if !self.nodes[node].is_master().await? {
            return Ok(());
        }
        let named = self.member(node).await?.set_slot(slot, "NODE", owner).await;
        match named {
            Err(_) if !self.nodes[node].is_master().await? => Ok(()),
            named => named,
        }
    }

    /// The nodes of the shard that served the slot at first.
    fn shard_of_slot(&self, slot: u16) -> Vec<usize> {
        let shard = (0..self.masters).find(|shard| self.slots(*shard).contains(&usize::from(slot)));
        shard.map(|shard| self.shard(shard)).unwrap_or_default()
    }

    async fn member(&self, node: usize) -> Result<Member<'_>> {
        let node = &self.nodes[node];
        Ok(Member {
            node,
            connection: node.connect_for_long().await?,
        })
    }
}

impl Member<'_> {
    async fn set_slot(&mut self, slot: u16, state: &str, id: &str) -> Result<()> {
        let mut command = cmd("CLUSTER");
        command.arg("SETSLOT").arg(slot).arg(state).arg(id);
        self.query(&command).await
    }
}

/// Whether the node that reports this view is a master that serves the slot.
fn serves(view: &str, slot: u16) -> bool {
    let own = view.lines().find(|line| line.contains("myself,master"));
    // ID ADDRESS FLAGS MASTER PING PONG EPOCH LINK SLOT FIRST-LAST [SLOT->-ID] ...
    let mut slots = own.into_iter().flat_map(|line| line.split(' ').skip(8));
    slots.any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bound = |text: &str| text.parse::<u16>();
        matches!((bound(first), bound(last)), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn a_view_names_slots_ranges_and_migrations() {
        let view = "a 127.0.0.1:1@1 master - 0 0 2 connected 900\n\
                    b 127.0.0.1:2@2 myself,master - 0 0 1 connected 0-9 20 [21->-c]\n";
        for slot in [0, 5, 9, 20] {
            assert!(serves(view, slot), "{slot}");
        }
        for slot in [10, 19, 21, 900] {
            assert!(!serves(view, slot), "{slot}");
        }
    }
}
