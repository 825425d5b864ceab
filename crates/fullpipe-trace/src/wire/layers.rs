//! Protocols around TCP: which are followed, and what follows a header.

use super::data::Data;
use super::ip::IpPacket;
use super::link::Link;

/// Protocols that carry others and are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunnel {
    /// IP in IP, in either version.
    Ip,
    /// Generic Routing Encapsulation.
    Gre,
    /// Mirrored by a switch (ERSPAN).
    Erspan,
    /// VXLAN, also with the generic protocol extension.
    Vxlan,
    /// Geneve.
    Geneve,
    /// User plane of GTP.
    Gtp,
    /// L2TP version 2.
    L2tp,
    /// Teredo.
    Teredo,
    /// MPLS over Ethernet, IP or UDP.
    Mpls,
    /// Ethernet in IP.
    EtherIp,
    /// Provider backbone bridges (802.1ah).
    Backbone,
}

impl Tunnel {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Tunnel; 11] = [
        Tunnel::Ip,
        Tunnel::Gre,
        Tunnel::Erspan,
        Tunnel::Vxlan,
        Tunnel::Geneve,
        Tunnel::Gtp,
        Tunnel::L2tp,
        Tunnel::Teredo,
        Tunnel::Mpls,
        Tunnel::EtherIp,
        Tunnel::Backbone,
    ];

    /// Its name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Tunnel::Ip => "IP in IP",
            Tunnel::Gre => "GRE",
            Tunnel::Erspan => "ERSPAN",
            Tunnel::Vxlan => "VXLAN",
            Tunnel::Geneve => "Geneve",
            Tunnel::Gtp => "GTP-U",
            Tunnel::L2tp => "L2TP",
            Tunnel::Teredo => "Teredo",
            Tunnel::Mpls => "MPLS",
            Tunnel::EtherIp => "EtherIP",
            Tunnel::Backbone => "802.1ah",
        }
    }
}

/// Protocols that may carry TCP and are not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// IPsec's ESP, also in UDP.
    Esp,
    /// WireGuard.
    WireGuard,
    /// MACsec (802.1AE).
    MacSec,
    /// Protected 802.11 data frames.
    EncryptedDot11,
    /// PPP frames that are compressed, encrypted or sent over several links.
    PackedPpp,
    /// L2TP version 3, whose header has a length that only its ends know.
    L2tp3,
    /// GRE with source routes.
    RoutedGre,
    /// A link type inside PPI or PKTAP.
    InnerLink,
    /// More than four tunnels, one inside the other.
    TooDeep,
}

impl Unread {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Unread; 9] = [
        Unread::Esp,
        Unread::WireGuard,
        Unread::MacSec,
        Unread::EncryptedDot11,
        Unread::PackedPpp,
        Unread::L2tp3,
        Unread::RoutedGre,
        Unread::InnerLink,
        Unread::TooDeep,
    ];

    /// Its name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unread::Esp => "ESP",
            Unread::WireGuard => "WireGuard",
            Unread::MacSec => "MACsec",
            Unread::EncryptedDot11 => "encrypted 802.11",
            Unread::PackedPpp => "compressed, encrypted or multilink PPP",
            Unread::L2tp3 => "L2TPv3",
            Unread::RoutedGre => "GRE with source routes",
            Unread::InnerLink => "an unsupported link type in PPI or PKTAP",
            Unread::TooDeep => "more than four nested tunnels",
        }
    }

    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Unread::Esp | Unread::WireGuard => {
                "capture inside the tunnel (`tcpdump -i INTERFACE`), or at an end of the connection"
            }
            Unread::MacSec => "capture on the MACsec interface (`tcpdump -i macsec0`)",
            Unread::EncryptedDot11 => {
                "capture on an end's own interface (`tcpdump -y EN10MB`), or decrypt with `airdecap-ng`"
            }
            Unread::PackedPpp => "capture on the PPP interface (`tcpdump -i ppp0`)",
            Unread::L2tp3 | Unread::RoutedGre | Unread::TooDeep => {
                "capture inside the tunnel, or remove its headers (`editcap -C LENGTH -T rawip FILE OUT`)"
            }
            Unread::InnerLink => {
                "capture with another link type (`tcpdump -L` lists them, `tcpdump -y NAME` selects one)"
            }
        }
    }
}

/// What to do about a link type that is not read.
pub const LINK_HINT: &str = "capture with another link type (`tcpdump -L` lists them, `tcpdump -y NAME` \
     selects one), or remove the link header (`editcap -C LENGTH -T rawip FILE OUT`)";

/// A protocol whose header is read next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layer {
    Link(Link),
    EtherType(u16),
    Ip,
    Mpls,
    Ppp,
    Pppoe,
    Llc,
    Dot11,
}

/// What follows a header.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// A header in the same packet.
    Layer(Layer, Data<'a>),
    /// A header inside a tunnel.
    Tunnel(Tunnel, Layer, Data<'a>),
    /// Frames of an aggregate.
    Aggregate(Data<'a>),
    Ip(IpPacket<'a>),
    Unread(Unread),
}

/// RFC 4302.
pub(super) const AUTHENTICATION: u8 = 51;

/// A frame of a link type inside one of another.
pub(super) fn inner_link(number: u32, data: Data<'_>) -> Option<Next<'_>> {
    let link = i32::try_from(number).ok().and_then(Link::from_linktype);
    Some(link.map_or(Next::Unread(Unread::InnerLink), |link| Next::Layer(Layer::Link(link), data)))
}
