//! A program as a controller of the simulated transport.

use super::Session;
use super::answer::Values;
use super::child::{Child, End, Fault};
use super::failure::ProgramError;
use super::message::Message;
use crate::programs::Command;
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::sync::Arc;

/// A controller that asks its program at every event. After a failure it keeps its last values: the
/// run is about to stop.
pub(super) struct ProgramController {
    // The transport reads values by shared reference, and a read may have to ask first.
    state: RefCell<State>,
}

struct State {
    child: Option<Child>,
    values: Values,
    /// Something happened since the last answer that may have changed the values.
    outdated: bool,
    now: Time,
    flow: usize,
    cc: String,
    session: Arc<Session>,
}

impl ProgramController {
    /// Starts the program and waits for its first answer.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn start(
        command: &Command,
        flow: usize,
        cc: &str,
        config: &Config,
        settings: &[(&str, &str)],
        session: Arc<Session>,
    ) -> Result<Self, String> {
        let child = Child::start(command, &session.limits).map_err(|e| {
            let program = command.program.escape_debug();
            match e.kind() {
                ErrorKind::NotFound => format!(
                    "cannot start `{program}`: no such file, or its interpreter is missing\n  help: write \
                     the path of a program, such as `exec:./mycc`, or the name of one in PATH"
                ),
                ErrorKind::PermissionDenied => format!("cannot start `{program}`: not an executable file"),
                _ => format!("cannot start `{program}`: {e}"),
            }
        })?;
        let mut state = State {
            child: Some(child),
            values: Values::new(config.initial_cwnd),
            outdated: false,
            now: Time::ZERO,
            flow,
            cc: cc.to_owned(),
            session,
        };
        let greeting = Message::init(flow, config, settings);
        let answer_timeout = state.session.limits.answer;
        let greeted = state.exchange(&greeting).and_then(|()| match &mut state.child {
            Some(child) => child.set_timeout(answer_timeout),
            None => Ok(()),
        });
        if let Err(fault) = greeted {
            return Err(state.error(fault).map_or_else(String::new, |error| error.without_place()));
        }
        Ok(ProgramController { state: RefCell::new(state) })
    }

    /// The values, after asking for them if they are outdated.
    fn values<R>(&self, read: impl FnOnce(&Values) -> R) -> R {
        let mut state = self.state.borrow_mut();
        if state.outdated {
            let question = Message::ask(state.now);
            state.ask(&question);
        }
        read(&state.values)
    }
}

impl State {
    /// Writes a message that needs no answer.
    fn push(&mut self, message: &Message) {
        if self.session.is_stopped() {
            return;
        }
        if let Some(Err(fault)) = self.child.as_mut().map(|child| child.push(message)) {
            self.fail(fault);
        }
    }

    /// Writes a message and takes the answer.
    fn ask(&mut self, message: &Message) {
        self.outdated = false;
        if self.session.is_stopped() {
            return;
        }
        if let Err(fault) = self.exchange(message) {
            self.fail(fault);
        }
    }

    fn exchange(&mut self, message: &Message) -> Result<(), Fault> {
        let State { child: Some(child), values, .. } = self else { return Ok(()) };
        child.ask(message, |line| values.update(line))
    }

    /// Ends the program and describes its failure; `None` if it has ended before.
    fn error(&mut self, fault: Fault) -> Option<ProgramError> {
        // What has closed its output is probably about to exit.
        let exits = matches!(fault, Fault::Closed);
        let end = self.child.take()?.end(exits);
        Some(self.described(fault, &end))
    }

    fn described(&self, fault: Fault, end: &End) -> ProgramError {
        ProgramError::new(&self.cc, self.flow, self.now.since(Time::ZERO), fault, end)
    }

    fn fail(&mut self, fault: Fault) {
        if let Some(error) = self.error(fault) {
            self.session.fail(error);
        }
    }
}

impl Drop for State {
    /// Ends the program.
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        if self.session.is_stopped() {
            child.end(false);
        } else if let Err((fault, end)) = child.close() {
            let error = self.described(fault, &end);
            self.session.fail(error);
        }
    }
}

impl CongestionControl for ProgramController {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        let state = self.state.get_mut();
        state.now = now;
        state.ask(&Message::handshake(now, rtt));
    }

    fn on_send(&mut self, sent: &Sent) {
        let state = self.state.get_mut();
        state.now = sent.now;
        if state.values.sent {
            // A controller may change its rate when an idle connection restarts.
            state.outdated |= sent.inflight == 0;
            state.push(&Message::sent(sent));
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        let state = self.state.get_mut();
        state.now = lost.now;
        state.outdated = true;
        state.push(&Message::lost(lost));
    }

    fn on_ack(&mut self, ack: &Ack) {
        let state = self.state.get_mut();
        state.now = ack.now;
        state.ask(&Message::acked(ack));
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        let state = self.state.get_mut();
        state.now = context.now;
        if let Some(message) = Message::recovery(event, context) {
            state.ask(&message);
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        let state = self.state.get_mut();
        let message = Message::mtu(state.now, smss);
        state.ask(&message);
    }

    fn cwnd(&self) -> u64 {
        self.values(|values| values.snapshot.cwnd)
    }

    fn ssthresh(&self) -> u64 {
        self.values(|values| values.snapshot.ssthresh.unwrap_or(u64::MAX))
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.values(|values| values.snapshot.pacing_rate)
    }

    fn send_quantum(&self) -> u64 {
        self.values(|values| values.quantum)
    }

    fn uses_prr(&self) -> bool {
        self.values(|values| values.prr)
    }

    fn claims_ecn(&self) -> bool {
        self.values(|values| values.ecn)
    }

    fn marks_app_limited(&self) -> bool {
        self.values(|values| values.app_limited)
    }

    fn snapshot(&self) -> Snapshot {
        self.values(|values| values.snapshot)
    }

    fn state(&self) -> &'static str {
        self.values(|values| values.snapshot.state)
    }
}
