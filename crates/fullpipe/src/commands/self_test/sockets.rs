//! The kernel's list of connections.

use super::outcome::Outcome;

#[cfg(not(feature = "live"))]
pub fn watch() -> Outcome {
    Outcome::not_built_in("live")
}

#[cfg(feature = "live")]
pub fn watch() -> Outcome {
    use fullpipe_live::{Filter, Reader};
    let everything = Filter::parse("").expect("an empty filter is valid");
    match Reader::open(everything).and_then(|mut reader| reader.sample()) {
        Ok(snapshot) => {
            let controllers: Vec<String> = snapshot
                .totals
                .iter()
                .map(|total| format!("{} {}", total.connections, total.controller))
                .collect();
            let by =
                if controllers.is_empty() { String::new() } else { format!(": {}", controllers.join(", ")) };
            let outcome = Outcome::works(format!("{} connections{by}", snapshot.connections.len()));
            // For example, only root can see the processes of other users.
            Outcome { help: (!snapshot.unseen.is_empty()).then(|| snapshot.unseen.join("; ")), ..outcome }
        }
        Err(e) => Outcome::impossible_because(e.to_string()),
    }
}
