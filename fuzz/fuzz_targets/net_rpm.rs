//! Configuration objects of servers for `rpm`.
#![no_main]

use fullpipe_net::rpm::Configuration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = Configuration::parse(bytes) {
        for url in [&found.large, &found.small, &found.upload] {
            assert_eq!((url.scheme(), url.origin()), ("https", found.large.origin()));
            assert!(url.has_host());
        }
        let _ = found.chooses("bbr");
    }
});
