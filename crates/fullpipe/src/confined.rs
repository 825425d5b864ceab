//! Drops privileges that a long-running command does not need.

use crate::failure::Failure;
use fullpipe_kernel::confine::{self, Confinement, Layer};

/// [`confine::confine`], with a note on stderr for each layer that this kernel lacks.
pub fn confine(to: &Confinement<'_>) -> Result<(), Failure> {
    let confined =
        confine::confine(to).map_err(|e| Failure::Impossible(format!("cannot drop capabilities: {e}")))?;
    for (what, layer) in [("files and ports", &confined.landlock), ("system calls", &confined.system_calls)] {
        if let Layer::Unavailable(_) = layer {
            eprintln!("note: access to {what} is not restricted: {layer}");
        }
    }
    Ok(())
}
