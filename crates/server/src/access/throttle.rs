//! The waits of attempts to log in, by the address from which they come.
//!
//! An attempt waits before it is verified, and for as long whether it is right or wrong, so that the time
//! tells nothing. An address without failures does not wait. Each failure doubles the wait between
//! attempts from the address, and after a while without one it is forgotten.
//!
//! # Attempts at the same time
//!
//! An attempt that is being verified may be about to fail, so only [`VERIFYING_MAX`] from an address are
//! verified at the same time, and after a failure one. Those that wait ask again when one has ended: they
//! wait for its failure, too. Many attempts in parallel are thus no better than one after the other.
//!
//! # Memory
//!
//! There are [`ADDRESSES_MAX`] addresses at most. Those for which there is no place share one entry, so
//! that no client makes the server forget a failure by failing from elsewhere. Attempts are counted while
//! their connections are open.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use lockstep_host::sync::Mutex;
use tokio::sync::{Notify, futures::Notified};

/// The most addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;

/// The most attempts from an address without failures that are verified at the same time.
const VERIFYING_MAX: u32 = 4;

/// The wait after the first failure.
const FIRST_WAIT_NS: u64 = 100_000_000;

/// The longest wait between two attempts.
const WAIT_MAX_NS: u64 = 5_000_000_000;

/// The longest wait of an attempt for its turn, including those before it; longer ones are refused.
pub(crate) const TURN_MAX_NS: u64 = 10_000_000_000;

/// How long after its last failure an address is forgotten.
const FORGOTTEN_NS: u64 = 60_000_000_000;

/// The failures of an address.
#[derive(Debug, Clone, Copy, Default)]
struct AddressFailures {
    count: u32,
    last_ns: u64,
    /// When the next attempt may be verified.
    next_ns: u64,
}

impl AddressFailures {
    /// Returns the wait between two attempts.
    fn interval_ns(self) -> u64 {
        let doublings = self.count.saturating_sub(1).min(16);
        (FIRST_WAIT_NS << doublings).min(WAIT_MAX_NS)
    }

    fn is_forgotten(self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns) >= FORGOTTEN_NS
    }
}

/// The attempts from an address that have not ended.
#[derive(Debug, Default)]
struct OpenAttempts {
    /// The numbers of those that wait: lower ones have their turn first.
    waiting: BTreeSet<u64>,
    verifying: u32,
}

/// The addresses from which attempts have failed, and the attempts that have not ended.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    table: Mutex<AttemptTable>,
    /// Notified when an attempt has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct AttemptTable {
    failures: HashMap<IpAddr, AddressFailures>,
    /// Those of addresses for which there was no place.
    others: AddressFailures,
    open: HashMap<IpAddr, OpenAttempts>,
    /// The number of attempts so far.
    begun: u64,
}

impl AttemptTable {
    /// Finds the failures that an address has to wait for, if there are some.
    fn find(&mut self, address: IpAddr) -> &mut AddressFailures {
        match self.failures.get_mut(&address) {
            Some(found) => found,
            None => &mut self.others,
        }
    }

    /// Finds the failures of an address, or makes a place for them.
    fn place(&mut self, address: IpAddr, now_ns: u64) -> &mut AddressFailures {
        if self.failures.len() >= ADDRESSES_MAX && !self.failures.contains_key(&address) {
            self.failures.retain(|_, failures| !failures.is_forgotten(now_ns));
            if self.failures.len() >= ADDRESSES_MAX {
                return &mut self.others;
            }
        }
        self.failures.entry(address).or_default()
    }
}

/// An attempt to log in, until it is dropped.
#[derive(Debug)]
pub(crate) struct LoginTurn {
    throttle: Arc<LoginThrottle>,
    network: IpAddr,
    number: u64,
    begun_ns: u64,
}

/// When an attempt may be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnAnswer {
    Now,
    /// It asks again after so many nanoseconds.
    AfterNs(u64),
    /// It asks again when another attempt has ended.
    AfterAnother,
    /// It would wait for too long.
    Refused,
}

