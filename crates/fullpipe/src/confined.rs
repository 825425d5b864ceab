//! Giving up what a long-running program has no use for, and saying what this kernel has no means to keep it from.

use crate::failure::Failure;
use fullpipe_kernel::confine::{self, Confinement, Layer};

/// [`confine::confine`]; a layer that is missing is said on stderr.
pub fn confine(to: &Confinement<'_>) -> Result<(), Failure> {
    let confined = confine::confine(to)
        .map_err(|e| Failure::Impossible(format!("capabilities cannot be given up: {e}")))?;
    for (what, layer) in [("files and ports", &confined.landlock), ("system calls", &confined.system_calls)] {
        if let Layer::Unavailable(_) = layer {
            eprintln!("note: not kept from {what} that it does not need: {layer}");
        }
    }
    Ok(())
}
