//! Compiles the controllers' C cores for the host: replay and the differential tests run them; and one program, which tests call.

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    cc::Build::new()
        .file("bpf/native.c")
        .file("bpf/hosted_bbr3.c")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-unused-function")
        .compile("fullpipe_cores");
}
