//! Distributes the events of a file to its connections.

use super::connection::Recorder;
use super::event::Event;
use super::header::{Header, controller};
use super::value::MAX_NAME;
use fullpipe_experiment::connection::{EventCount, LogFile};
use fullpipe_units::Time;
use serde_json::Value;
use std::collections::HashMap;

/// Connections of a file that are analysed; others are counted.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// Traces of a file that are read.
const MAX_TRACES: usize = 1 << 16;
/// Different event names that are counted one by one.
const MAX_NAMES: usize = 256;
/// Longest time between the first and the last event of a trace: ten years.
const MAX_MS: f64 = 3.2e11;
/// Relative times from this on are dates, and count from the first event.
const MAX_RELATIVE_MS: f64 = 86_400_000.0;

/// What a pass over a file finds.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) file: LogFile,
    names: HashMap<String, u64>,
    /// The headers of the traces, as complete as they are by now.
    pub(super) headers: Vec<Header>,
    /// Those of a first pass.
    known: Vec<Header>,
    /// Whether events preceded the header that they need: the file has to be read again.
    pub(super) is_misread: bool,
    clock: Clock,
    connections: HashMap<(usize, Option<String>), usize>,
    pub(super) recorders: Vec<Recorder>,
    unlisted: HashMap<(usize, Option<String>), ()>,
}

/// The clock of the current trace.
#[derive(Default)]
struct Clock {
    /// The header that the events are read with.
    used: Option<Header>,
    now_ms: f64,
    zero_ms: Option<f64>,
}

impl Builder {
    /// A pass that knows the headers of all traces from an earlier one.
    pub(super) fn with_headers(known: Vec<Header>) -> Self {
        Builder { known, ..Builder::default() }
    }

    /// Whether another trace can be read.
    pub(super) fn begin_trace(&mut self) -> bool {
        if self.headers.len() >= MAX_TRACES {
            return false;
        }
        self.headers.push(self.known.get(self.headers.len()).cloned().unwrap_or_default());
        self.clock = Clock::default();
        true
    }

    /// A field of the current trace.
    pub(super) fn add_field(&mut self, name: &str, content: &Value) {
        let Some(header) = self.headers.last_mut() else { return };
        header.add(name, content);
        let agrees = |used: &Header| {
            // A date counts from the first event whatever its format.
            header.agrees(used)
                && (header.is_absolute() == used.is_absolute() || self.clock.zero_ms != Some(0.0))
        };
        if self.clock.used.as_ref().is_some_and(|used| !agrees(used)) {
            self.is_misread = true;
        }
    }

    /// An event of the current trace.
    pub(super) fn add_event(&mut self, content: Value) {
        let Some(header) = self.headers.last() else { return };
        let trace = self.headers.len() - 1;
        self.file.events += 1;
        let used = self.clock.used.get_or_insert_with(|| header.clone());
        let Some(event) = Event::new(content, used) else {
            self.file.malformed += 1;
            return;
        };
        count_name(&mut self.names, &event.name);
        let ms = event.time * used.scale();
        let now = if event.is_delta.unwrap_or_else(|| used.is_delta()) { self.clock.now_ms + ms } else { ms };
        let is_relative = !used.is_absolute() && (0.0..MAX_RELATIVE_MS).contains(&now);
        let zero = *self.clock.zero_ms.get_or_insert(if is_relative { 0.0 } else { now });
        if (now - zero).abs() > MAX_MS {
            self.file.implausible += 1;
            return;
        }
        self.clock.now_ms = now;
        if now < zero {
            self.file.out_of_order += 1;
        }
        let at = Time::from_nanos(((now - zero).max(0.0) * 1e6).round() as u64);
        let key = (trace, event.group.clone().or_else(|| header.group.clone()));
        let index = match self.connections.get(&key) {
            Some(index) => *index,
            None if self.recorders.len() >= MAX_CONNECTIONS => {
                if self.unlisted.len() < MAX_TRACES {
                    self.unlisted.insert(key, ());
                }
                return;
            }
            None => {
                let index = self.recorders.len();
                self.recorders.push(Recorder::new(index, trace, key.1.clone(), header.date_s(now), at));
                self.connections.insert(key, index);
                index
            }
        };
        let scale = used.scale();
        if let Some(recorder) = self.recorders.get_mut(index) {
            if recorder.controller.is_none() {
                recorder.controller = controller(&event.data);
            }
            recorder.add(&event, at, scale, &mut self.file);
        }
    }

    /// Connections that are not analysed.
    pub(super) fn unlisted(&self) -> u64 {
        self.unlisted.len() as u64
    }

    /// The counts of the file, complete.
    pub(super) fn take_file(&mut self) -> LogFile {
        let mut names: Vec<EventCount> =
            self.names.drain().map(|(name, count)| EventCount { name, count }).collect();
        names.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        self.file.names = names;
        std::mem::take(&mut self.file)
    }
}

fn count_name(names: &mut HashMap<String, u64>, name: &str) {
    if let Some(count) = names.get_mut(name) {
        *count += 1;
    } else {
        let name = if names.len() < MAX_NAMES { name } else { "others" };
        debug_assert!(name.len() <= 4 * (2 * MAX_NAME + 1));
        *names.entry(name.to_owned()).or_default() += 1;
    }
}

impl Builder {
    /// A field of the file.
    pub(super) fn add_file_field(&mut self, name: &str, content: &Value) {
        let Value::String(text) = content else { return };
        let text = super::value::name(text);
        match name {
            "qlog_version" => self.file.version = text,
            // From version 0.4 on, this replaces the version.
            "file_schema" if self.file.version.is_empty() => self.file.version = text,
            _ => {}
        }
    }

    /// A record of a sequence: the header of a trace, or an event.
    pub(super) fn add_record(&mut self, content: Value) {
        let header = match &content {
            Value::Object(o) => {
                ["trace", "qlog_version", "file_schema"].iter().any(|key| o.contains_key(*key))
            }
            _ => false,
        };
        match content {
            Value::Object(mut o) if header => {
                for key in ["qlog_version", "file_schema"] {
                    if let Some(content) = o.get(key) {
                        self.add_file_field(key, content);
                    }
                }
                if self.begin_trace()
                    && let Some(Value::Object(trace)) = o.remove("trace")
                {
                    trace.iter().for_each(|(name, content)| self.add_field(name, content));
                }
            }
            other => {
                // Without a header, the defaults apply.
                if self.headers.is_empty() {
                    self.begin_trace();
                }
                self.add_event(other);
            }
        }
    }
}
