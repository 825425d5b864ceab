//! The loadable controllers and their BPF objects.

use crate::error::{Error, Result};

/// A controller that can be loaded into the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// BBR v1 with the kernel's exact arithmetic, without `min_tso_segs`.
    Bbr1,
    /// BBR v3 of the IETF draft, adapted to stock kernels.
    Bbr3,
    /// Hybla, for long paths.
    Hybla,
}

impl Controller {
    /// All, in listing order.
    pub const ALL: [Controller; 3] = [Controller::Bbr3, Controller::Bbr1, Controller::Hybla];

    /// Its name in the kernel, for `setsockopt(TCP_CONGESTION)`, sysctls and routes.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Bbr1 => "fp_bbr1",
            Controller::Bbr3 => "fp_bbr3",
            Controller::Hybla => "fp_hybla",
        }
    }

    /// A one-line description.
    pub fn about(self) -> &'static str {
        match self {
            Controller::Bbr3 => "BBR v3 of draft-ietf-ccwg-bbr, adapted to stock kernels",
            Controller::Hybla => "Hybla: on a long path, grows as Reno does on a short one",
            Controller::Bbr1 => {
                "BBR v1, bit-identical to the kernel's, but with bursts of two segments below 1.2 Mbit/s"
            }
        }
    }

    /// Whether its state is in socket storage instead of inside the socket.
    pub(crate) fn has_storage(self) -> bool {
        self == Controller::Bbr3
    }

    /// The BPF object, as checked in.
    pub fn object(self) -> &'static [u8] {
        match self {
            Controller::Bbr1 => object!("bbr1"),
            Controller::Bbr3 => object!("bbr3"),
            Controller::Hybla => object!("hybla"),
        }
    }

    /// Identifies the build of the object: FNV-1a of its bytes. A loaded controller carries it, so
    /// that `status` can recognise other builds.
    pub fn build(self) -> u64 {
        self.object().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

impl std::str::FromStr for Controller {
    type Err = Error;

    /// `fp_bbr1` or `bbr1`.
    fn from_str(text: &str) -> Result<Self> {
        let short = text.strip_prefix("fp_").unwrap_or(text);
        Controller::ALL.into_iter().find(|controller| &controller.name()[3..] == short).ok_or_else(|| {
            Error::Unknown {
                name: text.to_owned(),
                known: Controller::ALL.map(|controller| &controller.name()[3..]).join(", "),
            }
        })
    }
}

impl std::fmt::Display for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_parses_from_its_full_and_short_name() {
        for controller in Controller::ALL {
            assert_eq!(controller.name().parse::<Controller>().unwrap(), controller);
            assert_eq!(controller.name()[3..].parse::<Controller>().unwrap(), controller);
        }
        assert!("vegas".parse::<Controller>().unwrap_err().to_string().contains("bbr1"));
    }

    #[test]
    fn names_fit_tcp_ca_name_max() {
        for controller in Controller::ALL {
            assert!(controller.name().len() < 16);
        }
    }
}
