//! The waits of attempts to log in, by the address from which they come.
//!
//! An attempt waits before it is verified, and for as long whether it is right or wrong, so that the time
//! tells nothing. An address without failures does not wait. Each failure doubles the wait between
//! attempts from the address, and after a while without one it is forgotten.
//!
//! # Memory
//!
//! There are [`ADDRESSES_MAX`] addresses at most. Those for which there is no place share one entry, so
//! that nobody makes the server forget a failure by failing from elsewhere.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use lockstep_host::sync::Mutex;

/// The most addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;

/// The wait after the first failure.
const FIRST_WAIT_NS: u64 = 100_000_000;

/// The longest wait between two attempts.
const WAIT_MAX_NS: u64 = 5_000_000_000;

/// The longest wait of an attempt for its turn, including those before it; longer ones are refused.
const TURN_MAX_NS: u64 = 10_000_000_000;

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

/// The addresses from which attempts have failed.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    failures: Mutex<FailureTable>,
}

#[derive(Debug, Default)]
struct FailureTable {
    by_address: HashMap<IpAddr, AddressFailures>,
    /// Those of addresses for which there was no place.
    others: AddressFailures,
}

impl FailureTable {
    /// Finds the failures that an address has to wait for, if there are some.
    fn find(&mut self, address: IpAddr) -> &mut AddressFailures {
        match self.by_address.get_mut(&address) {
            Some(found) => found,
            None => &mut self.others,
        }
    }

    /// Finds the failures of an address, or makes a place for them.
    fn place(&mut self, address: IpAddr, now_ns: u64) -> &mut AddressFailures {
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, failures| !failures.is_forgotten(now_ns));
            if self.by_address.len() >= ADDRESSES_MAX {
                return &mut self.others;
            }
        }
        self.by_address.entry(address).or_default()
    }
}

impl LoginThrottle {
    /// Takes the next turn of an address, and returns how long it has to wait for it; `None` where that
    /// is too long.
    pub(crate) fn reserve(&self, address: IpAddr, now_ns: u64) -> Option<u64> {
        let mut table = self.failures.lock();
        let failures = table.find(network_of(address));
        if failures.count == 0 || failures.is_forgotten(now_ns) {
            return Some(0);
        }
        let turn_ns = failures.next_ns.max(now_ns);
        let wait_ns = turn_ns - now_ns;
        if wait_ns > TURN_MAX_NS {
            return None;
        }
        failures.next_ns = turn_ns + failures.interval_ns();
        Some(wait_ns)
    }

    /// Notes an attempt that was wrong.
    pub(crate) fn note_failure(&self, address: IpAddr, now_ns: u64) {
        let mut table = self.failures.lock();
        let failures = table.place(network_of(address), now_ns);
        if failures.is_forgotten(now_ns) {
            *failures = AddressFailures::default();
        }
        failures.count = failures.count.saturating_add(1);
        failures.last_ns = now_ns;
        failures.next_ns = failures.next_ns.max(now_ns + failures.interval_ns());
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
    use std::net::{IpAddr, Ipv4Addr};

    use super::{ADDRESSES_MAX, FIRST_WAIT_NS, FORGOTTEN_NS, LoginThrottle, WAIT_MAX_NS};

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const NOW_NS: u64 = FORGOTTEN_NS * 2;

    #[test]
    fn attempts_after_failures_wait_ever_longer() {
        let throttle = LoginThrottle::default();
        assert_eq!(throttle.reserve(ADDRESS, NOW_NS), Some(0));
        throttle.note_failure(ADDRESS, NOW_NS);
        assert_eq!(throttle.reserve(ADDRESS, NOW_NS), Some(FIRST_WAIT_NS));
        // Attempts at the same time wait for each other.
        assert_eq!(throttle.reserve(ADDRESS, NOW_NS), Some(2 * FIRST_WAIT_NS));
        assert_eq!(throttle.reserve(OTHER, NOW_NS), Some(0));
        let mut now_ns = NOW_NS;
        for _ in 0..40 {
            now_ns += WAIT_MAX_NS;
            throttle.note_failure(ADDRESS, now_ns);
        }
        assert_eq!(throttle.reserve(ADDRESS, now_ns), Some(WAIT_MAX_NS));
        assert_eq!(throttle.reserve(ADDRESS, now_ns), Some(2 * WAIT_MAX_NS));
        assert_eq!(throttle.reserve(ADDRESS, now_ns), None);
        assert_eq!(throttle.reserve(ADDRESS, now_ns + FORGOTTEN_NS), Some(0));
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let throttle = LoginThrottle::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        throttle.note_failure(address("2001:db8::1"), NOW_NS);
        assert_ne!(throttle.reserve(address("2001:db8::ffff:2"), NOW_NS), Some(0));
        assert_eq!(throttle.reserve(address("2001:db8:0:1::1"), NOW_NS), Some(0));
        throttle.note_failure(ADDRESS, NOW_NS);
        assert_ne!(throttle.reserve(address("::ffff:192.0.2.1"), NOW_NS), Some(0));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_forgotten_for_it() {
        let throttle = LoginThrottle::default();
        throttle.note_failure(ADDRESS, NOW_NS);
        for number in 0..u32::try_from(2 * ADDRESSES_MAX).unwrap() {
            throttle.note_failure(Ipv4Addr::from_bits(number).into(), NOW_NS);
        }
        assert_eq!(throttle.failures.lock().by_address.len(), ADDRESSES_MAX);
        assert_ne!(throttle.reserve(ADDRESS, NOW_NS), Some(0));
        assert_ne!(throttle.reserve(Ipv4Addr::BROADCAST.into(), NOW_NS), Some(0));
    }
}
