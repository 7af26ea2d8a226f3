//! Debian packages, unpacked and not installed. The host's apt keeps its sources, lists and packages
//! as they are: everything here has lists of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::tool;
use crate::error::{Context, Error, Result};

/// Lists are read again after so long.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// Host settings that have no place here: what they have apt run after an update, and indexes that
/// nobody reads.
const CONFIGURATION: &str = r#"
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi;
#clear Dir::Cache::pkgcache;
#clear Dir::Cache::srcpkgcache;
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "root";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
"#;

/// The packages of one Debian release.
#[derive(Debug)]
pub(super) struct Suite {
    name: &'static str,
    folder: PathBuf,
    configuration: PathBuf,
}

impl Suite {
    /// The release of that name, from the mirror that the host uses; `cache` keeps its lists and
    /// packages.
    pub(super) fn open(cache: &Path, name: &'static str) -> Result<Self> {
        let Some(source) = Source::of_this_host() else {
            return Err(Error::Missing(
                "no Debian mirror in this machine's apt sources to get packages from".to_owned(),
            ));
        };
        let folder = cache.join("apt").join(name);
        for part in ["lists/partial", "archives/partial", "packages"] {
            fs::create_dir_all(folder.join(part))
                .context(|| format!("cannot make {}", folder.display()))?;
        }
        let list = folder.join("sources.list");
        let signed = source.signed_by.map(|key| format!("[signed-by={key}] ")).unwrap_or_default();
        let text = format!("deb {signed}{} {name} main\n", source.uri);
        let known = fs::read_to_string(&list).is_ok_and(|known| known == text);
        if !known {
            fs::write(&list, text).context(|| format!("cannot write {}", list.display()))?;
        }
        let configuration = folder.join("apt.conf");
        let at = folder.display();
        let places = format!(
            "Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
             Dir::State::lists \"{at}/lists\";\nDir::State::status \"/dev/null\";\n\
             Dir::Cache \"{at}\";\n"
        );
        fs::write(&configuration, format!("{CONFIGURATION}{places}"))
            .context(|| format!("cannot write {}", configuration.display()))?;
        let suite = Self { name, folder, configuration };
        if !known || suite.is_stale() {
            // Without a network the lists of last time, if there are any, are better than nothing.
            let updated = suite.update();
            if !known {
                updated?;
            }
        }
        Ok(suite)
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("updated")
    }

    fn is_stale(&self) -> bool {
        let updated = fs::metadata(self.stamp()).and_then(|stamp| stamp.modified());
        let age = updated.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        age.is_none_or(|age| age > STALE)
    }

    fn update(&self) -> Result<()> {
        tool::run(self.apt("apt-get").args(["-qq", "update"])).map_err(|error| {
            Error::Missing(format!("the package list of {} cannot be had: {error}", self.name))
        })?;
        fs::write(self.stamp(), "").context(|| "cannot write a time stamp".to_owned())
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.configuration);
        command
    }

    /// The packages that `package` stands for: itself or, if it only depends on others, those that
    /// `wanted` is true for. With their versions.
    pub(super) fn resolve(
        &self,
        package: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, String)>> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut left = vec![package.to_owned()];
        while let Some(name) = left.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let shown = tool::run(self.apt("apt-cache").args(["show", "--no-all-versions", &name]))
                .map_err(|_| Error::Missing(format!("{} has no package {name}", self.name)))?;
            let field = |key: &str| {
                shown.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
            };
            let depends = field("Depends").unwrap_or_default().split(',');
            let names = depends.filter_map(|one| one.split_whitespace().next());
            left.extend(names.filter(|name| wanted(name)).map(str::to_owned));
            let version = field("Version").unwrap_or_default();
            found.push((name, version.to_owned()));
        }
        found.sort();
        Ok(found)
    }

    /// Unpacks packages into one folder, after getting them if need be.
    pub(super) fn unpack(&self, packages: &[(String, String)]) -> Result<PathBuf> {
        let (name, version) = packages.first().ok_or_else(|| Error::failed("no packages"))?;
        let root = self.folder.join("packages").join(format!("{name}_{version}"));
        if root.is_dir() {
            return Ok(root);
        }
        let archives = self.folder.join("archives");
        let named = packages.iter().map(|(name, version)| format!("{name}={version}"));
        eprintln!("vm-test: getting {} of Debian {}", list(packages), self.name);
        tool::run(self.apt("apt-get").args(["-qq", "download"]).args(named).current_dir(&archives))
            .map_err(|error| {
                Error::Missing(format!("{} cannot be had: {error}", list(packages)))
            })?;
        let partial = root.with_extension("partial");
        let _ = fs::remove_dir_all(&partial);
        for entry in fs::read_dir(&archives).context(|| "cannot list packages".to_owned())? {
            let path = entry.context(|| "cannot list packages".to_owned())?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                tool::run(Command::new("dpkg").arg("-x").arg(&path).arg(&partial))?;
                fs::remove_file(&path).context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        fs::rename(&partial, &root).context(|| format!("cannot make {}", root.display()))?;
        Ok(root)
    }
}

