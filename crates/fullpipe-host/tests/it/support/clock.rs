//! A clock that advances only on request.

use fullpipe_host::host::Clock;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct TestClock {
    boot: Rc<RefCell<String>>,
    now: Rc<Cell<Duration>>,
}

impl TestClock {
    pub fn advance(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    pub fn restart(&self) {
        *self.boot.borrow_mut() += "+";
        self.now.set(Duration::ZERO);
    }
}

impl Clock for TestClock {
    fn boot(&self) -> String {
        self.boot.borrow().clone()
    }
    fn since_boot(&self) -> Duration {
        self.now.get()
    }
}
