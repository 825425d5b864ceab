//! Offloads of network devices, by the ethtool family of generic netlink
//! (`include/uapi/linux/ethtool_netlink.h`, Linux 5.7 and later). The kernel names each feature
//! itself, as `ethtool -k` does.

use crate::netlink::{Attributes, NESTED, Protocol, Request, Socket, c_string, parse_c_string, u16_at};
use serde::{Deserialize, Serialize};
use std::io;

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
/// `struct genlmsghdr`: command, version, reserved.
const GENLMSGHDR: usize = 4;

/// The offloads of one device, by the kernel's names (`tx-tcp-segmentation`, `rx-gro`…).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceFeatures {
    /// The device's name.
    pub device: String,
    /// Enabled offloads.
    #[serde(default)]
    pub active: Vec<String>,
    /// Offloads that can be changed.
    #[serde(default)]
    pub changeable: Vec<String>,
}

impl DeviceFeatures {
    /// Whether `feature` is enabled.
    pub fn on(&self, feature: &str) -> bool {
        self.active.iter().any(|f| f == feature)
    }

    /// Whether `feature` is disabled and could be enabled.
    pub fn can_enable(&self, feature: &str) -> bool {
        !self.on(feature) && self.changeable.iter().any(|f| f == feature)
    }
}

/// The offloads of every device in this network namespace. Needs no privileges.
///
/// # Errors
/// When the kernel has no ethtool over netlink (before Linux 5.7).
pub fn features() -> io::Result<Vec<DeviceFeatures>> {
    let mut socket = Socket::open(Protocol::Generic)?;
    let family = ethtool_family(&mut socket)?;
    let mut request = Request::new(family, 0, &[ETHTOOL_MSG_FEATURES_GET, 1, 0, 0]);
    // Some kernels require a header, even one without a device.
    request.attribute(ETHTOOL_A_FEATURES_HEADER | NESTED, &[]);
    let bodies = socket.table(&request, family)?;
    Ok(bodies.iter().filter_map(|body| parse_features(body)).collect())
}

/// Generic netlink assigns family IDs at registration.
fn ethtool_family(socket: &mut Socket) -> io::Result<u16> {
    let mut request = Request::new(GENL_ID_CTRL, 0, &[CTRL_CMD_GETFAMILY, 1, 0, 0]);
    request.attribute(CTRL_ATTR_FAMILY_NAME, &c_string("ethtool"));
    let body = socket.request(request)?;
    let id = Attributes(body.get(GENLMSGHDR..).unwrap_or_default()).get(CTRL_ATTR_FAMILY_ID);
    id.and_then(|id| u16_at(id, 0)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the reply has no ID for the ethtool family")
    })
}

/// Reads the body of an `ETHTOOL_MSG_FEATURES_GET_REPLY`; `None` if it lacks the device or the
/// enabled offloads.
pub fn parse_features(body: &[u8]) -> Option<DeviceFeatures> {
    let attributes = Attributes(body.get(GENLMSGHDR..)?);
    let header = Attributes(attributes.get(ETHTOOL_A_FEATURES_HEADER)?);
    let device = parse_c_string(header.get(ETHTOOL_A_HEADER_DEV_NAME)?);
    Some(DeviceFeatures {
        device,
        active: names(attributes.get(ETHTOOL_A_FEATURES_ACTIVE)?),
        changeable: attributes.get(ETHTOOL_A_FEATURES_HW).map(names).unwrap_or_default(),
    })
}

