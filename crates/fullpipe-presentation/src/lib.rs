//! How fullpipe's reports look: number formats, one colour per controller, pictures as SVG and PNG,
//! and the frame of self-contained HTML pages. The crate knows no recordings.
//!
//! ```
//! use fullpipe_presentation::numbers::rate;
//! use fullpipe_presentation::page::{About, write_page};
//!
//! let about = About { title: "One link".into(), ..About::default() };
//! let mut page = Vec::new();
//! write_page(&about, "", &format!("<p>It carried {}.</p>", rate(92.4e6)), &mut page).unwrap();
//! assert!(String::from_utf8(page).unwrap().contains("It carried 92.4 Mbit/s."));
//! ```
#![forbid(unsafe_code)]

pub mod numbers;
pub mod page;
pub mod palette;
pub mod picture;
