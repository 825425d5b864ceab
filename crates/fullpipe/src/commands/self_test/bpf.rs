//! What is loaded into the running kernel, for a moment.

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

    /// How long calls are counted: a kernel that skips some does so within a few thousand.
    const CALLS_FOR: Duration = Duration::from_millis(300);

    /// The kernel's verifier takes each, and one that counts its calls is registered and sends over loopback.
    pub fn controllers() -> Outcome {
        let kernel = match Kernel::detect() {
            Ok(kernel) => kernel,
            Err(e) => return refused(e),
        };
        let (mut names, mut lacking) = (Vec::new(), Vec::new());
        for controller in Controller::ALL {
            match loader::verify(controller, &kernel) {
                Ok(()) => names.push(controller.name()),
                Err(Error::MissingFeature { feature, .. }) => lacking.push((controller, feature)),
                Err(e) => return refused(e),
            }
        }
        if names.is_empty()
            && let Some(&(controller, feature)) = lacking.first()
        {
            return refused(Error::MissingFeature { what: controller.name().to_owned(), feature });
        }
        let lacking = lacking.iter().map(|(controller, feature)| {
            format!(", not {controller} (Linux has what it needs since {})", feature.since())
        });
        let names = names.join(", ") + &lacking.collect::<String>();
        match calls::count_calls(CALLS_FOR) {
            Ok(calls) if calls.all_made() => Outcome::works(format!("{names} load; {calls}")),
            Ok(calls) => Outcome {
                help: Some(
                    "docs/explanation/bbr3-on-stock-kernels.md says what that means; `cc load --verify` counts for longer"
                        .to_owned(),
                ),
                ..Outcome::works(format!("{names} load; {calls}"))
            },
            // The counter paces, which a controller that is not BBR need not.
            Err(Error::MissingFeature { .. }) => Outcome::works(format!("{names} load; calls cannot be counted")),
            Err(e) => refused(e),
        }
    }

    /// The programs that see connections close, attached and taken away.
    pub fn records() -> Outcome {
        let settings = Settings { namespace: facts::network_namespace().ok(), ring_bytes: 4096 };
        match Closings::start(&settings).and_then(|closings| closings.counts()) {
            Ok(_) => Outcome::works("connections can be seen as they close"),
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
