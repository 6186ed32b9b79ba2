//! When the clock makes something due, for each item. What is not due costs nothing, however many
//! items there are.

use std::collections::{BTreeSet, HashMap};

use domain::ItemId;
use jiff::Timestamp;

/// The first moment of each item that has one.
#[derive(Default)]
pub(super) struct Calendar {
    moments: HashMap<ItemId, Timestamp>,
    in_order: BTreeSet<(Timestamp, ItemId)>,
}

impl Calendar {
    /// Enters the item's moment in place of an earlier one. `None`: it has none.
    pub(super) fn set(&mut self, id: &ItemId, moment: Option<Timestamp>) {
        let before = match moment {
            Some(moment) => self.moments.insert(id.clone(), moment),
            None => self.moments.remove(id),
        };
        if let Some(before) = before {
            self.in_order.remove(&(before, id.clone()));
        }
        self.in_order
            .extend(moment.map(|moment| (moment, id.clone())));
    }

    /// The items whose moment has come. Each stays due until its moment is another one.
    pub(super) fn due(&self, time: Timestamp) -> impl Iterator<Item = &ItemId> {
        let due = self.in_order.iter();
        due.take_while(move |(moment, _)| *moment <= time)
            .map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use domain::ItemId;
    use jiff::Timestamp;

    use super::Calendar;

    #[test]
    fn an_item_is_due_from_its_moment_until_it_has_another_one() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let [vase, lamp]: [ItemId; 2] = ["vase", "lamp"].map(|id| id.parse().unwrap());
        let mut calendar = Calendar::default();
        calendar.set(&vase, Some(at(20)));
        calendar.set(&lamp, Some(at(10)));
        let due = |calendar: &Calendar, second| {
            let due = calendar.due(at(second)).map(ToString::to_string);
            due.collect::<Vec<_>>()
        };
        assert!(due(&calendar, 9).is_empty());
        assert_eq!(due(&calendar, 10), ["lamp"]);
        assert_eq!(due(&calendar, 20), ["lamp", "vase"]);
        calendar.set(&lamp, Some(at(30)));
        calendar.set(&vase, Some(at(20)));
        assert_eq!(due(&calendar, 29), ["vase"]);
        calendar.set(&vase, None);
        calendar.set(&vase, None);
        assert!(due(&calendar, 29).is_empty());
        assert_eq!(due(&calendar, 30), ["lamp"]);
    }
}
