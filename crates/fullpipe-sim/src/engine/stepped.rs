//! A run whose time its caller advances.

use super::world::World;
use crate::SimError;
use fullpipe_cc::{CongestionControl, Time};
use fullpipe_experiment::recording::Recording;
use std::ops::ControlFlow;

/// A run under way ([`Simulation::start`](super::Simulation::start)). However its time is cut into steps, what happens is the same.
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
pub struct Stepped {
    world: World,
    now: Time,
    over: bool,
}

impl Stepped {
    pub(super) fn new(world: World) -> Self {
        Stepped { world, now: Time::ZERO, over: false }
    }

    /// How far it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether nothing more will happen: the scenario's time is over, or its last flow has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the connection with that place among [`Scenario::connections`](fullpipe_experiment::Scenario::connections)
    /// has sent and got acknowledged all that it had, before the end of the run.
    pub fn is_flow_over(&self, flow: usize) -> bool {
        self.world.flows.connections.get(flow).is_none_or(|connection| connection.is_over())
    }

    /// The controller of the connection with that place, if it is a `C` and gives itself away
    /// ([`CongestionControl::as_any`]).
    pub fn controller<C: 'static>(&mut self, flow: usize) -> Option<&mut C> {
        let connection = self.world.flows.connections.get_mut(flow)?;
        connection.sender.controller_mut().as_any()?.downcast_mut()
    }

    /// Does everything that happens until `to`, that moment included. Whether more is to come.
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

    /// The recording of what has happened; of a run that is not over, until [`now`](Self::now).
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
    fn steps_of_any_length_make_the_same_run() {
        let sized = FlowSpec { size: Some("1m".parse().unwrap()), ..FlowSpec::bulk("bbr") };
        for flow in [FlowSpec::bulk("bbr"), sized] {
            let scenario = scenario(flow);
            // As text: where there is no value is NaN, which equals nothing.
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
    fn what_is_ended_early_is_as_long_as_it_went() {
        let scenario = scenario(FlowSpec::bulk("cubic"));
        let mut run = Simulation::new(&scenario, 1).start().unwrap();
        assert!(run.advance(Time::ZERO + Span::from_secs(1)).unwrap());
        assert_eq!(run.now(), Time::ZERO + Span::from_secs(1));
        let recording = run.finish();
        assert_eq!(recording.summary.duration_s, 1.0);
        assert!((500_000..1_250_000).contains(&recording.summary.bytes_delivered));
    }
}
