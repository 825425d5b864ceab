//! The file a recording is kept in.
//!
//! ```text
//! "fpccrec1"                      magic
//! deflate stream of records, each:
//!   socket       varint: a small number, in order of appearance
//!   changed      one bit for each 32-bit word that differs from its prediction
//!   differences  zigzag varint of (word - prediction), for each changed word
//! ```
//! The connection's words are predicted by the same socket's record before, the state before a
//! callback by the state after the last one, and the results by what was there before the callback:
//! so a record costs about 30 bytes instead of 408.

use super::record::{Record, WORDS};
use crate::error::{Error, Result};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::collections::HashMap;
use std::io::{BufReader, Read, Write};

const MAGIC: &[u8; 8] = b"fpccrec1";
const BITMAP: usize = WORDS.div_ceil(8);
/// More sockets than any recording has; a file that claims more is not one.
const MAX_SOCKETS: usize = 1 << 16;

/// Where things are in a record, in words.
const TCP: usize = 4;
const BEFORE: usize = TCP + std::mem::size_of::<crate::native::Tcp>() / 4;
const AFTER: usize = BEFORE + 26;
const OUTPUTS: usize = AFTER + 26;

/// Fills the words from `from` on of `prediction` that can be known from `last` (the socket's last
/// record) and from the words of this record before them.
fn predict(last: &[u32; WORDS], this: &[u32; WORDS], word: usize) -> u32 {
    let tcp = |name: usize| this[TCP + name];
    match word {
        // The socket's number is written apart.
        0 | 1 => this[word],
        2..BEFORE => last[word],
        BEFORE..AFTER => last[word + 26],
        AFTER..OUTPUTS => this[word - 26],
        _ => match word - OUTPUTS {
            // pacing_rate, snd_cwnd, snd_ssthresh, app_limited, result, ticks: from struct fp_tcp.
            0 => tcp(8),
            1 => tcp(9),
            2 => tcp(25),
            3 => tcp(27),
            4 => tcp(28),
            6 => tcp(32),
            _ => last[word],
        },
    }
}

/// Writes records to a file.
pub struct Writer<W: Write> {
    to: DeflateEncoder<W>,
    sockets: HashMap<u64, usize>,
    last: Vec<[u32; WORDS]>,
    buffer: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("sockets", &self.last.len()).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// What the writer says.
    pub fn new(mut to: W) -> std::io::Result<Self> {
        to.write_all(MAGIC)?;
        Ok(Writer {
            to: DeflateEncoder::new(to, Compression::best()),
            sockets: HashMap::new(),
            last: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Adds a record. The socket's number becomes a small one.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&mut self, record: &Record) -> std::io::Result<()> {
        let next = self.last.len();
        let socket = *self.sockets.entry(record.socket).or_insert(next);
        if socket == next {
            self.last.push([0; WORDS]);
        }
        let words = record.as_words();
        let mut bitmap = [0u8; BITMAP];
        self.buffer.clear();
        for word in 2..WORDS {
            let difference = words[word].wrapping_sub(predict(&self.last[socket], words, word));
            if difference != 0 {
                bitmap[word / 8] |= 1 << (word % 8);
                push_varint(&mut self.buffer, zigzag(difference));
            }
        }
        self.last[socket] = *words;
        let mut number = Vec::with_capacity(5);
        push_varint(&mut number, socket as u32);
        self.to.write_all(&number)?;
        self.to.write_all(&bitmap)?;
        self.to.write_all(&self.buffer)
    }

    /// Ends the file and gives back what it was written to.
    ///
    /// # Errors
    /// What the writer says.
    pub fn finish(self) -> std::io::Result<W> {
        self.to.finish()
    }
}

/// Reads records from a file, one after the other. Sockets are numbered from 0 in order of
/// appearance.
pub struct Reader<R: Read> {
    from: BufReader<DeflateDecoder<R>>,
    last: Vec<[u32; WORDS]>,
    failed: bool,
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("sockets", &self.last.len()).finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Opens a recording.
    ///
    /// # Errors
    /// When it is not one.
    pub fn new(mut from: R) -> Result<Self> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)
            .ok()
            .filter(|()| &magic == MAGIC)
            .ok_or_else(|| Error::Malformed("not a recording of `fullpipe cc record`".to_owned()))?;
        Ok(Reader { from: BufReader::new(DeflateDecoder::new(from)), last: Vec::new(), failed: false })
    }

