//! One item over every master of a cluster.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    crowd::{all_answered, held, instances},
    sale::{self, Terms, buyer},
    site::{self, Site},
};

/// How many of these slots have keys on this master. Other tests may have keys in them too.
async fn slots_in_use(master: &str, slots: &BTreeSet<u16>) -> usize {
    let mut connection = site::raw(master).await;
    let mut in_use = 0;
    for slot in slots {
        let keys: u64 = redis::cmd("CLUSTER")
            .arg("COUNTKEYSINSLOT")
            .arg(slot)
            .query_async(&mut connection)
            .await
            .unwrap();
        in_use += usize::from(keys >= 5);
    }
    in_use
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_segments_of_one_item_use_every_master() {
    site::run(Site::cluster().await, async |site: Arc<Site>| {
        let sale = sale::open(&site, Terms::new(240, 24)).await;
        assert_eq!(sale.stock.masters(), 3);
        let mut slots = BTreeSet::new();
        for segment in 0..24 {
            let names = sale.names(segment);
            let mut of_segment = Vec::new();
            for key in [
                names.stock,
                names.decisions,
                names.buyers,
                names.outbox,
                names.spillovers,
            ] {
                let mut connection = site::raw(&site.masters[0]).await;
                of_segment.push(
                    redis::cmd("CLUSTER")
                        .arg("KEYSLOT")
                        .arg(key)
                        .query_async::<u16>(&mut connection)
                        .await
                        .unwrap(),
                );
            }
            of_segment.dedup();
            assert_eq!(of_segment.len(), 1, "the keys of a segment share a slot");
            slots.extend(of_segment);
        }
        let mut in_use = Vec::new();
        for master in &site.masters {
            in_use.push(slots_in_use(master, &slots).await);
        }
        assert!(in_use.iter().all(|slots| *slots > 0), "{in_use:?}");
        assert_eq!(
            in_use.iter().sum::<usize>(),
            slots.len(),
            "each slot is on one master"
        );

        let reservations = (0..400)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect();
        assert_eq!(
            held(&all_answered(&instances(&sale, 2).await, reservations).await),
            240
        );
    })
    .await;
}

#[tokio::test]
async fn one_server_is_one_master() {
    site::run(Site::single().await, async |site: Arc<Site>| {
        assert_eq!(site.instance().await.masters(), 1)
    })
    .await;
}