impl LoginThrottle {
    /// Begins an attempt, which asks for its turn.
    pub(crate) fn begin(self: &Arc<Self>, address: IpAddr, now_ns: u64) -> LoginTurn {
        let (throttle, network) = (Arc::clone(self), network_of(address));
        let mut table = self.table.lock();
        table.begun += 1;
        let number = table.begun;
        table.open.entry(network).or_default().waiting.insert(number);
        LoginTurn { throttle, network, number, begun_ns: now_ns }
    }

    /// Returns a future that ends when an attempt ends after this call.
    pub(crate) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }

    /// Notes an attempt that was wrong.
    pub(crate) fn note_failure(&self, address: IpAddr, now_ns: u64) {
        let mut table = self.table.lock();
        let failures = table.place(network_of(address), now_ns);
        if failures.is_forgotten(now_ns) {
            *failures = AddressFailures::default();
        }
        failures.count = failures.count.saturating_add(1);
        failures.last_ns = now_ns;
        failures.next_ns = failures.next_ns.max(now_ns + failures.interval_ns());
    }
}

impl LoginTurn {
    /// Asks whether the attempt may be verified.
    pub(crate) fn ask(&self, now_ns: u64) -> TurnAnswer {
        let mut table = self.throttle.table.lock();
        let failures = *table.find(self.network);
        let has_failed = failures.count > 0 && !failures.is_forgotten(now_ns);
        let open = table.open.entry(self.network).or_default();
        if !has_failed {
            if open.verifying >= VERIFYING_MAX {
                return TurnAnswer::AfterAnother;
            }
        } else {
            let turn_ns = failures.next_ns.max(now_ns);
            let before = open.waiting.range(..self.number).count();
            let before_ns =
                failures.interval_ns().saturating_mul(before.try_into().unwrap_or(u64::MAX));
            if turn_ns.saturating_add(before_ns) - self.begun_ns > TURN_MAX_NS {
                return TurnAnswer::Refused;
            }
            if turn_ns > now_ns {
                return TurnAnswer::AfterNs(turn_ns - now_ns);
            }
            if before > 0 || open.verifying > 0 {
                return TurnAnswer::AfterAnother;
            }
        }
        debug_assert!(open.waiting.contains(&self.number), "an attempt has one turn");
        open.waiting.remove(&self.number);
        open.verifying += 1;
        if has_failed {
            table.find(self.network).next_ns = now_ns + failures.interval_ns();
        }
        TurnAnswer::Now
    }
}

impl Drop for LoginTurn {
    fn drop(&mut self) {
        let mut table = self.throttle.table.lock();
        if let Some(open) = table.open.get_mut(&self.network) {
            if !open.waiting.remove(&self.number) {
                debug_assert!(open.verifying > 0, "an attempt waits or is verified");
                open.verifying = open.verifying.saturating_sub(1);
            }
            if open.waiting.is_empty() && open.verifying == 0 {
                table.open.remove(&self.network);
            }
        }
        drop(table);
        self.throttle.ended.notify_waiters();
    }
}

