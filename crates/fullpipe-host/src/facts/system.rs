//! Systems with their own method to change settings or kernels.

use super::{Scope, is_wsl};
use crate::host::{Host, Identity, View};
use crate::os_release::distribution;

/// A system whose settings are not kept in /etc/sysctl.d, or whose kernel is not a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// ostree: rpm-ostree, bootc, Fedora Atomic desktops and CoreOS.
    Ostree,
    /// NixOS: files in /etc come from its configuration.
    NixOs,
    /// GNU Guix System.
    Guix,
    /// OpenWrt.
    OpenWrt,
    /// Talos Linux.
    Talos,
    /// Flatcar Container Linux.
    Flatcar,
    /// Proxmox VE.
    Proxmox,
    /// Unraid, whose root file system is in memory.
    Unraid,
    /// WSL.
    Wsl,
    /// A pod of Kubernetes.
    Pod,
    /// Another container.
    Container,
}

impl System {
    /// Detects the system.
    pub fn detect(host: &dyn Host, identity: &Identity, scope: &Scope) -> Option<System> {
        let environ = host.text("/proc/1/environ").unwrap_or_default();
        if host.exists("/var/run/secrets/kubernetes.io") || environ.contains("KUBERNETES_SERVICE_HOST=") {
            return Some(System::Pod);
        }
        if is_wsl(identity) {
            return Some(System::Wsl);
        }
        if scope.container.is_some() {
            return Some(System::Container);
        }
        System::of_files(host)
    }

    /// By the files of a host or an image.
    fn of_files(view: &dyn View) -> Option<System> {
        if view.exists("/run/ostree-booted") || view.exists("/ostree/repo") {
            return Some(System::Ostree);
        }
        if view.exists("/etc/pve") || view.exists("/usr/bin/pveversion") {
            return Some(System::Proxmox);
        }
        if view.exists("/etc/unraid-version") {
            return Some(System::Unraid);
        }
        match distribution(view, "ID")?.as_str() {
            "nixos" => Some(System::NixOs),
            "guix" => Some(System::Guix),
            "openwrt" => Some(System::OpenWrt),
            "talos" => Some(System::Talos),
            "flatcar" | "coreos" => Some(System::Flatcar),
            _ => None,
        }
    }