    fn record(&mut self) -> std::io::Result<Option<Record>> {
        let mut first = [0u8];
        if self.from.read(&mut first)? == 0 {
            return Ok(None);
        }
        let socket = self.varint(first[0])? as usize;
        if socket > self.last.len() || socket >= MAX_SOCKETS {
            return Err(std::io::Error::other("a socket that did not begin"));
        }
        if socket == self.last.len() {
            self.last.push([0; WORDS]);
        }
        let mut bitmap = [0u8; BITMAP];
        self.from.read_exact(&mut bitmap)?;
        let mut words = [0u32; WORDS];
        words[0] = socket as u32;
        for word in 2..WORDS {
            words[word] = predict(&self.last[socket], &words, word);
            if bitmap[word / 8] & 1 << (word % 8) != 0 {
                let mut byte = [0u8];
                self.from.read_exact(&mut byte)?;
                words[word] = words[word].wrapping_add(unzigzag(self.varint(byte[0])?));
            }
        }
        self.last[socket] = words;
        Ok(Some(Record::from_words(&words)))
    }

    fn varint(&mut self, first: u8) -> std::io::Result<u32> {
        let mut value = u64::from(first & 0x7f);
        let mut byte = [first];
        let mut shift = 7;
        while byte[0] & 0x80 != 0 {
            if shift > 28 {
                return Err(std::io::Error::other("a number that does not end"));
            }
            self.from.read_exact(&mut byte)?;
            value |= u64::from(byte[0] & 0x7f) << shift;
            shift += 7;
        }
        u32::try_from(value).map_err(|_| std::io::Error::other("a number too large"))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.record() {
            Ok(record) => record.map(Ok),
            Err(reason) => {
                self.failed = true;
                Some(Err(Error::Malformed(format!("the recording is damaged: {reason}"))))
            }
        }
    }
}

fn zigzag(difference: u32) -> u32 {
    difference << 1 ^ ((difference as i32) >> 31) as u32
}

fn unzigzag(code: u32) -> u32 {
    code >> 1 ^ (code & 1).wrapping_neg()
}

fn push_varint(to: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        (
            0u64..4,
            proptest::collection::vec(any::<u32>(), WORDS),
            proptest::collection::vec(any::<bool>(), WORDS),
        )
            .prop_map(|(socket, values, kept)| {
                let mut words = [0u32; WORDS];
                for (word, (value, kept)) in words.iter_mut().zip(values.into_iter().zip(kept)) {
                    *word = if kept { value } else { value & 3 };
                }
                let mut record = Record::from_words(&words);
                record.socket = socket;
                record
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn written_data_is_read(records in proptest::collection::vec(record(), 0..40)) {
            let mut writer = Writer::new(Vec::new()).unwrap();
            for record in &records {
                writer.write(record).unwrap();
            }
            let bytes = writer.finish().unwrap();
            let read: Vec<Record> = Reader::new(&bytes[..]).unwrap().collect::<Result<_>>().unwrap();
            prop_assert_eq!(read.len(), records.len());
            let mut numbers = HashMap::new();
            for (read, written) in read.iter().zip(&records) {
                let next = numbers.len() as u64;
                let number = *numbers.entry(written.socket).or_insert(next);
                prop_assert_eq!(*read, Record { socket: number, ..*written });
            }
        }

        #[test]
        fn any_bytes_give_records_or_one_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut file = MAGIC.to_vec();
            file.extend(&bytes);
            let mut errors = 0;
            for record in Reader::new(&file[..]).unwrap() {
                errors += usize::from(record.is_err());
            }
            prop_assert!(errors <= 1);
        }
    }

    #[test]
    fn another_file_is_named_as_such() {
        let error = Reader::new(&b"PK\x03\x04 a zip file"[..]).unwrap_err();
        assert!(error.to_string().contains("not a recording"));
    }
}
