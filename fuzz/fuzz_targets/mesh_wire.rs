//! What strangers and members say to a node: refused, or something that is written again as it was read.
#![no_main]

use fullpipe_mesh::datagram::{Datagram, Heard, Kind, LENGTH, MINUTES};
use fullpipe_mesh::hello::{Answer, HEAD, Head, Hello, LONGEST, head};
use fullpipe_mesh::message::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((start, rest)) = bytes.split_first_chunk::<HEAD>() {
        if let Ok(Head::Ours(length)) = head(start) {
            assert!(length <= LONGEST);
            let body = &rest[..length.min(rest.len())];
            if let Ok(hello) = Hello::parse(body) {
                assert_eq!(&hello.to_bytes()[HEAD..], body);
            }
            if let Ok(answer) = Answer::parse(body) {
                assert_eq!(&answer.to_bytes()[HEAD..], body);
            }
        }
    }
    if let Ok(message) = Message::parse(bytes) {
        assert_eq!(message.to_bytes(), bytes);
    }
    // No datagram opens without its key, whatever its bytes.
    assert!(bytes.len() != LENGTH || Datagram::open(bytes, &[7; 32]).is_err());
    let mut heard = Heard::default();
    for numbers in bytes.chunks_exact(4) {
        let [epoch, number, ahead, minute] = *numbers else { return };
        let number = u64::from(number) << (ahead % 57);
        let question = Datagram {
            kind: Kind::Question,
            epoch: u64::from(epoch % 3),
            number,
            minute: u32::from(minute),
            stamp: 0,
            arrived: [0; MINUTES],
        };
        if heard.count(&question).is_some() {
            assert_eq!(heard.count(&question), None, "a question is counted once");
        }
    }
});
