//! How far each window of a scan has come: which of the rows to come are in its frame, and for how
//! many of them that stays so.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. [`Progress::stage`] is the only
//! place that decides it, for one row and for many: rows that follow each other are in the frame or
//! not until so many have passed, or until the order value falls below a bound. `window` shows the
//! rows newest first and counts those that pass.

use lockstep_plan::Frame as WindowFrame;

/// A window.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) frame: WindowFrame,
    pub(crate) max_size: u64,
    pub(crate) excludes_current_time: bool,
    pub(crate) excludes_current_row: bool,
}

/// How far a group has come. Order values of its frame are in `lower..=upper`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// How many rows have passed that count for a frame by rows.
    position: u64,
    taken: u64,
    /// What happened to the rows since the last stage began.
    part: Part,
    pub(crate) upper: i64,
    pub(crate) lower: i64,
    pub(crate) is_done: bool,
}

/// Where rows stand to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// At the current row's time, which is excluded: a frame by rows does not count them.
    Excluded,
    /// Newer or older than the frame.
    Outside,
    Inside,
}

/// What the next rows are to one group or to all groups of a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// The groups that take them, a bit each.
    pub(crate) takers: u64,
    /// For how many rows that holds.
    pub(crate) rows: u64,
    /// The least order value for which it holds.
    pub(crate) lowest: i64,
}

impl Stage {
    /// No rows: before the first.
    pub(crate) const NONE: Self = Self { takers: 0, rows: 0, lowest: i64::MAX };

    /// Whether it holds for the next row.
    #[inline]
    pub(crate) fn holds(&self, order: i64) -> bool {
        self.rows > 0 && order >= self.lowest
    }
}

/// The frames of all windows of a scan on the way through its rows.
#[derive(Debug)]
pub(crate) struct Frames<'p> {
    groups: &'p [Group],
    progress: &'p mut [Progress],
    /// The current row's order value.
    current: i64,
    stage: Stage,
    /// How many rows have passed since the stage began.
    passed: u64,
}

impl<'p> Frames<'p> {
    pub(crate) fn new(groups: &'p [Group], progress: &'p mut [Progress], current: i64) -> Self {
        Self { groups, progress, current, stage: Stage::NONE, passed: 0 }
    }

    /// What the next row, which has this order value, is to the groups; `None` when none of them can
    /// take it or an older one.
    #[inline]
    pub(crate) fn reach(&mut self, order: i64) -> Option<Stage> {
        if !self.stage.holds(order) && !self.begin(order) {
            return None;
        }
        Some(self.stage)
    }

    /// Moves past so many rows for which the stage holds; whether there can be another.
    #[inline]
    pub(crate) fn pass(&mut self, rows: usize) -> bool {
        let rows = u64::try_from(rows).expect("a count of rows");
        self.passed += rows;
        self.stage.rows -= rows;
        self.stage.rows > 0 || self.end()
    }

    /// Begins a stage; whether a group can take another row.
    #[inline(never)]
    fn begin(&mut self, order: i64) -> bool {
        self.end();
        let mut all = Stage { takers: 0, rows: u64::MAX, lowest: i64::MIN };
        let mut goes_on = false;
        for (at, (group, progress)) in self.groups.iter().zip(&mut *self.progress).enumerate() {
            let own = progress.stage(group, order, self.current);
            all.takers |= own.takers << at;
            all.rows = all.rows.min(own.rows);
            all.lowest = all.lowest.max(own.lowest);
            goes_on |= !progress.is_done;
        }
        self.stage = all;
        goes_on
    }

    /// Tells the groups what has passed; whether one of them can take another row.
    fn end(&mut self) -> bool {
        let rows = std::mem::take(&mut self.passed);
        let mut goes_on = false;
        for (group, progress) in self.groups.iter().zip(&mut *self.progress) {
            progress.pass(group, rows);
            goes_on |= !progress.is_done;
        }
        goes_on
    }
}

impl Progress {
    /// Before the first row. `order` is the current row's.
    pub(crate) fn new(group: &Group, order: Option<i64>) -> Self {
        let all = Self {
            position: 0,
            taken: 0,
            part: Part::Outside,
            upper: i64::MAX,
            lower: i64::MIN,
            is_done: false,
        };
        let Some(order) = order else { return all };
        match group.frame {
            WindowFrame::Rows { from, to } => {
                Self { upper: order, is_done: from.is_some_and(|from| from < to), ..all }
            }
            WindowFrame::Range { from, to } => {
                // An end beyond the range of the type is beyond every row.
                let newest = if to < 0 { Some(i64::MAX) } else { None };
                let upper = order.checked_sub(to).or(newest);
                let lower = from.map_or(Some(i64::MIN), |from| {
                    let end = if from < 0 { None } else { Some(i64::MIN) };
                    order.checked_sub(from).or(end)
                });
                let is_done = from.is_some_and(|from| from < to);
                match (upper, lower) {
                    (Some(upper), Some(lower)) => Self { upper, lower, is_done, ..all },
                    _ => Self { is_done: true, ..all },
                }
            }
        }
    }

