//! The schedule: which joiners have which rows.
//!
//! The keys are divided into partitions. The rows of a partition go to its *team*: each member has all of them, and each
//! main row is computed by one of them, in turn. A team has one member until its partition is a burden: then the least
//! loaded joiner becomes a member as well, so that even one key can be computed by all joiners. A partition whose rows
//! have become few goes back to one.
//!
//! A team changes between the same two rows for all joiners ([`crate::crew`]): a new member gets a copy of what another
//! one has, and a member that leaves has all rows that its main rows need before it forgets the partition. Main rows
//! never change their joiner.
//!
//! The balance is that of Scale-OIJ (ICDE 2023): the load of a joiner is the sum over its partitions, the largest
//! partition of the most loaded joiner is shared with the least loaded one as long as they are uneven and that makes them
//! less so, and what was counted decays.

use lockstep_row::{Datum, key::encode_key};

use crate::{
    bug::{self, StreamBug},
    spec::WindowJoinSpec,
    watermark::PassedTimes,
};

/// The keys are divided into so many partitions.
const PARTITIONS: usize = 256;
/// So many rows pass before the balance is looked at again.
const PERIOD_ROWS: u64 = 1 << 15;
/// What is left of a count after a period.
const DECAY: f64 = 0.5;
/// Partitions are shared where the imbalance is greater than this.
const IMBALANCE_MAX: f64 = 0.1;
/// A team that has a smaller part of the mean load goes back to one member.
const SMALL_PART: f64 = 0.05;
/// Computing the windows of a main row costs as much as so many candidates.
const MAIN_ROW_LOAD: f64 = 3.0;
/// Which joiners there may be: each is a bit of a team.
pub(crate) const JOINERS_MAX: usize = 64;

/// The teams of all partitions.
#[derive(Debug)]
pub(crate) struct Schedule {
    joiners: usize,
    /// For each source the columns by which rows are divided; `None` where all joiners have all rows.
    columns: Option<Vec<Vec<usize>>>,
    partitions: Vec<Partition>,
    /// Whether main rows are candidates.
    has_main_candidates: bool,
    /// Whether members may be added.
    is_shareable: bool,
    /// How long after its time a main row is final; `None` where no time says it, and members do not leave.
    ahead_ms: Option<i64>,
    rows_of_period: u64,
    encoded: Vec<u8>,
    /// Changes are drawn, one after each row.
    #[cfg(test)]
    drawn: Option<u64>,
}

/// The team of a partition, and its rows.
#[derive(Debug, Clone)]
struct Partition {
    /// Which joiners compute its main rows: a bit for each.
    members: u64,
    /// Those that still have its rows, each with the time of the newest row when it left.
    leaving: Vec<(usize, Option<i64>)>,
    /// Which member computed the last main row.
    last: usize,
    /// The main rows and the others since the last changes, those before counted in part.
    main_rows: f64,
    other_rows: f64,
}

/// Where a row goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRoute {
    pub(crate) partition: u16,
    /// The joiner that computes a main row.
    pub(crate) computed_by: Option<usize>,
    /// Those that have it as a candidate: a bit for each.
    pub(crate) others: u64,
}

/// A change of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TeamChange {
    /// A joiner gets what a member has.
    Join { partition: u16, from: usize, to: usize },
    /// A joiner has no main row of the partition any more.
    Forget { partition: u16, joiner: usize },
}

impl Schedule {
    pub(crate) fn new(spec: &WindowJoinSpec, joiners: usize) -> Self {
        assert!((1..=JOINERS_MAX).contains(&joiners), "each joiner has a bit");
        let columns = spec.divided_by();
        let all = u64::MAX >> (JOINERS_MAX - joiners);
        let team = |members: u64| Partition {
            members,
            leaving: Vec::new(),
            last: 0,
            main_rows: 0.0,
            other_rows: 0.0,
        };
        let partitions = match columns {
            None => vec![team(all)],
            Some(_) => (0..PARTITIONS).map(|partition| team(1 << (partition % joiners))).collect(),
        };
        Self {
            joiners,
            is_shareable: columns.is_some() && spec.is_shareable(),
            columns,
            partitions,
            has_main_candidates: spec.has_main_candidates(),
            ahead_ms: spec.ahead_ms(),
            rows_of_period: 0,
            encoded: Vec::new(),
            #[cfg(test)]
            drawn: None,
        }
    }

