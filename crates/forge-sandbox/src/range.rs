//! The addresses of one sandbox: a /16 of its own, cut into services, pods, simulated pods and the link to the host.
//!
//! The number of the range is the machine-wide identity of a running sandbox: its link on the host and its cgroup carry it,
//! and creating that link is what takes the range, so that two sandboxes can never take the same one.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// How many sandboxes fit on one machine.
pub const RANGES: u8 = 40;

/// A range by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Range(u8);

impl Range {
    /// All ranges, beginning with the one that a name prefers, so that a sandbox that comes back finds its own free.
    pub fn candidates(name: &str) -> impl Iterator<Item = Self> {
        let start = name.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % RANGES;
        (0..RANGES).map(move |step| Self((start + step) % RANGES))
    }

    fn address(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 200 + self.0, third, fourth)
    }

    /// Everything of this sandbox.
    pub fn all(self) -> Subnet {
        Subnet { address: self.address(0, 0), bits: 16 }
    }

    /// ClusterIPs.
    pub fn services(self) -> Subnet {
        Subnet { address: self.address(0, 0), bits: 18 }
    }

    /// Pods of the real node.
    pub fn pods(self) -> Subnet {
        Subnet { address: self.address(64, 0), bits: 18 }
    }

    /// Addresses that simulated pods report; nothing answers there.
    pub fn simulated(self) -> Subnet {
        Subnet { address: self.address(128, 0), bits: 18 }
    }

    /// The ClusterIP of the API server.
    pub fn kubernetes(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// The ClusterIP of CoreDNS.
    pub fn dns(self) -> Ipv4Addr {
        self.address(0, 10)
    }

    /// The host's end of the link.
    pub fn host(self) -> Ipv4Addr {
        self.address(255, 1)
    }

    /// The node: the sandbox's end of the link.
    pub fn node(self) -> Ipv4Addr {
        self.address(255, 2)
    }

    /// The name of the link on the host.
    pub fn link(self) -> String {
        format!("forge{}", self.0)
    }

    /// The name of the cgroup under which its pods run.
    pub fn cgroup(self) -> String {
        format!("forge-sandbox-{}", self.0)
    }
}

/// A network with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    address: Ipv4Addr,
    bits: u8,
}

impl Subnet {
    /// True if an address of one lies in the other.
    pub fn overlaps(self, other: Self) -> bool {
        let bits = self.bits.min(other.bits);
        let prefix = |address: Ipv4Addr| address.to_bits().checked_shr(32 - u32::from(bits)).unwrap_or(0);
        prefix(self.address) == prefix(other.address)
    }

    /// Reads `10.0.0.0/8` or `10.0.0.1`; anything else is no subnet. Neither are default routes and halves of everything,
    /// as a VPN sets them: a narrower route goes before them.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
        let bits = bits.parse().ok().filter(|bits| (8..=32).contains(bits))?;
        Some(Self { address: address.parse().ok()?, bits })
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn no_two_ranges_overlap_and_each_holds_its_parts() {
        let all: Vec<Range> = (0..RANGES).map(Range).collect();
        for (at, range) in all.iter().enumerate() {
            for other in all.iter().skip(at + 1) {
                assert!(!range.all().overlaps(other.all()), "{} {}", range.all(), other.all());
            }
            let parts = [
                range.services(),
                range.pods(),
                range.simulated(),
                Subnet::parse(&format!("{}/30", range.host())).unwrap(),
            ];
            for (at, part) in parts.iter().enumerate() {
                assert!(range.all().overlaps(*part));
                assert!(parts.iter().skip(at + 1).all(|other| !part.overlaps(*other)));
            }
        }
    }

    #[test]
    fn a_name_prefers_one_range_and_can_get_any() {
        let first = |name| Range::candidates(name).next().unwrap();
        assert_eq!(first("default"), first("default"));
        let mut numbers: Vec<u8> = Range::candidates("x").map(|range| range.0).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..RANGES).collect::<Vec<_>>());
    }

    #[test]
    fn routes_of_the_host_are_read_and_compared() {
        let overlaps = |route: &str| Subnet::parse(route).is_some_and(|subnet| subnet.overlaps(Range(3).all()));
        assert!(overlaps("10.0.0.0/8"));
        assert!(overlaps("10.203.4.0/24"));
        assert!(overlaps("10.203.9.9"));
        assert!(!overlaps("10.204.0.0/16"));
        assert!(!overlaps("default"));
        assert!(!overlaps("0.0.0.0/0"));
        assert!(!overlaps("0.0.0.0/1"));
    }
}