/// Names of the set bits. Without a mask only set bits are listed; with a mask, each has a value.
fn names(bitset: &[u8]) -> Vec<String> {
    let bitset = Attributes(bitset);
    let listed_means_set = bitset.get(ETHTOOL_A_BITSET_NOMASK).is_some();
    Attributes(bitset.get(ETHTOOL_A_BITSET_BITS).unwrap_or_default())
        .filter(|(kind, _)| *kind == ETHTOOL_A_BITSET_BITS_BIT)
        .filter_map(|(_, bit)| {
            let bit = Attributes(bit);
            let set = listed_means_set || bit.get(ETHTOOL_A_BITSET_BIT_VALUE).is_some();
            bit.get(ETHTOOL_A_BITSET_BIT_NAME).filter(|_| set).map(parse_c_string)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;
    use proptest::prelude::*;

    fn bitset(masked: bool, bits: &[(&str, bool)]) -> Vec<u8> {
        let mut list = Vec::new();
        for (name, value) in bits {
            let mut bit = Vec::new();
            put_attribute(&mut bit, ETHTOOL_A_BITSET_BIT_NAME, &c_string(name));
            if *value {
                put_attribute(&mut bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
            }
            put_attribute(&mut list, ETHTOOL_A_BITSET_BITS_BIT | NESTED, &bit);
        }
        let mut set = Vec::new();
        if !masked {
            put_attribute(&mut set, ETHTOOL_A_BITSET_NOMASK, &[]);
        }
        put_attribute(&mut set, ETHTOOL_A_BITSET_BITS | NESTED, &list);
        set
    }

    fn reply() -> Vec<u8> {
        let mut header = Vec::new();
        put_attribute(&mut header, 1, &2u32.to_ne_bytes());
        put_attribute(&mut header, ETHTOOL_A_HEADER_DEV_NAME, b"eth0\0");
        let mut body = vec![ETHTOOL_MSG_FEATURES_GET, 1, 0, 0];
        put_attribute(&mut body, ETHTOOL_A_FEATURES_HEADER | NESTED, &header);
        let switches = [("tx-tcp-segmentation", true), ("rx-gro", true), ("rx-lro", false)];
        put_attribute(&mut body, ETHTOOL_A_FEATURES_HW | NESTED, &bitset(true, &switches));
        let on = bitset(false, &[("rx-gro", false), ("tx-generic-segmentation", false)]);
        put_attribute(&mut body, ETHTOOL_A_FEATURES_ACTIVE | NESTED, &on);
        body
    }

    #[test]
    fn enabled_and_changeable_offloads_are_distinguished() {
        let found = parse_features(&reply()).unwrap();
        assert_eq!(found.device, "eth0");
        assert_eq!(found.active, ["rx-gro", "tx-generic-segmentation"]);
        assert_eq!(
            found.changeable,
            ["tx-tcp-segmentation", "rx-gro"],
            "a masked bit without a value is not set"
        );
        assert!(found.can_enable("tx-tcp-segmentation") && !found.on("tx-tcp-segmentation"));
        assert!(!found.can_enable("rx-lro") && !found.can_enable("rx-gro"));
    }

    #[test]
    fn a_truncated_reply_is_rejected() {
        let whole = reply();
        let all = parse_features(&whole).unwrap();
        for end in 0..whole.len() {
            if let Some(part) = parse_features(&whole[..end]) {
                panic!("cut at {end} of {}: {part:?}, the whole is {all:?}", whole.len());
            }
        }
    }

    #[test]
    fn an_overlong_attribute_ends_parsing() {
        for (offset, length) in [(4, u16::MAX), (4, 0), (4, 3), (8, 500), (16, 2)] {
            let mut body = reply();
            body[offset..offset + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(parse_features(&body), None, "length {length} at {offset}");
        }
        let mut list = bitset(false, &[("rx-gro", true), ("rx-lro", true)]);
        let second = list.len() - 20;
        list[second..second + 2].copy_from_slice(&900u16.to_ne_bytes());
        assert_eq!(names(&list), ["rx-gro"]);
    }

    proptest! {
        #[test]
        fn no_reply_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_features(&bytes);
        }

        #[test]
        fn no_damaged_reply_panics(at in 0usize..200, byte in any::<u8>()) {
            let mut body = reply();
            let at = at % body.len();
            body[at] = byte;
            let _ = parse_features(&body);
        }
    }
}
