//! The schedule balances joiners, whatever the keys are.

use std::collections::BTreeMap;

use lockstep_plan::{Frame, Window};
use lockstep_row::Datum;

use super::draw;
use crate::{
    schedule::{RowRoute, Schedule, TeamChange},
    watermark::PassedTimes,
};

/// A schedule, and what joiners were given.
struct Routed {
    schedule: Schedule,
    /// The main rows and the other rows of each joiner since the last count.
    rows: Vec<(u64, u64)>,
    /// Which joiners have a partition, as they were told.
    members: BTreeMap<u16, u64>,
    time: i64,
}

impl Routed {
    fn new(joiners: usize) -> Self {
        let schedule = Schedule::new(&draw::simple(2), joiners);
        Self { schedule, rows: vec![(0, 0); joiners], members: BTreeMap::new(), time: 0 }
    }

    /// Routes rows, half of them main rows, whose keys are as said.
    fn route(&mut self, count: u64, key: impl Fn(u64) -> i32) {
        self.rows.fill((0, 0));
        for number in 0..count {
            self.time += 1;
            let mut columns = [Datum::Null; draw::WIDTH];
            (columns[0], columns[1]) = (Datum::Timestamp(self.time), Datum::Int(key(number / 2)));
            let route = self.schedule.route(usize::from(number % 2 > 0), &columns);
            self.note(route);
            if self.schedule.is_due() {
                let passed = PassedTimes::Before(self.time - 10);
                let changes = self.schedule.change(passed, Some(self.time));
                changes.into_iter().for_each(|change| self.follow(change));
            }
        }
    }

    /// Checks that a row goes to those who were told that they have its partition.
    fn note(&mut self, RowRoute { partition, computed_by, others }: RowRoute) {
        let all = others | computed_by.map_or(0, |joiner| 1 << joiner);
        let members = self.members.entry(partition).or_insert(all);
        assert_eq!(*members, all, "those have a row who have the others");
        for (joiner, (main_rows, other_rows)) in self.rows.iter_mut().enumerate() {
            *main_rows += u64::from(computed_by == Some(joiner));
            *other_rows += others >> joiner & 1;
        }
    }

    fn follow(&mut self, change: TeamChange) {
        match change {
            TeamChange::Join { partition, from, to } => {
                // Nobody has its rows before the first one.
                let members = self.members.entry(partition).or_insert(1 << from);
                assert_eq!((*members >> from & 1, *members >> to & 1), (1, 0));
                *members |= 1 << to;
            }
            TeamChange::Forget { partition, joiner } => {
                let members = self.members.get_mut(&partition).unwrap();
                assert_eq!(*members >> joiner & 1, 1, "it had the rows");
                *members &= !(1 << joiner);
                assert_ne!(*members, 0, "one has them");
            }
        }
    }

    /// Returns the most main rows of a joiner, as a part of the mean.
    fn most(&self) -> f64 {
        let most = self.rows.iter().map(|(main_rows, _)| *main_rows).max().unwrap();
        let sum: u64 = self.rows.iter().map(|(main_rows, _)| *main_rows).sum();
        most as f64 * self.rows.len() as f64 / sum as f64
    }
}

#[test]
fn even_keys_need_no_teams() {
    let mut routed = Routed::new(4);
    routed.route(400_000, |number| i32::try_from(number % 10_000).unwrap());
    assert_eq!(routed.schedule.shared(), 0);
    assert!(routed.schedule.imbalance() < 0.2, "{}", routed.schedule.imbalance());
}

#[test]
fn one_key_is_computed_by_all_joiners() {
    for joiners in [2, 3, 16, 48] {
        let mut routed = Routed::new(joiners);
        routed.route(3_200_000, |_| 7);
        routed.route(100_000, |_| 7);
        assert_eq!(routed.schedule.shared(), 1);
        assert!(routed.most() < 1.01, "{joiners} joiners: {}", routed.most());
    }
}

#[test]
fn teams_follow_the_frequent_keys() {
    let mut routed = Routed::new(4);
    for hot in 0..20 {
        // Half of the rows are of one key.
        let other = |number: u64| i32::try_from(number % 1_000).unwrap() + 100;
        let key = |number: u64| if number.is_multiple_of(2) { hot } else { other(number) };
        routed.route(400_000, key);
        routed.route(100_000, key);
        assert!(routed.most() < 1.35, "{hot}: {}", routed.most());
        // Those of keys that are frequent no more have one member again.
        assert!(routed.schedule.shared() <= 6, "{hot}: {}", routed.schedule.shared());
    }
    let several = routed.members.values().filter(|members| members.count_ones() > 1).count();
    assert!(several <= 8, "{several} partitions have copies");
}

#[test]
fn a_key_whose_frame_has_no_beginning_is_not_shared() {
    let mut spec = draw::simple(2);
    let window = &mut spec.scans[0].groups[0].window;
    *window = Window { frame: Frame::Range { from: None, to: 0 }, ..window.clone() };
    let mut routed = Routed { schedule: Schedule::new(&spec, 3), ..Routed::new(3) };
    routed.route(400_000, |_| 7);
    assert_eq!(routed.schedule.shared(), 0);
}

#[test]
fn rows_without_a_common_key_go_to_all_joiners() {
    let mut spec = draw::simple(2);
    spec.main_columns = vec![None; draw::WIDTH];
    let mut routed = Routed { schedule: Schedule::new(&spec, 3), ..Routed::new(3) };
    routed.route(9_000, |number| i32::try_from(number % 100).unwrap());
    // Each computes a third of the main rows, and has all as candidates.
    assert_eq!(routed.rows, [(1_500, 7_500); 3]);
}
