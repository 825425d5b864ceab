//! Bodies in chunks (RFC 9112 section 7.1), told apart from what frames them.

use super::MessageError;

/// The longest line with a chunk's size, its extensions counted in.
const MAX_LINE: usize = 1024;
/// The most trailers, bytes.
const MAX_TRAILERS: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a size.
    Size,
    /// So many bytes of a chunk are left.
    Data(u64),
    /// Before the end of a chunk's line.
    AfterData,
    /// After the last chunk; so many bytes of trailers have come.
    Trailers(usize),
    Over,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes frame the body: pass over them, and ask again.
    Frame(usize),
    /// So many bytes of the body come next, here or not yet: take of them, and tell [`Chunked::took`].
    Data(u64),
    /// More bytes must come first.
    More,
    /// The body is over.
    Over,
}

/// Reads a body in chunks.
#[derive(Clone, Debug)]
pub struct Chunked {
    state: State,
    most: u64,
    announced: u64,
}

impl Chunked {
    /// A body of at most `most` bytes.
    pub fn new(most: u64) -> Chunked {
        Chunked { state: State::Size, most, announced: 0 }
    }

    /// What `input` begins with: all bytes that have come and were not passed over yet.
    ///
    /// # Errors
    /// When these are no chunks, or more than allowed. A chunk too many is refused by its size alone.
    pub fn next(&mut self, input: &[u8]) -> Result<Step, MessageError> {
        match self.state {
            State::Over => Ok(Step::Over),
            State::Data(left) => Ok(Step::Data(left)),
            State::AfterData => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Frame(2))
                }
                [] | [b'\r'] => Ok(Step::More),
                _ => Err(MessageError::malformed("a chunk that is longer than its size")),
            },
            State::Size => {
                let Some((line, length)) = line(input, MAX_LINE)? else { return Ok(Step::More) };
                let size = size(line).ok_or_else(|| MessageError::malformed("a chunk without a size"))?;
                self.announced = self
                    .announced
                    .checked_add(size)
                    .filter(|&n| n <= self.most)
                    .ok_or(MessageError::TooLarge(self.most))?;
                self.state = if size == 0 { State::Trailers(0) } else { State::Data(size) };
                Ok(Step::Frame(length))
            }
            State::Trailers(so_far) => {
                let Some((line, length)) = line(input, MAX_TRAILERS - so_far)? else { return Ok(Step::More) };
                self.state = if line.is_empty() { State::Over } else { State::Trailers(so_far + length) };
                Ok(Step::Frame(length))
            }
        }
    }

    /// `n` bytes of a chunk were taken; no more than [`Step::Data`] said.
    pub fn took(&mut self, n: u64) {
        if let State::Data(left) = self.state {
            let left = left.saturating_sub(n);
            self.state = if left == 0 { State::AfterData } else { State::Data(left) };
        }
    }
}

/// The line that `input` begins with, without its end, and its length with it; `None` before it is whole.
fn line(input: &[u8], longest: usize) -> Result<Option<(&[u8], usize)>, MessageError> {
    match input.iter().take(longest).position(|&b| b == b'\n') {
        Some(at) => match input[..at].split_last() {
            Some((b'\r', line)) if !line.contains(&b'\r') => Ok(Some((line, at + 1))),
            _ => Err(MessageError::malformed("a line between chunks that does not end in CR LF")),
        },
        None if input.len() >= longest => Err(MessageError::malformed("an endless line between chunks")),
        None => Ok(None),
    }
}

/// One to sixteen hexadecimal digits; what follows must be an extension.
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

    /// Reads a body that comes in pieces of `step` bytes; gives it with how many bytes are left.
    fn read(bytes: &[u8], step: usize, most: u64) -> Result<Option<(Vec<u8>, usize)>, MessageError> {
        let (mut chunked, mut body) = (Chunked::new(most), Vec::new());
        let (mut at, mut come) = (0, 0);
        loop {
            match chunked.next(&bytes[at..come])? {
                Step::Frame(n) => at += n,
                Step::Data(n) => {
                    let n = (n.min(usize::MAX as u64) as usize).min(come - at);
                    if n == 0 && come == bytes.len() {
                        return Ok(None);
                    }
                    body.extend_from_slice(&bytes[at..at + n]);
                    at += n;
                    chunked.took(n as u64);
                    if n == 0 {
                        come = (come + step).min(bytes.len());
                    }
                }
                Step::More if come == bytes.len() => return Ok(None),
                Step::More => come = (come + step).min(bytes.len()),
                Step::Over => return Ok(Some((body, bytes.len() - at))),
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
    fn sizes_that_can_be_read_in_two_ways_are_refused() {
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
    fn sizes_cannot_wrap_past_the_bound() {
        let wraps = b"8\r\nabcdefgh\r\nFFFFFFFFFFFFFFFF\r\n";
        assert_eq!(read(wraps, 3, 1000), Err(MessageError::TooLarge(1000)));
        assert_eq!(read(wraps, 3, u64::MAX), Err(MessageError::TooLarge(u64::MAX)));
        assert_eq!(read(b"9\r\n", 3, 8), Err(MessageError::TooLarge(8)));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_a_body_comes(
            text in "([0-9a-fA-F]{0,2}(;[ -~]{0,5})?\r\n[a-z]{0,12}\r\n){0,4}(0\r\n)?(\r\n)?", step in 1usize..20,
        ) {
            prop_assert_eq!(read(text.as_bytes(), step, 1000), read(text.as_bytes(), text.len().max(1), 1000));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), most: u64) {
            let _ = read(&bytes, 7, most);
        }
    }
}
