//! Chunked bodies (RFC 9112 section 7.1): separates data from framing.

use super::MessageError;

/// Maximum length of a chunk-size line, with extensions.
const MAX_LINE: usize = 1024;
/// Maximum size of the trailers, bytes.
const MAX_TRAILERS: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a chunk size.
    Size,
    /// Bytes left in a chunk.
    Data(u64),
    /// Before the line end after a chunk.
    AfterData,
    /// After the last chunk, with the bytes of trailers so far.
    Trailers(usize),
    Done,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes of framing: skip them and call again.
    Framing(usize),
    /// Bytes of data that follow: read some of them and call [`Chunked::consume`].
    Data(u64),
    /// More input is needed.
    NeedMore,
    /// The body is complete.
    Done,
}

/// Parses a chunked body.
#[derive(Clone, Debug)]
pub struct Chunked {
    state: State,
    max: u64,
    announced: u64,
}

impl Chunked {
    /// A parser for a body of at most `max` bytes.
    pub fn new(max: u64) -> Chunked {
        Chunked { state: State::Size, max, announced: 0 }
    }

    /// Parses the beginning of `input`, which is everything received and not yet skipped.
    ///
    /// # Errors
    /// If the framing is malformed or the body too large; an oversized chunk is refused by its size
    /// alone.
    pub fn next(&mut self, input: &[u8]) -> Result<Step, MessageError> {
        match self.state {
            State::Done => Ok(Step::Done),
            State::Data(left) => Ok(Step::Data(left)),
            State::AfterData => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Framing(2))
                }
                [] | [b'\r'] => Ok(Step::NeedMore),
                _ => Err(MessageError::malformed("chunk longer than its size")),
            },
            State::Size => {
                let Some((line, length)) = line(input, MAX_LINE)? else { return Ok(Step::NeedMore) };
                let size = size(line).ok_or_else(|| MessageError::malformed("chunk without a size"))?;
                self.announced = self
                    .announced
                    .checked_add(size)
                    .filter(|&n| n <= self.max)
                    .ok_or(MessageError::TooLarge(self.max))?;
                self.state = if size == 0 { State::Trailers(0) } else { State::Data(size) };
                Ok(Step::Framing(length))
            }
            State::Trailers(so_far) => {
                let Some((line, length)) = line(input, MAX_TRAILERS - so_far)? else {
                    return Ok(Step::NeedMore);
                };
                self.state = if line.is_empty() { State::Done } else { State::Trailers(so_far + length) };
                Ok(Step::Framing(length))
            }
        }
    }

    /// Records that `n` bytes of data were read, at most as many as [`Step::Data`] announced.
    pub fn consume(&mut self, n: u64) {
        if let State::Data(left) = self.state {
            let left = left.saturating_sub(n);
            self.state = if left == 0 { State::AfterData } else { State::Data(left) };
        }
    }
}

/// The first line of `input` without its end, and its length including it; `None` if incomplete.
fn line(input: &[u8], longest: usize) -> Result<Option<(&[u8], usize)>, MessageError> {
    match input.iter().take(longest).position(|&b| b == b'\n') {
        Some(at) => match input[..at].split_last() {
            Some((b'\r', line)) if !line.contains(&b'\r') => Ok(Some((line, at + 1))),
            _ => Err(MessageError::malformed("chunk line without CR LF")),
        },
        None if input.len() >= longest => Err(MessageError::malformed("chunk line too long")),
        None => Ok(None),
    }
}

/// One to sixteen hexadecimal digits, optionally followed by an extension.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let extension = rest.trim_ascii_start().first() == Some(&b';');
    if !(1..=16).contains(&digits.len()) || !(rest.is_empty() || extension) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a body in pieces of `step` bytes; returns it with the number of bytes left.
    fn read(bytes: &[u8], step: usize, max: u64) -> Result<Option<(Vec<u8>, usize)>, MessageError> {
        let (mut chunked, mut body) = (Chunked::new(max), Vec::new());
        let (mut at, mut come) = (0, 0);
        loop {
            match chunked.next(&bytes[at..come])? {
                Step::Framing(n) => at += n,
                Step::Data(n) => {
                    let n = (n.min(usize::MAX as u64) as usize).min(come - at);
                    if n == 0 && come == bytes.len() {
                        return Ok(None);
                    }
                    body.extend_from_slice(&bytes[at..at + n]);
                    at += n;
                    chunked.consume(n as u64);
                    if n == 0 {
                        come = (come + step).min(bytes.len());
                    }
                }
                Step::NeedMore if come == bytes.len() => return Ok(None),
                Step::NeedMore => come = (come + step).min(bytes.len()),
                Step::Done => return Ok(Some((body, bytes.len() - at))),
            }
        }
    }

    #[test]
    fn chunks_make_a_body() {
        let bytes = b"3\r\nabc\r\n2;x=\"y\" ;z\r\nde\r\n0\r\nT: x\r\n\r\nnext";
        for step in 1..40 {
            assert_eq!(read(bytes, step, 5), Ok(Some((b"abcde".to_vec(), 4))));
        }
    }

    #[test]
    fn ambiguous_sizes_are_refused() {
        let bad = [
            "\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "1 \r\n",
            " 1\r\n",
            "1\n",
            "1\r\r\n",
            "g\r\n",
            "1_0\r\n",
            "00000000000000001\r\n",
        ];
        for text in bad {
            assert!(matches!(read(text.as_bytes(), 1, 100), Err(MessageError::Malformed(_))), "{text:?}");
        }
        assert!(read(b"1\r\nab\r\n", 9, 100).is_err(), "longer than its size");
        assert!(read(&[b'1'; 2000], 100, u64::MAX).is_err(), "endless");
    }

    #[test]
    fn sizes_cannot_overflow_the_limit() {
        let wraps = b"8\r\nabcdefgh\r\nFFFFFFFFFFFFFFFF\r\n";
        assert_eq!(read(wraps, 3, 1000), Err(MessageError::TooLarge(1000)));
        assert_eq!(read(wraps, 3, u64::MAX), Err(MessageError::TooLarge(u64::MAX)));
        assert_eq!(read(b"9\r\n", 3, 8), Err(MessageError::TooLarge(8)));
    }

    proptest! {
        #[test]
        fn parsing_does_not_depend_on_segmentation(
            text in "([0-9a-fA-F]{0,2}(;[ -~]{0,5})?\r\n[a-z]{0,12}\r\n){0,4}(0\r\n)?(\r\n)?",
                step in 1usize..20,
        ) {
            prop_assert_eq!(read(text.as_bytes(), step, 1000),
                read(text.as_bytes(), text.len().max(1), 1000));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), max: u64) {
            let _ = read(&bytes, 7, max);
        }
    }
}