/// Returns the address that stands for a client: of IPv6 the network, of which one client has all.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        sync::Arc,
    };

    use super::{
        ADDRESSES_MAX, FIRST_WAIT_NS, FORGOTTEN_NS, LoginThrottle, LoginTurn,
        TurnAnswer::{self, AfterAnother, AfterNs, Now, Refused},
        VERIFYING_MAX, WAIT_MAX_NS,
    };

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const NOW_NS: u64 = FORGOTTEN_NS * 2;

    /// Asks for the turn of a new attempt, and ends it.
    fn turn_of(throttle: &Arc<LoginThrottle>, address: IpAddr, now_ns: u64) -> TurnAnswer {
        throttle.begin(address, now_ns).ask(now_ns)
    }

    #[test]
    fn attempts_after_failures_wait_ever_longer() {
        let throttle = Arc::<LoginThrottle>::default();
        assert_eq!(turn_of(&throttle, ADDRESS, NOW_NS), Now);
        throttle.note_failure(ADDRESS, NOW_NS);
        assert_eq!(turn_of(&throttle, ADDRESS, NOW_NS), AfterNs(FIRST_WAIT_NS));
        assert_eq!(turn_of(&throttle, OTHER, NOW_NS), Now);
        let mut now_ns = NOW_NS;
        for _ in 0..40 {
            now_ns += WAIT_MAX_NS;
            throttle.note_failure(ADDRESS, now_ns);
        }
        // The first ones are before it; the third would wait for too long.
        let waiting: Vec<LoginTurn> = (0..3).map(|_| throttle.begin(ADDRESS, now_ns)).collect();
        let answers: Vec<TurnAnswer> = waiting.iter().map(|turn| turn.ask(now_ns)).collect();
        assert_eq!(answers, [AfterNs(WAIT_MAX_NS), AfterNs(WAIT_MAX_NS), Refused]);
        drop(waiting);
        assert_eq!(turn_of(&throttle, ADDRESS, now_ns + FORGOTTEN_NS), Now);
    }

    #[test]
    fn attempts_at_the_same_time_wait_for_the_failures_of_each_other() {
        let throttle = Arc::<LoginThrottle>::default();
        let attempts = 300;
        let mut open: Vec<LoginTurn> =
            (0..attempts).map(|_| throttle.begin(ADDRESS, NOW_NS)).collect();
        let (mut verified, mut now_ns) = (0, NOW_NS);
        while !open.is_empty() {
            let mut left = Vec::new();
            let mut verifying = Vec::new();
            for turn in open {
                match turn.ask(now_ns) {
                    Now => verifying.push(turn),
                    AfterAnother | AfterNs(_) => left.push(turn),
                    Refused => {}
                }
            }
            assert!(verifying.len() <= usize::try_from(VERIFYING_MAX).unwrap());
            verified += verifying.len();
            for turn in verifying {
                throttle.note_failure(ADDRESS, now_ns);
                drop(turn);
            }
            open = left;
            now_ns += FIRST_WAIT_NS;
        }
        assert!(verified < 12, "{verified} of {attempts} were verified");
        assert!(throttle.table.lock().open.is_empty(), "attempts that have ended take no memory");
    }

    #[test]
    fn right_attempts_at_the_same_time_wait_for_a_place_only() {
        let throttle = Arc::<LoginThrottle>::default();
        let mut verifying = Vec::new();
        for _ in 0..VERIFYING_MAX {
            let turn = throttle.begin(ADDRESS, NOW_NS);
            assert_eq!(turn.ask(NOW_NS), Now);
            verifying.push(turn);
        }
        let next = throttle.begin(ADDRESS, NOW_NS);
        assert_eq!(next.ask(NOW_NS), AfterAnother);
        assert_eq!(turn_of(&throttle, OTHER, NOW_NS), Now);
        verifying.pop();
        assert_eq!(next.ask(NOW_NS), Now);
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let throttle = Arc::<LoginThrottle>::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        throttle.note_failure(address("2001:db8::1"), NOW_NS);
        assert_ne!(turn_of(&throttle, address("2001:db8::ffff:2"), NOW_NS), Now);
        assert_eq!(turn_of(&throttle, address("2001:db8:0:1::1"), NOW_NS), Now);
        throttle.note_failure(ADDRESS, NOW_NS);
        assert_ne!(turn_of(&throttle, address("::ffff:192.0.2.1"), NOW_NS), Now);
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_forgotten_for_it() {
        let throttle = Arc::<LoginThrottle>::default();
        throttle.note_failure(ADDRESS, NOW_NS);
        for number in 0..u32::try_from(2 * ADDRESSES_MAX).unwrap() {
            throttle.note_failure(Ipv4Addr::from_bits(number).into(), NOW_NS);
        }
        assert_eq!(throttle.table.lock().failures.len(), ADDRESSES_MAX);
        assert_ne!(turn_of(&throttle, ADDRESS, NOW_NS), Now);
        assert_ne!(turn_of(&throttle, Ipv4Addr::BROADCAST.into(), NOW_NS), Now);
    }
}
