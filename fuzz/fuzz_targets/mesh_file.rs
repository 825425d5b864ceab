//! Mesh files, files of keys and files of paths: refused with a reason, or a mesh in which every
//! pair has its turn and no site two at a time.
#![no_main]

use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::key::Keys;
use fullpipe_mesh::schedule::Schedule;
use fullpipe_mesh::simulate::SimulatedMesh;
use fullpipe_units::Span;
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;

const TWO: &str = "[mesh]\nname = 'm'\nkey_file = 'k'\n[[site]]\nname = 'lab'\naddress = '10.0.0.1'\n\
                   [[site]]\nname = 'sea'\naddress = '10.0.0.2'\n";

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(reason) = Keys::parse(text) {
        assert!(!reason.is_empty());
    }
    let two = Mesh::parse("two.toml", TWO).expect("a mesh");
    match SimulatedMesh::parse(&two, "paths.toml", text, Span::from_secs(3600), 1) {
        Err(error) => assert!(error.to_string().starts_with("paths.toml")),
        Ok(world) => {
            assert_eq!((world.links.len(), world.periods), (2, 60));
            assert!(world.faults.iter().all(|fault| fault.from <= fault.until));
        }
    }
    match Mesh::parse("mesh.toml", text) {
        Err(error) => assert!(error.to_string().starts_with("mesh.toml")),
        Ok(mesh) => {
            let sites = mesh.sites.len();
            let slots = Schedule::new(&mesh).slots(7);
            assert_eq!(slots.len(), sites * (sites - 1) * mesh.controllers.len());
            let mut busy = HashSet::new();
            for slot in slots {
                assert!(slot.start + slot.length <= mesh.period);
                for site in [slot.pair.from, slot.pair.to] {
                    assert!(busy.insert((slot.start, site, if mesh.together { slot.controller } else { 0 })));
                }
            }
        }
    }
});
