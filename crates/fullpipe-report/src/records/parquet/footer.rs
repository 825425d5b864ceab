//! Checks the footer of a Parquet file before the library reads it. The library loops over the
//! claimed length of a list, and in Thrift's compact protocol six bytes can claim two thousand
//! million elements of zero size. It makes a tree of the schema by recursion, panics at some nested
//! and annotated types, and its reader of rows takes ten kilobytes for each column.

use std::io::{Read, Seek, SeekFrom};

/// Longest footer; that of a records file has some kilobytes.
const MAX_FOOTER_BYTES: u64 = 64 << 20;
/// Nesting of structures; Parquet's own are six deep.
const MAX_DEPTH: u32 = 32;
/// Columns; a records file has some forty.
const MAX_COLUMNS: u64 = 1000;

/// Refuses a footer that claims more elements than its bytes can hold, and a schema that is not a flat
/// list of plain columns. A missing footer is left to the library.
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
    let mut parser = Parser { rest: &footer, is_foreign: false };
    parser.file().ok_or_else(|| match parser.is_foreign {
        true => {
            format!("unsupported columns: expected a flat list of at most {MAX_COLUMNS} strings and numbers")
        }
        false => "its footer is damaged or claims more than it holds".to_owned(),
    })
}

/// A footer in Thrift's compact protocol.
struct Parser<'a> {
    /// The bytes that remain to be parsed.
    rest: &'a [u8],
    /// Whether the schema was refused.
    is_foreign: bool,
}

impl Parser<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn skip(&mut self, n: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(n).ok()?..)?;
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

    /// A number with its sign in the lowest bit.
    fn signed(&mut self) -> Option<i64> {
        let value = self.number().filter(|value| *value <= u32::MAX.into())? as i64;
        Some((value >> 1) ^ -(value & 1))
    }

    /// Calls `field` with the number and type of each field of a structure; it parses the value, unless
    /// it is a boolean, whose value is its type.
    fn fields(&mut self, mut field: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut number = 0;
        loop {
            let head = self.byte()?;
            let kind = head & 15;
            if kind == 0 {
                return Some(());
            }
            // A small delta to the previous one, or the number. Writers sort them, and readers disagree
            // on others.
            let next = if head >> 4 == 0 { self.signed()? } else { number + i64::from(head >> 4) };
            if next <= number || next > i64::from(i16::MAX) {
                return None;
            }
            number = next;
            field(self, number, kind)?;
        }
    }

    fn structure(&mut self, depth: u32) -> Option<()> {
        self.fields(|parser, _, kind| parser.field_value(kind, depth))
    }

    /// `FileMetaData`: its field 2 is the schema.
    fn file(&mut self) -> Option<()> {
        self.fields(|parser, number, kind| match (number, kind) {
            (2, 9) => parser.schema(),
            (2, _) => None,
            _ => parser.field_value(kind, 0),
        })
    }

    /// A list of `SchemaElement`: the root, and the columns below it.
    fn schema(&mut self) -> Option<()> {
        let (kind, size) = self.list_head()?;
        if kind != 12 {
            return None;
        }
        if size > MAX_COLUMNS + 1 {
            return self.foreign();
        }
        for place in 0..size {
            let element = self.element()?;
            let is_known = match place {
                0 => element.physical.is_none() && element.children == Some(size as i64 - 1),
                _ => element.is_column(),
            };
            if !is_known {
                return self.foreign();
            }
        }
        Some(())
    }

    fn foreign(&mut self) -> Option<()> {
        self.is_foreign = true;
        None
    }

    fn element(&mut self) -> Option<Element> {
        let mut element = Element::default();
        self.fields(|parser, number, kind| {
            match (number, kind) {
                (1, 5) => element.physical = Some(parser.signed()?),
                (3, 5) => element.repetition = Some(parser.signed()?),
                (4, 8) => parser.value(kind, 0)?,
                (5, 5) => element.children = Some(parser.signed()?),
                (6, 5) => element.annotation = Some(parser.signed()?),
                // A union: its only field is the kind of the annotation, 1 for texts and 10 for integers.
                (10, 12) => parser.fields(|parser, number, kind| {
                    element.has_other_type |= !matches!(number, 1 | 10);
                    parser.field_value(kind, 1)
                })?,
                (2 | 7..=9, 5) => parser.value(kind, 0)?,
                _ => return None,
            }
            Some(())
        })?;
        Some(element)
    }

    /// The value of a field; that of a boolean is its type.
    fn field_value(&mut self, kind: u8, depth: u32) -> Option<()> {
        if kind > 2 { self.value(kind, depth) } else { Some(()) }
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
        let (kind, size) = self.list_head()?;
        (0..size).try_for_each(|_| self.value(kind, depth))
    }

    /// The type and number of the elements of a list.
    fn list_head(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        // Each element takes at least one byte.
        (size <= self.rest.len() as u64).then_some((head & 15, size))
    }
}