fn list(packages: &[(String, String)]) -> String {
    packages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Where the host gets its packages.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    signed_by: Option<String>,
}

impl Source {
    /// Of the host's apt sources, the first that has a Debian archive with a `main` component.
    fn of_this_host() -> Option<Self> {
        let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
        let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
        files.extend(parts.map(|entry| entry.path()));
        files.sort();
        files.iter().find_map(|file| {
            let text = fs::read_to_string(file).ok()?;
            match file.extension()?.to_str()? {
                "list" => text.lines().find_map(Self::one_line),
                "sources" => text.split("\n\n").find_map(Self::stanza),
                _ => None,
            }
        })
    }

    /// Security updates and other distributions live elsewhere.
    fn is_debian(uri: &str, components: &[&str]) -> bool {
        uri.trim_end_matches('/').ends_with("/debian") && components.contains(&"main")
    }

    /// A line like `deb [options] URI SUITE COMPONENT...`.
    fn one_line(line: &str) -> Option<Self> {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let words: Vec<_> = rest.split_whitespace().collect();
        let (uri, components) = (*words.first()?, words.get(2..)?);
        let key = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Self::is_debian(uri, components).then(|| Self::new(uri, key))
    }

    /// A paragraph of fields.
    fn stanza(text: &str) -> Option<Self> {
        let field = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
        };
        let components: Vec<_> = field("Components")?.split_whitespace().collect();
        let binary = field("Types")?.split_whitespace().any(|kind| kind == "deb");
        let enabled = field("Enabled") != Some("no");
        let mut uris = field("URIs")?.split_whitespace();
        let uri = uris.find(|uri| Self::is_debian(uri, &components))?;
        (binary && enabled).then(|| Self::new(uri, field("Signed-By")))
    }

    fn new(uri: &str, key: Option<&str>) -> Self {
        // A key that is written out in the sources instead of named is not worth the trouble.
        let own = key.filter(|key| key.starts_with('/'));
        let usual = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let usual = Path::new(usual).exists().then_some(usual);
        Self { uri: uri.to_owned(), signed_by: own.or(usual).map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "/usr/share/keyrings/some-key.gpg";

    fn source(uri: &str) -> Option<Source> {
        Some(Source { uri: uri.to_owned(), signed_by: Some(KEY.to_owned()) })
    }

    #[test]
    fn both_forms_of_sources_are_read() {
        let line = format!("deb [arch=amd64 signed-by={KEY}] http://a.example/debian x main extra");
        assert_eq!(Source::one_line(&line), source("http://a.example/debian"));
        let stanza = format!(
            "Types: deb deb-src\n# a comment: with a colon\nURIs: http://b.example/debian/\n\
             Suites: x x-updates\nComponents: main\nSigned-By: {KEY}\n"
        );
        assert_eq!(Source::stanza(&stanza), source("http://b.example/debian/"));
    }

    #[test]
    fn other_sources_are_passed_over() {
        for line in [
            "deb http://a.example/debian-security x main",
            "deb-src http://a.example/debian x main",
            "deb http://a.example/debian x contrib",
            "# deb http://a.example/debian x main",
            "deb http://a.example/debian",
            "",
        ] {
            assert_eq!(Source::one_line(line), None, "{line}");
        }
        let fields = "Types: deb\nURIs: http://a.example/debian\nSuites: x\nComponents: main";
        assert!(Source::stanza(fields).is_some());
        assert_eq!(Source::stanza(&format!("{fields}\nEnabled: no")), None);
        assert_eq!(Source::stanza(&fields.replace("main", "contrib")), None);
        assert_eq!(Source::stanza(&fields.replace("deb\n", "deb-src\n")), None);
    }
}
