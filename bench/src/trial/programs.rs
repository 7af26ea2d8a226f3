//! The programs that are measured.

use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `mpxdp-bench`.
    pub bench: PathBuf,
    /// `mpxdp`, if it is there.
    pub mpxdp: Option<PathBuf>,
}

impl Programs {
    /// This executable, and `mpxdp` in the same folder.
    ///
    /// # Errors
    ///
    /// If the system does not tell where this executable is.
    pub fn find() -> Result<Self> {
        let bench = std::env::current_exe().context(|| "cannot find this executable")?;
        let mpxdp = bench.with_file_name("mpxdp");
        let mpxdp = mpxdp.is_file().then_some(mpxdp);
        Ok(Self { bench, mpxdp })
    }

    /// Where `mpxdp` is.
    ///
    /// # Errors
    ///
    /// If it is not there, with how to build it.
    pub fn mpxdp(&self) -> Result<&Path> {
        self.mpxdp.as_deref().ok_or_else(|| {
            let folder = self.bench.parent().unwrap_or_else(|| Path::new("."));
            Error::Missing(format!(
                "no `mpxdp` in {}: build it with `cargo build --release -p mpxdp-control`",
                folder.display()
            ))
        })
    }
}