    /// What the next row, which has this order value, and those after it are to the group. What has
    /// passed since the stage before was told to [`Self::pass`].
    fn stage(&mut self, group: &Group, order: i64, current: i64) -> Stage {
        let outside = Stage { takers: 0, rows: u64::MAX, lowest: i64::MIN };
        self.part = Part::Outside;
        if self.is_done {
            return outside;
        }
        if group.excludes_current_time && order == current {
            self.part = Part::Excluded;
            return Stage { lowest: current, ..outside };
        }
        // Positions count from 0, which is the current row.
        let next = self.position + 1;
        let (rows, lowest) = match group.frame {
            WindowFrame::Rows { to, .. } if next < to => {
                return Stage { rows: to - next, ..outside };
            }
            WindowFrame::Rows { from, .. } => {
                (from.map_or(u64::MAX, |from| from.saturating_sub(self.position)), i64::MIN)
            }
            WindowFrame::Range { .. } if order > self.upper => {
                return Stage { lowest: self.upper + 1, ..outside };
            }
            WindowFrame::Range { .. } => {
                (if order < self.lower { 0 } else { u64::MAX }, self.lower)
            }
        };
        let rows = rows.min(group.max_size - self.taken);
        if rows == 0 {
            self.is_done = true;
            return outside;
        }
        self.part = Part::Inside;
        Stage { takers: 1, rows, lowest }
    }

    /// Moves past rows of the stage.
    pub(crate) fn pass(&mut self, group: &Group, rows: u64) {
        match self.part {
            Part::Excluded => return,
            Part::Outside => {}
            Part::Inside => self.take(group, rows),
        }
        self.position += rows;
        if let WindowFrame::Rows { from: Some(from), .. } = group.frame {
            self.is_done |= self.position >= from;
        }
    }

    /// Takes rows; MAXSIZE ends the frame.
    pub(crate) fn take(&mut self, group: &Group, rows: u64) {
        self.taken += rows;
        self.is_done |= self.taken >= group.max_size;
    }
}

impl Group {
    /// Whether the current row is in the frame.
    pub(crate) fn has_current_row(&self) -> bool {
        let reaches_it = match self.frame {
            WindowFrame::Rows { to, .. } => to == 0,
            WindowFrame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
        };
        reaches_it && !self.excludes_current_row
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Frames, Group, Progress, WindowFrame};

    /// Ends that are small, and the greatest and least there are.
    fn distance() -> impl Strategy<Value = i64> {
        prop_oneof![6 => -2_i64..8, 1 => Just(i64::MIN), 1 => Just(i64::MAX), 1 => any::<i64>()]
    }

    fn position() -> impl Strategy<Value = u64> {
        prop_oneof![6 => 0_u64..8, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1), 1 => any::<u64>()]
    }

    fn groups() -> impl Strategy<Value = Vec<Group>> {
        let rows = (proptest::option::of(position()), position())
            .prop_map(|(from, to)| WindowFrame::Rows { from, to });
        let range = (proptest::option::of(distance()), distance())
            .prop_map(|(from, to)| WindowFrame::Range { from, to });
        let max_size = prop_oneof![1_u64..5, Just(u64::MAX)];
        let group = (prop_oneof![rows, range], max_size, any::<bool>(), any::<bool>()).prop_map(
            |(frame, max_size, excludes_current_time, excludes_current_row)| Group {
                frame,
                max_size,
                excludes_current_time,
                excludes_current_row,
            },
        );
        proptest::collection::vec(group, 1..4)
    }

    /// Which of the rows are in a frame, read literally; the current row stands before them.
    fn literal(group: &Group, orders: &[i64], current: i64, current_is_taken: bool) -> Vec<bool> {
        let (mut position, mut taken) = (0_u64, u64::from(current_is_taken));
        let is_in = |order: i64| {
            if group.excludes_current_time && order == current {
                return false;
            }
            position += 1;
            let distance = i128::from(current) - i128::from(order);
            let is_in = match group.frame {
                WindowFrame::Rows { from, to } => {
                    position >= to && from.is_none_or(|from| position <= from)
                }
                WindowFrame::Range { from, to } => {
                    distance >= i128::from(to)
                        && from.is_none_or(|from| distance <= i128::from(from))
                }
            };
            let is_taken = is_in && taken < group.max_size;
            taken += u64::from(is_taken);
            is_taken
        };
        orders.iter().copied().map(is_in).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_048, ..ProptestConfig::default() })]

        /// Rows that pass one by one and as many at once as a stage allows are taken alike, and as
        /// the definition says; no group is done while it can take another.
        #[test]
        fn stages_of_any_length_are_the_frames_row_by_row(
            groups in groups(),
            current in distance(),
            older in proptest::collection::vec(
                prop_oneof![
                    4 => 0_u64..4, 2 => 0_u64..12, 1 => Just(u64::MAX), 1 => any::<u64>()
                ], 0..40),
            lengths in proptest::collection::vec(1_usize..9, 1..8),
        ) {
            let orders: Vec<i64> = older
                .iter()
                .scan(current, |order, step| {
                    *order = order.saturating_sub_unsigned(*step);
                    Some(*order)
                })
                .collect();
            let mut progress: Vec<Progress> = Vec::new();
            let mut expected: Vec<Vec<bool>> = Vec::new();
            for group in &groups {
                let mut own = Progress::new(group, Some(current));
                let takes_current = group.has_current_row() && !own.is_done;
                if takes_current {
                    own.take(group, 1);
                }
                progress.push(own);
                expected.push(literal(group, &orders, current, takes_current));
            }
            let mut found = vec![vec![false; orders.len()]; groups.len()];
            let mut frames = Frames::new(&groups, &mut progress, current);
            let (mut at, mut lengths) = (0, lengths.iter().cycle());
            while at < orders.len() {
                let Some(stage) = frames.reach(orders[at]) else { break };
                let alike = orders[at..].iter().take_while(|order| **order >= stage.lowest).count();
                let rows = usize::try_from(stage.rows).unwrap_or(usize::MAX);
                let rows = rows.min(alike).min(*lengths.next().unwrap());
                prop_assert!(rows > 0);
                for (group, found) in found.iter_mut().enumerate() {
                    found[at..at + rows].fill(stage.takers & 1 << group != 0);
                }
                at += rows;
                if !frames.pass(rows) {
                    break;
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
