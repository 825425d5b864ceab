//! Headers of tunnels, and of PPP, MPLS and frame relay.

use super::data::Data;
use super::layers::{AUTHENTICATION, Layer, Next, Tunnel, Unread};
use super::link::Link;

const ETHERNET: Layer = Layer::Link(Link::Ethernet);

/// Labels of a packet that are followed.
const MAX_LABELS: usize = 16;
/// Extension headers of GTP-U that are followed.
const MAX_GTP_EXTENSIONS: usize = 16;

/// Reads what an IP protocol number announces.
pub(super) fn after_ip<'a>(protocol: u8, data: Data<'a>) -> Option<Next<'a>> {
    match protocol {
        4 | 41 => Some(Next::Tunnel(Tunnel::Ip, Layer::Ip, data)),
        17 => after_udp(data),
        47 => after_gre(data),
        50 => Some(Next::Unread(Unread::Esp)),
        97 => Some(Next::Tunnel(Tunnel::EtherIp, ETHERNET, data.skip(2)?)),
        115 => Some(Next::Unread(Unread::L2tp3)),
        137 => Some(Next::Tunnel(Tunnel::Mpls, Layer::Mpls, data)),
        AUTHENTICATION => after_authentication(data),
        _ => None,
    }
}

/// Skips authentication headers (RFC 4302). TCP behind one is read on the fast path.
fn after_authentication(mut data: Data<'_>) -> Option<Next<'_>> {
    let mut protocol = AUTHENTICATION;
    for _ in 0..2 {
        protocol = data.byte(0)?;
        data = data.skip(4 * (2 + usize::from(data.byte(1)?)))?;
        if protocol != AUTHENTICATION {
            break;
        }
    }
    if protocol == AUTHENTICATION { None } else { after_ip(protocol, data) }
}

/// Whether datagrams between two ports may be those of a tunnel.
pub(super) fn is_udp_tunnel(source: u16, destination: u16) -> bool {
    let either = |port: u16| matches!(port, 1701 | 3544 | 4500 | 51820);
    matches!(destination, 2152 | 4789 | 4790 | 6081 | 6635 | 8472) || either(source) || either(destination)
}

fn after_udp(data: Data<'_>) -> Option<Next<'_>> {
    let (source, destination) = (data.half(0)?, data.half(2)?);
    let payload = data.skip(8)?;
    let either = |port: u16| source == port || destination == port;
    match destination {
        4789 | 8472 => return after_vxlan(payload),
        4790 => return after_vxlan_gpe(payload),
        6081 => return after_geneve(payload),
        2152 => return after_gtp(payload),
        6635 => return Some(Next::Tunnel(Tunnel::Mpls, Layer::Mpls, payload)),
        _ => {}
    }
    if either(1701) {
        after_l2tp(payload)
    } else if either(3544) {
        after_teredo(payload)
    } else if either(4500) {
        // Without the marker of IKE (RFC 3948 §2.2), and no keep-alive.
        (payload.length > 8 && payload.word(0)? != 0).then_some(Next::Unread(Unread::Esp))
    } else if either(51820) {
        // A transport message: type 4, three reserved bytes, blocks of 16 bytes.
        let is_data = payload.word(0)? == 0x0400_0000 && payload.length > 32;
        is_data.then_some(Next::Unread(Unread::WireGuard))
    } else {
        None
    }
}

/// RFC 7348: flags with a valid identifier.
fn after_vxlan(data: Data<'_>) -> Option<Next<'_>> {
    let is_valid = data.byte(0)? & 0x08 != 0;
    is_valid.then_some(Next::Tunnel(Tunnel::Vxlan, ETHERNET, data.skip(8)?))
}

/// The generic protocol extension names the next protocol.
fn after_vxlan_gpe(data: Data<'_>) -> Option<Next<'_>> {
    let layer = match data.byte(3)? {
        1 | 2 => Layer::Ip,
        3 => ETHERNET,
        5 => Layer::Mpls,
        _ => return None,
    };
    Some(Next::Tunnel(Tunnel::Vxlan, layer, data.skip(8)?))
}

/// RFC 8926.
fn after_geneve(data: Data<'_>) -> Option<Next<'_>> {
    let first = data.byte(0)?;
    if first >> 6 != 0 {
        return None;
    }
    let layer = Layer::EtherType(data.half(2)?);
    Some(Next::Tunnel(Tunnel::Geneve, layer, data.skip(8 + 4 * usize::from(first & 0x3f))?))
}

/// 3GPP TS 29.281: user data only.
fn after_gtp(data: Data<'_>) -> Option<Next<'_>> {
    const USER_DATA: u8 = 255;
    let flags = data.byte(0)?;
    if flags >> 4 != 3 || data.byte(1)? != USER_DATA {
        return None;
    }
    let mut rest = data.skip(8)?;
    if flags & 7 != 0 {
        // Sequence number, N-PDU number and next extension, of which only the flagged are valid.
        let mut next = if flags & 4 != 0 { rest.byte(3)? } else { 0 };
        rest = rest.skip(4)?;
        for _ in 0..MAX_GTP_EXTENSIONS {
            if next == 0 {
                break;
            }
            let length = 4 * usize::from(rest.byte(0)?);
            next = rest.byte(length.checked_sub(1)?)?;
            rest = rest.skip(length)?;
        }
        if next != 0 {
            return None;
        }
    }
    // A session may carry Ethernet (3GPP TS 23.501 §5.6.10.2).
    let layer = match rest.byte(0)? >> 4 {
        4 | 6 => Layer::Ip,
        _ => ETHERNET,
    };
    Some(Next::Tunnel(Tunnel::Gtp, layer, rest))
}

/// RFC 2661 §3.1: data messages, with the fields that are flagged.
fn after_l2tp(data: Data<'_>) -> Option<Next<'_>> {
    let flags = data.half(0)?;
    if flags & 0x8000 != 0 {
        return None;
    }
    if flags & 0xf == 3 {
        return Some(Next::Unread(Unread::L2tp3));
    }
    if flags & 0xf != 2 {
        return None;
    }
    let mut header = 6 + if flags & 0x4000 != 0 { 2 } else { 0 };
    header += if flags & 0x0800 != 0 { 4 } else { 0 };
    if flags & 0x0200 != 0 {
        header += 2 + usize::from(data.half(header)?);
    }
    Some(Next::Tunnel(Tunnel::L2tp, Layer::Ppp, data.skip(header)?))
}

/// RFC 4380 §5.1.1: IPv6 after an optional authentication and an optional origin.
fn after_teredo(mut data: Data<'_>) -> Option<Next<'_>> {
    if data.half(0)? == 1 {
        let lengths = usize::from(data.byte(2)?) + usize::from(data.byte(3)?);
        data = data.skip(13 + lengths)?;
    }
    if data.half(0)? == 0 {
        data = data.skip(8)?;
    }
    (data.byte(0)? >> 4 == 6).then_some(Next::Tunnel(Tunnel::Teredo, Layer::Ip, data))
}

/// RFC 2784 and 2890; version 1 carries PPP (RFC 2637).
fn after_gre(data: Data<'_>) -> Option<Next<'_>> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGMENT: u16 = 0x0080;
    let (flags, protocol) = (data.half(0)?, data.half(2)?);
    let version = flags & 7;
    if version == 0 && flags & ROUTING != 0 {
        return Some(Next::Unread(Unread::RoutedGre));
    }
    if version > 1 {
        return None;
    }
    let fields = [CHECKSUM, KEY, SEQUENCE, if version == 1 { ACKNOWLEDGMENT } else { 0 }];
    let header = 4 + 4 * fields.into_iter().filter(|field| flags & field != 0).count();
    let rest = data.skip(header)?;
    match protocol {
        // ERSPAN, of which type 1 has no header and no sequence numbers (draft-foschiano-erspan).
        0x88be => {
            let own = if flags & SEQUENCE != 0 { 8 } else { 0 };
            Some(Next::Tunnel(Tunnel::Erspan, ETHERNET, rest.skip(own)?))
        }
        0x22eb => {
            let platform = if rest.byte(11)? & 1 != 0 { 8 } else { 0 };
            Some(Next::Tunnel(Tunnel::Erspan, ETHERNET, rest.skip(12 + platform)?))
        }
        // Cisco's pre-standard WCCP redirects IP behind four bytes of its own, or none.
        0x883e => {
            let own = if rest.byte(0)? >> 4 == 4 { 0 } else { 4 };
            Some(Next::Tunnel(Tunnel::Gre, Layer::Ip, rest.skip(own)?))
        }
        number => Some(Next::Tunnel(Tunnel::Gre, Layer::EtherType(number), rest)),
    }
}

/// Skips labels. What follows the last is not named: an IP packet, or the Ethernet frame of a
/// pseudowire with or without a control word (RFC 4385).
pub(super) fn after_mpls(mut data: Data<'_>) -> Option<Next<'_>> {
    for _ in 0..MAX_LABELS {
        let is_last = data.byte(2)? & 1 != 0;
        data = data.skip(4)?;
        if !is_last {
            continue;
        }
        let has_ip = super::ip::IpPacket::parse(data).is_some_and(|p| p.payload.length <= data.length);
        let layer = match data.byte(0)? >> 4 {
            4 | 6 if has_ip => return Some(Next::Layer(Layer::Ip, data)),
            // The header of an associated channel (RFC 4385 §5).
            1 => return None,
            _ => ETHERNET,
        };
        let with_word = data.skip(4).filter(|frame| has_known_type(*frame) && data.byte(0) == Some(0));
        return Some(Next::Layer(layer, with_word.unwrap_or(data)));
    }
    None
}

/// Whether an Ethernet frame has an EtherType that may lead to IP.
fn has_known_type(frame: Data<'_>) -> bool {
    frame.half(12).is_some_and(|number| {
        matches!(number, 0x0800 | 0x86dd | 0x8100 | 0x88a8 | 0x8847 | 0x8848 | 0x8863 | 0x8864 | ..=1500)
    })
}

/// Reads PPP's protocol field, of one or two bytes (RFC 1661 §2), with or without address and
/// control bytes.
pub(super) fn after_ppp(mut data: Data<'_>) -> Option<Next<'_>> {
    if data.half(0)? == 0xff03 {
        data = data.skip(2)?;
    }
    let first = data.byte(0)?;
    let (protocol, length) = if first & 1 != 0 { (u16::from(first), 1) } else { (data.half(0)?, 2) };
    match protocol {
        0x0021 | 0x0057 => Some(Next::Layer(Layer::Ip, data.skip(length)?)),
        0x0281 | 0x0283 => Some(Next::Tunnel(Tunnel::Mpls, Layer::Mpls, data.skip(length)?)),
        // Bridging (RFC 3518): flags, then the type of the frame; 1 is Ethernet.
        0x0031 if data.byte(length + 1)? == 1 => Some(Next::Layer(ETHERNET, data.skip(length + 2)?)),
        // Compressed headers, links in parallel, encrypted and compressed packets.
        0x002d | 0x002f | 0x003d | 0x0053 | 0x0055 | 0x00fb | 0x00fd => Some(Next::Unread(Unread::PackedPpp)),
        _ => None,
    }
}

/// RFC 2427: a Q.922 address of two to four bytes, a control byte, and the protocol; or Cisco's
/// EtherType instead.
pub(super) fn after_frame_relay(data: Data<'_>) -> Option<Next<'_>> {
    let address = (1..4).find(|at| data.byte(*at).is_some_and(|b| b & 1 != 0))? + 1;
    let rest = data.skip(address)?;
    let (layer, skipped) = match *rest.bytes.first_chunk::<2>()? {
        [3, 0xcc | 0x8e] => (Layer::Ip, 2),
        [3, 0xcf] => (Layer::Ppp, 2),
        // A padding byte, then SNAP.
        [3, 0] if rest.byte(2)? == 0x80 => (Layer::EtherType(rest.half(6)?), 8),
        [3, 0x80] => (Layer::EtherType(rest.half(5)?), 7),
        [3, _] => return None,
        _ => (Layer::EtherType(rest.half(0)?), 2),
    };
    Some(Next::Layer(layer, rest.skip(skipped)?))
}
