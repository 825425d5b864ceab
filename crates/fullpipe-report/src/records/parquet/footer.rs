//! Checks the footer of a Parquet file before the library reads it. The library loops over the
//! claimed length of a list, and in Thrift's compact protocol six bytes can claim two thousand
//! million elements of zero size.

use std::io::{Read, Seek, SeekFrom};

/// Longest footer; that of a records file has some kilobytes.
const MAX_FOOTER_BYTES: u64 = 64 << 20;
/// Nesting of structures; Parquet's own are six deep.
const MAX_DEPTH: u32 = 32;

/// Refuses a footer that claims more elements than its bytes can hold. A missing footer is left to
/// the library.
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
    if size > MAX_FOOTER_BYTES {
        return Err(format!("its footer is larger than {} MiB", MAX_FOOTER_BYTES >> 20));
    }
    let mut footer = vec![0; size as usize];
    read(start, &mut footer)?;
    Parser(&footer)
        .structure(0)
        .ok_or_else(|| "its footer is damaged or claims more than it holds".to_owned())
}

/// The bytes that remain to be parsed.
struct Parser<'a>(&'a [u8]);

impl Parser<'_> {
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
            // The field's number, if it is not a small delta to the previous one.
            if head >> 4 == 0 {
                self.number()?;
            }
            // A boolean field has its value in its type.
            if kind > 2 {
                self.value(kind, depth)?;
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth == MAX_DEPTH {
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
            // Readers disagree on the size of booleans in lists; a Parquet footer has neither these nor maps.
            _ => None,
        }
    }

    fn list(&mut self, depth: u32) -> Option<()> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        // Each element takes at least one byte.
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
    fn footer_that_claims_more_than_it_holds_is_refused() {
        // Field 1 is a list with the largest length, of booleans, structures or numbers.
        for kind in [1, 5, 12] {
            let endless = [0x19, 0xf0 | kind, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00];
            assert!(checked(&endless).unwrap_err().contains("claims more"), "{kind}");
        }
        // Lists nested without end.
        assert!(checked(&[0x19; 1000]).is_err());
        assert_eq!(checked(&[0x19, 0x25, 1, 2, 0x18, 1, b'x', 0x11, 0x00]), Ok(()));
        // A file without a footer is left to the library.
        assert_eq!(check(&mut Cursor::new(b"PAR1")), Ok(()));
    }
}
