//! What strangers and members say to a node: refused, or something that is written again as it was
//! read.
#![no_main]

use fullpipe_mesh::datagram::{DATAGRAM_LEN, Datagram, Kind, MINUTES, ProbeCounter};
use fullpipe_mesh::hello::{HEAD_LEN, Head, Hello, MAX_BODY, Reply, head};
use fullpipe_mesh::message::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((start, rest)) = bytes.split_first_chunk::<HEAD_LEN>() {
        if let Ok(Head::Current(length)) = head(start) {
            assert!(length <= MAX_BODY);
            let body = &rest[..length.min(rest.len())];
            if let Ok(hello) = Hello::parse(body) {
                assert_eq!(&hello.to_bytes()[HEAD_LEN..], body);
            }
            if let Ok(reply) = Reply::parse(body) {
                assert_eq!(&reply.to_bytes()[HEAD_LEN..], body);
            }
        }
    }
    if let Ok(message) = Message::parse(bytes) {
        assert_eq!(message.to_bytes(), bytes);
    }
    // No datagram opens without its key, whatever its bytes.
    assert!(bytes.len() != DATAGRAM_LEN || Datagram::open(bytes, &[7; 32]).is_err());
    let mut received = ProbeCounter::default();
    for numbers in bytes.chunks_exact(4) {
        let [epoch, number, ahead, minute] = *numbers else { return };
        let number = u64::from(number) << (ahead % 57);
        let request = Datagram {
            kind: Kind::Request,
            epoch: u64::from(epoch % 3),
            number,
            minute: u32::from(minute),
            stamp: 0,
            arrived: [0; MINUTES],
        };
        if received.record(&request).is_some() {
            assert_eq!(received.record(&request), None, "a request is counted once");
        }
    }
});