    /// How another kernel is booted there, as an imperative.
    pub fn way_to_another_kernel(self) -> &'static str {
        match self {
            System::Ostree => {
                "this is an ostree system, which boots the kernel of its deployment: use `rpm-ostree \
                 override replace` with the kernel's packages, or build an image with another kernel \
                 and `bootc switch` to it"
            }
            System::NixOs => {
                "set boot.kernelPackages in /etc/nixos/configuration.nix, then `nixos-rebuild boot`"
            }
            System::Guix => "set kernel in the operating-system declaration, then `guix system reconfigure`",
            System::OpenWrt => {
                "OpenWrt's kernel is part of its firmware: flash an image with another kernel by `sysupgrade`"
            }
            System::Talos => "upgrade to a release of Talos with another kernel: `talosctl upgrade`",
            System::Flatcar => {
                "update to a release of Flatcar with another kernel: `update_engine_client -update`"
            }
            System::Proxmox => {
                "install a proxmox-kernel package, and select it with `proxmox-boot-tool kernel pin`"
            }
            System::Unraid => "update Unraid: its kernel is part of the release on the flash drive",
            System::Wsl => {
                "the kernel of WSL comes with Windows: use `wsl --update`, or kernel= in .wslconfig"
            }
            System::Pod | System::Container => {
                "a container uses the kernel of its host: run fullpipe on the host"
            }
        }
    }

    /// Whether its files come from a configuration of the system or the machine.
    pub fn is_declared(self) -> bool {
        matches!(self, System::NixOs | System::Guix | System::Talos | System::Flatcar | System::Unraid)
    }

    /// Where settings are kept on this system, and what to put there, if not in /etc/sysctl.d.
    pub fn snippet(self, controller: &str, qdisc: Option<&str>) -> Option<Snippet> {
        let key = "net.ipv4.tcp_congestion_control";
        let qdisc_key = "net.core.default_qdisc";
        // Its settings, each in a form of the system's.
        let lines = |form: &dyn Fn(&str, &str) -> String| {
            let qdisc = qdisc.map(|kind| form(qdisc_key, kind));
            let all: Vec<String> = qdisc.into_iter().chain([form(key, controller)]).collect();
            all.join("\n")
        };
        let (place, text, then) = match self {
            System::NixOs => (
                "/etc/nixos/configuration.nix",
                lines(&|key, value| format!("boot.kernel.sysctl.\"{key}\" = \"{value}\";")),
                "run `nixos-rebuild switch`",
            ),
            System::Guix => (
                "the services of the operating-system declaration",
                format!(
                    "(modify-services %base-services\n  (sysctl-service-type config =>\n    \
                     (sysctl-configuration (inherit config)\n      (settings (append '({}) \
                     %default-sysctl-settings)))))",
                    lines(&|key, value| format!("(\"{key}\" . \"{value}\")")).replace('\n', " ")
                ),
                "run `guix system reconfigure`",
            ),
            System::Talos => (
                "the machine configuration",
                format!("machine:\n  sysctls:\n{}", lines(&|key, value| format!("    {key}: \"{value}\""))),
                "run `talosctl apply-config`",
            ),
            System::Flatcar => {
                let path = format!("/etc/sysctl.d/99-zz-{controller}.conf");
                let file = format!("    - path: {path}\n      contents:\n        inline: |");
                let settings = lines(&|key, value| format!("          {key} = {value}"));
                let text = format!("storage:\n  files:\n{file}\n{settings}");
                (
                    "the Butane configuration of the machine",
                    text,
                    "provision the machine from it with `butane` and Ignition",
                )
            }
            System::Unraid => (
                "/boot/config/go",
                lines(&|key, value| format!("sysctl -w {key}={value}")),
                "restart the machine",
            ),
            System::Wsl => (
                "/etc/wsl.conf",
                format!(
                    "[boot]\ncommand = {}",
                    lines(&|key, value| format!("sysctl -w {key}={value}")).replace('\n', "; ")
                ),
                "run `wsl --shutdown`",
            ),
            System::Pod => (
                "a DaemonSet of the cluster",
                daemon_set(controller, qdisc),
                "create it with `kubectl apply -f`",
            ),
            System::Container => (
                "the command line that starts the container",
                format!("--sysctl {key}={controller}"),
                "restart the container",
            ),
            System::Ostree | System::OpenWrt | System::Proxmox => return None,
        };
        Some(Snippet { place, text, then })
    }
}

/// Settings in the form of a system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snippet {
    /// The file, or where it is.
    pub place: &'static str,
    /// The text to paste.
    pub text: String,
    /// How to apply it, as an imperative.
    pub then: &'static str,
}

impl Snippet {
    /// In several lines, to print.
    pub fn describe(&self) -> String {
        let indented: Vec<String> = self.text.lines().map(|line| format!("    {line}")).collect();
        format!("add this to {}, then {}:\n{}", self.place, self.then, indented.join("\n"))
    }
}

fn daemon_set(controller: &str, qdisc: Option<&str>) -> String {
    const BEGIN: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: congestion-control
  namespace: kube-system
spec:
  selector:
    matchLabels: {app: congestion-control}
  template:
    metadata:
      labels: {app: congestion-control}
    spec:
      hostNetwork: true
      initContainers:
        - name: sysctl
          image: busybox
          securityContext: {privileged: true}
          command:
            - sysctl
            - -w
";
    const END: &str = "      containers:
        - name: pause
          image: registry.k8s.io/pause:3.10";
    let qdisc =
        qdisc.map(|kind| format!("            - net.core.default_qdisc={kind}\n")).unwrap_or_default();
    format!("{BEGIN}{qdisc}            - net.ipv4.tcp_congestion_control={controller}\n{END}")
}
