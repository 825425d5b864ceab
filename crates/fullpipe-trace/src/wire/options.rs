//! TCP options (RFC 9293 §3.1, RFC 7323, RFC 2018). Unlike with a library, an unknown or truncated
//! option does not affect those before it.

/// Up to four blocks of a SACK option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sack {
    blocks: [(u32, u32); 4],
    count: u8,
}

impl Sack {
    /// The blocks: first sequence number, and the one after the last.
    #[inline]
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }

    pub(crate) fn push(&mut self, block: (u32, u32)) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.count)) {
            *place = block;
            self.count += 1;
        }
    }
}

/// TCP options relevant to the analysis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// Selective acknowledgments.
    pub sack: Sack,
}

impl TcpOptions {
    /// Parses a list of options up to its end or its first malformed option.
    #[inline]
    pub fn parse(list: &[u8]) -> Self {
        let mut options = TcpOptions::default();
        // Fast path: timestamps only, aligned as RFC 7323 appendix A recommends.
        match list {
            [1, 1, 8, 10, stamps @ ..] if stamps.len() == 8 => {
                options.timestamps = Some((word(stamps), word(&stamps[4..])));
            }
            _ => options.parse_all(list),
        }
        options
    }

    /// Parses any list.
    fn parse_all(&mut self, mut list: &[u8]) {
        while let [kind, rest @ ..] = list {
            match kind {
                0 => break,
                1 => {
                    list = rest;
                    continue;
                }
                _ => {}
            }
            let Some(&length) = rest.first() else { break };
            let Some((option, after)) = list.split_at_checked(usize::from(length)) else { break };
            let Some(value) = option.get(2..) else { break };
            match (kind, value.len()) {
                (2, 2) => self.mss = Some(u16::from_be_bytes([value[0], value[1]])),
                // RFC 7323 §2.3: larger values count as 14.
                (3, 1) => self.window_scale = Some(value[0].min(14)),
                (4, 0) => self.sack_permitted = true,
                (5, _) => value.chunks_exact(8).for_each(|b| self.sack.push((word(b), word(&b[4..])))),
                (8, 8) => self.timestamps = Some((word(value), word(&value[4..]))),
                _ => {}
            }
            list = after;
        }
    }
}

fn word(b: &[u8]) -> u32 {
    u32::from_be_bytes([b[0], b[1], b[2], b[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unknown_options_are_skipped() {
        let list = [34, 4, 1, 2, 2, 4, 5, 180, 3, 3, 99, 4, 2, 0, 9, 9];
        let read = TcpOptions::parse(&list);
        assert_eq!((read.mss, read.window_scale, read.sack_permitted), (Some(1460), Some(14), true));
    }

    #[test]
    fn truncated_lists_give_their_complete_options() {
        let list = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 5, 0];
        let read = TcpOptions::parse(&list);
        assert_eq!(read.timestamps, Some((1, 2)));
        assert!(read.sack.blocks().is_empty());
    }

    proptest! {
        #[test]
        fn any_list_terminates(list in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(TcpOptions::parse(&list).sack.blocks().len() <= 4);
        }
    }
}
