//! The controllers that a scenario can name: those of `fullpipe-cc`, and any that the caller adds.

use crate::SimError;
use fullpipe_cc::registry::{Build, BuildError, CONTROLLERS, ControllerInfo, Settings};
use fullpipe_cc::{Config, CongestionControl, Controller, ControllerSpec, forward_congestion_control};

/// Creates a caller's controller, with its settings as pairs of key and value.
type Make =
    for<'a> fn(&Config, &'a [(&'a str, &'a str)]) -> Result<Box<dyn CongestionControl>, BuildError<'a>>;

#[derive(Clone, Copy, Debug)]
struct Outside {
    about: &'static ControllerInfo,
    make: Make,
}

/// The controllers that a simulation knows by name: all of `fullpipe-cc`, and those
/// [added](Self::with) from other crates.
///
/// An added controller implements [`CongestionControl`] and [`Build`], as those of `fullpipe-cc`
/// do. [`Build::INFO`] defines its name, aliases and settings:
///
/// ```
/// use fullpipe_cc::registry::{ControllerInfo, Build, BuildError, Settings};
/// use fullpipe_cc::*;
/// use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
/// use fullpipe_sim::{Controllers, Simulation};
///
/// /// Keeps its initial window.
/// struct Stubborn(u64);
/// # impl CongestionControl for Stubborn {
/// #     fn on_send(&mut self, _: &Sent) {}
/// #     fn on_lost(&mut self, _: &Lost) {}
/// #     fn on_ack(&mut self, _: &Ack) {}
/// #     fn on_recovery(&mut self, _: Recovery, _: &RecoveryContext) {}
/// #     fn on_mtu(&mut self, _: u32) {}
/// #     fn cwnd(&self) -> u64 { self.0 }
/// #     fn ssthresh(&self) -> u64 { self.0 }
/// #     fn pacing_rate(&self) -> Option<Rate> { None }
/// #     fn send_quantum(&self) -> u64 { self.0 }
/// #     fn snapshot(&self) -> Snapshot {
/// #         Snapshot { state: "Stubborn", cwnd: self.0, ..Snapshot::default() }
/// #     }
/// # }
/// // impl CongestionControl for Stubborn { … }
///
/// impl Build for Stubborn {
///     const INFO: ControllerInfo = ControllerInfo {
///         name: "stubborn",
///         aliases: &[],
///         kernel: None,
///         about: "a constant window",
///         settings: &[],
///     };
///
///     type Params = ();
///
///     fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
///         Ok(())
///     }
///
///     fn build(config: &Config, _: &()) -> Self {
///         Stubborn(config.initial_cwnd)
///     }
/// }
///
/// let path = PathSpec::bottleneck("100mbit".parse()?, "100ms".parse()?, "1bdp".parse()?);
/// let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("stubborn")]);
/// scenario.duration = "5s".parse()?;
/// let controllers = Controllers::new().with::<Stubborn>();
/// let recording = Simulation::new(&scenario, 1).controllers(&controllers).run()?;
/// // Ten packets per round trip.
/// assert!((1.0e6..1.2e6).contains(&recording.summary.goodput_bps));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Controllers {
    outside: Vec<Outside>,
}

impl Controllers {
    /// The controllers of `fullpipe-cc`.
    pub const fn new() -> Self {
        Controllers { outside: Vec::new() }
    }

    /// Adds `C`. Its names take precedence over the same names in `fullpipe-cc`.
    #[must_use]
    pub fn with<C: Build + 'static>(mut self) -> Self {
        self.outside.push(Outside {
            about: const { &C::INFO },
            make: |config, pairs| {
                let params = C::parse(Settings::new(const { &C::INFO }, pairs)?)?;
                Ok(Box::new(C::build(config, &params)))
            },
        });
        self
    }

    /// The descriptions of all controllers.
    pub fn descriptions(&self) -> impl Iterator<Item = &'static ControllerInfo> {
        self.outside.iter().map(|o| o.about).chain(CONTROLLERS)
    }

    /// Every name and alias.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.descriptions().flat_map(|about| std::iter::once(about.name).chain(about.aliases.iter().copied()))
    }

    /// Creates the controller called `name` for the flow `flow`.
    pub(crate) fn make(
        &self,
        flow: usize,
        name: &str,
        config: &Config,
        settings: &[(&str, &str)],
    ) -> Result<AnyController, SimError> {
        let made = match self.outside.iter().rev().find(|o| o.about.is_named(name)) {
            Some(outside) => (outside.make)(config, settings).map(AnyController::Outside),
            None => ControllerSpec::new(name, settings).map(|spec| AnyController::Known(spec.build(config))),
        };
        made.map_err(|e| SimError::Controller { flow, reason: e.to_string() })
    }
}

/// Controllers that are not known by name before a run, such as those in other programs
/// ([`Simulation::controller_source`](crate::Simulation::controller_source)).
///
/// [`CongestionControl`] cannot fail: a source whose controllers can (a program may exit) keeps
/// the failure and stops the run by its progress callback, which
/// [`run_with`](crate::Simulation::run_with) then calls on every event.
pub trait ControllerSource: Sync {
    /// Whether it creates the controller `name`.
    fn knows(&self, name: &str) -> bool;

    /// Creates the controller `name` of the connection `flow` (its index, from 0), with settings
    /// as pairs of key and value.
    ///
    /// # Errors
    /// The reason, in words.
    fn create(
        &self,
        flow: usize,
        name: &str,
        config: &Config,
        settings: &[(&str, &str)],
    ) -> Result<Box<dyn CongestionControl>, String>;
}

impl AnyController {
    /// For a flow whose transport has its own controller.
    pub fn placeholder() -> Self {
        AnyController::Known(Controller::Fixed(fullpipe_cc::fixed::Fixed::new(&Config::default(), 10)))
    }
}

/// A controller of `fullpipe-cc`, dispatched without indirection, or one that the caller added.
#[allow(clippy::large_enum_variant, reason = "nearly always the large one")]
pub(crate) enum AnyController {
    Known(Controller),
    Outside(Box<dyn CongestionControl>),
}

forward_congestion_control! {
    impl[] for AnyController {
        Self::Known(c) => *c,
        Self::Outside(c) => **c,
    }
}
