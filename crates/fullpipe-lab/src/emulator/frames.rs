//! The frames on the path. The path handles their segments one by one; the bytes are stored here
//! once.

use crate::wire::Frame;
use fullpipe_units::Time;

/// One segment of a frame: the packet that the path carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameSegment {
    pub(crate) slot: u32,
    pub(crate) index: u16,
}

/// A frame on the path.
pub(crate) struct Slot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) frame: Frame,
    pub(crate) arrived: Time,
    /// Number of the scenario's flow it belongs to.
    pub(crate) flow: Option<usize>,
    /// Segments not yet delivered or dropped.
    left: u16,
}

/// All frames on the path in one direction.
#[derive(Default)]
pub(crate) struct Frames {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Buffers of super-packets for reuse: fresh ones would be zeroed page by page.
    spare: Vec<Vec<u8>>,
}

/// Smallest buffer that is kept for reuse.
const LARGE: usize = 4096;
const MAX_SPARE: usize = 256;

impl Frames {
    /// Stores a frame, with one reference per segment.
    pub(crate) fn insert(&mut self, bytes: &[u8], frame: Frame, arrived: Time) -> u32 {
        let mut buffer = if bytes.len() >= LARGE { self.spare.pop().unwrap_or_default() } else { Vec::new() };
        buffer.clear();
        buffer.extend_from_slice(bytes);
        let slot = Slot { bytes: buffer, frame, arrived, flow: None, left: frame.segments() };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Marks the frame as data of the scenario's flow `number`.
    pub(crate) fn set_flow(&mut self, slot: u32, number: usize) {
        self.slots[slot as usize].flow = Some(number);
    }

    pub(crate) fn get(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Releases `count` segments; the last one frees the frame.
    pub(crate) fn release(&mut self, slot: u32, count: u16) {
        let entry = &mut self.slots[slot as usize];
        entry.left -= count;
        if entry.left == 0 {
            let buffer = std::mem::take(&mut entry.bytes);
            if buffer.capacity() >= LARGE && self.spare.len() < MAX_SPARE {
                self.spare.push(buffer);
            }
            self.free.push(slot);
        }
    }
}