/// A `SchemaElement`.
#[derive(Default)]
struct Element {
    physical: Option<i64>,
    repetition: Option<i64>,
    children: Option<i64>,
    annotation: Option<i64>,
    /// Whether it has a logical type other than a text or an integer.
    has_other_type: bool,
}

impl Element {
    /// Whether it is a column that is read without a panic: not repeated, and a text (UTF8) or a number,
    /// without annotation or with that of an integer of its size.
    fn is_column(&self) -> bool {
        const BOOLEAN: i64 = 0;
        const INT32: i64 = 1;
        const INT64: i64 = 2;
        const FLOAT: i64 = 4;
        const DOUBLE: i64 = 5;
        const BYTE_ARRAY: i64 = 6;
        let is_plain = match (self.physical, self.annotation) {
            (Some(BOOLEAN | INT32 | INT64 | FLOAT | DOUBLE | BYTE_ARRAY), None) => true,
            (Some(BYTE_ARRAY), Some(annotation)) => annotation == 0,
            // UINT_8, UINT_16, UINT_32, INT_8, INT_16 and INT_32.
            (Some(INT32), Some(annotation)) => matches!(annotation, 11..=13 | 15..=17),
            // UINT_64 and INT_64.
            (Some(INT64), Some(annotation)) => matches!(annotation, 14 | 18),
            _ => false,
        };
        is_plain
            && !self.has_other_type
            && matches!(self.repetition, Some(0 | 1))
            && matches!(self.children, None | Some(0))
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
        assert_eq!(checked(&[0x19, 0x25, 1, 2, 0x28, 1, b'x', 0x11, 0x00]), Ok(()));
        // A file without a footer is left to the library.
        assert_eq!(check(&mut Cursor::new(b"PAR1")), Ok(()));
    }

    /// A schema element: field numbers and values.
    fn element(fields: &[(u8, i32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut last = 0;
        for &(number, value) in fields {
            bytes.push((number - last) << 4 | 5);
            bytes.extend(varint(((value << 1) ^ (value >> 31)) as u32));
            last = number;
        }
        bytes.push(0);
        bytes
    }

    fn varint(mut value: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 127 {
            bytes.push(value as u8 | 128);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn with_schema(elements: &[Vec<u8>]) -> Result<(), String> {
        let head = [vec![0x29, 0xfc], varint(elements.len() as u32)].concat();
        checked(&[head, elements.concat(), vec![0]].concat())
    }

    #[test]
    fn schemas_that_the_library_does_not_survive_are_refused() {
        let (root, number) = (|n| element(&[(5, n)]), element(&[(1, 2), (3, 1)]));
        assert_eq!(with_schema(&[root(2), number.clone(), element(&[(1, 6), (3, 0), (6, 0)])]), Ok(()));
        // Integers as other writers annotate them: INT_32 and UINT_64.
        let annotated = |physical, annotation| element(&[(1, physical), (3, 1), (6, annotation)]);
        assert_eq!(with_schema(&[root(2), annotated(1, 17), annotated(2, 14)]), Ok(()));
        let group = |n, annotation| element(&[(3, 1), (5, n), (6, annotation)]);
        let refused: [Vec<Vec<u8>>; 9] = [
            // Nested groups overflow the stack, lists and maps with wrong children panic.
            [vec![root(1)], vec![element(&[(3, 0), (5, 1)]); 10_000], vec![number.clone()]].concat(),
            vec![root(1), group(2, 3), number.clone(), number.clone()],
            vec![root(1), group(1, 3), number.clone()],
            vec![root(1), group(1, 1), number.clone()],
            // INTERVAL is not implemented.
            vec![root(1), element(&[(1, 7), (2, 12), (3, 0), (6, 21)])],
            // Nor are INT_32 in 64 bits, and TIMESTAMP_MILLIS in 32.
            vec![root(1), annotated(2, 17)],
            vec![root(1), annotated(1, 9)],
            // Ten kilobytes for each column.
            [vec![root(20_000)], vec![number.clone(); 20_000]].concat(),
            // Children that are not there.
            vec![root(i32::MAX), number.clone()],
        ];
        for elements in refused {
            let error = with_schema(&elements).unwrap_err();
            let expected = "unsupported columns: expected a flat list of at most 1000 strings and numbers";
            assert_eq!(error, expected);
        }
        // A logical type: DECIMAL is field 5 of the union, STRING field 1.
        let logical =
            |field: u8| [&element(&[(1, 6), (3, 1)])[..4], &[0x7c, field << 4 | 12, 0, 0, 0]].concat();
        assert_eq!(with_schema(&[root(1), logical(1)]), Ok(()));
        assert!(with_schema(&[root(1), logical(5)]).is_err());
        // A second schema, or one out of order.
        let twice = [&[0x29, 0x1c][..], &root(0), &[0x09, 0x04, 0x1c], &root(0), &[0]].concat();
        assert!(checked(&twice).is_err());
    }
}
