//! Programs loaded into the running kernel for a moment.

use super::outcome::Outcome;

#[cfg(not(feature = "ebpf"))]
pub fn controllers() -> Outcome {
    Outcome::not_built_in("ebpf")
}

#[cfg(not(feature = "ebpf"))]
pub fn records() -> Outcome {
    Outcome::not_built_in("ebpf")
}

#[cfg(feature = "ebpf")]
pub use loaded::{controllers, records};

#[cfg(feature = "ebpf")]
mod loaded {
    use super::Outcome;
    use fullpipe_ebpf::closings::{Closings, Settings};
    use fullpipe_ebpf::kernel::Kernel;
    use fullpipe_ebpf::{Controller, Error, calls, loader};
    use fullpipe_kernel::facts;
    use std::time::Duration;

    /// How long calls are counted: a kernel that skips calls does so within a few thousand.
    const COUNT_DURATION: Duration = Duration::from_millis(300);

    /// Has the kernel's verifier check each controller, and counts the calls of one over loopback.
    pub fn controllers() -> Outcome {
        let kernel = match Kernel::detect() {
            Ok(kernel) => kernel,
            Err(e) => return refused(e),
        };
        let (mut names, mut unsupported) = (Vec::new(), Vec::new());
        for controller in Controller::ALL {
            match loader::verify(controller, &kernel) {
                Ok(()) => names.push(controller.name()),
                Err(Error::MissingFeature { feature, .. }) => unsupported.push((controller, feature)),
                Err(e) => return refused(e),
            }
        }
        if names.is_empty()
            && let Some(&(controller, feature)) = unsupported.first()
        {
            return refused(Error::MissingFeature { what: controller.name().to_owned(), feature });
        }
        let unsupported = unsupported
            .iter()
            .map(|(controller, feature)| format!(", not {controller} (needs Linux {})", feature.since()));
        let names = names.join(", ") + &unsupported.collect::<String>();
        match calls::count_calls(COUNT_DURATION) {
            Ok(calls) if calls.all_made() => Outcome::works(format!("{names} load; {calls}")),
            Ok(calls) => Outcome {
                help: Some(
                    "see docs/explanation/bbr3-on-stock-kernels.md; `fullpipe cc load --verify` counts for \
                     longer"
                        .to_owned(),
                ),
                ..Outcome::works(format!("{names} load; {calls}"))
            },
            // The counter needs pacing, which not every controller does.
            Err(Error::MissingFeature { .. }) => Outcome::works(format!(
                "{names} load; calls cannot be \
                counted"
            )),
            Err(e) => refused(e),
        }
    }

    /// Attaches and detaches the programs that record closing connections.
    pub fn records() -> Outcome {
        let settings = Settings { namespace: facts::network_namespace().ok(), ring_bytes: 4096 };
        match Closings::start(&settings).and_then(|closings| closings.counts()) {
            Ok(_) => Outcome::works("connections can be recorded as they close"),
            Err(e) => refused(e),
        }
    }

    fn refused(error: Error) -> Outcome {
        match error.missing() {
            Some((what, help)) => Outcome::impossible(what, help),
            None => Outcome::impossible_because(error.to_string()),
        }
    }
}
