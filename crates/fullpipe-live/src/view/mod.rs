//! The live view of a terminal.

mod detail;
mod history;
mod list;
#[cfg(test)]
mod tests;

use crate::connection::Connection;
use crate::filter::Filter;
use crate::reader::{LookError, Reader, Snapshot};
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

/// What the view shows, and what is selected in it.
#[derive(Debug)]
pub struct App {
    snapshot: Snapshot,
    histories: Histories,
    order: Order,
    reversed: bool,
    paused: bool,
    table: TableState,
    /// The socket's cookie: rows move.
    selected: Option<u64>,
    open: bool,
    /// What is being typed as a filter, and why it cannot be read.
    typing: Option<(String, Option<String>)>,
    filter: String,
    colour: bool,
}

/// What a key asks of who runs the view.
#[derive(Clone, PartialEq, Debug)]
pub enum Wish {
    /// Nothing but to draw.
    Draw,
    /// To end.
    Quit,
    /// To look at something else.
    Filter(Filter),
}

impl App {
    /// Shows nothing yet; `filter` is what is looked at, as it was typed.
    pub fn new(filter: String, colour: bool) -> App {
        let nothing = Snapshot {
            schema: crate::SCHEMA,
            unix_s: 0.0,
            t_s: 0.0,
            complete: true,
            unseen: Vec::new(),
            totals: Vec::new(),
            connections: Vec::new(),
        };
        App {
            snapshot: nothing,
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

    /// Takes a look over, unless the picture is held.
    pub fn update(&mut self, snapshot: Snapshot) {
        if self.paused {
            return;
        }
        self.snapshot = snapshot;
        self.sort();
        self.histories.add(&self.snapshot, self.selected);
    }

    /// Lets go of the connections that are shown, before those of the next look come: a large host's are many, and twice as
    /// many need not be kept. The picture on the terminal stays.
    pub fn make_room(&mut self) {
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

    fn chosen(&self) -> Option<&Connection> {
        self.snapshot.connections.iter().find(|c| Some(c.cookie) == self.selected)
    }

    fn go(&mut self, to: impl Fn(usize) -> usize) {
        let Some(last) = self.snapshot.connections.len().checked_sub(1) else { return };
        // With none selected the first step down is to the first row.
        let at = match self.table.selected() {
            Some(at) => to(at),
            None => to(0).saturating_sub(1),
        }
        .min(last);
        self.selected = self.snapshot.connections.get(at).map(|c| c.cookie);
        self.table.select(Some(at));
    }

    /// Obeys a key.
    pub fn key(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Wish::Quit;
        }
        if self.typing.is_some() {
            return self.typed(key.code);
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if !self.open => return Wish::Quit,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.open = false,
            KeyCode::Down | KeyCode::Char('j') => self.go(|at| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at| at.saturating_sub(1)),
            KeyCode::PageDown => self.go(|at| at.saturating_add(20)),
            KeyCode::PageUp => self.go(|at| at.saturating_sub(20)),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_| usize::MAX),
            KeyCode::Enter | KeyCode::Right => {
                if self.selected.is_none() {
                    self.go(|at| at);
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
        Wish::Draw
    }

    fn typed(&mut self, code: KeyCode) -> Wish {
        let Some((text, wrong)) = &mut self.typing else { return Wish::Draw };
        match code {
            KeyCode::Esc => self.typing = None,
            KeyCode::Backspace => {
                text.pop();
                *wrong = None;
            }
            KeyCode::Char(c) => {
                text.push(c);
                *wrong = None;
            }
            KeyCode::Enter => match Filter::parse(text) {
                Ok(filter) => {
                    self.filter = std::mem::take(text);
                    self.typing = None;
                    return Wish::Filter(filter);
                }
                Err(e) => *wrong = Some(e.in_short()),
            },
            _ => {}
        }
        Wish::Draw
    }

    /// Draws it, whatever the size.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        if self.open {
            detail::draw(self, frame);
        } else {
            list::draw(self, frame);
        }
    }
}

/// Shows what `reader` sees until the user or `asked_to_end` wants it to end; each look is also kept by `recorder`.
///
/// # Errors
/// When the terminal is gone, or the kernel does not answer any more. The terminal is as it was before in any case.
pub fn run(
    reader: &mut Reader,
    filter: String,
    every: Duration,
    colour: bool,
    mut recorder: Option<&mut Recorder>,
    asked_to_end: &dyn Fn() -> bool,
) -> Result<(), ViewError> {
    let mut app = App::new(filter, colour);
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let outcome = (|| {
        let mut next = Instant::now();
        while !asked_to_end() {
            if Instant::now() >= next {
                app.make_room();
                let snapshot = reader.look()?;
                if let Some(recorder) = recorder.as_deref_mut() {
                    recorder.add(&snapshot);
                }
                app.update(snapshot);
                // A look that took longer than the time between two must not be followed by another at once.
                next = Instant::now() + every;
            }
            terminal.draw(|frame| app.draw(frame))?;
            // Short: signals are seen between two waits.
            let wait = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(250));
            if !typed_within(wait)? {
                continue;
            }
            while event::poll(Duration::ZERO)? {
                let Event::Key(key) = event::read()? else { continue };
                match app.key(key) {
                    Wish::Quit => return Ok(()),
                    Wish::Filter(filter) => {
                        reader.set_filter(filter);
                        next = Instant::now();
                    }
                    Wish::Draw => {}
                }
            }
        }
        Ok(())
    })();
    let restored = ratatui::try_restore();
    outcome.and(restored.map_err(ViewError::Terminal))
}

/// Whether something was typed. `event::poll` is not asked to wait: where the terminal is gone and nobody says so by SIGHUP
/// (nohup), it would read the end of it for ever.
fn typed_within(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let millis = u16::try_from(wait.as_millis()).unwrap_or(u16::MAX);
    match poll(&mut asked, PollTimeout::from(millis)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(e) => return Err(e.into()),
    }
    let told = asked[0].revents().unwrap_or(PollFlags::empty());
    if told.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is gone"));
    }
    Ok(told.contains(PollFlags::POLLIN))
}

/// Why the view ended.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The terminal cannot be used, or is gone.
    #[error("the terminal cannot be used: {0}; `fullpipe watch --once` needs none")]
    Terminal(#[from] io::Error),
    /// The kernel does not answer.
    #[error(transparent)]
    Look(#[from] LookError),
}