    /// Returns where a row goes.
    pub(crate) fn route(&mut self, source: usize, columns: &[Datum<'_>]) -> RowRoute {
        let at = self.partition_of(source, columns);
        self.rows_of_period += 1;
        let has_main = self.has_main_candidates;
        let partition = &mut self.partitions[at];
        let all = partition.leaving.iter().fold(partition.members, |all, (of, _)| all | 1 << of);
        let number = u16::try_from(at).expect("there are fewer than 2^16 partitions");
        if source > 0 {
            partition.other_rows += 1.0;
            return RowRoute { partition: number, computed_by: None, others: all };
        }
        partition.main_rows += 1.0;
        let own = partition.next_member();
        let others = if has_main { all & !(1 << own) } else { 0 };
        RowRoute { partition: number, computed_by: Some(own), others }
    }

    /// Returns whether teams may change now.
    pub(crate) fn is_due(&self) -> bool {
        #[cfg(test)]
        if self.drawn.is_some() {
            return true;
        }
        self.rows_of_period >= PERIOD_ROWS && self.columns.is_some()
    }

    /// Changes teams so that joiners have equal loads. `newest` is the newest event time of all rows so far.
    pub(crate) fn change(&mut self, passed: PassedTimes, newest: Option<i64>) -> Vec<TeamChange> {
        let mut changes = Vec::new();
        self.forget(passed, &mut changes);
        #[cfg(test)]
        if self.drawn.is_some() {
            self.change_as_drawn(newest, &mut changes);
            return changes;
        }
        self.rows_of_period = 0;
        self.leave_small_teams(newest);
        if self.is_shareable {
            self.share(&mut changes);
        }
        for partition in &mut self.partitions {
            partition.main_rows *= DECAY;
            partition.other_rows *= DECAY;
        }
        changes
    }

    /// Lets those forget a partition whose main rows are all final.
    fn forget(&mut self, passed: PassedTimes, changes: &mut Vec<TeamChange>) {
        let Some(ahead_ms) = self.ahead_ms else { return };
        for (number, partition) in self.partitions.iter_mut().enumerate() {
            let early = bug::is_seeded(StreamBug::LeftTooEarly);
            let is_over = |newest: Option<i64>| {
                early || newest.is_none_or(|newest| passed.includes_after(newest, ahead_ms))
            };
            partition.leaving.retain(|(joiner, newest)| {
                let stays = !is_over(*newest);
                if !stays {
                    let partition = u16::try_from(number).expect("fewer than 2^16 partitions");
                    changes.push(TeamChange::Forget { partition, joiner: *joiner });
                }
                stays
            });
        }
    }

    /// Leaves teams with few rows to their least loaded members.
    fn leave_small_teams(&mut self, newest: Option<i64>) {
        if self.ahead_ms.is_none() {
            return;
        }
        let loads = self.loads();
        let mean = mean(&loads);
        for partition in self.partitions.iter_mut().filter(|of| of.members.count_ones() > 1) {
            let whole = partition.other_rows + partition.main_rows * (1.0 + MAIN_ROW_LOAD);
            if whole > mean * SMALL_PART {
                continue;
            }
            let least = partition.members().min_by(|a, b| loads[*a].total_cmp(&loads[*b]));
            let stays = least.expect("a team has members");
            for joiner in partition.members().filter(|joiner| *joiner != stays) {
                partition.leaving.push((joiner, newest));
            }
            partition.members = 1 << stays;
        }
    }

    /// Shares partitions of loaded joiners with others.
    fn share(&mut self, changes: &mut Vec<TeamChange>) {
        while let Some((at, to)) = self.share_next() {
            let partition = &mut self.partitions[at];
            let from = partition.members().next().expect("a team has members");
            debug_assert!(!partition.has(to), "it is not one of them");
            partition.members |= 1 << to;
            let partition = u16::try_from(at).expect("fewer than 2^16 partitions");
            changes.push(TeamChange::Join { partition, from, to });
        }
    }

    /// Finds a partition to be shared, and the joiner that it is shared with.
    fn share_next(&self) -> Option<(usize, usize)> {
        let loads = self.loads();
        let before = imbalance(&loads);
        if before <= IMBALANCE_MAX {
            return None;
        }
        let by_load = |a: &usize, b: &usize| loads[*a].total_cmp(&loads[*b]);
        let most = (0..self.joiners).max_by(by_load)?;
        let least = (0..self.joiners).min_by(by_load)?;
        let is_shared = |of: &Partition| {
            let has_left = of.leaving.iter().any(|(joiner, _)| *joiner == least);
            of.has(most) && !of.has(least) && !has_left
        };
        let partitions = self.partitions.iter().enumerate().filter(|(_, of)| is_shared(of));
        let load_of = |of: &Partition| of.load(self.has_main_candidates);
        let (at, largest) = partitions.max_by(|a, b| load_of(a.1).total_cmp(&load_of(b.1)))?;
        let mut after = loads.clone();
        let shared = Partition { members: largest.members | 1 << least, ..largest.clone() };
        for joiner in largest.members() {
            after[joiner] += load_of(&shared) - load_of(largest);
        }
        after[least] += load_of(&shared);
        // The rows of the new member cost something as well.
        (after[least] < loads[most] && imbalance(&after) < before).then_some((at, least))
    }

    /// Returns the load of each joiner.
    fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.joiners];
        for partition in &self.partitions {
            let load = partition.load(self.has_main_candidates);
            partition.members().for_each(|joiner| loads[joiner] += load);
        }
        loads
    }

    /// Returns how uneven the loads are: their standard deviation, as a part of their mean.
    pub(crate) fn imbalance(&self) -> f64 {
        imbalance(&self.loads())
    }

    /// Returns how many partitions have more than one joiner.
    pub(crate) fn shared(&self) -> usize {
        self.partitions.iter().filter(|of| of.members.count_ones() > 1).count()
    }

    /// Returns for each partition which joiner tells what LAST JOINs hold of it.
    pub(crate) fn tellers(&self) -> Vec<u8> {
        let first = |of: &Partition| of.members().next().expect("a team has members");
        let number = |joiner| u8::try_from(joiner).expect("there are at most 64 joiners");
        self.partitions.iter().map(|partition| number(first(partition))).collect()
    }

    fn partition_of(&mut self, source: usize, columns: &[Datum<'_>]) -> usize {
        let Some(of_sources) = &self.columns else { return 0 };
        self.encoded.clear();
        let key = of_sources[source].iter().map(|column| columns[*column]);
        encode_key(key, &mut self.encoded);
        let number = hash(&self.encoded) >> (u64::BITS - PARTITIONS.ilog2());
        usize::try_from(number).expect("a partition has few bits")
    }

    /// Changes teams at random after each row from now on.
    #[cfg(test)]
    pub(crate) fn draw_changes(&mut self, seed: u64) {
        self.drawn = Some(seed);
    }

    #[cfg(test)]
    fn change_as_drawn(&mut self, newest: Option<i64>, changes: &mut Vec<TeamChange>) {
        for at in 0..self.partitions.len() {
            let Some(drawn) = &mut self.drawn else { return };
            *drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (number, choice) = ((*drawn >> 33) as usize, *drawn >> 60);
            let (partition, joiner) = (&mut self.partitions[at], number % self.joiners);
            if partition.main_rows + partition.other_rows == 0.0 || self.columns.is_none() {
                continue;
            }
            let is_leaving = partition.leaving.iter().any(|(other, _)| *other == joiner);
            let number = u16::try_from(at).unwrap();
            if choice < 8 && self.is_shareable && !partition.has(joiner) && !is_leaving {
                let from = partition.members().next().unwrap();
                partition.members |= 1 << joiner;
                changes.push(TeamChange::Join { partition: number, from, to: joiner });
            } else if choice >= 8 && partition.has(joiner) && self.ahead_ms.is_some() {
                let left = partition.members & !(1 << joiner);
                if left != 0 {
                    partition.members = left;
                    partition.leaving.push((joiner, newest));
                }
            }
        }
    }
}

