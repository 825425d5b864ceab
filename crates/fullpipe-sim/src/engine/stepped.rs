//! A simulation whose time the caller advances.

use super::world::World;
use crate::SimError;
use fullpipe_cc::{CongestionControl, Time};
use fullpipe_experiment::recording::Recording;
use std::ops::ControlFlow;

/// A running simulation ([`Simulation::start`](super::Simulation::start)). The result does not
/// depend on the size of the steps.
///
/// ```
/// use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
/// use fullpipe_sim::Simulation;
/// use fullpipe_units::{Span, Time};
///
/// let path = PathSpec::bottleneck("10mbit".parse()?, "40ms".parse()?, "1bdp".parse()?);
/// let mut scenario = Scenario::new(path, vec![FlowSpec::bulk("cubic")]);
/// scenario.duration = "5s".parse()?;
/// let mut run = Simulation::new(&scenario, 1).start()?;
/// let mut to = Time::ZERO;
/// while run.advance(to)? {
///     to += Span::from_millis(7);
/// }
/// assert_eq!(run.finish().summary, Simulation::new(&scenario, 1).run()?.summary);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SteppedRun {
    world: World,
    now: Time,
    over: bool,
}

impl SteppedRun {
    pub(super) fn new(world: World) -> Self {
        SteppedRun { world, now: Time::ZERO, over: false }
    }

    /// The virtual time that the run has reached.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether the run is over: the scenario's duration has elapsed, or its last flow has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether all data of the connection with index `flow` in
    /// [`Scenario::connections`](fullpipe_experiment::Scenario::connections) has been sent and
    /// acknowledged.
    pub fn is_flow_over(&self, flow: usize) -> bool {
        self.world.flows.connections.get(flow).is_none_or(|connection| connection.is_over())
    }

    /// The controller of the connection with index `flow`, if it is a `C` and implements
    /// [`CongestionControl::as_any`].
    pub fn controller<C: 'static>(&mut self, flow: usize) -> Option<&mut C> {
        let connection = self.world.flows.connections.get_mut(flow)?;
        connection.sender.controller_mut().as_any()?.downcast_mut()
    }

    /// Processes all events up to and including `to`. Returns whether the run continues.
    ///
    /// # Errors
    /// [`SimError::TooManyEvents`], as [`Simulation::run`](super::Simulation::run).
    pub fn advance(&mut self, to: Time) -> Result<bool, SimError> {
        if !self.over {
            self.over = !self.world.advance(to, &mut |_| ControlFlow::Continue(()))?;
            self.now = self.now.max(to.min(self.world.end));
        }
        Ok(!self.over)
    }

    /// Ends the run at [`now`](Self::now), if it is not over, and returns its recording.
    pub fn finish(mut self) -> Recording {
        if !self.over {
            self.world.end = self.now;
        }
        self.world.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::Simulation;
    use fullpipe_cc::{Span, Time};
    use fullpipe_experiment::Recording;
    use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};

    fn scenario(flow: FlowSpec) -> Scenario {
        let path =
            PathSpec::bottleneck("10mbit".parse().unwrap(), "40ms".parse().unwrap(), "1bdp".parse().unwrap());
        Scenario { duration: Span::from_secs(4), ..Scenario::new(path, vec![flow]) }
    }

    #[test]
    fn the_result_does_not_depend_on_the_steps() {
        let sized = FlowSpec { size: Some("1m".parse().unwrap()), ..FlowSpec::bulk("bbr") };
        for flow in [FlowSpec::bulk("bbr"), sized] {
            let scenario = scenario(flow);
            // Compared as text: missing values are NaN, which never compares equal.
            let text = |recording| serde_json::to_string::<Recording>(&recording).unwrap();
            let whole = text(Simulation::new(&scenario, 3).run().unwrap());
            for step in [Span::from_nanos(999_999), Span::from_millis(40), Span::from_secs(9)] {
                let mut run = Simulation::new(&scenario, 3).start().unwrap();
                while run.advance(run.now() + step).unwrap() {}
                assert!(run.is_over() && !run.advance(Time::NEVER).unwrap());
                assert!(text(run.finish()) == whole, "{step}");
            }
        }
    }

    #[test]
    fn a_run_that_is_ended_early_has_the_duration_that_it_reached() {
        let scenario = scenario(FlowSpec::bulk("cubic"));
        let mut run = Simulation::new(&scenario, 1).start().unwrap();
        assert!(run.advance(Time::ZERO + Span::from_secs(1)).unwrap());
        assert_eq!(run.now(), Time::ZERO + Span::from_secs(1));
        let recording = run.finish();
        assert_eq!(recording.summary.duration_s, 1.0);
        assert!((500_000..1_250_000).contains(&recording.summary.bytes_delivered));
    }
}
