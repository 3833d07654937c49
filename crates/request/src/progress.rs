//! How far each window frame of a scan has advanced: which of the next rows are in the frame, and
//! for how many of them that stays so.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. [`FrameProgress::next_span`] is
//! the only place that decides it, for one row and for many: rows that follow each other are in the
//! frame or not until a number of them have passed, or until the order value falls below a bound.
//! [`crate::window`] takes the rows newest first and reports how many have passed.

use lockstep_plan::Frame as WindowFrame;

use crate::groups::GroupSet;

/// The frame of one window group, with the attributes that change which rows are in it.
#[derive(Debug)]
pub(crate) struct FrameSpec {
    pub(crate) frame: WindowFrame,
    /// The most rows of the frame, the current row among them.
    pub(crate) max_size: u64,
    pub(crate) excludes_current_time: bool,
    pub(crate) excludes_current_row: bool,
}

/// How far one frame has advanced. Order values of its rows are in `lower..=upper`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameProgress {
    /// How many rows have passed that count for a frame by rows.
    position: u64,
    /// How many rows the frame has taken.
    taken: u64,
    /// What the rows of the current span are to the frame.
    membership: FrameMembership,
    pub(crate) upper: i64,
    pub(crate) lower: i64,
    /// Set when the frame takes no more rows.
    pub(crate) is_done: bool,
}

/// What rows are to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameMembership {
    /// At the current row's time, which is excluded: a frame by rows does not count them.
    Excluded,
    /// Newer or older than the frame.
    Outside,
    Inside,
}

/// The next rows of a scan that a frame, or each of several frames, treats alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameSpan {
    /// The groups that take the rows.
    pub(crate) groups: GroupSet,
    /// How many rows there are at most.
    pub(crate) rows: u64,
    /// The least order value of the rows.
    pub(crate) lowest: i64,
}

impl FrameSpan {
    /// No rows: before the first one.
    const EMPTY: Self = Self { groups: GroupSet::NONE, rows: 0, lowest: i64::MAX };
    /// All rows, which no group takes.
    const UNTAKEN: Self = Self { groups: GroupSet::NONE, rows: u64::MAX, lowest: i64::MIN };

    /// Returns whether no number of rows ends the span.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        // Rows that have passed were subtracted.
        self.rows > u64::MAX / 2
    }

    /// Returns whether the next row, which has this order value, is in the span.
    #[inline]
    pub(crate) fn contains(&self, order: i64) -> bool {
        self.rows > 0 && order >= self.lowest
    }
}

/// The frames of all window groups of a scan, as they advance through its rows.
#[derive(Debug)]
pub(crate) struct ScanProgress<'p> {
    groups: &'p [FrameSpec],
    progress: &'p mut [FrameProgress],
    /// The current row's order value.
    current: i64,
    span: FrameSpan,
    /// How many rows have passed since the span began.
    passed: u64,
}

impl<'p> ScanProgress<'p> {
    /// Begins before the first row. `current` is the current row's order value.
    pub(crate) fn new(
        groups: &'p [FrameSpec],
        progress: &'p mut [FrameProgress],
        current: i64,
    ) -> Self {
        assert_eq!(groups.len(), progress.len(), "each group has its progress");
        Self { groups, progress, current, span: FrameSpan::EMPTY, passed: 0 }
    }

    /// Returns the span that begins with the next row, which has this order value; `None` when no
    /// group takes it or an older one.
    #[inline]
    pub(crate) fn span_at(&mut self, order: i64) -> Option<FrameSpan> {
        if !self.span.contains(order) && !self.begin_span(order) {
            return None;
        }
        Some(self.span)
    }

    /// Advances past rows of the span. Returns whether a group can take another row.
    #[inline]
    pub(crate) fn pass(&mut self, rows: usize) -> bool {
        let rows = u64::try_from(rows).expect("a count of rows");
        debug_assert!(rows <= self.span.rows, "only rows of the span pass");
        self.passed += rows;
        self.span.rows -= rows;
        self.span.rows > 0 || self.end_span()
    }

    /// Begins a span. Returns whether a group can take another row.
    #[inline(never)]
    fn begin_span(&mut self, order: i64) -> bool {
        self.end_span();
        let mut all = FrameSpan::UNTAKEN;
        let mut goes_on = false;
        for (group, (spec, progress)) in self.groups.iter().zip(&mut *self.progress).enumerate() {
            let own = progress.next_span(spec, order, self.current);
            if own.is_taken {
                all.groups |= GroupSet::of(group);
            }
            all.rows = all.rows.min(own.rows);
            all.lowest = all.lowest.max(own.lowest);
            goes_on |= !progress.is_done;
        }
        self.span = all;
        goes_on
    }

    /// Reports the rows that have passed to the groups. Returns whether one of them can take another
    /// row.
    fn end_span(&mut self) -> bool {
        let rows = std::mem::take(&mut self.passed);
        let mut goes_on = false;
        for (spec, progress) in self.groups.iter().zip(&mut *self.progress) {
            progress.pass(spec, rows);
            goes_on |= !progress.is_done;
        }
        goes_on
    }
}

/// The next rows that one frame treats alike.
#[derive(Debug, Clone, Copy)]
struct OneFrameSpan {
    /// Whether the frame takes them.
    is_taken: bool,
    rows: u64,
    lowest: i64,
}

impl OneFrameSpan {
    /// All rows, none of which is in the frame.
    const OUTSIDE: Self = Self { is_taken: false, rows: u64::MAX, lowest: i64::MIN };
}

