//! Compiles the controllers' C cores for the host: replay and the differential tests run them; and
//! one program, which tests call. And packs the BPF objects, most of which is type and line
//! information: they weigh a quarter then in the program that carries them.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=bpf");
    cc::Build::new()
        .file("bpf/native.c")
        .file("bpf/hosted_bbr3.c")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-unused-function")
        .compile("fullpipe_cores");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for entry in fs::read_dir("bpf/objects")? {
        let path = entry?.path();
        let name = path.file_name().ok_or("an object without a name")?;
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&fs::read(&path)?)?;
        fs::write(out.join(name), packed.finish()?)?;
    }
    Ok(())
}
