//! Decompresses captures, which are recognised by their first bytes.

use std::io::{self, Cursor, Read};

type Source<'a> = Box<dyn Read + Send + 'a>;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Maximum zstd window in bytes: the default of `zstd --long` (RFC 8878 §3.1.1.1.2 lets decoders
/// refuse more).
const MAX_ZSTD_WINDOW: u64 = 128 << 20;

/// Decompresses `source` if it is compressed. An error of the source is final: each later read fails,
/// so that no reader in between takes it for the end.
pub(super) fn decompress<'a>(source: impl Read + Send + 'a) -> io::Result<Source<'a>> {
    Ok(Box::new(Final { source: decoder(source)?, failure: None }))
}

fn decoder<'a>(mut source: impl Read + Send + 'a) -> io::Result<Source<'a>> {
    let mut head = [0; 4];
    let mut n = 0;
    while n < head.len() {
        match source.read(&mut head[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let whole = Cursor::new(head).take(n as u64).chain(source);
    if head[..n].starts_with(&GZIP) {
        return Ok(Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, whole))));
    }
    if head[..n] == ZSTD {
        return Ok(Box::new(Zstd {
            source: Some(io::BufReader::with_capacity(1 << 16, whole)),
            frame: None,
        }));
    }
    Ok(Box::new(whole))
}

/// A source that fails for good.
struct Final<R> {
    source: R,
    failure: Option<(io::ErrorKind, String)>,
}

impl<R: Read> Read for Final<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some((kind, reason)) = &self.failure {
            return Err(io::Error::new(*kind, reason.clone()));
        }
        self.source.read(out).inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                self.failure = Some((e.kind(), e.to_string()));
            }
        })
    }
}

/// A zstd file: one or several concatenated frames.
struct Zstd<R: Read> {
    source: Option<R>,
    frame: Option<ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: io::BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(frame) = &mut self.frame {
                let n = frame.read(out)?;
                if n > 0 {
                    return Ok(n);
                }
                // The decoder computes the checksum and leaves the comparison to its caller.
                let decoder = &frame.decoder;
                let written = decoder.get_checksum_from_data();
                if written.is_some() && written != decoder.get_calculated_checksum() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong checksum of a zstd frame"));
                }
                self.source = self.frame.take().map(|f| f.into_inner());
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(source, MAX_ZSTD_WINDOW)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
            self.frame = Some(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        decompress(bytes).unwrap().read_to_end(&mut out).unwrap();
        out
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn uncompressed_data_passes_unchanged() {
        for text in [&b""[..], b"a", b"abcdefg"] {
            assert_eq!(read(text), text);
        }
    }

    #[test]
    fn error_of_a_damaged_file_is_repeated() {
        let text: Vec<u8> =
            (0..300_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut changed = zstd(&text);
        changed[300_000] ^= 1;
        let cut = [gzip, zstd].map(|pack| pack(&text)).map(|packed| packed[..packed.len() / 2].to_vec());
        for packed in [&cut[0], &cut[1], &changed] {
            let mut source = decompress(&packed[..]).unwrap();
            let mut out = Vec::new();
            assert!(source.read_to_end(&mut out).is_err());
            assert!(
                !out.is_empty() && source.read(&mut [0; 8]).is_err() && source.read(&mut [0; 8]).is_err()
            );
        }
    }

    #[test]
    fn concatenated_members_and_frames_are_one_file() {
        for pack in [gzip, zstd] {
            assert_eq!(read(&[pack(b"one "), pack(b"two")].concat()), b"one two");
        }
    }
}
