//! Addresses of interfaces, and of their neighbours.

use super::{Rtnetlink, family, octets};
use crate::netlink::{CREATE, EXCLUSIVE, REPLACE, Request};
use std::io;
use std::net::IpAddr;

// include/uapi/linux/if_addr.h, neighbour.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

impl Rtnetlink {
    /// Gives the interface an address, usable at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        // struct ifaddrmsg
        let mut body = vec![family(address), prefix, flags, 0];
        body.extend_from_slice(&index.to_ne_bytes());
        let bytes = octets(address);
        let mut request = Request::new(libc::RTM_NEWADDR, CREATE | EXCLUSIVE, &body);
        request.attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes);
        self.socket.change(request)
    }

    /// Says for good which hardware address belongs to `address`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        // struct ndmsg
        let mut body = vec![family(address), 0, 0, 0];
        body.extend_from_slice(&index.to_ne_bytes());
        body.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        body.extend_from_slice(&[0, 0]);
        let mut request = Request::new(libc::RTM_NEWNEIGH, CREATE | REPLACE, &body);
        request.attribute(NDA_DST, &octets(address)).attribute(NDA_LLADDR, &mac);
        self.socket.change(request)
    }
}