impl Partition {
    fn has(&self, joiner: usize) -> bool {
        self.members >> joiner & 1 > 0
    }

    fn members(&self) -> impl Iterator<Item = usize> + use<> {
        let first = (self.members > 0).then_some(self.members);
        let without_first = |members: &u64| Some(members & (members - 1)).filter(|left| *left > 0);
        std::iter::successors(first, without_first).map(|members| members.trailing_zeros() as usize)
    }

    /// Returns which member computes the next main row.
    fn next_member(&mut self) -> usize {
        debug_assert!(self.members > 0, "a team has members");
        let later = self.members & (u64::MAX << self.last << 1);
        let next = if later > 0 { later } else { self.members };
        self.last = next.trailing_zeros() as usize;
        self.last
    }

    /// Returns what each member computes.
    fn load(&self, has_main_candidates: bool) -> f64 {
        let main_candidates = if has_main_candidates { self.main_rows } else { 0.0 };
        let computed = self.main_rows * MAIN_ROW_LOAD / f64::from(self.members.count_ones());
        self.other_rows + main_candidates + computed
    }
}

fn mean(loads: &[f64]) -> f64 {
    debug_assert!(!loads.is_empty(), "there is a joiner");
    loads.iter().sum::<f64>() / loads.len() as f64
}

/// Returns the standard deviation of some loads, as a part of their mean.
fn imbalance(loads: &[f64]) -> f64 {
    let mean = mean(loads);
    if mean <= 0.0 {
        return 0.0;
    }
    let squares: f64 = loads.iter().map(|load| (load - mean) * (load - mean)).sum();
    (squares / loads.len() as f64).sqrt() / mean
}

/// Hashes a key, to the same number in each process: FNV-1a, and a multiplication that mixes it into the first bits.
fn hash(key: &[u8]) -> u64 {
    let fnv = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    fnv.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
