//! What the running kernel is and offers.

mod clock;
mod config;
mod controllers;
mod namespace;
mod version;

pub use clock::ticks;
pub use config::Config;
pub use controllers::{allowed_controllers, available_controllers, default_controller};
pub use namespace::network_namespace;
pub use version::Version;
