//! The full-screen terminal view.

mod detail;
mod history;
mod list;
#[cfg(test)]
mod tests;

use crate::connection::Connection;
use crate::filter::Filter;
use crate::reader::{Reader, SampleError, Snapshot};
use crate::recorder::Recorder;
use crate::table::Order;
use history::Histories;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// State of the view.
#[derive(Debug)]
pub struct App {
    snapshot: Snapshot,
    histories: Histories,
    order: Order,
    reversed: bool,
    paused: bool,
    table: TableState,
    /// Cookie of the selected socket, since rows move.
    selected: Option<u64>,
    open: bool,
    /// The filter being typed, and its error.
    typing: Option<(String, Option<String>)>,
    filter: String,
    colour: bool,
}

/// The action that a key requests.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Redraw.
    Redraw,
    /// Quit.
    Quit,
    /// Apply another filter.
    Filter(Filter),
}

impl App {
    /// An empty view; `filter` is the text of the current filter.
    pub fn new(filter: String, colour: bool) -> App {
        let empty = Snapshot {
            schema: crate::SCHEMA,
            unix_s: 0.0,
            t_s: 0.0,
            complete: true,
            unseen: Vec::new(),
            totals: Vec::new(),
            connections: Vec::new(),
        };
        App {
            snapshot: empty,
            histories: Histories::default(),
            order: Order::default(),
            reversed: false,
            paused: false,
            table: TableState::default(),
            selected: None,
            open: false,
            typing: None,
            filter,
            colour,
        }
    }

    /// Shows a new sample, unless paused.
    pub fn update(&mut self, snapshot: Snapshot) {
        if self.paused {
            return;
        }
        self.snapshot = snapshot;
        self.sort();
        self.histories.add(&self.snapshot, self.selected);
    }

    /// Frees the current sample before the next one is taken, so that a large host's connections
    /// are not in memory twice. The terminal keeps its contents.
    pub fn release_snapshot(&mut self) {
        if !self.paused {
            self.snapshot.connections = Vec::new();
        }
    }

    fn sort(&mut self) {
        self.order.sort(&mut self.snapshot.connections, self.reversed);
        let row = |cookie| self.snapshot.connections.iter().position(|c| c.cookie == cookie);
        let at = self.selected.and_then(row);
        if self.selected.is_some() && at.is_none() && !self.open {
            self.selected = None;
        }
        self.table.select(at);
    }

    fn selected_connection(&self) -> Option<&Connection> {
        self.snapshot.connections.iter().find(|c| Some(c.cookie) == self.selected)
    }

    fn move_selection(&mut self, to: impl Fn(usize) -> usize) {
        let Some(last) = self.snapshot.connections.len().checked_sub(1) else { return };
        // Without a selection, the first step down selects the first row.
        let at = match self.table.selected() {
            Some(at) => to(at),
            None => to(0).saturating_sub(1),
        }
        .min(last);
        self.selected = self.snapshot.connections.get(at).map(|c| c.cookie);
        self.table.select(Some(at));
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Redraw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.typing.is_some() {
            return self.edit_filter(key.code);
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc if !self.open => return Action::Quit,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.open = false,
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(|at| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(|at| at.saturating_sub(1)),
            KeyCode::PageDown => self.move_selection(|at| at.saturating_add(20)),
            KeyCode::PageUp => self.move_selection(|at| at.saturating_sub(20)),
            KeyCode::Home | KeyCode::Char('g') => self.move_selection(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.move_selection(|_| usize::MAX),
            KeyCode::Enter | KeyCode::Right => {
                if self.selected.is_none() {
                    self.move_selection(|at| at);
                }
                self.open = self.selected.is_some();
            }
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
            }
            KeyCode::Char('r') => {
                self.reversed = !self.reversed;
                self.sort();
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/' | 'f') => self.typing = Some((self.filter.clone(), None)),
            _ => {}
        }
        Action::Redraw
    }

    fn edit_filter(&mut self, code: KeyCode) -> Action {
        let Some((text, error)) = &mut self.typing else { return Action::Redraw };
        match code {
            KeyCode::Esc => self.typing = None,
            KeyCode::Backspace => {
                text.pop();
                *error = None;
            }
            KeyCode::Char(c) => {
                text.push(c);
                *error = None;
            }
            KeyCode::Enter => match Filter::parse(text) {
                Ok(filter) => {
                    self.filter = std::mem::take(text);
                    self.typing = None;
                    return Action::Filter(filter);
                }
                Err(e) => *error = Some(e.one_line()),
            },
            _ => {}
        }
        Action::Redraw
    }

    /// Draws the view at any size.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        if self.open {
            detail::draw(self, frame);
        } else {
            list::draw(self, frame);
        }
    }
}

/// Shows samples of `reader` until the user quits or `should_stop` returns true; `recorder`
/// receives each sample.
///
/// # Errors
/// When the terminal is closed or sampling fails. The terminal is restored in any case.
pub fn run(
    reader: &mut Reader,
    filter: String,
    interval: Duration,
    colour: bool,
    mut recorder: Option<&mut Recorder>,
    should_stop: &dyn Fn() -> bool,
) -> Result<(), ViewError> {
    let mut app = App::new(filter, colour);
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let outcome = (|| {
        let mut next = Instant::now();
        while !should_stop() {
            if Instant::now() >= next {
                app.release_snapshot();
                let snapshot = reader.sample()?;
                if let Some(recorder) = recorder.as_deref_mut() {
                    recorder.add(&snapshot);
                }
                app.update(snapshot);
                // After a sample that took longer than the interval, still wait for one interval.
                next = Instant::now() + interval;
            }
            terminal.draw(|frame| app.draw(frame))?;
            // Short, because `should_stop` is checked between waits.
            let wait = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(250));
            if !wait_for_input(wait)? {
                continue;
            }
            while event::poll(Duration::ZERO)? {
                let Event::Key(key) = event::read()? else { continue };
                match app.handle_key(key) {
                    Action::Quit => return Ok(()),
                    Action::Filter(filter) => {
                        reader.set_filter(filter);
                        next = Instant::now();
                    }
                    Action::Redraw => {}
                }
            }
        }
        Ok(())
    })();
    let restored = ratatui::try_restore();
    outcome.and(restored.map_err(ViewError::Terminal))
}

/// Waits for input; true if there is some. `event::poll` is not used for waiting: on a closed
/// terminal without SIGHUP (nohup) it would read end-of-file forever.
fn wait_for_input(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let millis = u16::try_from(wait.as_millis()).unwrap_or(u16::MAX);
    match poll(&mut fds, PollTimeout::from(millis)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(e) => return Err(e.into()),
    }
    let events = fds[0].revents().unwrap_or(PollFlags::empty());
    if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed"));
    }
    Ok(events.contains(PollFlags::POLLIN))
}

/// An error that ended the view.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The terminal is unusable or closed.
    #[error("cannot use the terminal: {0}; `fullpipe watch --once` needs none")]
    Terminal(#[from] io::Error),
    /// Sampling failed.
    #[error(transparent)]
    Sample(#[from] SampleError),
}
