//! `fullpipe probe check`: the schedule of a mesh file.

use crate::failure::Failure;
use crate::print::prose;
use fullpipe_experiment::format_number::significant;
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::schedule::Schedule;
use fullpipe_units::{Bytes, Rate};
use std::fmt::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// The mesh file
    #[arg(value_name = "MESH", value_hint = clap::ValueHint::FilePath)]
    mesh: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let mesh = super::read(&self.mesh)?;
        prose(&schedule_text(&mesh));
        let short = mesh.sites.iter().filter(|s| s.budget < mesh.planned_bytes_per_day());
        let short: Vec<&str> = short.map(|s| s.name.as_str()).collect();
        if short.is_empty() {
            return Ok(());
        }
        Err(Failure::Check(format!(
            "the budget of {} is below the scheduled {}: transfers are skipped once it is used up; \
             increase `period` or \
             `budget`, or decrease `size`",
            short.join(", "),
            gigabytes(mesh.planned_bytes_per_day())
        )))
    }
}

fn gigabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB/day", bytes as f64 / 1e6),
        _ => format!("{:.1} GB/day", bytes as f64 / 1e9),
    }
}

fn schedule_text(mesh: &Mesh) -> String {
    let schedule = Schedule::new(mesh);
    let mut out = String::new();
    let pairs = mesh.sites.len() * (mesh.sites.len() - 1);
    let _ = writeln!(
        out,
        "{}: {} sites, {pairs} directed pairs; {} of each by {} every {}",
        mesh.name,
        mesh.sites.len(),
        Bytes(mesh.size),
        mesh.controllers.join(", "),
        mesh.period
    );
    let width = mesh.sites.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let _ =
        writeln!(out, "\nscheduled per site: {}, sent and received", gigabytes(mesh.planned_bytes_per_day()));
    let fits = schedule.min_rate(mesh.size);
    for site in &mesh.sites {
        let slow = match site.rate {
            Some(rate) if rate < fits => "; its link is too slow for its slots, transfers will queue",
            _ => "",
        };
        let _ = writeln!(
            out,
            "  {:width$}  {} port {}, at most {}{slow}",
            site.name,
            site.address,
            site.port,
            gigabytes(site.budget)
        );
    }
    let _ = writeln!(
        out,
        "\nslots of {:.3} s: transfers fit from {:.1} Mbit/s on, slower ones queue; time limit per \
         transfer {} s",
        schedule.slot_length().as_secs_f64(),
        to_mbit(fits),
        significant(mesh.limit.as_secs_f64(), 3)
    );
    // Controllers alternate between even and odd periods; the even ones are shown.
    for slot in schedule.slots(0) {
        let name = |id: u16| &mesh.sites[usize::from(id)].name;
        let _ = writeln!(
            out,
            "  {:>9.3} s  {:width$} -> {:width$}  {}",
            slot.start.as_secs_f64(),
            name(slot.pair.from),
            name(slot.pair.to),
            mesh.controllers[usize::from(slot.controller)]
        );
    }
    out
}

fn to_mbit(rate: Rate) -> f64 {
    rate.as_bits_per_sec_f64() / 1e6
}
