//! A kernel: its image and its modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Suite;
use super::tool;
use crate::error::{Context, Error, Result};
use crate::plan::{Kernel, Nic};

/// What every guest loads beside its NIC's driver, if the kernel has it as a module.
const MODULES: [&str; 9] = [
    "virtio_pci",
    "8021q",
    "sch_netem",
    "veth",
    "dummy",
    "xsk_diag",
    "mptcp_diag",
    "inet_diag",
    "tcp_diag",
];

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Image {
    /// What qemu boots.
    pub(super) vmlinuz: PathBuf,
    /// Its release, as `uname -r` says it.
    pub(super) release: String,
    /// Modules by name.
    modules: BTreeMap<String, PathBuf>,
}

impl Image {
    /// Gets the kernel that a guest with such a NIC needs.
    pub(super) fn get(cache: &Path, kernel: Kernel, nic: Nic) -> Result<Self> {
        let suite = Suite::open(cache, kernel.suite())?;
        let cloud = if nic.in_cloud_kernel() { "cloud-" } else { "" };
        let meta = format!("linux-image-{cloud}amd64");
        // Newer releases split the image into packages that it depends on.
        let wanted = |name: &str| {
            ["linux-image-", "linux-binary-", "linux-modules-"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        };
        let mut packages = suite.resolve(&meta, wanted)?;
        packages.retain(|(name, _)| *name != meta);
        Self::open(&suite.unpack(&packages)?)
    }

    fn open(root: &Path) -> Result<Self> {
        let bases = [root.join("usr/lib/modules"), root.join("lib/modules")];
        let folder = bases
            .iter()
            .find_map(|base| fs::read_dir(base).ok()?.next()?.ok())
            .ok_or_else(|| Error::failed(format!("no modules in {}", root.display())))?;
        let release = folder.file_name().to_string_lossy().into_owned();
        let images = [root.join(format!("boot/vmlinuz-{release}")), folder.path().join("vmlinuz")];
        let vmlinuz = images
            .into_iter()
            .find(|image| image.exists())
            .ok_or_else(|| Error::failed(format!("no kernel in {}", root.display())))?;
        let mut modules = BTreeMap::new();
        collect(&folder.path(), &mut modules).context(|| format!("modules of {release}"))?;
        Ok(Self { vmlinuz, release, modules })
    }

    /// The modules of a guest with such a NIC, ready to load and in an order in which they can be.
    pub(super) fn modules(&self, nic: Nic) -> Result<Vec<(String, Vec<u8>)>> {
        let mut loaded = Vec::new();
        let mut seen = BTreeSet::new();
        for name in std::iter::once(nic.driver()).chain(MODULES) {
            self.load(name, &mut seen, &mut loaded)?;
        }
        Ok(loaded)
    }

    /// Adds a module after those that it needs. One that is not there is built in, or what needs it
    /// says so.
    fn load(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        loaded: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<()> {
        let Some(path) = self.modules.get(name) else { return Ok(()) };
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let unpack = match path.extension().and_then(|extension| extension.to_str()) {
            Some("xz") => Some("xz"),
            Some("zst") => Some("zstd"),
            _ => None,
        };
        let module = match unpack {
            Some(tool) => tool::bytes(Command::new(tool).arg("-dc").arg(path))?,
            None => fs::read(path).context(|| format!("cannot read {}", path.display()))?,
        };
        for needed in dependencies(&module) {
            self.load(&needed, seen, loaded)?;
        }
        loaded.push((name.to_owned(), module));
        Ok(())
    }
}

/// Finds modules; their names have `_` where the files may have `-`.
fn collect(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), modules)?;
        } else if let Some(name) = entry.file_name().to_str()
            && let Some((name, "ko" | "ko.xz" | "ko.zst")) = name.split_once('.')
        {
            modules.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// What a module says it needs: `depends=a,b` in its section of texts that end in zeros.
fn dependencies(module: &[u8]) -> Vec<String> {
    let needs = module
        .split(|&byte| byte == 0)
        .find_map(|text| std::str::from_utf8(text.strip_prefix(b"depends=")?).ok());
    let names = needs.unwrap_or_default().split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        assert_eq!(dependencies(b"\x7fELF\0license=GPL\0depends=a,b-c\0x"), ["a", "b_c"]);
        assert!(dependencies(b"depends=\0retpoline=Y\0").is_empty());
        assert!(dependencies(b"nothing").is_empty());
    }
}