impl FrameProgress {
    /// Begins before the first row. `order` is the current row's order value.
    pub(crate) fn new(spec: &FrameSpec, order: Option<i64>) -> Self {
        let all = Self {
            position: 0,
            taken: 0,
            membership: FrameMembership::Outside,
            upper: i64::MAX,
            lower: i64::MIN,
            is_done: false,
        };
        let Some(order) = order else { return all };
        match spec.frame {
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

    /// Decides what the next row, which has this order value, and those after it are to the frame.
    /// The rows before it have been reported to [`Self::pass`].
    fn next_span(&mut self, spec: &FrameSpec, order: i64, current: i64) -> OneFrameSpan {
        let outside = OneFrameSpan::OUTSIDE;
        self.membership = FrameMembership::Outside;
        if self.is_done {
            return outside;
        }
        if spec.excludes_current_time && order == current {
            self.membership = FrameMembership::Excluded;
            return OneFrameSpan { lowest: current, ..outside };
        }
        // Positions count from 0, which is the current row.
        let next = self.position + 1;
        let (rows, lowest) = match spec.frame {
            WindowFrame::Rows { to, .. } if next < to => {
                return OneFrameSpan { rows: to - next, ..outside };
            }
            WindowFrame::Rows { from, .. } => {
                (from.map_or(u64::MAX, |from| from.saturating_sub(self.position)), i64::MIN)
            }
            WindowFrame::Range { .. } if order > self.upper => {
                return OneFrameSpan { lowest: self.upper + 1, ..outside };
            }
            WindowFrame::Range { .. } => {
                (if order < self.lower { 0 } else { u64::MAX }, self.lower)
            }
        };
        let rows = rows.min(spec.max_size - self.taken);
        if rows == 0 {
            self.is_done = true;
            return outside;
        }
        self.membership = FrameMembership::Inside;
        OneFrameSpan { is_taken: true, rows, lowest }
    }

    /// Advances past rows of the current span.
    pub(crate) fn pass(&mut self, spec: &FrameSpec, rows: u64) {
        match self.membership {
            FrameMembership::Excluded => return,
            FrameMembership::Outside => {}
            FrameMembership::Inside => self.take(spec, rows),
        }
        self.position += rows;
        if let WindowFrame::Rows { from: Some(from), .. } = spec.frame {
            self.is_done |= self.position >= from;
        }
    }

    /// Takes rows into the frame; MAXSIZE ends it.
    pub(crate) fn take(&mut self, spec: &FrameSpec, rows: u64) {
        self.taken += rows;
        self.is_done |= self.taken >= spec.max_size;
    }
}

impl FrameSpec {
    /// Returns whether the current row is in the frame.
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

    use super::{FrameProgress, FrameSpec, ScanProgress, WindowFrame};

    /// Draws small distances, and the least and the greatest there are.
    fn distance() -> impl Strategy<Value = i64> {
        prop_oneof![6 => -2_i64..8, 1 => Just(i64::MIN), 1 => Just(i64::MAX), 1 => any::<i64>()]
    }

    fn position() -> impl Strategy<Value = u64> {
        prop_oneof![6 => 0_u64..8, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1), 1 => any::<u64>()]
    }

    fn groups() -> impl Strategy<Value = Vec<FrameSpec>> {
        let rows = (proptest::option::of(position()), position())
            .prop_map(|(from, to)| WindowFrame::Rows { from, to });
        let range = (proptest::option::of(distance()), distance())
            .prop_map(|(from, to)| WindowFrame::Range { from, to });
        let max_size = prop_oneof![1_u64..5, Just(u64::MAX)];
        let group = (prop_oneof![rows, range], max_size, any::<bool>(), any::<bool>()).prop_map(
            |(frame, max_size, excludes_current_time, excludes_current_row)| FrameSpec {
                frame,
                max_size,
                excludes_current_time,
                excludes_current_row,
            },
        );
        proptest::collection::vec(group, 1..4)
    }

    /// Computes which rows are in a frame, straight from the definition; the current row precedes them.
    fn literal(
        group: &FrameSpec,
        orders: &[i64],
        current: i64,
        current_is_taken: bool,
    ) -> Vec<bool> {
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

        /// Rows that pass one by one and as many at once as a span allows are taken alike, and as
        /// the definition says; no group is done while it can take another.
        #[test]
        fn spans_of_any_length_are_the_frames_row_by_row(
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
            let mut progress: Vec<FrameProgress> = Vec::new();
            let mut expected: Vec<Vec<bool>> = Vec::new();
            for group in &groups {
                let mut own = FrameProgress::new(group, Some(current));
                let takes_current = group.has_current_row() && !own.is_done;
                if takes_current {
                    own.take(group, 1);
                }
                progress.push(own);
                expected.push(literal(group, &orders, current, takes_current));
            }
            let mut found = vec![vec![false; orders.len()]; groups.len()];
            let mut scan = ScanProgress::new(&groups, &mut progress, current);
            let (mut at, mut lengths) = (0, lengths.iter().cycle());
            while at < orders.len() {
                let Some(span) = scan.span_at(orders[at]) else { break };
                let alike = orders[at..].iter().take_while(|order| **order >= span.lowest).count();
                let rows = usize::try_from(span.rows).unwrap_or(usize::MAX);
                let rows = rows.min(alike).min(*lengths.next().unwrap());
                prop_assert!(rows > 0);
                for (group, found) in found.iter_mut().enumerate() {
                    found[at..at + rows].fill(span.groups.contains(group));
                }
                at += rows;
                if !scan.pass(rows) {
                    break;
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
