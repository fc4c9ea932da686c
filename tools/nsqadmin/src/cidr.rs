//! [`Cidr`]: a range of IP addresses in Go's notation.

use std::fmt;
use std::net::IpAddr;

/// A range of IP addresses of one family. Its `Display` is the notation that [`Cidr::parse`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix_bits: u8,
}

impl Cidr {
    /// Parses `192.0.2.0/24` or `2001:db8::/32`. Bits behind the prefix mean nothing.
    ///
    /// # Errors
    /// Go's text: `invalid CIDR address: 1.2.3.4`.
    pub fn parse(text: &str) -> Result<Cidr, String> {
        let invalid = || format!("invalid CIDR address: {text}");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix_bits: u8 = prefix.parse().map_err(|_| invalid())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        if is_number && prefix_bits <= bits_max {
            Ok(Cidr {
                address,
                prefix_bits,
            })
        } else {
            Err(invalid())
        }
    }

    /// Returns true if the range has all addresses of a family.
    pub fn is_everything(self) -> bool {
        let own_bits = match self.address {
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => 96,
            _ => 0,
        };
        self.prefix_bits <= own_bits
    }

    /// Returns true if the range has the address. An IPv4 address inside an IPv6 one counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let (own, other) = (self.address.to_canonical(), address.to_canonical());
        let is_mapped = own.is_ipv4() && self.address.is_ipv6();
        let prefix_bits = if is_mapped {
            self.prefix_bits.saturating_sub(96)
        } else {
            self.prefix_bits
        };
        let differing = bits(own) ^ bits(other);
        own.is_ipv4() == other.is_ipv4() && differing.leading_zeros() >= u32::from(prefix_bits)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_addresses_with_their_prefix() {
        let check = |range: &str, inside: &[&str], outside: &[&str]| {
            let range = Cidr::parse(range).unwrap();
            let has = |address: &&str| range.contains(address.parse().unwrap());
            assert!(inside.iter().all(has), "{range:?} {inside:?}");
            assert!(!outside.iter().any(has), "{range:?} {outside:?}");
        };
        check(
            "127.0.0.1/8",
            &["127.0.0.1", "127.255.0.9", "::ffff:127.0.0.1"],
            &["128.0.0.1", "::1", "::"],
        );
        check("10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2"]);
        check("0.0.0.0/0", &["1.2.3.4"], &["2001:db8::1"]);
        check("2001:db8::/33", &["2001:db8:7fff::1"], &["2001:db8:8000::"]);
        check("::/0", &["::1"], &["1.2.3.4"]);
        check("::ffff:10.0.0.0/104", &["10.9.9.9"], &["11.0.0.0"]);
    }

    #[test]
    fn a_range_can_be_a_whole_family() {
        let is_everything = |range: &str| Cidr::parse(range).unwrap().is_everything();
        assert!(
            ["0.0.0.0/0", "::/0", "10.0.0.0/0", "::ffff:1.2.3.4/96"].map(is_everything)
                == [true; 4]
        );
        assert!(
            ["0.0.0.0/1", "::/1", "::ffff:0.0.0.0/97", "::1/96"].map(is_everything) == [false; 4]
        );
    }

    #[test]
    fn other_texts_are_refused_with_gos_words() {
        for text in [
            "1.2.3.4",
            "1.2.3.4/33",
            "1.2.3/8",
            "::/129",
            "1.2.3.4/+8",
            "/8",
            "",
            "1.2.3.4/",
        ] {
            let expected = format!("invalid CIDR address: {text}");
            assert_eq!(Cidr::parse(text), Err(expected));
        }
    }
}
