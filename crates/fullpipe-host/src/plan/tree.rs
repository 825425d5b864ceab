//! A device's queueing disciplines: reading, replacing and restoring them.

use super::step_state::StepState;
use crate::host::Host;
use crate::net::{QdiscNode, QdiscOperation, ROOT};
use serde::{Deserialize, Serialize};
use std::io;

/// A device's queueing disciplines, root first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tree(pub Vec<QdiscNode>);

/// Upper half of the handle of ingress and clsact.
const INGRESS: u32 = 0xffff_0000;

/// Handle `fb00:` of roots that fullpipe creates, which identifies them.
const OUR_HANDLE: u32 = 0xfb00_0000;

impl Tree {
    /// The tree of `device` without statistics, ingress and clsact.
    pub fn of_device(all: &[QdiscNode], device: &str) -> Tree {
        let mut nodes: Vec<QdiscNode> = all
            .iter()
            .filter(|n| n.device == device && n.handle & INGRESS != INGRESS)
            .map(|n| QdiscNode { drops: 0, flows_plimit: None, ..n.clone() })
            .collect();
        nodes.sort_by_key(|n| (n.parent != ROOT, n.parent));
        Tree(nodes)
    }

    /// The root.
    pub fn root(&self) -> Option<&QdiscNode> {
        self.0.first().filter(|n| n.parent == ROOT)
    }

    /// Whether it is the kernel's default tree.
    pub fn is_default(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|n| n.handle == 0)
    }

    /// The disciplines that hold packets: the root, or one for each queue below mq.
    pub fn leaves(&self) -> &[QdiscNode] {
        match self.root() {
            Some(root) if root.kind == "mq" => &self.0[1..],
            _ => &self.0,
        }
    }

    /// The kind of all leaves, if the tree is plain: a classless root, or mq with classless leaves.
    pub fn plain_kind(&self) -> Option<&str> {
        const CLASSLESS: [&str; 11] = [
            "fq",
            "fq_codel",
            "fq_pie",
            "cake",
            "pfifo_fast",
            "pfifo",
            "bfifo",
            "sfq",
            "pie",
            "codel",
            "noqueue",
        ];
        let leaves = self.leaves();
        let first = leaves.first()?.kind.as_str();
        let plain = CLASSLESS.contains(&first)
            && leaves.iter().all(|l| l.kind == first)
            && (self.0.len() == 1 || leaves.len() == self.0.len() - 1);
        plain.then_some(first)
    }

    /// One line, in the terms of `tc`.
    pub fn describe(&self) -> String {
        let Some(root) = self.root() else { return "none".into() };
        let by = if root.handle == 0 { ", the kernel's default" } else { "" };
        match self.plain_kind() {
            Some(kind) if root.kind == "mq" => format!("mq with {} × {kind}{by}", self.leaves().len()),
            Some(kind) => format!("{kind}{by}"),
            None => {
                let kinds: Vec<&str> = self.0.iter().map(|n| n.kind.as_str()).collect();
                kinds.join(" / ")
            }
        }
    }
    /// The current tree of a device.
    fn now(host: &dyn Host, device: &str) -> io::Result<Tree> {
        Ok(Tree::of_device(&host.qdiscs()?, device))
    }

    /// State of a device that had this tree and should get leaves of kind `after`.
    ///
    /// # Errors
    /// The disciplines cannot be read.
    pub(super) fn state(&self, host: &dyn Host, device: &str, after: &str) -> io::Result<StepState> {
        let now = Tree::now(host, device)?;
        let ours = now.root().is_some_and(|r| r.handle == OUR_HANDLE);
        let old = self.leaves().first().map(|l| &l.kind);
        Ok(if now.0.is_empty() {
            StepState::Gone
        } else if now == *self {
            StepState::Before
        } else if now.plain_kind() == Some(after) {
            StepState::After
        } else if ours && now.leaves().iter().all(|l| l.kind == after || Some(&l.kind) == old) {
            StepState::Partial
        } else {
            StepState::Other(now.describe())
        })
    }

    /// Replaces this tree's leaves with the kind `after`.
    ///
    /// # Errors
    /// From the kernel.
    pub(super) fn replace(&self, host: &dyn Host, device: &str, after: &str) -> io::Result<()> {
        let replace = |parent, handle, kind: &str| {
            host.change_qdisc(&QdiscOperation::Replace {
                device: device.to_owned(),
                parent,
                handle,
                kind: kind.to_owned(),
                options: String::new(),
            })
        };
        if self.root().is_none_or(|r| r.kind != "mq") {
            return replace(ROOT, OUR_HANDLE, after);
        }
        // Classes of the default mq (handle 0) cannot be addressed, so it is replaced by one with a handle.
        if Tree::now(host, device)?.root().is_none_or(|r| r.handle != OUR_HANDLE) {
            replace(ROOT, OUR_HANDLE, "mq")?;
        }
        self.leaves().iter().try_for_each(|leaf| replace(OUR_HANDLE | (leaf.parent & 0xffff), 0, after))
    }

    /// Restores this tree.
    ///
    /// # Errors
    /// From the kernel.
    pub(super) fn restore(&self, host: &dyn Host, device: &str) -> io::Result<()> {
        if self.is_default() {
            return self.restore_default(host, device);
        }
        self.0.iter().try_for_each(|node| {
            // The kernel creates the default leaves (without a handle) of a new mq.
            if node.handle == 0 && Tree::now(host, device)?.0.contains(node) {
                return Ok(());
            }
            host.change_qdisc(&QdiscOperation::Replace {
                device: device.to_owned(),
                parent: node.parent,
                handle: node.handle,
                kind: node.kind.clone(),
                options: node.options.clone(),
            })
        })
    }

    /// Restores a default tree: the kernel creates it from the current default_qdisc.
    fn restore_default(&self, host: &dyn Host, device: &str) -> io::Result<()> {
        const DEFAULT: &str = "net.core.default_qdisc";
        let kind = self.leaves().first().map_or("", |l| l.kind.as_str());
        if host.sysctl(DEFAULT).is_some_and(|now| now != kind) {
            host.set_sysctl(DEFAULT, kind)?;
        }
        // After a restart the tree is a default one of our kind, which the kernel does not delete.
        if Tree::now(host, device)?.is_default() {
            let mq = self.root().is_some_and(|r| r.kind == "mq");
            host.change_qdisc(&QdiscOperation::Replace {
                device: device.to_owned(),
                parent: ROOT,
                handle: OUR_HANDLE,
                kind: if mq { "mq" } else { kind }.to_owned(),
                options: String::new(),
            })?;
        }
        host.change_qdisc(&QdiscOperation::DeleteRoot { device: device.to_owned() })
    }
}
