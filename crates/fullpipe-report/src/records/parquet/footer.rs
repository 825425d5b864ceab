//! A look at a Parquet file's footer before the library reads it: that counts what a list claims to hold one by one, and in Thrift's
//! compact form six bytes can claim two thousand million elements which take no room.

use std::io::{Read, Seek, SeekFrom};

/// A file of records has some kilobytes; no footer is larger.
const LARGEST: u64 = 64 << 20;
/// Structures in structures: Parquet's own are six deep.
const DEEPEST: u32 = 32;

/// Refuses a footer that claims more than it holds. One that is not there is for the library to refuse.
///
/// # Errors
/// The reason.
pub(super) fn check(file: &mut (impl Read + Seek)) -> Result<(), String> {
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    let Some(end) = length.checked_sub(8) else { return Ok(()) };
    let mut read = |at: u64, bytes: &mut [u8]| {
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(bytes)).map_err(|e| e.to_string())
    };
    let mut tail = [0; 8];
    read(end, &mut tail)?;
    let [a, b, c, d, ..] = tail;
    let size = u64::from(u32::from_le_bytes([a, b, c, d]));
    let Some(start) = end.checked_sub(size) else { return Ok(()) };
    if size > LARGEST {
        return Err(format!("its footer has more than {} MiB", LARGEST >> 20));
    }
    let mut footer = vec![0; size as usize];
    read(start, &mut footer)?;
    Walk(&footer).structure(0).ok_or_else(|| "its footer is damaged, or claims more than it holds".to_owned())
}

/// What is left to be walked over.
struct Walk<'a>(&'a [u8]);

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn skip(&mut self, n: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(n).ok()?..)?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn structure(&mut self, depth: u32) -> Option<()> {
        loop {
            let head = self.byte()?;
            let kind = head & 15;
            if kind == 0 {
                return Some(());
            }
            // A field's number, where it is not told by its distance to the one before.
            if head >> 4 == 0 {
                self.number()?;
            }
            // Of a field, truth is in its kind.
            if kind > 2 {
                self.value(kind, depth)?;
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth == DEEPEST {
            return None;
        }
        match kind {
            3 => self.skip(1),
            4..=6 => self.number().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.number()?;
                self.skip(length)
            }
            9 | 10 => self.list(depth + 1),
            12 => self.structure(depth + 1),
            // Truths in lists take a byte for one reader and none for another; Parquet's footer has neither these nor maps.
            _ => None,
        }
    }

    fn list(&mut self, depth: u32) -> Option<()> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        // Each takes a byte at least.
        if size > self.0.len() as u64 {
            return None;
        }
        (0..size).try_for_each(|_| self.value(head & 15, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn checked(footer: &[u8]) -> Result<(), String> {
        let length = (footer.len() as u32).to_le_bytes();
        check(&mut Cursor::new([b"PAR1", footer, &length, b"PAR1"].concat()))
    }

    #[test]
    fn a_footer_that_claims_more_than_it_holds_is_refused() {
        // Field 1 is a list of as many truths, structures or numbers as a length can say.
        for kind in [1, 5, 12] {
            let endless = [0x19, 0xf0 | kind, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00];
            assert!(checked(&endless).unwrap_err().contains("claims more"), "{kind}");
        }
        // Lists in lists without an end.
        assert!(checked(&[0x19; 1000]).is_err());
        assert_eq!(checked(&[0x19, 0x25, 1, 2, 0x18, 1, b'x', 0x11, 0x00]), Ok(()));
        // Those without a footer are for the library.
        assert_eq!(check(&mut Cursor::new(b"PAR1")), Ok(()));
    }
}
