//! Ranges of IP addresses in Go's notation. An IPv4 address inside an IPv6 one counts as IPv4.

use std::net::IpAddr;

use ipnet::IpNet;

/// Parses `192.0.2.0/24` or `2001:db8::/32`. Bits behind the prefix mean nothing. The parser of [`IpNet`] also takes
/// `010.0.0.1/8`, which Go refuses, so the address is parsed apart.
///
/// # Errors
/// Go's text: `invalid CIDR address: 1.2.3.4`.
pub fn parse(text: &str) -> Result<IpNet, String> {
    let parsed = || {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let range = IpNet::new(address, prefix.parse().ok()?).ok()?;
        let prefix_bits = match range.prefix_len() {
            bits if address == address.to_canonical() => bits,
            bits => bits.saturating_sub(96),
        };
        IpNet::new(address.to_canonical(), prefix_bits)
            .ok()
            .filter(|_| is_number)
    };
    parsed().ok_or_else(|| format!("invalid CIDR address: {text}"))
}

/// Returns true if the range has all addresses of a family.
pub fn is_everything(range: &IpNet) -> bool {
    range.prefix_len() == 0
}

/// Returns true if the range has the address.
pub fn contains(range: &IpNet, address: IpAddr) -> bool {
    range.contains(&address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_addresses_with_their_prefix() {
        let check = |range: &str, inside: &[&str], outside: &[&str]| {
            let range = parse(range).unwrap();
            let has = |address: &&str| contains(&range, address.parse().unwrap());
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
        let is_everything = |range: &str| is_everything(&parse(range).unwrap());
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
            assert_eq!(parse(text), Err(expected));
        }
    }
}
