//! Makes the page's glue code: the script that loads the module, and the module as that script
//! needs it.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [module, out] = &arguments[..] else {
        eprintln!("usage: playground-glue MODULE.wasm DIRECTORY");
        return ExitCode::from(2);
    };
    let made = Bindgen::new().input_path(module).no_modules(true).and_then(|bindgen| {
        bindgen.typescript(false).remove_name_section(true).remove_producers_section(true).generate(out)
    });
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("playground-glue: {}: {e:#}", module.display());
            ExitCode::FAILURE
        }
    }
}
